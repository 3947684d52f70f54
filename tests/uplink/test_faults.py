"""A landing place that fails in every way that a file system can: it refuses, lies, or is full. No
reading is lost or doubled.
"""

import errno
import json
import logging
import re
import threading
from contextlib import suppress

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gateway.config import UplinkSection
from gateway.errors import OncewayError
from gateway.uplink.batch import decode
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import Unreachable, open_landing
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool


class FaultyFileSystem(MemoryFileSystem):
    """A file system in memory. It calls `fault(operation, path, data)` before and after each
    operation. `fault` may raise an error, or return other bytes to write.
    """

    protocol = "faulty"
    fault = staticmethod(lambda operation, path, data: data)

    def pipe_file(self, path, value, **kwargs):
        super().pipe_file(path, self.fault("write", path, value), **kwargs)
        self.fault("written", path, value)

    def mv(self, path1, path2, **kwargs):
        self.fault("move", path2, b"")
        super().mv(path1, path2, **kwargs)
        self.fault("moved", path2, b"")

    def cat_file(self, path, **kwargs):
        return self.fault("read", path, super().cat_file(path, **kwargs))


fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)


@pytest.fixture
def faults(monkeypatch, tmp_path):
    """Yield a function that sets `FaultyFileSystem.fault`."""
    MemoryFileSystem.store.clear()

    def install(function) -> None:
        monkeypatch.setattr(FaultyFileSystem, "fault", staticmethod(function))

    yield install
    MemoryFileSystem.store.clear()


URL = "faulty://landing"


def read_back():
    landing = open_landing(URL)
    numbers, batch = [], 1
    while landing.read(f"site-1/00c0ffee/{batch:012d}.json") is not None:
        numbers += [
            int.from_bytes(row[5][:8], "big")
            for row in decode(landing.read(f"site-1/00c0ffee/{batch:012d}.parquet"))[0]
        ]
        batch += 1
    return numbers


def test_each_operation_fails_once_before_and_once_after_it_took_effect(data, drain, faults):
    """One after the other, every write, move and read of two batches fails. A try ends with the
    failure. The next try succeeds, or finds the content.
    """
    data.add(20)
    done: set[tuple[str, str, int]] = set()
    seen: dict[tuple[str, str], int] = {}

    def fail_new(operation, path, content):
        key = (operation, re.sub(r"-[0-9a-f]{8}\b", "", path.rsplit("/", 1)[-1]))
        seen[key] = seen.get(key, 0) + 1
        if (*key, seen[key]) not in done and seen[key] <= 2:
            done.add((*key, seen[key]))
            raise OSError(errno.EIO, "Input/output error")
        return content

    faults(fail_new)
    tries = 0
    while data.spool_ids():
        tries += 1
        assert tries < 100
        with suppress(Unreachable):
            drain(data, URL)
    assert {operation for operation, _, _ in done} == {"write", "written", "move", "moved", "read"}
    assert len(done) > 20
    faults(lambda operation, path, content: content)
    assert read_back() == list(range(1, 21))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:],
        lambda data: data + b"x",
    ],
)
@pytest.mark.parametrize("victim", [".parquet", ".json"])
def test_a_place_that_keeps_other_bytes_than_it_was_given_is_found_out(
    data, drain, faults, wrong, victim
):
    data.add(10)

    def lie(operation, path, content):
        return wrong(content) if operation == "write" and f"0001{victim}" in path else content

    faults(lie)
    with pytest.raises(Unreachable, match="reads back with other bytes"):
        drain(data, URL)
    assert len(data.spool_ids()) == 10
    if victim == ".parquet":
        assert open_landing(URL).read("site-1/00c0ffee/000000000001.json") is None


def test_a_full_landing_place_is_an_outage_that_heals(data, drain, faults, caplog):
    data.add(10)
    full = True

    def no_space(operation, path, content):
        if full and operation == "write":
            raise OSError(errno.ENOSPC, "No space left on device")
        return content

    faults(no_space)
    with pytest.raises(Unreachable, match="No space left on device"):
        drain(data, URL)
    assert len(data.spool_ids()) == 10
    full = False
    drain(data, URL)
    assert read_back() == list(range(1, 11))


