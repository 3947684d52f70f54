"""Files that cannot be read, at each kind of landing place. Their feed is held and named, and all
other feeds continue.
"""

import errno
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from s3fs import S3FileSystem

from gateway.ingest import busy
from gateway.ingest.jobs.source import BatchList, read_batches
from gateway.ingest.landing import place as place_module
from gateway.ingest.landing.keys import Keys, keys_url, save
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import UNREADABLE, Announced, Landing
from gateway.ingest.report import metrics, report
from gateway.uplink.manifest import cleaned_json
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.landing.closed_places import (
    CUT,
    LocalPlace,
    Place,
    RaisingPlace,
    S3Place,
    SftpPlace,
    open_folder,
    sftp_for_nobody,
)
from tests.uplink.servers import S3Server, SftpServer, s3_server

ALL = 10**9
BAD, GOOD = f"bad/{EPOCH}", {f"a/{EPOCH}": 3, f"z/{EPOCH}": 3}

ERRORS: dict[str, Callable[[], Exception]] = {
    "refused": partial(PermissionError, errno.EACCES, "refused"),
    "bad disk": partial(OSError, errno.EIO, "bad disk"),
    "stale": partial(OSError, errno.ESTALE, "stale"),
    "in time": partial(TimeoutError, "no answer in time"),
    "reset": partial(ConnectionResetError, "reset"),
    "busy": partial(OSError, errno.EBUSY, "busy"),
    "odd": partial(RuntimeError, "odd"),
    "key": partial(KeyError, "key"),
    "value": partial(ValueError, "value"),
}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_module, "PAUSES", (0.01, None))
    monkeypatch.setattr(busy, "PAUSES_S", (0.001,))


@pytest.fixture(scope="module")
def sftp() -> Iterator[SftpServer]:
    with sftp_for_nobody() as server:
        yield server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("weed")) as server:
        yield server


def with_options(patch: pytest.MonkeyPatch, protocol: str, options: dict[str, Any]) -> None:
    patch.setitem(fsspec.config.conf, protocol, options)


@pytest.fixture(
    params=["file", "sftp", "s3", *ERRORS],
)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """Yield a landing place with three batches of each of three gateways."""
    kind = request.param
    batches = tmp_path / "batches"
    for gateway in ("a", "bad", "z"):
        for number in (1, 2, 3):
            land(batches, gateway, number, [row(gateway, number)])
    if kind == "file":
        with open_folder() as folder:
            found: Place = LocalPlace(folder / "landing", str(folder / "landing"))
            found.put(batches)
            yield found
    elif kind == "sftp":
        server = request.getfixturevalue("sftp")
        with_options(monkeypatch, "sftp", server.options)
        with open_folder() as folder:
            url = server.url().removesuffix(f"{server.root}/landing")
            found = SftpPlace(folder / "landing", f"{url}{folder}/landing")
            found.put(batches)
            yield found
    elif kind == "s3":
        found = S3Place(request.getfixturevalue("s3"), tmp_path.name)
        with_options(monkeypatch, "s3", found.options)
        found.put(batches)
        yield found
        found.shut()
    else:
        found = RaisingPlace(ERRORS[kind])
        found.put(batches)
        yield found


def read(landing: Landing, feeds: Feeds, offset: dict[str, int]) -> dict[str, list[Any]]:
    """Return the sequences that were read, and the flaws of batches, by gateway."""
    found: dict[str, list[Any]] = {}
    for chunk in read_batches(landing, BatchList(0, feeds.between({}, offset))):
        for one in chunk.to_pylist():
            found.setdefault(one["gateway"], []).append(one["flaw"] or one["sequence"])
    return found


MANIFESTS = ["bad", f"bad/{EPOCH}", f"bad/{EPOCH}/*.json", f"bad/{EPOCH}/000000000001.json"]


