"""The offset of the source moves only over batch numbers without a gap. Finding new batches costs
the same, however many old batches there are.
"""

import logging
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import OncewayError
from gateway.ingest.landing import offsets as feeds_module
from gateway.ingest.landing.batch import flaw
from gateway.ingest.landing.offsets import SHOWN, Feeds
from gateway.ingest.landing.place import Landing, boundary
from gateway.uplink.manifest import cleaned_json
from tests.ingest.batches import EPOCH, land, row

A, B, C = (f"{gateway}/{EPOCH}" for gateway in "abc")
ALL = 10**9


def put(tmp_path: Path, gateway: str, *numbers: int, rows: int = 10, epoch: str = EPOCH) -> None:
    for number in numbers:
        land(
            tmp_path,
            gateway,
            number,
            [row("dev", number * 100 + position) for position in range(rows)],
            epoch,
        )


def feeds(tmp_path: Path) -> Feeds:
    return Feeds(Landing(str(tmp_path)))


def test_the_offset_is_the_last_contiguous_number_of_each_feed(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, 2, 3)
    put(tmp_path, "b", 1, 2)
    assert feeds(tmp_path).advance({}, ALL) == {A: 3, B: 2}
    assert feeds(tmp_path).advance({A: 2}, ALL) == {A: 3, B: 2}


def test_a_new_gateway_and_a_new_epoch_appear_by_themselves(tmp_path: Path) -> None:
    put(tmp_path, "a", 1)
    state = feeds(tmp_path)
    assert state.advance({}, ALL) == {A: 1}
    put(tmp_path, "a", 1, 2, epoch="00000001")
    put(tmp_path, "b", 1)
    assert state.advance({A: 1}, ALL) == {A: 1, B: 1, "a/00000001": 2}


def test_a_missing_number_holds_its_feed_alone_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "HOLE_CHECK_SECONDS", 0.0)
    put(tmp_path, "a", 1, 2, 5, 6)
    put(tmp_path, "b", 1, 2)
    state = feeds(tmp_path)
    with caplog.at_level(logging.INFO, logger="onceway.ingest"):
        assert state.advance({}, ALL) == {A: 2, B: 2}
        assert str(state.holes[A]).startswith(
            f"{A} waits for batch 3: it is missing, and batch 5 arrived 0.0 h ago"
        )
        state.advance({A: 2, B: 2}, ALL)
        # logged once, not at each pass
        assert [record.message for record in caplog.records] == [f"held: {state.holes[A]}"]
        put(tmp_path, "a", 3, 4)
        assert state.advance({A: 2, B: 2}, ALL) == {A: 6, B: 2}
        state.advance({A: 6, B: 2}, ALL)
    assert caplog.records[-1].message == f"{A} continues: batch 3 has arrived"
    assert state.holes == {}


@pytest.mark.parametrize("file", ["000000000002.parquet", "000000000002.json"])
def test_a_damaged_batch_holds_its_feed_on_request_until_it_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(feeds_module, "HOLE_CHECK_SECONDS", 0.0)
    put(tmp_path, "a", 1, 2, 3)
    put(tmp_path, "b", 1)
    path = tmp_path / "a" / EPOCH / file
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    state = Feeds(Landing(str(tmp_path)), wait=True)
    assert state.advance({}, ALL) == {A: 1, B: 1}
    assert str(state.holes[A]).startswith(f"{A} waits for batch 2: it is damaged (")
    assert "arrived 0.0 h ago" in str(state.holes[A])
    path.write_bytes(whole)
    assert state.advance({A: 1, B: 1}, ALL) == {A: 3, B: 1}
    path.write_bytes(whole[:-9])
    # without the option, the damaged batch goes into quarantine
    assert feeds(tmp_path).advance({}, ALL) == {
        A: 3,
        B: 1,
    }


@given(st.integers(1, 40), st.integers(1, 200))
def test_a_hole_is_found_once_as_many_batches_follow_as_are_missing(
    missing: int, later: int
) -> None:
    state = Feeds.__new__(Feeds)
    # distances of existing batches from the first missing one
    present = range(missing, missing + later)
    state._landing = type("Present", (), {"has": lambda self, feed, number: number in present})()
    seen = state._behind_hole("feed", 0)
    if later >= missing:
        assert seen in present
    else:
        assert seen is None or seen in present


def test_a_gap_of_any_length_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, "a", 1, 502)
    state = feeds(tmp_path)
    assert state.advance({}, ALL) == {A: 1}
    assert f"held: {A} waits for batch 2: it is missing, and batch 502 arrived" in caplog.text


