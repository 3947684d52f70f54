"""The proofs that a landing place refuses existing names. A proof reports no false error and tries
the operation that lands batches. Its files do not accumulate at the landing place.
"""

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product

import asyncssh
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gateway.uplink.landing import Landing, NotExclusive, Unreachable, Way, open_landing, proof
from gateway.uplink.spool import WAY
from tests.uplink.servers import sftp_server
from tests.uplink.sftp_kinds import Kind, SftpOfKind, sftp_of_kind
from tests.uplink.twins import clone, land, land_together, nothing_is_lost_or_doubled

NAME = "site-1/00c0ffee/000000000001.json"
LAX = Kind("replaces", hardlink=False, exclusive_open=False, mkdir_twice=True)
KINDS = {
    Way.RENAME: Kind(),
    Way.LINK: Kind("replaces"),
    Way.CLAIM_FILE: Kind("replaces", hardlink=False),
    Way.CLAIM_FOLDER: Kind("replaces", hardlink=False, exclusive_open=False),
    None: LAX,
}


@pytest.fixture
def server(request, tmp_path) -> Iterator[SftpOfKind]:
    """Run an SFTP server. Its kind is the parameter of the test."""
    with sftp_of_kind(tmp_path / "server", replace(request.param)) as running:
        yield running


def way_of(server: SftpOfKind) -> Way | None:
    """Return the way of landing that a new connection proves, or None. Check that no batch is
    replaced with that way.
    """
    landing = open_landing(server.url(), server.options)
    try:
        way = landing.prove("site-1")
        server.kind.at = lambda request, path: None
        # if the proof took an error for a refusal, the batch is replaced here
        with suppress(Unreachable):
            landing.create(NAME, b"first")
        landing.create(NAME, b"second")
        assert landing.read(NAME) == b"first", "a batch was replaced"
        return way
    except NotExclusive:
        return None
    finally:
        landing.close()


REQUESTS = ("open", "write", "close", "rename", "posix_rename", "link", "mkdir", "stat")
BUSY = {"failure": asyncssh.SFTPFailure("busy"), "denied": asyncssh.SFTPPermissionDenied("not now")}


CASES = product(enumerate(KINDS.items()), enumerate(REQUESTS), enumerate(BUSY.items()))
ERRORS = [
    pytest.param(
        kind,
        request,
        busy,
        id=f"{way} {request} {name}",
        marks=[pytest.mark.soak] if (one + two + three) % 2 else [],
    )
    for (one, (way, kind)), (two, request), (three, (name, busy)) in CASES
]
"""Each kind of server with each request and each error. `make test` takes half of them."""


@pytest.mark.few(14)
@pytest.mark.parametrize(("server", "request_", "busy"), ERRORS, indirect=["server"])
def test_an_error_at_any_request_of_a_proof_proves_no_way_that_the_server_has_not(
    server, request_, busy
):
    true_way = next(way for way, kind in KINDS.items() if server.kind == kind)
    order = [*KINDS]
    for nth in range(1, 12):
        seen = 0

        def at(request: str, path: str, nth=nth) -> None:
            nonlocal seen
            if request == request_ and "/proof-" in path:
                seen += 1
                if seen == nth:
                    raise busy

        server.kind.at = at
        with suppress(Unreachable):
            found = way_of(server)
            assert order.index(found) >= order.index(true_way)
        server.kind.at = lambda request, path: None
        for path in (server.root / "landing").rglob("000000000001.json"):
            path.unlink()
        if seen < nth:
            break