@pytest.mark.few(16)
@pytest.mark.parametrize("closed", MANIFESTS)
def test_a_feed_that_cannot_be_read_is_held_by_name_and_others_go_on(
    place: Place, closed: str, caplog: pytest.LogCaptureFixture
) -> None:
    if "*" in closed and not isinstance(place, LocalPlace):
        pytest.skip("the same there as the folder")
    caplog.set_level(logging.INFO, "onceway.ingest")
    with place.reader():
        landing = Landing(place.url)
        state = Feeds(landing)
    place.close(closed)
    with place.reader():
        assert state.advance({}, ALL) == GOOD
        held = [one for one in caplog.messages if one.startswith("held: bad")]
        assert held
        assert "cannot be read" in held[0]
        assert state.advance(GOOD, ALL) == GOOD
        assert [one for one in caplog.messages if one.startswith("held: bad")] == held
        one_pass = Feeds(landing)
        assert one_pass.advance({}, ALL, one_pass.newest({})) == GOOD
        assert read(landing, one_pass, GOOD) == {"a": [1, 2, 3], "z": [1, 2, 3]}
        assert any(name.startswith("bad") for name in one_pass.unreadable)
        assert landing.any_feed()
    place.mend()
    with place.reader():
        assert state.advance(GOOD, ALL) == GOOD | {BAD: 3}
    assert any("bad" in one and one.endswith("can be read again") for one in caplog.messages)
    assert state.unreadable == {}


@pytest.mark.few(8)
@pytest.mark.parametrize("closed", ["bad", f"bad/{EPOCH}/000000000003.json"])
def test_a_feed_that_can_be_read_no_longer_is_held_where_it_is(place: Place, closed: str) -> None:
    """The feed stays at its offset. If Spark has already planned to read a later batch, that batch
    counts as unreadable.
    """
    with place.reader():
        landing = Landing(place.url)
        state = Feeds(landing)
        offset = state.advance({}, 6)
    before = GOOD | {BAD: 2}
    place.close(closed)
    with place.reader():
        assert Feeds(landing).advance(before, ALL) == before
        planned = Feeds(landing).between(before, GOOD | {BAD: 3})
    assert offset
    (one,) = planned
    assert (one.feed, one.number) == (BAD, 3)
    assert str(one.flaw).startswith(UNREADABLE)


@pytest.mark.few(8)
@pytest.mark.parametrize("what", ["data", "all data"])
def test_data_that_cannot_be_read_are_named_and_tried_again(place: Place, what: str) -> None:
    number = "000000000002" if what == "data" else "*"
    if number == "*" and not isinstance(place, LocalPlace):
        pytest.skip("by a pattern only in folders")
    place.close(f"bad/{EPOCH}/{number}.parquet")
    with place.reader():
        landing = Landing(place.url)
        state = Feeds(landing)
        offset = state.advance({}, ALL)
        assert offset == GOOD | {BAD: 3}
        found = read(landing, state, offset)
        assert (found["a"], found["z"]) == ([1, 2, 3], [1, 2, 3])
        reasons = [one for one in found["bad"] if isinstance(one, str)]
        assert len(reasons) == (1 if what == "data" else 3)
        assert all(one.startswith(UNREADABLE) for one in reasons)
        waiting = Feeds(landing, wait=True)
        first = 1 if what == "data" else 0
        assert waiting.advance({}, ALL) == GOOD | ({BAD: first} if first else {})
        assert BAD in waiting.unreadable