def test_few_folders_are_listed_at_each_check_and_all_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "HOLE_CHECK_SECONDS", 0.0)
    gateways = [f"g{number:02d}" for number in range(20)]
    for gateway in gateways:
        put(tmp_path, gateway, 1, rows=1)
    put(tmp_path, gateways[-1], 502, rows=1)
    listed: list[str] = []
    after = Landing.after
    monkeypatch.setattr(
        Landing,
        "after",
        lambda self, feed, number: listed.append(feed) or after(self, feed, number),
    )
    state = feeds(tmp_path)
    offset = state.advance({}, ALL)
    assert len(listed) == feeds_module.HOLE_LISTS
    for _ in range(2):
        state.advance(offset, ALL)
    assert set(listed) == {f"{gateway}/{EPOCH}" for gateway in gateways}
    assert list(state.holes) == [f"{gateways[-1]}/{EPOCH}"]


def cleaned(tmp_path: Path, gateway: str, number: int) -> None:
    (tmp_path / gateway / "cleaned.json").write_bytes(cleaned_json(gateway, {EPOCH: number}))


def test_a_feed_begins_behind_what_was_deleted_on_purpose(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "a", 502, 503)
    put(tmp_path, "b", 1)
    cleaned(tmp_path, "a", 501)
    for ceiling in (None, feeds(tmp_path).newest({})):
        assert feeds(tmp_path).advance({}, ALL, ceiling) == {A: 503, B: 1}
    assert f"{A} continues at batch 502: batches 1 to 501 were deleted" in caplog.text
    caplog.clear()
    assert Feeds(Landing(str(tmp_path)), ingested={A: 501}).advance({}, ALL) == {A: 503, B: 1}
    assert caplog.text == ""  # no batch was lost


def test_waiting_feed_continues_once_the_deletion_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "HOLE_CHECK_SECONDS", 0.0)
    put(tmp_path, "a", 1, 9)
    state = feeds(tmp_path)
    assert state.advance({}, ALL) == {A: 1}
    assert A in state.holes
    cleaned(tmp_path, "a", 8)
    offset = state.advance({A: 1}, ALL)
    assert state.advance(offset, ALL) == {A: 9}
    assert [one.number for one in state.between({A: 1}, {A: 9})] == [9]


def test_deletion_on_purpose_is_not_damage(tmp_path: Path) -> None:
    put(tmp_path, "a", 3)
    cleaned(tmp_path, "a", 1)
    found = feeds(tmp_path).between({}, {A: 3})
    assert [(one.number, one.flaw) for one in found] == [(2, "the manifest is gone"), (3, None)]


def test_batch_in_the_table_is_not_read_again_at_any_offset(tmp_path: Path) -> None:
    put(tmp_path, "a", 4, 5)
    state = Feeds(Landing(str(tmp_path)), ingested={A: 4, B: 7})
    assert state.advance({A: 2}, ALL) == {A: 5}
    assert [one.number for one in state.between({A: 2}, {A: 5})] == [5]


def test_a_micro_batch_ends_with_the_batch_that_reaches_the_row_limit(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, 2, 3, 4)
    state = feeds(tmp_path)
    assert state.advance({}, 15) == {A: 2}
    assert state.advance({A: 2}, 1) == {A: 3}


def test_a_long_backlog_does_not_keep_other_feeds_waiting(tmp_path: Path) -> None:
    put(tmp_path, "a", *range(1, 30))
    put(tmp_path, "b", 1)
    state = feeds(tmp_path)
    offset = state.advance({}, 10)
    assert B in state.advance(offset, 10)


def test_a_ceiling_is_never_passed_and_reached(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, 2, 3)
    state = feeds(tmp_path)
    ceiling = state.newest({})
    put(tmp_path, "a", 4, 5)
    put(tmp_path, "b", 1)
    assert state.advance({}, ALL, ceiling) == {A: 3}


def test_manifests_between_two_offsets_and_one_that_is_gone(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, 2, 3)
    state = feeds(tmp_path)
    (tmp_path / "a" / EPOCH / "000000000002.json").unlink()
    found = state.between({A: 1}, {A: 3})
    assert [(announced.number, announced.flaw) for announced in found] == [
        (2, "the manifest is gone"),
        (3, None),
    ]


