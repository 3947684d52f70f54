"""A landed batch is never replaced, whichever guarantee the landing place lacks."""

import errno
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import asyncssh
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from gateway.config import parse
from gateway.ingest.landing import place as place_of_centre
from gateway.ingest.report import report
from gateway.uplink import status
from gateway.uplink.cli import landing_settings
from gateway.uplink.landing import Claimed, Landing, NotExclusive, Unreachable, Way, open_landing
from gateway.uplink.landing import s3 as landing_s3
from gateway.uplink.owner import OwnedByAnother
from gateway.uplink.spool import Spool
from gateway.uplink.status import look
from tests.uplink.s3_lax import lax_s3
from tests.uplink.sftp_kinds import Kind, SftpOfKind, sftp_of_kind
from tests.uplink.twins import (
    clone,
    land,
    land_together,
    nothing_is_lost_or_doubled,
    published,
    spooled,
)

REFUSES = Kind()
LINKS = Kind("replaces")
NO_LINKS = Kind("replaces", hardlink=False)
ONLY_FOLDERS = Kind("replaces", hardlink=False, exclusive_open=False)
NOTHING = Kind("replaces", hardlink=False, exclusive_open=False, mkdir_twice=True)

SFTP = {
    "as the draft says": (REFUSES, Way.RENAME),
    "no posix-rename": (replace(REFUSES, posix_rename=False), Way.RENAME),
    "replaces": (LINKS, Way.LINK),
    "replaces, no posix-rename": (replace(LINKS, posix_rename=False), Way.LINK),
    "no links": (NO_LINKS, Way.CLAIM_FILE),
    "no links, mkdir twice": (replace(NO_LINKS, mkdir_twice=True), Way.CLAIM_FILE),
    "only folders": (ONLY_FOLDERS, Way.CLAIM_FOLDER),
    "only posix-rename": (Kind("never", hardlink=False), Way.CLAIM_FILE),
    "only links": (Kind("never", posix_rename=False), Way.RENAME),
}
ONE_OF_EACH = ("as the draft says", "replaces", "no links", "only folders")
PLACES = [
    *(*ONE_OF_EACH, "folder", "folder without links", "s3", "generic"),
    *(pytest.param(name, marks=pytest.mark.soak) for name in SFTP if name not in ONE_OF_EACH),
]
"""Landing places. `make test` takes only one SFTP server for each `Way`."""

LISTENER = '[[listener]]\nbind = "127.0.0.1:0"\n'
DATA, JSON = "site-1/00c0ffee/000000000001.parquet", "site-1/00c0ffee/000000000001.json"


@pytest.fixture
def server(request, tmp_path) -> Iterator[SftpOfKind]:
    """Run an SFTP server. Its kind is the parameter of the test."""
    with sftp_of_kind(tmp_path / "server", replace(request.param)) as running:
        yield running


@pytest.fixture
def connect(request, tmp_path, monkeypatch) -> Iterator[Callable[[], Landing]]:
    """Return a function that opens the landing place whose name is the parameter of the test."""
    name = request.param
    if name in SFTP:
        with sftp_of_kind(tmp_path / "server", replace(SFTP[name][0])) as running:
            yield lambda: open_landing(running.url(), running.options)
        return
    if name == "folder without links":
        without_links(monkeypatch)
    if name == "s3":
        s3 = request.getfixturevalue("s3")
        folder = f"{s3.url()}/{request.node.name.replace('[', '-').replace(']', '')}"
        yield lambda: open_landing(folder, s3.options())
    elif name == "generic":
        MemoryFileSystem.store.clear()
        yield lambda: open_landing("memory://exclusive")
        MemoryFileSystem.store.clear()
    else:
        yield lambda: open_landing(f"file://{tmp_path}/landing")


def without_links(monkeypatch) -> None:
    link = os.link

    def no_links(source, target, **options) -> None:
        if "landing" in str(target):
            raise OSError(errno.EPERM, "Operation not permitted")
        link(source, target, **options)

    monkeypatch.setattr(os, "link", no_links)