@pytest.mark.few(2)
@pytest.mark.parametrize("within", ["refuses", "replaces"])
@pytest.mark.parametrize("hardlink", [True, False])
def test_a_rename_is_proven_from_one_folder_into_another(tmp_path, data, within, hardlink):
    across = "replaces" if within == "refuses" else "refuses"
    kind = Kind(within, across=across, hardlink=hardlink)
    with sftp_of_kind(tmp_path / "server", kind) as server:

        def connect() -> Landing:
            return open_landing(server.url(), server.options)

        if within == "refuses":
            assert way_of(server) is (Way.LINK if hardlink else Way.CLAIM_FILE)
        else:
            assert way_of(server) is Way.RENAME
        (server.root / "landing" / NAME).unlink()
        data.add(5)
        assert land(data, connect) is None
        twin = clone(data, tmp_path / "twin")
        data.add(5)
        twin.add(5)
        land_together(connect, data, twin)
        readings = {*range(1, 11), *range(10_006, 10_011)}
        nothing_is_lost_or_doubled(connect, readings, data, twin)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (Kind(denied=frozenset({"rename"})), Way.LINK),
        (Kind(denied=frozenset({"rename"}), hardlink=False), Way.CLAIM_FILE),
        (Kind(denied=frozenset({"rename", "posix_rename"})), Way.RENAME),
        (Kind(denied=frozenset({"posix_rename"})), Way.RENAME),
        (Kind(denied=frozenset({"posix_rename", "link"})), Way.RENAME),
        (Kind("replaces", denied=frozenset({"link"})), Way.CLAIM_FILE),
        (Kind("replaces", denied=frozenset({"link", "posix_rename"})), Way.CLAIM_FILE),
        (Kind("replaces", hardlink=False, denied=frozenset({"rename"})), Way.CLAIM_FILE),
    ],
)
def test_a_request_that_is_denied_is_replaced_by_the_next_one(tmp_path, data, kind, way):
    with sftp_of_kind(tmp_path / "server", kind) as server:
        assert way_of(server) is way
        (server.root / "landing" / NAME).unlink()
        data.add(5)
        for _ in range(2):
            assert land(data, lambda: open_landing(server.url(), server.options)) is None
            data.add(5)


@pytest.mark.parametrize("shared", [True, False])
def test_a_server_where_every_rename_is_denied_is_refused_with_a_sentence(tmp_path, shared):
    kind = Kind(denied=frozenset({"rename", "posix_rename", "link"}))
    with sftp_of_kind(tmp_path / "server", kind) as server:
        landing = open_landing(server.url(), server.options, shared)
        with pytest.raises(NotExclusive, match="files cannot be renamed here"):
            landing.create(NAME, b"first")
        landing.close()


# Places where files cannot be removed


def files_of_proofs(root) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("proof-*")}


@pytest.fixture
def days(monkeypatch) -> Callable[[], None]:
    """Return a function that lets three days pass."""
    today = [proof._today()]
    monkeypatch.setattr(proof, "_today", lambda: today[0])

    def pass_by() -> None:
        today[0] += 3

    return pass_by


@pytest.mark.few(4)
@pytest.mark.parametrize("server", KINDS.values(), ids=map(str, KINDS), indirect=True)
@pytest.mark.parametrize("denied", [("remove", "rmdir"), ("remove",), ("rmdir",)], ids=", ".join)
def test_batches_land_and_proofs_do_not_pile_up_where_removal_is_denied(
    server, data, days, caplog, denied
):
    server.kind.denied = frozenset(denied)
    way = next(
        way for way, kind in KINDS.items() if replace(server.kind, denied=kind.denied) == kind
    )
    after_two: set[str] = set()
    for connection in range(6):
        if way is not None:
            data.add(5)
            assert land(data, lambda: open_landing(server.url(), server.options)) is None
            assert data.spool_ids() == []
            landing = open_landing(server.url(), server.options)
            assert landing.prove("site-1") is way
            landing.close()
        else:
            assert way_of(server) is None
        if connection == 1:
            after_two = files_of_proofs(server.root)
        days()
    if way is not None:
        assert files_of_proofs(server.root) <= after_two
        assert len(after_two) <= 10
    assert "outage" not in caplog.text