def test_an_unreadable_note_of_what_was_cleaned_holds_its_feed_alone(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.write("bad/cleaned.json", cleaned_json("bad", {"ffffffff": 9}))
    gap = [f"bad/ffffffff/{10:012d}.json", f"bad/ffffffff/{10:012d}.parquet"]
    if isinstance(place, LocalPlace):
        (place._root / "bad" / "ffffffff").mkdir()
    for name in gap:
        place.write(name, b"{}")
    place.close("bad/cleaned.json")
    with place.reader():
        landing = Landing(place.url)
        state = Feeds(landing)
        assert state.advance({}, ALL) == GOOD | {BAD: 3}
        assert "bad/ffffffff" in state.unreadable
        assert state.advance(GOOD | {BAD: 3}, ALL) == GOOD | {BAD: 3}
        one_pass = Feeds(landing)
        assert one_pass.advance({}, ALL, one_pass.newest({})) == GOOD | {BAD: 3}
        gone = one_pass.between({"bad/ffffffff": 4}, {"bad/ffffffff": 5})
        assert [str(one.flaw).split(":")[0] for one in gone] == [UNREADABLE]
    place.mend()
    with place.reader():
        again = Feeds(landing)
        assert again.advance({}, ALL) == GOOD | {BAD: 3, "bad/ffffffff": 10}


@pytest.mark.few(12)
@pytest.mark.parametrize("empty", ["manifest", "data", "cleaned"])
def test_an_empty_file_stops_no_feed(place: Place, empty: str) -> None:
    name = {
        "manifest": f"{BAD}/000000000002.json",
        "data": f"{BAD}/000000000002.parquet",
        "cleaned": "bad/cleaned.json",
    }[empty]
    place.write(name, b"")
    if isinstance(place, LocalPlace):
        (place._root / name).chmod(0o644)
    with place.reader():
        landing = Landing(place.url)
        state = Feeds(landing)
        offset = state.advance({}, ALL)
        assert offset == GOOD | {BAD: 3}
        found = read(landing, state, offset)
        assert (found["a"], found["z"]) == ([1, 2, 3], [1, 2, 3])
        reasons = [one for one in found["bad"] if isinstance(one, str)]
        assert landing.cleaned(BAD) == 0
    assert [one for one in found["bad"] if one not in reasons] == (
        [1, 2, 3] if empty == "cleaned" else [1, 3]
    )
    assert len(reasons) == (empty != "cleaned")
    # damage, which does not end by itself
    assert not any(one.startswith(UNREADABLE) for one in reasons)


def test_damaged_markers_lose_no_batch(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    if isinstance(place, LocalPlace):
        (place._root / "_newest").mkdir()
    place.write(f"_newest/a.{EPOCH}.{3:012d}", b"")
    place.close("_newest")
    with place.reader():
        landing = Landing(place.url)
        state = Feeds(landing)
        for _ in range(2):
            assert state.advance({}, ALL) == GOOD | {BAD: 3}
        assert state.unreadable == {}
    said = [one for one in caplog.messages if "markers" in one]
    assert len(said) == (0 if landing.local else 1)


def test_a_place_that_is_down_as_a_whole_is_no_trouble_of_one_feed(place: Place) -> None:
    if isinstance(place, LocalPlace):
        pytest.skip("test_places cuts real connections")
    landing = Landing(place.url)
    state = Feeds(landing)
    state.advance({}, ALL)
    place.close("")
    with pytest.raises(OSError, match=r"."):
        state.advance(GOOD, ALL)
    batches = BatchList(0, [Announced(feed, 1, 1, 1, "0" * 64) for feed in GOOD])
    with pytest.raises(OSError, match=r"."):  # the batches do not go into quarantine
        list(read_batches(landing, batches))


def test_a_busy_store_holds_a_feed_only_until_it_answers(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 first answers 503 to all requests for one gateway's prefix. Later, it answers 503 to
    requests for the data of a batch.
    """
    place = S3Place(s3, "busy")
    with_options(monkeypatch, "s3", place.options)
    for gateway in ("a", "bad"):
        land(tmp_path, gateway, 1, [row(gateway, 1)])
    place.put(tmp_path)
    landing = Landing(place.url)
    state = Feeds(landing)
    good = {f"a/{EPOCH}": 1}
    place.close("bad/", 503)
    assert state.advance({}, ALL) == good
    assert "SlowDown" in str(state.unreadable["bad"])
    place.mend()
    assert state.advance(good, ALL) == good | {BAD: 1}
    place.close(f"{BAD}/000000000001.parquet", 503)
    (found,) = read(landing, state, good | {BAD: 1})["bad"]
    assert found.startswith(f"{UNREADABLE}: ")
    assert "SlowDown" in found
    place.shut()


PASSING = list(product(("manifest", "data", "cleaned"), (CUT, 408, 429, 500, 502, 503, 504)))
"""Each file of a batch, with each temporary error of S3. `make test` tries a third of the cases,
which include each file and each error. `make soak` tries all.
"""


@pytest.mark.parametrize(
    ("what", "status"),
    [
        pytest.param(*case, marks=[pytest.mark.soak] if number % 3 else [])
        for number, case in enumerate(PASSING)
    ],
)
def test_an_error_of_s3_that_passes_puts_nothing_into_quarantine(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, status: int
) -> None:
    """The first four requests for one object fail. All other requests succeed."""
    place = S3Place(s3, f"passes-{what}-{status}")
    monkeypatch.setattr(place_module, "PAUSES", (0.01, 0.01, None))
    monkeypatch.setattr(S3FileSystem, "retries", 1)  # retries of s3fs would hide some of the errors
    with_options(monkeypatch, "s3", place.options)
    for number in (1, 2):
        land(tmp_path, "bad", number, [row("bad", number)])
    place.put(tmp_path)
    place.write("bad/cleaned.json", cleaned_json("bad", {EPOCH: 1}))
    landing = Landing(place.url)
    landing.refuse_outage(OSError("it answers"))
    name = {
        "manifest": f"{BAD}/000000000001.json",
        "data": f"{BAD}/000000000001.parquet",
        "cleaned": "bad/cleaned.json",
    }[what]
    state, offset = Feeds(landing), dict[str, int]()
    place.fail(name, status, 4)
    for _ in range(10):
        if what == "cleaned":
            with suppress(OSError):
                landing.cleaned_epochs("bad")
        offset = state.advance(offset, ALL)
    assert offset == {BAD: 2}
    if what == "data":
        place.fail(name, status, 3)
    assert read(landing, state, offset) == {"bad": [1, 2]}
    assert landing.cleaned(BAD) == 1
    assert place.failing[2] == 0, "it has failed"
    place.shut()


def table(tmp_path: Path, feeds: dict[str, int]) -> str:
    """Make a table, without Spark, that has taken each feed up to a batch number."""
    path = str(tmp_path / "lake")
    rows = {
        "gateway": [feed.partition("/")[0] for feed in feeds],
        "epoch": [EPOCH] * len(feeds),
        "batch": list(feeds.values()),
    }
    note = {"onceway": {"micro_batch": 0, "feeds": feeds, "all": True}}
    write_deltalake(
        path,
        pa.table(rows),
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps(note)}),
    )
    save(keys_url(path), Keys(unsigned=True))
    return path


@pytest.mark.few(32)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "closed", ["bad", f"bad/{EPOCH}", f"bad/{EPOCH}/*.json", f"bad/{EPOCH}/000000000002.json"]
)
def test_the_report_names_what_cannot_be_read(
    place: Place, closed: str, known: bool, tmp_path: Path
) -> None:
    """known: whether the table has rows of the gateway with unreadable files."""
    if "*" in closed and not isinstance(place, LocalPlace):
        pytest.skip("the same there as the folder")
    path = table(tmp_path, GOOD | ({BAD: 1} if known else {}))
    if not known:
        closed = closed.replace("2.json", "1.json")
    landing = Landing(place.url)
    place.close(closed)
    try:
        made = report.make(landing, path) if not _local(place) else _made(place, path)
    finally:
        place.mend()
    (bad,) = (one for one in made.feeds if one.feed.startswith("bad"))
    assert bad.held is not None
    assert "bad" in bad.held
    assert "cannot be read" in bad.held
    assert not bad.is_gone
    assert made.problems(1e9)
    others = {one.feed: (one.landed, one.held) for one in made.feeds if one is not bad}
    assert others == dict.fromkeys(GOOD, (3, None))
    assert "held: bad" in report.text(made)
    assert f'onceway_ingest_feed_held{{gateway="bad",epoch="{bad.feed[4:]}"}} 1' in metrics.text(
        made, 1.0
    )


def _local(place: Place) -> bool:
    return type(place) is LocalPlace


def _made(place: Place, path: str) -> report.Report:
    """Return a report that is made without rights at the landing place, but with rights to the
    table.
    """
    with open_folder() as folder:
        shutil.copytree(path, folder / "lake")
        shutil.copy(f"{path}_trusted.json", folder / "lake_trusted.json")
        for one in folder.rglob("*"):
            one.chmod(0o755)
        with place.reader():
            return report.make(Landing(place.url), str(folder / "lake"))
