"""Cutting of batches: when a batch is due, which rows it has, and that it stays the same through
crashes and full disks.
"""

import errno
import json
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.config import UplinkSection
from gateway.store.check import check
from gateway.uplink import cutter as cutter_module
from gateway.uplink.batch import decode, sha256
from gateway.uplink.cutter import CLOCK_WAIT_S, DAMAGED, Cutter
from gateway.uplink.discard import discard
from gateway.uplink.spool import Cut, Spool
from tests.uplink.conftest import GatewayData


class Clock:
    """The cutter's monotonic clock, which the test sets."""

    def __init__(self, monkeypatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(cutter_module.time, "monotonic", lambda: self.now)


@pytest.fixture
def make(data):
    """Yield a function that opens a cutter and its spool. limits: keys of [uplink]."""
    opened = []

    def make(**limits) -> tuple[Cutter, Spool]:
        spool = Spool(data.path)
        opened.append(spool)
        return Cutter(spool, data.path, UplinkSection(landing="/x", **limits)), spool

    yield make
    for spool in opened:
        spool.close()


def test_due_by_count_by_bytes_and_by_age(data, make, monkeypatch):
    clock = Clock(monkeypatch)
    cutter, _ = make(batch_count=10, batch_bytes=1000, batch_age_s=60)
    assert not cutter.due()
    assert not cutter.due(flush=True)
    data.add(9)
    assert not cutter.due()
    assert cutter.due(flush=True)
    data.add(1)
    assert cutter.due()
    assert cutter.cut().rows == 10
    data.add(3, size=400)
    assert cutter.due()
    assert cutter.cut().rows == 2  # with the third row, it would have more than 1000 bytes
    assert not cutter.due()
    clock.now += 59.9
    assert not cutter.due()
    clock.now += 0.2
    assert cutter.due()
    assert cutter.cut().rows == 1


def keys_of(cutter: Cutter, cut: Cut) -> list[tuple[str, int, int]]:
    return [row[:3] for row in decode(cutter.load(cut))[0]]


def test_rows_without_identity_have_a_counter_of_their_own(data, make):
    """The counter counts only rows without an identity. So a gap in the counter means that a row is
    missing.
    """
    cutter, spool = make(batch_count=4)
    for device in (None, "sensor-1", "sensor-1", None, "sensor-1", None):
        data.add(1, device)
    epoch = int(data.epoch, 16)
    mine = [("@site-1", epoch, number) for number in (1, 2, 3)]
    assert [spool.find("@site-1", n) for n in (1, 2, 3, 4)] == [
        [(epoch, 1)],
        [(epoch, 4)],
        [(epoch, 6)],
        [],
    ]
    first = cutter.cut()
    assert keys_of(cutter, first) == [mine[0], ("sensor-1", 77, 2), ("sensor-1", 77, 3), mine[1]]
    assert spool.find("@site-1", 3) == [(epoch, 6)]
    spool.landed(first)
    assert spool.find("@site-1", 2) == []
    assert spool.find("@site-1", 3) == [(epoch, 6)]
    assert keys_of(cutter, cutter.cut()) == [("sensor-1", 77, 5), mine[2]]


def test_rows_without_identity_keep_their_numbers_when_they_are_cut_again(data, make):
    cutter, spool = make(batch_count=3)
    for device in (None, "sensor-1", None, None, "sensor-1", None):
        data.add(1, device)
    spool.landed(cutter.cut())
    cut = cutter.cut()
    keys = keys_of(cutter, cut)
    assert [key[2] for key in keys if key[0] == "@site-1"] == [3, 4]
    (data.path / "batches" / f"{cut.number:012d}.parquet").unlink()
    assert keys_of(cutter, cut) == keys  # made again from the rows in the spool
    spool.renumber("ffffffff", {})
    assert keys_of(cutter, cutter.cut()) == keys


def test_rows_without_identity_of_an_older_version_are_not_numbered_again(data, make):
    """In older versions, the numbers of such rows were their spool ids. So new numbers begin behind
    the largest id.
    """
    cutter, spool = make(batch_count=2)
    data.add(2, "sensor-1")
    spool.landed(cutter.cut())
    spool.put({"uplink.counted": None})
    data.add(2, None)
    assert [key[2] for key in keys_of(cutter, cutter.cut())] == [3, 4]


def test_a_row_larger_than_the_limit_goes_alone(data, make):
    cutter, _ = make(batch_count=10, batch_bytes=100)
    data.add(1, size=5000)
    data.add(2, size=10)
    assert cutter.cut().rows == 1
    assert cutter.cut().rows == 2


def test_rows_without_utc_wait_a_bounded_time_for_the_clock(data, make, monkeypatch, caplog):
    caplog.set_level("INFO")
    clock = Clock(monkeypatch)
    cutter, _ = make(batch_count=5)
    data.add(5)
    with data.db() as db:
        db.execute("UPDATE spool SET received = NULL")
    assert not cutter.due()
    assert not cutter.due()
    assert [record.message for record in caplog.records] == [
        "messages have no time yet: waiting at most 120 s for this machine's clock to be"
        " synchronised"
    ]
    with data.db() as db:
        db.execute("UPDATE spool SET received = 1760000000000000 + monotonic")
    assert cutter.due()
    with data.db() as db:
        db.execute("UPDATE spool SET received = NULL")
    assert not cutter.due()
    clock.now += CLOCK_WAIT_S + 1
    assert cutter.due()
    cut = cutter.cut()
    assert all(row[6] is None for row in decode(cutter.load(cut))[0])


def test_rows_of_an_earlier_boot_will_never_get_utc_and_do_not_wait(data, make):
    cutter, _ = make(batch_count=5)
    data.add(5)
    with data.db() as db:
        db.execute("UPDATE spool SET received = NULL")
        db.execute("UPDATE meta SET value = '2' WHERE key = 'boot'")
    assert cutter.due()


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_ten_years_off_neither_holds_back_nor_hurries(data, make, monkeypatch, years):
    cutter, _ = make(batch_count=5, batch_age_s=60)
    monkeypatch.setattr(
        cutter_module.time, "time_ns", lambda: (1_790_000_000 + years * 31_557_600) * 10**9
    )
    data.add(4)
    assert not cutter.due()
    data.add(1)
    assert cutter.due()
    cut = cutter.cut()
    assert [row[6] for row in decode(cutter.load(cut))[0]] == [
        1_760_000_000_000_000 + n * 1000 for n in range(1, 6)
    ]


def test_a_full_disk_under_the_batch_file_changes_nothing(data, make, monkeypatch):
    cutter, spool = make(batch_count=5)
    data.add(5)

    def full(_file):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cutter_module.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            cutter.cut()
    assert spool.last_cut() == (0, 0)
    cut = cutter.cut()
    assert (cut.number, cut.rows) == (1, 5)


def test_a_full_disk_under_the_database_changes_nothing(data, make, monkeypatch):
    cutter, spool = make(batch_count=5)
    data.add(5)
    spool._db.execute(
        f"PRAGMA max_page_count={spool._db.execute('PRAGMA page_count').fetchone()[0]}"
    )
    with monkeypatch.context() as patch:
        patch.setattr(cutter_module, "pack", lambda _keys: bytes(100_000))
        with pytest.raises(sqlite3.OperationalError, match="full"):
            cutter.cut()
    assert spool.last_cut() == (0, 0)
    assert data.spool_ids() == [1, 2, 3, 4, 5]
    spool._db.execute("PRAGMA max_page_count=1000000")
    assert cutter.cut().number == 1


class Cutting(RuleBasedStateMachine):
    """Rows arrive, batches are cut and land, and the process dies at any moment. Spool ids stay in
    order, each row is in one batch, and a batch keeps its bytes. As in the uplink, a batch is cut
    only after the one before has landed.
    """

    def __init__(self) -> None:
        super().__init__()
        # in memory, because it is synced thousands of times
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.data = GatewayData(self.folder / "data")
        self.landed_ids: list[int] = []
        self.known: dict[int, tuple] = {}
        self.start()

    def start(self) -> None:
        self.spool = Spool(self.data.path)
        self.cutter = Cutter(
            self.spool, self.data.path, UplinkSection(landing="/x", batch_count=7, batch_bytes=400)
        )

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.folder)

    @rule(
        count=st.integers(1, 12),
        size=st.sampled_from([8, 60, 500]),
        device=st.sampled_from(["sensor-1", None]),
    )
    def arrive(self, count, size, device):
        self.data.add(count, device, size)

    @precondition(lambda self: not self.spool.unlanded() and self.cutter.due(flush=True))
    @rule()
    def cut(self):
        cut = self.cutter.cut()
        rows, _ = decode(self.cutter.load(cut))
        assert len(rows) <= 7
        assert len(rows) == 1 or sum(len(row[4]) + len(row[5]) for row in rows) <= 400

    @precondition(lambda self: not self.spool.unlanded() and self.cutter.due(flush=True))
    @rule()
    def die_between_file_and_row(self):
        record, self.spool.record = self.spool.record, lambda *_: None
        self.cutter.cut()
        self.spool.record = record
        self.restart()

    @rule()
    def restart(self):
        self.spool.close()
        self.start()

    @precondition(lambda self: self.spool.unlanded())
    @rule()
    def land(self):
        cut = self.spool.unlanded()
        assert sha256(self.cutter.load(cut)) == cut.sha256
        self.landed_ids += [row[-1] for row in decode(self.cutter.load(cut))[0]]
        self.spool.landed(cut)
        self.cutter.forget(cut)

    @precondition(lambda self: self.spool.unlanded())
    @rule()
    def lose_the_file_of_a_batch(self):
        (self.data.path / "batches" / f"{self.spool.unlanded().number:012d}.parquet").unlink(
            missing_ok=True
        )

    @invariant()
    def each_id_is_once_in_order_and_bytes_stay(self):
        batches = self.data.batches()
        assert [batch[0] for batch in batches] == list(range(1, len(batches) + 1))
        for number, first, last, rows, size, digest, _ in batches:
            assert self.known.setdefault(number, (first, last, rows, size, digest)) == (
                first,
                last,
                rows,
                size,
                digest,
            )
        assert self.landed_ids + self.data.spool_ids() == list(range(1, self.data.added + 1))