@pytest.mark.parametrize("way", [way for way in KINDS if way])
def test_a_kept_proof_is_made_again_when_the_server_changes(tmp_path, way):
    kind = replace(KINDS[way], denied=frozenset({"remove", "rmdir"}))
    with sftp_of_kind(tmp_path / "server", kind) as server:
        for _ in range(2):
            assert way_of(server) is way
        for name, value in vars(LAX).items():
            setattr(server.kind, name, value)
        server.kind.denied = kind.denied
        (server.root / "landing" / NAME).unlink()
        with suppress(Unreachable):  # a refusal is only noticed when a batch uses the operation
            assert way_of(server) is None
        assert way_of(server) is None
        for name, value in vars(replace(KINDS[way], denied=frozenset())).items():
            setattr(server.kind, name, value)
        assert way_of(server) is way


def test_leftovers_of_others_are_removed_when_allowed(tmp_path, days):
    kind = Kind("replaces", denied=frozenset({"remove", "rmdir"}))
    with sftp_of_kind(tmp_path / "server", kind) as server:
        assert way_of(server) is Way.LINK
        server.kind.denied = frozenset()
        days()
        landing = open_landing(server.url(), server.options)
        assert landing.prove("site-1") is Way.LINK
        assert landing.tidy("site-1") is None
        landing.close()
        left = files_of_proofs(server.root)
        assert {"link" in name or name.endswith("proof-kept") for name in left} == {True}


def test_openssh_without_removal_is_no_outage(tmp_path, data, days, caplog):
    with sftp_server(tmp_path, "-P remove,rmdir") as server:
        counts = []
        for _ in range(4):
            data.add(5)
            assert land(data, lambda: open_landing(server.url(), server.options)) is None
            counts.append(len(files_of_proofs(server.root)))
            days()
        assert counts == [counts[0]] * 4
        assert counts[0] <= 4
        assert data.spool_ids() == []


# Files that stay


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ["@eaDir", ".nfs0001", "Thumbs.db-12345678"])
@pytest.mark.parametrize("inner", [".incoming", ".claims"])
@pytest.mark.parametrize("folder", ["site-1", "site-1/00c0ffee"])
def test_a_folder_among_the_hidden_files_is_no_outage(tmp_path, data, caplog, folder, inner, name):
    place = tmp_path / "landing"
    for above in (folder, f"{folder}/{inner}"):  # not as a claim, whose own name would be removed
        (place / above / name).mkdir(parents=True)
        (place / above / name / "inside").write_text("x")
    leftover = place / folder / ".incoming" / "zzz.parquet-12345678"
    leftover.parent.mkdir(exist_ok=True)
    leftover.write_text("half")
    for _ in range(2):
        data.add(5)
        assert land(data, lambda: open_landing(str(place))) is None
    assert data.spool_ids() == []
    assert not leftover.exists(), "one name that stays keeps no other"
    assert "outage" not in caplog.text


def test_leftover_is_logged_once(tmp_path, data, caplog, monkeypatch):
    from gateway.config import UplinkSection
    from gateway.uplink.cutter import Cutter
    from gateway.uplink.runner import Uplink
    from gateway.uplink.signing import load_or_make
    from gateway.uplink.spool import Spool

    caplog.set_level(logging.WARNING)
    stays = tmp_path / "landing" / "site-1" / ".incoming" / "@eaDir"
    stays.mkdir(parents=True)
    (stays / "inside").write_text("x")
    settings = UplinkSection(landing=str(tmp_path / "landing"))
    with Spool(data.path) as spool:
        uplink = Uplink(
            spool,
            Cutter(spool, data.path, settings),
            settings,
            lambda: open_landing(settings.landing),
            load_or_make(data.path),
        )
        said = "cannot remove all leftovers at the landing place"
        for _ in range(3):
            uplink._disconnect()
            uplink._step(once=True)
            data.add(1)
        assert caplog.text.count(said) == 1
        (stays / "inside").unlink()
        stays.rmdir()
        uplink._disconnect()
        uplink._step(once=True)
        stays.mkdir()
        uplink._disconnect()
        data.add(1)
        uplink._step(once=True)
        assert caplog.text.count(said) == 2, "a new burst has a line of its own"


# Other file systems


class Taken(Exception):
    """An error of a type that only one file system has."""

    code = 412