def test_foreign_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    put(tmp_path, "a", 1)
    put(tmp_path, "not-an-epoch", 1, epoch="backup")
    for name in (".incoming", "_tmp"):
        put(tmp_path, name, 1)
    (tmp_path / "README.txt").write_text("hello")
    (tmp_path / "a" / "owner.json").write_text("{}")
    (tmp_path / "a" / EPOCH / "000000000002.parquet").write_bytes(b"half a batch")
    (tmp_path / "a" / EPOCH / "000000000002.json.tmp").write_bytes(b"{}")
    assert feeds(tmp_path).advance({}, ALL) == {A: 1}


def test_folders_and_links_where_files_should_be_hold_no_other_gateway(tmp_path: Path) -> None:
    """The name of a foreign folder may be invalid UTF-8, which neither Spark nor the tables can
    store.
    """
    for gateway in ("a", "b", "c"):
        put(tmp_path, gateway, 1)
    manifest, data = (
        tmp_path / gateway / EPOCH / f"000000000001.{kind}"
        for gateway, kind in (("a", "json"), ("b", "parquet"))
    )
    for path in (manifest, data):
        path.unlink()
    manifest.symlink_to(manifest)
    data.mkdir()
    foreign = os.fsencode(tmp_path) + b"/\xff/" + EPOCH.encode()
    os.makedirs(foreign)
    Path(os.fsdecode(foreign), "000000000001.json").write_bytes(b"{}")
    source = feeds(tmp_path)
    offset = source.advance({}, ALL)
    assert offset == {A: 1, B: 1, C: 1}
    assert {one.feed: flaw(Landing(str(tmp_path)), one) for one in source.between({}, offset)} == {
        A: "unreadable manifest: Too many levels of symbolic links",
        B: "the Parquet file cannot be read: Is a directory",
        C: None,
    }


@pytest.mark.parametrize(
    ("file", "landed"),
    [
        (f"site/{EPOCH}/000000000001.parquet", False),
        (f"site/{EPOCH}/000000000301.json", True),
        ("site/cleaned.json", True),
        ("site/notes.txt", False),
    ],
)
def test_a_gateway_has_landed_something_when_a_manifest_is_or_was_there(
    tmp_path: Path, file: str, landed: bool
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(cleaned_json("site", {EPOCH: 300}))
    assert Landing(str(tmp_path)).any_feed() is landed


def test_an_empty_landing_place(tmp_path: Path) -> None:
    assert feeds(tmp_path).advance({}, ALL) == {}


def test_a_landing_place_that_is_gone_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    put(tmp_path, "a", 1)
    state = feeds(tmp_path)
    shutil.rmtree(tmp_path)
    with pytest.raises(OSError, match="No such file"):
        state.advance({A: 1}, ALL)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_galloping_finds_the_boundary_in_few_look_ups(known: int, more: int) -> None:
    asked = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number <= known + more

    assert boundary(holds, known) == known + more
    assert len(asked) <= 2 * (more + 1).bit_length() + 2


def test_a_pass_without_news_costs_one_look_up_per_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", *range(1, 40))
    put(tmp_path, "b", *range(1, 40))
    state = feeds(tmp_path)
    offset = state.advance({}, ALL)
    asked = []
    manifest = Landing.manifest
    monkeypatch.setattr(
        Landing,
        "manifest",
        lambda self, feed, number: asked.append((feed, number)) or manifest(self, feed, number),
    )
    assert state.advance(offset, ALL) == offset
    assert asked == [(A, 40), (B, 40)]


def test_many_unreadable_folders_fill_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"bad-{number}" for number in range(SHOWN + 3)]
    for name in (*names, "good"):
        put(tmp_path, name, 1)
    known = Landing.feeds

    def closed(self: Landing, gateway: str) -> list[str]:
        if gateway in names:
            raise PermissionError(13, "Permission denied", gateway)
        return known(self, gateway)

    monkeypatch.setattr(Landing, "feeds", closed)
    state = feeds(tmp_path)
    for _ in range(2):
        assert state.advance({}, ALL) == {f"good/{EPOCH}": 1}
    assert len(caplog.messages) == SHOWN + 1
    assert caplog.messages[-1].startswith("held: 3 more folders cannot be read; ")
    assert state.unreadable.keys() == {*names}


def test_a_url_that_no_file_system_knows_is_refused() -> None:
    with pytest.raises(OncewayError, match="nosuch://landing: this landing URL cannot be used"):
        Landing("nosuch://landing")


def test_folders_that_are_deleted_after_they_were_listed_are_empty(tmp_path: Path) -> None:
    put(tmp_path, "a", 1)
    landing = Landing(str(tmp_path))
    assert landing.feeds("b") == []
    assert landing.old_until(B, 5, 1e12) == 0
    assert landing.delete(B, 5) == 0
    assert landing.feeds("a") == [A]