Cutting.TestCase.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
test_cutting_in_any_order_of_events = Cutting.TestCase


@pytest.mark.parametrize("gone", [(14,), (11,), (14, 15, 16), (13, 17)])
def test_row_that_is_gone_from_the_spool_is_named_when_its_batch_is_cut(
    data, drain, landed, tmp_path, caplog, gone
):
    data.add(10)
    drain(data, tmp_path / "landing")
    data.add(10)
    with data.db() as db:
        db.executemany("DELETE FROM spool WHERE id = ?", [(n,) for n in gone])
    caplog.clear()
    drain(data, tmp_path / "landing", count=3)
    assert [row[2] for row in landed(tmp_path / "landing")] == [
        n for n in range(1, 21) if n not in gone
    ]
    said = [line for line in caplog.messages if "of the spool" in line]
    assert len(said) == (2 if gone == (13, 17) else 1)
    assert str(gone[0]) in said[0]


def test_numbers_that_were_given_up_are_no_rows_that_are_gone(
    data, drain, landed, tmp_path, caplog
):
    data.add(10)
    drain(data, tmp_path / "landing")
    data.add(10)
    with Spool(data.path) as spool:
        discard(spool, data.path, 20)
    data.add(5)
    drain(data, tmp_path / "landing")
    assert len(landed(tmp_path / "landing")) == 15
    assert "of the spool" not in caplog.text


@pytest.mark.parametrize("column", ["device", "client", "topic"])
@pytest.mark.parametrize("which", [[3], [1], [5], [2, 3], [1, 2, 3, 4, 5]])
def test_row_that_is_damaged_is_set_aside_and_all_others_land(
    data, make, caplog, column: str, which: list[int]
) -> None:
    cutter, spool = make()
    data.add(5)
    with data.db() as db:
        for row in which:
            db.execute(f"UPDATE spool SET {column} = CAST(x'66ff' AS TEXT) WHERE id = ?", (row,))
    rest = [row for row in range(1, 6) if row not in which]
    assert cutter.due(flush=True) is bool(rest)
    if rest:
        assert cutter.cut().rows == len(rest)
    for row in which:
        assert f"row {row} of spool: invalid {column}. The row does not land" in caplog.text
    kept = (data.path / "batches" / DAMAGED).read_text().splitlines()
    assert [json.loads(line)["id"] for line in kept] == [str(row) for row in which]
    assert all(json.loads(line)[column] == "x'66FF'" for line in kept)
    assert not [line for line in check(data.path) if "spool" in line]
    data.add(1)
    assert spool.rows(spool.last_cut()[1], 9)[0][-1] == 6, "no number is given twice"