def test_read_only_after_a_while_waits_between_tries(data, faults, caplog):
    """A landing place that accepts connections but refuses to write is an outage: the uplink pauses
    before each further try. A connection that dies after it has worked is none: the uplink opens
    another one at once, without a message.
    """
    caplog.set_level(logging.INFO)
    tries = 0
    broken = False
    pauses: list[tuple[int, float]] = []

    def read_only(operation, path, content):
        nonlocal tries
        if operation == "write" and broken:
            tries += 1
            raise PermissionError("Permission denied")
        return content

    class Conductor(threading.Event):
        """An event whose wait returns at once. The landing place becomes read-only when the uplink
        is idle, and works again after five tries.
        """

        def wait(self, timeout: float | None = None) -> bool:
            nonlocal broken
            if broken:
                pauses.append((tries, timeout))
                broken = tries < 5
            elif not data.spool_ids() and tries == 0:
                broken = True
                data.add(10)
            elif not data.spool_ids():
                self.set()
            return self.is_set()

    faults(read_only)
    data.add(10)
    spool = Spool(data.path)
    settings = UplinkSection(landing=URL, batch_count=10)
    signer = load_or_make(data.path)
    Uplink(
        spool, Cutter(spool, data.path, settings), settings, lambda: open_landing(URL), signer
    ).run(Conductor())
    spool.close()
    assert [tried for tried, _ in pauses] == [2, 3, 4, 5], "the new connection is tried at once"
    assert all(0.75 <= pause / 2**n <= 1.25 for n, (_, pause) in enumerate(pauses))
    lines = [record.message for record in caplog.records if record.message.startswith("outage")]
    assert len(lines) == 2
    assert "Permission denied" in lines[0]
    assert read_back() == list(range(1, 21))


def test_an_outage_shows_in_the_status_until_it_is_over(data, drain, faults, onceway):
    from gateway.uplink.status import look

    data.add(10)
    spool = Spool(data.path)
    settings = UplinkSection(landing=URL, batch_count=10)
    stop = threading.Event()

    def pulled(operation, path, content):
        stop.set()
        raise OSError("cable pulled")

    faults(pulled)
    signer = load_or_make(data.path)
    uplink = Uplink(
        spool, Cutter(spool, data.path, settings), settings, lambda: open_landing(URL), signer
    )
    uplink.run(stop)
    status = look(spool, data.path)
    assert "cable pulled" in status.outage["error"]
    assert "cable pulled" in status.as_text()
    faults(lambda operation, path, content: content)
    drain(data, URL)
    assert look(spool, data.path).outage is None
    spool.close()


def test_a_batch_that_someone_else_put_there_is_never_overwritten(data, drain, faults):
    faults(lambda operation, path, content: content)
    landing = open_landing(URL)
    landing.create("site-1/00c0ffee/000000000001.parquet", b"foreign")
    data.add(10)
    drain(data, URL)
    assert landing.read("site-1/00c0ffee/000000000001.parquet") == b"foreign"
    assert landing.read("site-1/00c0ffee/000000000001.json") is None
    assert data.meta("epoch") != "00c0ffee"
    manifest = json.loads(landing.read(f"site-1/{data.meta('epoch')}/000000000001.json"))
    assert manifest["rows"] == 10


def test_foreign_files_in_the_folders_disturb_nothing(data, drain, landed, tmp_path):
    place = tmp_path / "landing"
    for name in (
        "site-1/00c0ffee/notes.txt",
        "site-1/.DS_Store",
        "README",
        "site-1/00c0ffee/.incoming/old",
        "site-2/owner.json",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"foreign")
    data.add(25)
    drain(data, place)
    assert len(landed(place)) == 25
    assert (place / "site-1/00c0ffee/notes.txt").read_bytes() == b"foreign"
    assert (place / "site-2/owner.json").read_bytes() == b"foreign"


def test_an_owner_mark_that_cannot_be_read_stops_the_uplink(data, drain, tmp_path):
    place = tmp_path / "landing"
    (place / "site-1").mkdir(parents=True)
    (place / "site-1" / "owner.json").write_bytes(b"{broken")
    data.add(1)
    with pytest.raises(OncewayError, match="is damaged, so the owner of the name is unknown"):
        drain(data, place)


def test_read_back_fetches_the_whole_file_where_the_place_would_prove_it_cheaper(data, tmp_path):
    class Cheap(type(open_landing(str(tmp_path)))):
        def holds(self, name, data):
            return True

        def read(self, name):
            found = super().read(name)
            return found[:-1] if found and name.endswith(".parquet") else found

    data.add(10)
    spool = Spool(data.path)
    for read_back in (True, False):
        settings = UplinkSection(landing="/x", batch_count=10, read_back=read_back)
        uplink = Uplink(
            spool,
            Cutter(spool, data.path, settings),
            settings,
            lambda n=read_back: Cheap(f"{tmp_path}/landing-{n}"),
            load_or_make(data.path),
        )
        if read_back:
            with pytest.raises(Unreachable, match="reads back with other bytes"):
                uplink.run(threading.Event(), once=True)
        else:
            uplink.run(threading.Event(), once=True)
            assert data.spool_ids() == []
    spool.close()
