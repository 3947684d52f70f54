"""The cutter, step by step: the order of its writes, its exact limits, and its files."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.spool import ROW_OVERHEAD
from gateway.config import UplinkSection
from gateway.errors import OncewayError
from gateway.uplink import cutter as cutter_module
from gateway.uplink.batch import decode, sha256
from gateway.uplink.cutter import CLOCK_WAIT_S, DAMAGED, Cutter
from gateway.uplink.keys import pack
from gateway.uplink.spool import Spool
from tests.uplink.conftest import GatewayData

Make = Callable[..., tuple[Cutter, Spool]]


@pytest.fixture
def make(data: GatewayData) -> Iterator[Make]:
    """Yield a function that opens a cutter and its spool. limits: keys of [uplink]."""
    opened: list[Spool] = []

    def made(**limits: Any) -> tuple[Cutter, Spool]:
        opened.append(Spool(data.path))
        return Cutter(opened[-1], data.path, UplinkSection(landing="/x", **limits)), opened[-1]

    yield made
    for spool in opened:
        spool.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that moves the cutter's monotonic clock ahead by some seconds."""
    now = [1000.0]

    def goes_on(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(cutter_module.time, "monotonic", lambda: now[0])
    return goes_on


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return a list. Each fsync adds the file's name and its size; for a folder, the size is 0."""
    synced: list[tuple[str, int]] = []

    def fsync(file: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        synced.append((path.name, path.stat().st_size if path.is_file() else 0))

    monkeypatch.setattr(os, "fsync", fsync)
    return synced


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Path]]:
    """Return a list. Each file that gets the uplink's account as its owner is added to the list,
    together with the data directory.
    """
    files: list[tuple[Path, Path]] = []

    def give(file: Path | int, data: Path) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{file}")) if isinstance(file, int) else file
        files.append((path, data))

    monkeypatch.setattr(cutter_module, "give_to_uplink", give)
    return files


def batches(data: GatewayData) -> list[str]:
    return sorted(path.name for path in (data.path / "batches").iterdir())