@pytest.mark.parametrize(("server", "way"), SFTP.values(), ids=SFTP, indirect=["server"])
def test_the_way_of_an_sftp_server_is_proven_and_leaves_nothing(server, way):
    landing = open_landing(server.url(), server.options)
    assert landing.prove("site-1") is way
    assert list((server.root / "landing" / "site-1").iterdir()) == []
    assert landing.create(JSON, b"first")
    assert not landing.create(JSON, b"second")
    assert landing.read(JSON) == b"first"
    landing.tidy("site-1/00c0ffee")
    folder = server.root / "landing" / "site-1" / "00c0ffee"
    assert [path.name for path in folder.rglob("0*")] == ["000000000001.json"]
    assert list(folder.rglob("*/*")) == []
    for text in (b"1", b"longer", b"3"):
        landing.replace("site-1/owner.json", text)
        assert landing.read("site-1/owner.json") == text
    landing.close()


@pytest.mark.parametrize("server", [NOTHING, replace(NOTHING, posix_rename=False)], indirect=True)
def test_a_server_that_refuses_nothing_is_refused_unless_it_is_not_shared(server):
    landing = open_landing(server.url(), server.options)
    for _ in range(2):
        with pytest.raises(NotExclusive, match=r"a cloned card.* shared = false in \[uplink\]"):
            landing.create(JSON, b"first")
    assert [path for path in server.root.rglob("*") if path.is_file()] == []
    landing.close()
    landing = open_landing(server.url(), server.options, shared=False)
    assert landing.prove("site-1") is Way.LOOK
    assert landing.create(JSON, b"first")
    assert not landing.create(JSON, b"second")
    assert landing.read(JSON) == b"first"
    landing.close()


@pytest.mark.parametrize(
    "server", [Kind("never", posix_rename=False, hardlink=False)], indirect=True
)
@pytest.mark.parametrize("shared", [True, False])
def test_a_server_that_renames_nothing_is_refused(server, shared):
    landing = open_landing(server.url(), server.options, shared)
    with pytest.raises(NotExclusive, match="files cannot be renamed here"):
        landing.create(JSON, b"first")
    landing.close()


@pytest.mark.parametrize("server", [REFUSES], indirect=True)
def test_a_server_that_hangs_up_at_a_taken_name_is_an_outage_and_not_proven(server):
    names: list[str] = []

    def hang_up(request: str, path: str) -> str | None:
        if request == "rename":
            names.append(path)
        return "before" if request == "rename" and names.count(path) == 2 else None

    server.kind.at = hang_up
    landing = open_landing(server.url(), server.options)
    with pytest.raises(Unreachable, match="whether the place refuses an existing name") as e:
        landing.create(JSON, b"first")
    assert not isinstance(e.value, NotExclusive)
    landing.close()


@pytest.mark.parametrize("server", [REFUSES], indirect=True)
def test_a_folder_that_may_not_be_written_is_not_called_lax(server, monkeypatch):
    def closed(request: str, path: str) -> None:
        if request in ("open", "mkdir"):
            raise PermissionError(errno.EACCES, "Permission denied")

    server.kind.at = closed
    landing = open_landing(server.url(), server.options)
    with pytest.raises(Unreachable, match="Permission denied") as caught:
        landing.create(JSON, b"first")
    assert not isinstance(caught.value, NotExclusive)
    landing.close()


@pytest.mark.parametrize("server", [NO_LINKS, ONLY_FOLDERS], ids=["file", "folder"], indirect=True)
def test_a_claim_that_cannot_be_made_is_not_taken_for_a_claim_that_is_there(server):
    def full(request: str, path: str) -> None:
        if request in ("open", "mkdir") and "/.claims/" in path:
            raise asyncssh.SFTPFailure("quota exceeded")

    landing = open_landing(server.url(), server.options)
    assert landing.create(JSON, b"first")
    server.kind.at = full
    with pytest.raises(Unreachable, match="quota exceeded"):
        landing.create(DATA, b"data")
    assert landing.read(DATA) is None
    landing.close()


# Cuts