TAKEN = {
    "no errno": OSError("HDFS rename failed: File exists"),
    "own class": Taken("the resource already exists"),
    "denied": PermissionError(errno.EACCES, "exists"),
    "runtime": RuntimeError("412 Precondition Failed"),
    "assertion": AssertionError("mode"),
}
_error: dict[str, Exception] = {}


class MovesOnce(MemoryFileSystem):
    """A file system that refuses a move to an existing name, with its own error."""

    protocol = "movesonce"

    def mv(self, path1, path2, **kwargs):
        if self.exists(path2):
            raise _error["is"]
        super().mv(path1, path2, **kwargs)


class MakesOnce(MemoryFileSystem):
    """A file system with mode "x" that refuses existing names, with its own error."""

    protocol = "makesonce"

    def open(self, path, mode="rb", **kwargs):
        if "x" in mode and self.exists(path):
            raise _error["is"]
        return super().open(path, mode.replace("x", "w"), **kwargs)


class NoExclusive(MemoryFileSystem):
    """A file system without mode "x", which it refuses with its own error."""

    protocol = "noexclusive"

    def open(self, path, mode="rb", **kwargs):
        if "x" in mode:
            raise _error["is"]
        return super().open(path, mode, **kwargs)


class Nothing(NoExclusive):
    """A file system where no operation refuses an existing name."""

    protocol = "nothing"

    def mkdir(self, path, create_parents=True, **kwargs):
        with suppress(FileExistsError):
            super().mkdir(path, create_parents, **kwargs)