def test_batch_is_on_the_disk_before_its_row(
    data: GatewayData,
    make: Make,
    on_disk: list[tuple[str, int]],
    given: list[tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cutter, spool = make(batch_count=3)
    data.add(2, "s")
    data.add(2, None, size=50)
    monkeypatch.setattr(
        spool, "record", lambda *row: on_disk.append(("row", 0)) or told.append(row)
    )
    told: list[Any] = []
    since = time.time_ns() // 1000
    cut = cutter.cut()
    name = f"{1:012d}.parquet"
    assert on_disk == [(name, cut.size), ("batches", 0), ("row", 0)]
    bytes_on_disk = (data.path / "batches" / name).read_bytes()
    assert (len(bytes_on_disk), sha256(bytes_on_disk)) == (cut.size, cut.sha256)
    assert (cut.number, cut.first, cut.last, cut.rows, cut.landed) == (1, 1, 3, 3, None)
    assert since <= cut.cut <= time.time_ns() // 1000
    rows, _ = decode(bytes_on_disk)
    of_topics = len("sensors/s") * 2 + len("sensors/anonymous")
    of_rows = of_topics + 24 + 24 + 50 + 3 * ROW_OVERHEAD
    assert told == [(cut, of_rows, pack(row[:3] for row in rows), 1)]
    folder = data.path / "batches"
    assert given == [(folder, data.path), (folder / name, data.path)]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750


def test_damaged_rows_are_on_the_disk_before_they_leave_the_spool(
    data: GatewayData,
    make: Make,
    on_disk: list[tuple[str, int]],
    given: list[tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cutter, spool = make()
    data.add(3)
    with data.db() as db:
        db.execute("UPDATE spool SET topic = CAST(x'66ff' AS TEXT) WHERE id < 3")
    drop = spool.drop
    monkeypatch.setattr(spool, "drop", lambda row: on_disk.append((f"row {row}", 0)) or drop(row))
    del on_disk[:]
    assert cutter.due(flush=True), "one row is left"
    aside = data.path / "batches" / DAMAGED
    ours = [step for step in on_disk if step[0] in (DAMAGED, "batches") or step[0][:3] == "row"]
    assert ours == [(DAMAGED, aside.stat().st_size), ("batches", 0), ("row 1", 0), ("row 2", 0)]
    assert len(aside.read_text().splitlines()) == 2
    assert given[1:] == [(aside, data.path)]


def test_due_exactly_at_each_limit(
    data: GatewayData,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    clock: Callable[[float], None],
) -> None:
    cutter, spool = make(batch_count=10, batch_bytes=1000, batch_age_s=60)
    data.add(1)
    for count, size, due in ((9, 999, False), (10, 999, True), (9, 1000, True)):
        with monkeypatch.context() as patch:
            patch.setattr(spool, "waiting", lambda _, found=(count, size): found)
            assert cutter.due() is due
    clock(59.75)
    assert not cutter.due()
    clock(0.25)
    assert cutter.due()


def test_age_counts_from_the_first_row_that_waits(
    data: GatewayData, make: Make, clock: Callable[[float], None]
) -> None:
    cutter, _ = make(batch_count=10, batch_age_s=60)
    data.add(1)
    assert not cutter.due()
    with data.db() as db:
        db.execute("DELETE FROM spool")
    clock(59)
    assert not cutter.due()
    data.add(1)
    assert not cutter.due()
    clock(59)
    assert not cutter.due(), "the deleted row was older"
    clock(1)
    assert cutter.due()
    data.add(10)
    assert cutter.cut().rows == 10
    assert not cutter.due(), "the row that is left waits from now on"
    clock(60)
    assert cutter.due()


def test_rows_without_time_wait_anew_after_there_was_time(
    data: GatewayData, make: Make, clock: Callable[[float], None]
) -> None:
    cutter, _ = make(batch_count=1)
    data.add(1)

    def set_received(value: str) -> None:
        with data.db() as db:
            db.execute(f"UPDATE spool SET received = {value}")

    set_received("NULL")
    assert not cutter.due()
    clock(CLOCK_WAIT_S - 1)
    assert not cutter.due()
    set_received("1")
    assert cutter.due()
    set_received("NULL")
    assert not cutter.due()
    clock(CLOCK_WAIT_S - 1)
    assert not cutter.due()
    clock(1)
    assert cutter.due()
    assert cutter.due(), "and for no batch again"


def test_only_files_of_batches_that_have_not_landed_stay(data: GatewayData, make: Make) -> None:
    cutter, spool = make(batch_count=1)
    folder = data.path / "batches"

    def stay(*numbers: int) -> None:
        for number in (1, 2, 3, 4, 5):
            (folder / f"{number:012d}.parquet").touch()
        (folder / "notes.parquet").touch()
        cutter.tidy()
        assert batches(data) == [*(f"{number:012d}.parquet" for number in numbers), "notes.parquet"]

    stay()
    data.add(4)
    for _ in range(4):
        cutter.cut()
    stay(1, 2, 3, 4)
    for _ in range(2):
        cut = spool.unlanded()
        assert cut
        spool.landed(cut)
    stay(3, 4)
    for _ in range(2):
        cut = spool.unlanded()
        assert cut
        spool.landed(cut)
    stay()
    data.add(2)
    cutter.cut()
    cutter.cut()
    for path in folder.iterdir():
        path.unlink()
    for number in (4, 5, 6, 7):
        (folder / f"{number:012d}.parquet").touch()
    make()
    assert batches(data) == [f"{number:012d}.parquet" for number in (5, 6)], "tidied at a start"


def test_file_of_a_landed_batch_is_removed_once(data: GatewayData, make: Make) -> None:
    cutter, _ = make(batch_count=1)
    data.add(2)
    first, second = cutter.cut(), cutter.cut()
    cutter.forget(first)
    cutter.forget(first)
    assert batches(data) == [f"{second.number:012d}.parquet"]


@pytest.mark.parametrize("harm", ["lost", "damaged"])
def test_lost_file_is_made_again_from_the_rows_of_its_batch(
    data: GatewayData, make: Make, harm: str
) -> None:
    """The new file has neither rows of other batches nor rows that still wait."""
    cutter, spool = make(batch_count=3)
    data.add(2, None)
    first = cutter.cut()
    spool.landed(first)
    cutter.forget(first)
    data.add(5, None)
    cut = cutter.cut()
    path = data.path / "batches" / f"{2:012d}.parquet"
    whole = path.read_bytes()
    assert cutter.load(cut) == whole
    path.unlink() if harm == "lost" else path.write_bytes(whole[:-1])
    assert cutter.load(cut) == whole == path.read_bytes()
    path.unlink()
    with data.db() as db:
        db.execute("UPDATE spool SET payload = x'00' WHERE id = 3")
    assert cutter.load(cut) is None, "other bytes are another batch"
    assert not path.exists()


def test_folder_that_cannot_be_made_is_named(data: GatewayData, make: Make) -> None:
    (data.path / "batches").touch()
    with pytest.raises(OncewayError) as caught:
        make()
    assert caught.value.what == "cannot create the folder of batches (File exists)"
    assert caught.value.where == str(data.path / "batches")