def cut_at(server: SftpOfKind, count: int, when: str) -> Callable[[], bool]:
    """Cut the connection at the request with number `count`, counted from now. when: whether the
    cut comes before or after the request is done. Return a function that tells whether this request
    has arrived.
    """
    left = [count]

    def at(request: str, path: str) -> str | None:
        left[0] -= 1
        return when if left[0] == 0 else None

    server.kind.at = at
    return lambda: left[0] <= 0


CLAIMS = {name: SFTP[name] for name in ONE_OF_EACH}


@pytest.mark.few(4)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("server", "way"), CLAIMS.values(), ids=CLAIMS, indirect=["server"])
def test_cut_at_each_request_the_next_connection_finishes_it(server, way, when, step):
    """After the next connection, the file has its name and its bytes. Another gateway cannot take
    the name.
    """
    reached, count = True, 1 - step
    while reached:
        count += step
        name = f"site-1/00c0ffee/{count:012d}.parquet"
        landing = open_landing(server.url(), server.options)
        assert landing.prove("site-1") is way
        if count == 1:  # create the folders first: cuts at their creation are tested elsewhere
            landing.create("site-1/00c0ffee/first", b"")
        was_reached = cut_at(server, count, when)
        with suppress(Unreachable):
            landing.create(name, b"ours")
        reached = was_reached()
        server.kind.at = lambda request, path: None
        landing.close()
        landing = open_landing(server.url(), server.options)
        # a gateway tidies up after itself, but the command that lands a dead gateway's spool does
        # not
        if count % 2:
            landing.tidy("site-1/00c0ffee")
        assert landing.create(name, b"ours") or landing.read(name) == b"ours"
        assert not landing.create(name, b"theirs")
        assert landing.read(name) == b"ours"
        landing.tidy("site-1/00c0ffee")
        landing.close()
    assert count > 4
    folder = server.root / "landing" / "site-1" / "00c0ffee"
    assert list(folder.rglob(".*/*")) == [], "claims and hidden files are tidied"


@pytest.mark.few(2)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("server", [NO_LINKS, ONLY_FOLDERS], ids=["file", "folder"], indirect=True)
def test_uplink_during_an_unfinished_cut_takes_nothing_over(server, when, step):
    """Another gateway that wants the name during the cut either leaves it to the first gateway, or
    gets it for good.
    """
    reached, count = True, 1 - step
    while reached:
        count += step
        name = f"site-1/00c0ffee/{count:012d}.parquet"
        landing, other = (open_landing(server.url(), server.options) for _ in range(2))
        landing.prove("site-1")
        other.prove("site-1")
        was_reached = cut_at(server, count, when)
        with suppress(Unreachable):
            landing.create(name, b"ours")
        reached = was_reached()
        server.kind.at = lambda request, path: None
        landing.close()
        if count % 2:
            other.tidy("site-1/00c0ffee")
        theirs = None
        with suppress(Claimed):
            theirs = other.create(name, b"theirs")
        landing = open_landing(server.url(), server.options)
        ours = None
        with suppress(Claimed):
            ours = landing.create(name, b"ours")
        stands = landing.read(name)
        assert stands in (b"ours", b"theirs") or (theirs, ours) == (None, None)
        assert not (theirs and stands == b"ours")
        assert not (ours and stands == b"theirs")
        landing.close()
        other.close()


@pytest.mark.parametrize("server", [NO_LINKS, LINKS], ids=["claim", "link"], indirect=True)
def test_cut_at_each_request_of_a_batch_it_lands_under_its_number(server, data):
    """The whole uplink runs. At each new attempt, the proxy cuts the connection one
    request later.
    """

    def connect() -> Landing:
        return open_landing(server.url(), server.options)

    count = 0
    while spooled(data) or not count:
        data.add(2)
        count += 1
        cut_at(server, count, "after" if count % 2 else "before")
        land(data, connect, count=1000)
    server.kind.at = lambda request, path: None
    assert data.meta("epoch") == "00c0ffee"
    rows = published(connect)
    assert [row[2] for row in rows] == list(range(1, data.added + 1))