OTHERS = {MovesOnce: Way.RENAME, MakesOnce: Way.CLAIM_FILE, NoExclusive: Way.CLAIM_FOLDER}
for kind_ in (*OTHERS, Nothing):
    fsspec.register_implementation(kind_.protocol, kind_, clobber=True)


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    yield
    MemoryFileSystem.store.clear()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("error", TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize("kind", [*OTHERS, Nothing])
def test_error_texts_of_a_file_system_are_understood(kind, error, shared, monkeypatch):
    monkeypatch.setitem(_error, "is", error)
    landing = open_landing(f"{kind.protocol}://place", shared=shared)
    way = OTHERS.get(kind, None if shared else Way.LOOK)
    if way is None:
        with pytest.raises(NotExclusive, match="shared = false"):
            landing.create(NAME, b"first")
        return
    assert landing.prove("site-1") is way
    assert landing.create(NAME, b"first")
    assert not landing.create(NAME, b"second")
    assert landing.read(NAME) == b"first"
    assert [name for name in MemoryFileSystem.store if "proof-" in name] == []


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("error", TAKEN.values(), ids=TAKEN)
def test_a_place_that_takes_no_file_is_not_called_lax(error, shared, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", fail)
    landing = open_landing("memory://place", shared=shared)
    with pytest.raises(Unreachable, match="cannot find out") as caught:
        landing.create(NAME, b"first")
    assert not isinstance(caught.value, NotExclusive)


def test_one_file_that_cannot_be_removed_keeps_no_other(monkeypatch):
    """An FTP server answers 550 if the file to be removed was renamed. The other files of the proof
    must still be removed.
    """
    monkeypatch.setitem(_error, "is", Taken())
    remove = MemoryFileSystem.rm_file

    def rm_file(self, path):
        if not self.exists(path):
            raise Taken("550 no such file")
        remove(self, path)

    monkeypatch.setattr(MemoryFileSystem, "rm_file", rm_file)
    landing = open_landing("movesonce://place")
    assert landing.prove("site-1") is Way.RENAME
    assert [name for name in MemoryFileSystem.store if "/." in name or "proof-" in name] == []


# Troubles of the place, which say nothing about a name


def test_kept_proof_that_meets_an_error_is_made_again(tmp_path):
    kind = Kind("replaces", denied=frozenset({"remove", "rmdir"}))
    with sftp_of_kind(tmp_path / "server", kind) as server:
        assert way_of(server) is Way.LINK
        before = files_of_proofs(server.root)
        (server.root / "landing" / NAME).unlink()

        def busy(request: str, path: str) -> None:
            if request == "open" and path.endswith("-2"):
                server.kind.at = lambda request, path: None
                raise asyncssh.SFTPFailure("busy")

        server.kind.at = busy
        assert way_of(server) is Way.LINK
        assert files_of_proofs(server.root) > before, "with other files"


@pytest.mark.parametrize("request_", ["proof-kept", "-2"])
def test_kept_proof_outlives_a_connection_that_breaks(tmp_path, request_):
    kind = Kind("replaces", denied=frozenset({"remove", "rmdir"}))
    with sftp_of_kind(tmp_path / "server", kind) as server:
        assert way_of(server) is Way.LINK
        before = files_of_proofs(server.root)
        server.kind.at = lambda request, path: "before" if path.endswith(request_) else None
        with pytest.raises(Unreachable) as caught:
            open_landing(server.url(), server.options).prove("site-1")
        assert not isinstance(caught.value, NotExclusive)
        server.kind.at = lambda request, path: None
        (server.root / "landing" / NAME).unlink()
        assert way_of(server) is Way.LINK
        assert files_of_proofs(server.root) == before


@pytest.mark.parametrize("at", ["opened", "closed"])
def test_timeout_of_a_second_file_is_not_taken_for_a_refusal(monkeypatch, at):
    """A slow place must not pass for one that refuses a second file."""
    opened, files = Nothing.open, []

    def late():
        raise TimeoutError

    def slow(self, path, mode="rb", **kwargs):
        if "x" not in mode:
            return opened(self, path, mode, **kwargs)
        file = opened(self, path, mode.replace("x", "w"), **kwargs)
        files.append(file)
        if len(files) == 2:
            if at == "opened":
                late()
            file.close = late
        return file

    monkeypatch.setattr(MemoryFileSystem, "mv", lambda self, old, new: self.cp_file(old, new))
    monkeypatch.setattr(Nothing, "open", slow)
    with pytest.raises(Unreachable, match="no answer in time") as caught:
        open_landing("nothing://place").prove("site-1")
    assert not isinstance(caught.value, NotExclusive)


def test_tidying_ends_when_the_connection_breaks_and_goes_on_later(tmp_path):
    left = ["000000000001.parquet-12345678", "000000000002.parquet-12345678"]
    with sftp_of_kind(tmp_path / "server", Kind()) as server:
        folder = server.root / "landing" / "site-1" / "00c0ffee"
        (folder / ".incoming").mkdir(parents=True)
        (folder / ".claims").mkdir()
        for name in left:
            (folder / ".incoming" / name).touch()
        (folder / ".claims" / "000000000001.json").touch()
        (folder / "000000000001.json").touch()
        for inner in (".incoming", ".claims"):
            server.kind.at = lambda request, path, inner=inner: (
                "before" if request == "remove" and inner in path else None
            )
            landing = open_landing(server.url(), server.options)
            assert landing.tidy("site-1/00c0ffee") is not None
            landing.close()
            assert (folder / ".claims" / "000000000001.json").exists()
            assert len([*(folder / ".incoming").iterdir()]) == (2 if inner == ".incoming" else 0)
        server.kind.at = lambda request, path: None
        landing = open_landing(server.url(), server.options)
        assert landing.tidy("site-1/00c0ffee") is None
        landing.close()
        assert not list((folder / ".claims").iterdir())


def test_way_that_is_lost_is_not_shown_any_more(tmp_path, data):
    """The server was changed, and now replaces existing files."""
    with sftp_of_kind(tmp_path / "server", Kind()) as server:
        data.add(5)
        assert land(data, lambda: open_landing(server.url(), server.options)) is None
        assert data.meta(WAY) == Way.RENAME
        for name, value in vars(LAX).items():
            setattr(server.kind, name, value)
        data.add(5)
        error = land(data, lambda: open_landing(server.url(), server.options))
        assert isinstance(error, NotExclusive)
        assert data.meta(WAY) is None
        assert len(data.spool_ids()) == 5