@pytest.mark.parametrize(
    "server",
    [replace(REFUSES, posix_rename=False), replace(LINKS, posix_rename=False), REFUSES],
    ids=["set aside", "replaced", "posix-rename"],
    indirect=True,
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_while_a_file_is_replaced_leaves_the_old_or_the_new_one(server, when):
    reached, count = True, 0
    before = b"0"
    landing = open_landing(server.url(), server.options)
    landing.replace("site-1/owner.json", before)
    while reached:
        count += 1
        new = b"%d" % count
        was_reached = cut_at(server, count, when)
        with suppress(Unreachable):
            landing.replace("site-1/owner.json", new)
        reached = was_reached()
        server.kind.at = lambda request, path: None
        landing.close()
        landing = open_landing(server.url(), server.options)
        assert landing.read("site-1/owner.json") in (before, new)
        if count % 2:
            landing.tidy("site-1")
        assert landing.read("site-1/owner.json") in (before, new)
        before = b"%d after a cut" % count
        landing.replace("site-1/owner.json", before)
    landing.close()


# Two gateways with one name


@pytest.mark.few(4)
@pytest.mark.parametrize("connect", PLACES, indirect=True)
def test_a_cloned_card_loses_and_doubles_nothing(connect, data, tmp_path):
    data.add(5)
    assert land(data, connect) is None
    data.add(2, None)
    data.add(1)
    twin = clone(data, tmp_path / "twin")
    readings = set(range(1, 9))
    for step in range(3):
        for gateway in (data, twin):
            first = gateway.added + 1
            gateway.add(2)
            gateway.add(3, None)
            readings |= set(range(first, gateway.added + 1))
        if step == 1:
            land_together(connect, data, twin)
        else:
            land(twin if step else data, connect)
            land(data if step else twin, connect)
        nothing_is_lost_or_doubled(connect, readings, data, twin)
    assert spooled(data) == set() or spooled(twin) == set()


@pytest.mark.parametrize("connect", PLACES, indirect=True)
def test_cloned_cards_that_race_from_the_start_lose_and_double_nothing(connect, data, tmp_path):
    twin = clone(data, tmp_path / "twin")
    data.add(20)
    twin.add(20)
    readings = set(range(1, 21)) | set(range(10_001, 10_021))
    for _ in range(3):
        land_together(connect, data, twin)
        nothing_is_lost_or_doubled(connect, readings, data, twin)
    assert spooled(data) == set() or spooled(twin) == set()


@pytest.mark.few(4)
@pytest.mark.parametrize("connect", PLACES, indirect=True)
def test_concurrent_creators_of_one_name_have_one_winner_and_the_others_get_an_error(connect):
    landings = [connect() for _ in range(4)]
    for landing in landings:
        landing.prove("site-1")
    for round_ in range(3):
        won: list[bytes] = []
        start = threading.Barrier(len(landings))

        def write(landing: Landing, text: bytes, start=start, won=won, round_=round_) -> None:
            start.wait()
            with suppress(Claimed, Unreachable):
                if landing.create(f"site-1/00c0ffee/{round_}.json", text):
                    won.append(text)

        threads = [
            threading.Thread(target=write, args=(landing, b"writer %d" % n))
            for n, landing in enumerate(landings)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stands = landings[0].read(f"site-1/00c0ffee/{round_}.json")
        assert won in ([], [stands])
    for landing in landings:
        landing.close()


@pytest.mark.parametrize("connect", ["no links"], indirect=True)
def test_both_ends_learn_of_a_second_installation(connect, data, tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    data.add(5)
    land(data, connect)
    twin = clone(data, tmp_path / "twin")
    for gateway in (data, twin):
        gateway.add(5)
    land(data, connect)
    caplog.clear()
    land(twin, connect)
    assert "another gateway has the same gateway name, or ran with a copy of" in caplog.text
    data.add(5)
    error = land(data, connect)
    assert isinstance(error, OwnedByAnother)
    assert len(spooled(data)) == 5, "it stays in the spool"
    caplog.clear()
    land(twin, connect)
    assert "another gateway named site-1 was refused at the landing place (host " in caplog.text
    caplog.clear()
    for _ in range(2):  # like restarts by systemd
        assert isinstance(land(data, connect), OwnedByAnother)
        land(twin, connect)
    assert "was refused at the landing place" not in caplog.text, "said once a day"
    with Spool(data.path) as spool:
        shut_out = look(spool, data.path)
    assert "site-1 belongs to another gateway here (host " in shut_out.outage["error"]
    assert "outage    since" in shut_out.as_text()
    with Spool(twin.path) as spool:
        owner = look(spool, twin.path)
    assert "was refused at the landing place" in owner.as_dict()["rival"]["what"]
    assert "rival     20" in owner.as_text()
    monkeypatch.setattr(status, "RIVAL_US", 0)
    with Spool(twin.path) as spool:
        assert look(spool, twin.path).rival is None, "after a week without news"


def test_centre_reads_the_refused_gateways(data, make_data, tmp_path):
    place = tmp_path / "landing"
    data.add(5)
    assert land(data, lambda: open_landing(str(place))) is None
    centre = place_of_centre.Landing(str(place))
    assert report._refused(centre, ["site-1"]) == []
    other = make_data(tmp_path / "other", epoch="deadbeef")
    other.add(5)
    assert isinstance(land(other, lambda: open_landing(str(place))), OwnedByAnother)
    assert len(spooled(other)) == 5
    ((gateway, host, at),) = report._refused(centre, ["site-1", "site-2"])
    assert (gateway, host) == ("site-1", socket.gethostname())
    said = report.text(report.Report([], refused=[(gateway, host, at)]))
    assert f"refused: another gateway named site-1 (host {host}, {at})" in said
    for damaged in (b"", b"{", b"[1]", b"null", b"[" * 5000):
        (place / "site-1" / "refused.json").write_bytes(damaged)
        assert report._refused(centre, ["site-1"]) == []
        assert land(data, lambda: open_landing(str(place))) is None


@pytest.mark.parametrize("connect", ["folder"], indirect=True)
def test_an_uplink_that_runs_learns_soon_that_another_one_has_its_name(
    connect, data, tmp_path, monkeypatch
):
    monkeypatch.setattr("gateway.uplink.runner.OWNER_CHECK_S", 0.0)
    data.add(5)
    land(data, connect)
    twin = clone(data, tmp_path / "twin")
    for gateway in (data, twin):
        gateway.add(5)
    landed_twice = []
    original = Spool.landed

    def landed(spool, cut) -> None:
        original(spool, cut)
        if not landed_twice:
            landed_twice.append(cut.number)
            # it finds that batch 2 exists, and takes over the owner mark
            assert land(twin, connect) is None
            data.add(5)

    monkeypatch.setattr(Spool, "landed", landed)
    assert isinstance(land(data, connect), OwnedByAnother)
    assert landed_twice == [2]
    assert len(spooled(data)) == 5


# S3


def test_a_store_that_ignores_if_none_match_is_refused(s3, data, tmp_path):
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as proxy:

        def connect() -> Landing:
            return open_landing(f"{s3.url()}/lax", s3.options(proxy.port))

        data.add(5)
        twin = clone(data, tmp_path / "twin")
        twin.add(5)
        for error in (land(data, connect), *land_together(connect, data, twin)):
            assert isinstance(error, NotExclusive)
            assert "shared = false" in str(error)
        assert {path.rpartition("/")[2] for path in proxy.puts} == {"proof"}, "nothing is landed"
        assert (len(spooled(data)), len(spooled(twin))) == (5, 10)
        with Spool(data.path) as spool:
            assert look(spool, data.path).way is None


@pytest.mark.few(1)
@pytest.mark.parametrize("answer", [None, (501, "NotImplemented"), (400, "InvalidArgument")])
def test_a_store_without_if_none_match_that_is_not_shared_is_looked_at_first(s3, data, answer):
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as proxy:
        proxy.answer = answer
        folder = f"{s3.url()}/alone-{answer}"

        def connect() -> Landing:
            return open_landing(folder, s3.options(proxy.port), shared=False)

        landing = connect()
        landing.create(DATA, b"foreign")
        landing.close()
        data.add(10)
        assert land(data, connect) is None
        landing = connect()
        assert landing.read(DATA) == b"foreign"
        landing.close()
        assert len(published(connect)) == 10
        assert data.meta("epoch") != "00c0ffee"
        with Spool(data.path) as spool:
            assert look(spool, data.path).way == "look"


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "answer",
    [
        (403, "AccessDenied"),
        (403, b""),
        (409, "OperationAborted"),
        (409, b""),
        (500, "InternalError"),
        (500, b""),
        (503, "SlowDown"),
    ],
    ids=str,
)
@pytest.mark.parametrize("shared", [True, False])
def test_an_answer_that_says_nothing_proves_nothing(s3, answer, shared, monkeypatch):
    monkeypatch.setattr(landing_s3, "_PAUSES_S", (0.01,))
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as proxy:
        proxy.answer = answer
        landing = open_landing(f"{s3.url()}/silent", s3.options(proxy.port), shared)
        with pytest.raises(Unreachable) as caught:
            landing.create(DATA, b"data")
        assert not isinstance(caught.value, NotExclusive)
        landing.close()


HTML = b"<html><body>sorry</body></html>"
UNKNOWN = [
    *((501, text) for text in ("NotImplemented", "XNotImplemented", b"", HTML)),
    *((400, text) for text in ("InvalidHeader", "UnsupportedHeader", "BadRequest", b"", HTML)),
    *((405, text) for text in ("MethodNotAllowed", b"", HTML)),
]


@pytest.mark.few(4)
@pytest.mark.parametrize("answer", UNKNOWN, ids=str)
def test_a_store_that_does_not_know_the_condition_is_recognised_by_its_status(s3, answer, request):
    folder = f"{s3.url()}/unknown-{abs(hash(request.node.name))}"
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as proxy:
        proxy.answer = answer
        landing = open_landing(folder, s3.options(proxy.port))
        with pytest.raises(NotExclusive, match="shared = false"):
            landing.create(DATA, b"first")
        landing.close()
        landing = open_landing(folder, s3.options(proxy.port), shared=False)
        assert landing.prove("site-1") is Way.LOOK
        assert landing.create(DATA, b"first")
        assert not landing.create(DATA, b"second")
        assert landing.read(DATA) == b"first"
        landing.close()


@pytest.mark.few(3)
@pytest.mark.parametrize("body", ["PreconditionFailed", "Other", b"", HTML], ids=str)
@pytest.mark.parametrize("shared", [True, False])
def test_a_store_that_refuses_is_recognised_by_its_status(s3, body, shared, request):
    folder = f"{s3.url()}/refuses-{abs(hash(request.node.name))}"
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as proxy:
        proxy.answer, proxy.heeds = (412, body), True
        landing = open_landing(folder, s3.options(proxy.port), shared)
        assert landing.prove("site-1") is Way.CONDITION
        assert landing.create(DATA, b"first")
        assert not landing.create(DATA, b"second")
        assert landing.read(DATA) == b"first"
        landing.close()


@pytest.mark.parametrize("status", [400, 403, 405, 501])
@pytest.mark.parametrize("shared", [True, False])
def test_a_store_that_takes_no_object_at_all_is_an_outage(s3, status, shared):
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as proxy:
        proxy.answer, proxy.refuses_all = (status, b""), True
        landing = open_landing(f"{s3.url()}/none", s3.options(proxy.port), shared)
        with pytest.raises(Unreachable) as caught:
            landing.create(DATA, b"first")
        assert not isinstance(caught.value, NotExclusive)
        landing.close()


def test_a_store_that_calls_every_name_taken_lands_nothing_and_draws_no_epochs(s3, data):
    with lax_s3(s3.port, s3.KEY, s3.SECRET) as proxy:
        proxy.answer = (412, "PreconditionFailed")
        data.add(5)
        error = land(data, lambda: open_landing(f"{s3.url()}/all", s3.options(proxy.port)))
        assert error is not None
        assert (data.meta("epoch"), len(spooled(data))) == ("00c0ffee", 5)


# Other file systems


class Lax(MemoryFileSystem):
    """A file system that ignores mode "x", and where mkdir of an existing folder succeeds."""

    protocol = "lax"

    def open(self, path, mode="rb", **kwargs):
        return super().open(path, mode.replace("x", "w"), **kwargs)

    def mkdir(self, path, create_parents=True, **kwargs):
        with suppress(FileExistsError):
            super().mkdir(path, create_parents, **kwargs)


class LooksFirst(Lax):
    """A file system with mode "x" that checks the name when a file is opened, and writes the file
    when it is closed.
    """

    protocol = "looksfirst"

    def open(self, path, mode="rb", **kwargs):
        if "x" not in mode:
            return super().open(path, mode, **kwargs)
        if self.exists(path):
            raise FileExistsError(path)

        class Late(MemoryFile):
            def close(late):
                self.pipe_file(path, late.getvalue())

        return Late(None, path)


class ChecksLate(Lax):
    """A file system with mode "x" that checks the name when a file is closed, as an object store
    does.
    """

    protocol = "checkslate"

    def open(self, path, mode="rb", **kwargs):
        if "x" not in mode:
            return super().open(path, mode, **kwargs)

        class Late(MemoryFile):
            def close(late):
                if not late.closed and self.exists(path):
                    raise FileExistsError(path)
                self.pipe_file(path, late.getvalue())

        return Late(None, path)


class Moves(Lax):
    """A file system that refuses a move to an existing name."""

    protocol = "moves"

    def mv(self, path1, path2, **kwargs):
        if self.exists(path2):
            raise FileExistsError(path2)
        super().mv(path1, path2, **kwargs)


class NoX(MemoryFileSystem):
    """A file system without mode "x", which creates a file only if its name is free."""

    protocol = "nox"

    def open(self, path, mode="rb", **kwargs):
        if "x" in mode:
            raise ValueError("mode")
        return super().open(path, mode, **kwargs)


for kind in (Lax, LooksFirst, ChecksLate, Moves, NoX):
    fsspec.register_implementation(kind.protocol, kind, clobber=True)


@pytest.mark.parametrize(
    ("protocol", "way"),
    [
        ("memory", Way.CLAIM_FILE),
        ("checkslate", Way.CLAIM_FILE),
        ("moves", Way.RENAME),
        ("nox", Way.CLAIM_FOLDER),
        ("lax", None),
        ("looksfirst", None),
    ],
)
def test_other_file_systems_prove_a_way_or_are_refused(protocol, way, data):
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    landing = open_landing(f"{protocol}://place")
    if way is None:
        with pytest.raises(NotExclusive, match="shared = false"):
            landing.create(JSON, b"first")
        landing = open_landing(f"{protocol}://place", shared=False)
        way = Way.LOOK
    assert landing.prove("site-1") is way
    assert landing.create(JSON, b"first")
    assert not landing.create(JSON, b"second")
    landing.replace("site-1/owner.json", b"1")
    landing.replace("site-1/owner.json", b"2")
    assert (landing.read(JSON), landing.read("site-1/owner.json")) == (b"first", b"2")
    left = [name for name in MemoryFileSystem.store if "/." in name]
    assert left == [], "nothing is left of the proof, of claims and of hidden files"
    MemoryFileSystem.store.clear()


@pytest.mark.parametrize("wrong", [ConnectionError("cut"), TimeoutError(), OSError(errno.EIO, "x")])
@pytest.mark.parametrize("operation", ["open", "mv", "info"])
def test_an_error_on_the_way_is_no_answer(operation, wrong, monkeypatch):
    """A lost connection says nothing about a way of landing or a name. So after this error, no way
    counts as proven or as impossible, and the name does not count as free.
    """
    MemoryFileSystem.store.clear()
    landing = open_landing("memory://place")

    def fail(*_, **__):
        raise wrong

    monkeypatch.setattr(MemoryFileSystem, operation, fail)
    for _ in range(2):
        with pytest.raises(Unreachable) as caught:
            landing.create(JSON, b"first")
        assert not isinstance(caught.value, NotExclusive)
    MemoryFileSystem.store.clear()


# Messages for people


@pytest.mark.parametrize("connect", PLACES, indirect=True)
def test_status_says_the_way(connect, data):
    data.add(1)
    with Spool(data.path) as spool:
        assert look(spool, data.path).way is None
        assert "there," not in look(spool, data.path).as_text()
    assert land(data, connect) is None
    with Spool(data.path) as spool:
        state = look(spool, data.path)
    assert state.as_dict()["way"] in list(Way)
    assert f"; at the landing place, {Way(state.way).text}" in state.as_text()
    assert json.loads(json.dumps(state.as_dict()))["way"] == state.way


@pytest.mark.few(2)
@pytest.mark.parametrize("server", [NO_LINKS, NOTHING], ids=["claims", "nothing"], indirect=True)
@pytest.mark.parametrize("shared", ["", "shared = false\n"], ids=["shared", "alone"])
def test_check_config_connects_and_says_the_way(server, shared, onceway, data, tmp_path):
    config = tmp_path / "gateway.toml"
    options = "".join(
        f"{key} = {json.dumps(value)}\n" for key, value in server.options.items() if value
    )
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n[uplink]\nlanding = "{server.url()}"\n'
        f"{shared}[uplink.options]\n{options}{LISTENER}"
    )
    assert onceway("gateway", "check-config", "--config", config).returncode == 0
    done = onceway("gateway", "check-config", "--connect", "--config", config)
    if server.kind.mkdir_twice and not shared:
        assert done.returncode == 1
        assert "shared = false" in done.stderr
    else:
        way = Way.LOOK if server.kind.mkdir_twice else Way.CLAIM_FILE
        assert done.returncode == 0, done.stderr
        assert f"{server.url()}: answers; {way.text}" in done.stdout
        done = onceway("gateway", "check-config", "--connect", "--json", "--config", config)
        assert [place["way"] for place in json.loads(done.stdout)["landing"]] == [way]
    found = json.loads(onceway("doctor", "--json", "--config", config).stdout)
    (place,) = (item for item in found if item["part"].startswith("landing place"))
    assert place["state"] == ("ok" if done.returncode == 0 else "wrong")
    assert [path for path in server.root.rglob("*") if path.is_file()] == []


def test_a_try_makes_nothing_in_the_place_of_a_folder_that_is_not_mounted(data, onceway, tmp_path):
    place = tmp_path / "landing"
    data.add(5)
    assert land(data, lambda: open_landing(str(place))) is None
    place.rename(tmp_path / "unmounted")
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n[uplink]\nlanding = "file://{place}"\n'
        f"{LISTENER}"
    )
    for command in (("gateway", "check-config", "--connect"), ("doctor",)):
        done = onceway(*command, "--config", config)
        assert done.returncode == 1
        assert "the owner mark site-1/owner.json is gone" in done.stdout + done.stderr
        assert not place.exists()


@pytest.mark.parametrize(
    ("file", "typed", "same", "options"),
    [
        ("s3://alone/x", None, True, True),
        ("s3://alone/x", "s3://alone/x", True, True),
        ("s3://alone/x", "s3a://alone/x/", True, True),
        ("s3://alone/x", "s3://alone/y", False, True),
        ("s3://alone/x", "s3://alone/x/y", False, True),
        ("s3://alone/x", "sftp://other/share", False, False),
        ("s3://alone/x", "/srv/alone/x", False, False),
        ("file:///srv/x", "/srv/x", True, True),
        ("file:///srv/x", "local:///srv/x/", True, True),
        ("sftp://me@host/x", "ssh://me@host/x", True, True),
        ("sftp://me@host/x", "sftp://me@other/x", False, True),
        ("sftp://me@host/x", "sftp://you@host/x", False, True),
    ],
)
def test_shared_false_is_about_the_place_in_the_file_only(file, typed, same, options):
    """The key `shared` applies only to the place in the configuration, and not to another place on
    the command line. options: whether the configured options apply to the place on the command
    line.
    """
    section = {"landing": file, "shared": False, "options": {"key": "a"}}
    settings = landing_settings(parse({"uplink": section}, "test").uplink, typed)
    assert settings is not None
    assert settings.shared is not same
    assert settings.options == ({"key": "a"} if options else {})
