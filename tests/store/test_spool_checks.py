"""A bit that flips in the store does not become a reading: no changed row leaves the spool."""

import random
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.store_rows import Commit
from gateway.errors import OncewayError
from gateway.store import row_checks
from gateway.store.apply import apply
from gateway.store.cells import teach
from gateway.store.check import check
from gateway.store.recovery import recover
from gateway.store.row_checks import CHUNK, SOUND, SpoolChecks, row_sum
from gateway.store.salvage import salvage
from gateway.store.schema import FILE, connect, make_folder, open_store
from gateway.uplink.spool import Spool
from tests.store.test_salvage import loose

ROWS = 300
SOAK = pytest.mark.soak


def row(number: int, received: int | None = 1_790_000_000_000_000) -> tuple[Any, ...]:
    payload = b'[{"n":"pressure","u":"hPa","v":%d.25}]' % (1000 + number)
    board = number % 3 > 0
    identity = ("barn-1", 7, number) if board else (None, None, None)
    return (number, *identity, "barn-1", "barn/air", payload, 1, number * 1000, received)


def commit(*rows: tuple[Any, ...]) -> Commit:
    made = Commit(1, 1)
    made.spool = list(rows)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a store with ROWS rows, which was closed cleanly."""
    path = tmp_path / "data"
    make_folder(path)
    with closing(open_store(path, "site-7")) as database:
        recover(database, None, 16)
        checks = SpoolChecks()
        for first in range(1, ROWS + 1, 10):
            apply(database, commit(*map(row, range(first, first + 10))), checks)
        checks.flush(database)
    return path


def leaving(folder: Path) -> list[tuple[Any, ...]]:
    """Return spool id, topic, payload, received, boot, monotonic and sequence of all rows that an
    uplink would cut, after it has set damaged rows aside.
    """
    with closing(Spool(folder)) as spool:
        while found := spool.damaged(1000):
            for item, _ in found:
                spool.drop(item.row[0])
        return [(r[9], r[4], r[5], r[6], r[7], r[8], r[2]) for r in spool.rows(0, 10_000)]


def right(number: int) -> tuple[Any, ...]:
    it = row(number)
    return (number, it[5], it[6], it[9], it[7], it[8], number)


@contextmanager
def opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open a store as a gateway does at its start."""
    with closing(open_store(folder, "site-7")) as database:
        recover(database, None, 16)
        yield database


def killed(folder: Path, count: int = 40) -> bytes:
    """Store `count` rows, whose checks are not written before the process dies. Return the
    database, into which the log has been copied.
    """
    with opened(folder) as database:
        checks = SpoolChecks()
        for number in range(ROWS + 1, ROWS + 1 + count):
            apply(database, commit(row(number)), checks)
        assert checks.pending
    return (folder / FILE).read_bytes()


def number_bytes(data: bytes) -> Iterator[int]:
    """Yield the offset of each byte of the spool's row numbers in the database
    (https://www.sqlite.org/fileformat2.html, section 1.6).
    """
    for begin in range(0, len(data), 1024):
        page = data[begin : begin + 1024]
        if page[0] != 13 or b"pressure" not in page:
            continue
        for at in struct.unpack_from(f">{int.from_bytes(page[3:5], 'big')}H", page, 8):
            while page[at] & 0x80:
                at += 1
            at += 1
            while page[at] & 0x80:
                yield begin + at
                at += 1
            yield begin + at


def wrong(folder: Path) -> list[tuple[Any, ...]]:
    """Return the rows that would leave the spool with other content than the stored one. If the
    store is refused, no row leaves.
    """
    try:
        found = leaving(folder)
    except (sqlite3.Error, OncewayError, ValueError):
        return []  # the store is refused, so no row leaves
    return [it for it in found if it != right(it[0])]


def spool_pages(path: Path) -> list[int]:
    """Return the numbers of the pages with rows of the spool, which are found by their payloads."""
    data = path.read_bytes()
    pages = range(len(data) // 1024)
    return [page for page in pages if b"pressure" in data[page * 1024 : (page + 1) * 1024]]


def test_all_rows_of_a_sound_store_leave(folder: Path) -> None:
    assert check(folder) == []
    assert leaving(folder) == [right(number) for number in range(1, ROWS + 1)]


@pytest.mark.parametrize("hits", [300, pytest.param(10_000, marks=SOAK)])
def test_random_hits_let_no_wrong_row_leave(folder: Path, tmp_path: Path, hits: int) -> None:
    data, served = (folder / FILE).read_bytes(), 0
    draw = random.Random(44)
    for _ in range(hits):
        hit, copy = bytearray(data), tmp_path / "hit"
        at, size = draw.randrange(len(hit)), draw.choice([1, 1, 8, 64])
        hit[at : at + size] = draw.randbytes(len(hit[at : at + size]))
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        (copy / FILE).write_bytes(hit)
        assert wrong(copy) == [], f"{size} bytes at {at}"
        served += 1
    assert served == hits


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=SOAK)])
def test_flipped_bit_anywhere_in_a_page_lets_no_wrong_row_leave(
    folder: Path, tmp_path: Path, whole: bool
) -> None:
    data, copy = (folder / FILE).read_bytes(), tmp_path / "hit"
    page = spool_pages(folder / FILE)[5]
    copy.mkdir()
    for at in range(page * 1024, page * 1024 + 1024, 1 if whole else 5):
        for bit in range(8) if whole else [at % 8]:
            hit = bytearray(data)
            hit[at] ^= 1 << bit
            for file in copy.iterdir():
                file.unlink()
            (copy / FILE).write_bytes(hit)
            assert wrong(copy) == [], f"bit {bit} of byte {at}"


@pytest.mark.parametrize("start", [False, True], ids=["uplink", "start"])
@pytest.mark.parametrize("state", ["stopped", "killed"])
@pytest.mark.parametrize("step", [181, pytest.param(1, marks=SOAK)])
def test_changed_row_number_lets_no_row_leave_as_another(
    folder: Path, tmp_path: Path, state: str, start: bool, step: int
) -> None:
    """state: whether the gateway was stopped or killed. After a kill, some rows have no check yet.
    start: whether the gateway starts with the damaged store before the uplink reads the store.
    """
    data = killed(folder) if state == "killed" else (folder / FILE).read_bytes()
    hits = [(at, bit) for at in number_bytes(data) for bit in range(8)]
    assert len(hits) > 8 * ROWS
    copy = tmp_path / "hit"
    for at, bit in hits[::step] + hits[-16:]:
        hit = bytearray(data)
        hit[at] ^= 1 << bit
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        (copy / FILE).write_bytes(hit)
        if start:
            with suppress(sqlite3.Error, OncewayError, ValueError), opened(copy):
                pass
        assert wrong(copy) == [], f"bit {bit} of byte {at}"


def test_rows_of_a_killed_gateway_leave_before_its_next_start(folder: Path) -> None:
    killed(folder)
    assert leaving(folder) == [right(number) for number in range(1, ROWS + 41)]
    with opened(folder) as database:
        apply(database, commit(row(ROWS + 41)), SpoolChecks())
    assert leaving(folder) == [right(number) for number in range(1, ROWS + 42)]


def test_rows_leave_while_an_older_gateway_writes_beside_a_newer_uplink(folder: Path) -> None:
    with closing(connect(folder / FILE)) as database, database:
        database.execute("UPDATE meta SET value = value + 1 WHERE key = 'boot'")
        many = [row(number) for number in range(ROWS + 1, ROWS + 201)]
        database.executemany(f"INSERT INTO spool VALUES ({'?,' * 9}?)", many)
    assert leaving(folder) == [right(number) for number in range(1, ROWS + 201)]


@pytest.mark.parametrize("way", ["landed", "dropped", "given up"])
def test_new_row_leaves_though_the_rows_before_it_have_left(folder: Path, way: str) -> None:
    killed(folder, 3)
    with closing(connect(folder / FILE)) as database, database:
        if way == "landed":
            database.execute("DELETE FROM spool WHERE id <= ?", (ROWS + 2,))
            database.execute("INSERT INTO batch VALUES (1, 1, ?, 1, 9, 'x', 1, 1)", (ROWS + 2,))
    with closing(Spool(folder)) as spool:
        if way == "dropped":
            spool.drop(ROWS + 2)
        elif way == "given up":
            spool.delete(0, ROWS + 2, ROWS + 2)
    left = [it[0] for it in leaving(folder)]
    assert left[-1] == ROWS + 3
    assert len(left) == (ROWS + 2 if way == "dropped" else 1)


@pytest.mark.parametrize("column", ["payload", "topic", "received", "monotonic", "sequence"])
def test_changed_row_is_named_and_held(folder: Path, column: str) -> None:
    changed = {
        "payload": "CAST(replace(CAST(payload AS TEXT), '1001', '9001') AS BLOB)",
        "topic": "'barn/sir'",
    }.get(column, f"{column} + 1")
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.execute(f"UPDATE spool SET {column} = {changed} WHERE id = 1")
    said = "row 1 of spool: its contents have changed since they were stored"
    assert said in check(folder)
    with closing(Spool(folder)) as spool:
        ((item, literals),) = spool.damaged(1000)
        assert str(item) == said
        assert literals["id"] == "1"
    assert [it[0] for it in leaving(folder)] == list(range(2, ROWS + 1))
    assert "changed" not in " ".join(check(folder))
    with closing(Spool(folder, to_read=True)) as spool:
        assert spool.totals().held == 1


def test_lost_check_holds_its_rows(folder: Path) -> None:
    """One fault of the card may damage a row and also the check for this row. So a row without a
    check does not leave the spool.
    """
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        last = database.execute("SELECT min(last) FROM spool_check").fetchone()[0]
        database.execute("DELETE FROM spool_check WHERE last = ?", (last,))
    assert [it[0] for it in leaving(folder)] == list(range(last + 1, ROWS + 1))


@pytest.mark.parametrize("sums", ["x''", "x'0102'", "x'01020304'", "zeroblob(length(sums))"])
def test_damaged_check_holds_its_rows(folder: Path, sums: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        last = database.execute("SELECT min(last) FROM spool_check").fetchone()[0]
        database.execute(f"UPDATE spool_check SET sums = {sums} WHERE last = ?", (last,))
    assert "row 1 of spool: its contents have changed since they were stored" in check(folder)
    assert [it[0] for it in leaving(folder)] == list(range(last + 1, ROWS + 1))


def test_damaged_check_hinders_no_other_row_when_the_clock_becomes_known(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        checks = SpoolChecks(each=10)
        for number in range(1, 31):
            apply(database, commit(row(number, None)), checks)
        database.execute("UPDATE spool_check SET sums = x'00' WHERE first = 11")
        told = commit(row(31, 5_000_000 + 31_000))
        told.clock = 5_000_000
        apply(database, told, checks)
    known = [(it[0], it[3]) for it in leaving(tmp_path)]
    assert known == [(n, 5_000_000 + n * 1000) for n in (*range(1, 11), *range(21, 32))]


def test_start_after_a_kill_gives_no_check_to_a_row_that_cannot_be_read(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        apply(database, commit(*map(row, range(1, 6))), SpoolChecks())
        loose(database)
        database.execute("UPDATE spool SET payload = NULL WHERE id = 3")
    with closing(connect(tmp_path / FILE)) as database, database:
        database.execute("BEGIN")
        row_checks.add_missing(database, ours=True)
    assert [it[0] for it in leaving(tmp_path)] == [1, 2, 4, 5]


def test_disk_that_fails_is_not_taken_for_a_store_of_an_older_version() -> None:
    class Broken:
        def execute(self, *_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

    sound = row_checks.Verifier(Broken())  # type: ignore[arg-type]
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        sound(*row(1))


def test_store_in_use_is_not_taken_for_one_of_an_older_version(folder: Path) -> None:
    """In a store without the tables of checks every row counts as sound."""
    with closing(connect(folder / FILE)) as database:
        teach(database)
        database.execute("UPDATE spool SET payload = x'00' WHERE id = 7")
        with closing(sqlite3.connect(folder / FILE)) as other:
            other.execute("DROP TABLE content_check")
            other.execute("DROP TABLE spool_check")
            other.commit()
            sound = f"SELECT {SOUND} FROM spool WHERE id = 7"
            assert database.execute(sound).fetchone() == (1,)
            assert database.execute("PRAGMA temp.table_list(content_check)").fetchall() == []
    with closing(sqlite3.connect(folder / FILE, timeout=0)) as database:
        database.execute("PRAGMA busy_timeout=0")
        with closing(sqlite3.connect(folder / FILE)) as other:
            other.execute("PRAGMA journal_mode=DELETE")
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                row_checks.teach_contents(database)


def test_rows_get_their_time_and_keep_their_check(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        checks = SpoolChecks()
        for number in range(1, 101):
            apply(database, commit(row(number, None)), checks)
        told = commit(row(101, 5_000_000 + 101_000))
        told.clock = 5_000_000
        apply(database, told, checks)
        checks.flush(database)
    assert check(tmp_path) == []
    assert [it[3] for it in leaving(tmp_path)] == [5_000_000 + n * 1000 for n in range(1, 102)]


def test_start_after_a_kill_checks_the_newest_rows(tmp_path: Path) -> None:
    with opened(tmp_path) as database:
        # the checks are lost with the process
        apply(database, commit(*map(row, range(1, 6))), SpoolChecks())
        assert database.execute("SELECT count(*) FROM spool_check").fetchone() == (0,)
    with opened(tmp_path) as database:
        database.execute("UPDATE spool SET payload = x'00' WHERE id = 5")
    assert [it[0] for it in leaving(tmp_path)] == [1, 2, 3, 4]


def test_checks_of_a_failed_commit_are_not_kept(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, "site-7")) as database:
        checks = SpoolChecks()
        bad = commit(row(1))
        bad.sessions = [("no number", "c", 1, None, 0, None)]  # type: ignore[list-item]
        with pytest.raises(sqlite3.Error):
            apply(database, bad, checks)
        apply(database, commit((*row(1)[:6], b"other", *row(1)[7:])), checks)
        checks.flush(database)
    assert check(tmp_path) == []


def test_version_0_2_0_reads_and_writes_the_store_and_its_rows_count_as_sound(
    folder: Path,
) -> None:
    """The test runs the SQL statements of version 0.2.0 (commit 440d853) on a store of this
    version.
    """
    old = "INSERT OR REPLACE INTO spool VALUES (?,?,?,?,?,?,?,?,?,?),(?,?,?,?,?,?,?,?,?,?)"
    with closing(connect(folder / FILE)) as database, database:
        assert database.execute("PRAGMA user_version").fetchone() == (7,)
        (boot,) = database.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
        database.execute("UPDATE meta SET value = ? WHERE key = 'boot'", (int(boot) + 1,))
        pair = (*row(ROWS + 1, None)[:7], int(boot) + 1, 1, None, *row(ROWS + 2))
        database.execute(old, pair)
        database.execute(
            "UPDATE spool SET received = ? + monotonic WHERE received IS NULL AND boot = ?",
            (5_000_000, int(boot) + 1),
        )
        database.execute("DELETE FROM spool WHERE id BETWEEN 1 AND 100")
        database.execute("INSERT INTO batch VALUES (1, 1, 100, 100, 9, 'x', 1, 1)")
        database.execute("INSERT INTO batch_content VALUES (1, 9, x'')")
    assert check(folder) == [], "back at this version, before a start"
    with opened(folder) as database:
        apply(database, commit(row(ROWS + 3)))
    assert check(folder) == []
    assert [it[0] for it in leaving(folder)] == list(range(101, ROWS + 4))


def test_salvage_by_a_version_without_checks_leaves_rows_that_get_new_ones(folder: Path) -> None:
    with closing(connect(folder / FILE)) as database:
        database.execute("DROP TABLE spool_check")  # such a salvage copies `meta` unchanged
    with opened(folder) as database:
        (count,) = database.execute("SELECT count(*) FROM spool_check").fetchone()
        assert count == -(-ROWS // CHUNK)
    assert len(leaving(folder)) == ROWS


def test_salvage_leaves_changed_rows_out_and_keeps_all_checks(folder: Path) -> None:
    with closing(connect(folder / FILE)) as database:
        database.execute("UPDATE spool SET payload = x'00' WHERE id = 7")
    salvage(folder)
    assert check(folder) == []
    assert [it[0] for it in leaving(folder)] == [n for n in range(1, ROWS + 1) if n != 7]


def test_checks_leave_with_their_rows_and_cost_five_bytes_a_row(folder: Path) -> None:
    with closing(connect(folder / FILE)) as database:
        size = database.execute("SELECT sum(length(sums) + 12) FROM spool_check").fetchone()[0]
        assert size / ROWS < 5
        database.execute("DELETE FROM spool")
        apply(database, commit(row(ROWS + 1)))
        assert database.execute("SELECT count(*) FROM spool_check").fetchone() == (1,)


def test_checks_are_written_once_for_many_rows(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, "site-7")) as database:
        checks, written = SpoolChecks(), set()
        for number in range(1, 2 * row_checks.EACH + 1):
            apply(database, commit(row(number)), checks)
            written |= set(database.execute("SELECT last FROM spool_check").fetchall())
    assert written == {(row_checks.EACH,), (2 * row_checks.EACH,)}


def test_reader_that_knows_a_check_sees_the_one_that_follows_the_time(tmp_path: Path) -> None:
    """An uplink has read a part of a chunk whose rows have no time. Then the clock becomes known,
    and the store changes these rows and the chunk's check.
    """
    with closing(open_store(tmp_path, "site-7")) as database:
        recover(database, None, 16)
        checks = SpoolChecks(each=8)
        for number in range(1, 9):
            apply(database, commit(row(number, None)), checks)
        with closing(Spool(tmp_path)) as spool:
            assert list(spool.damaged(4)) == []
            late = Commit(2, 1)
            late.clock = 1_790_000_000_000_000
            apply(database, late, checks)
            assert list(spool.damaged(8)) == []
            assert [it[6] for it in spool.rows(0, 8)] == [
                late.clock + n * 1000 for n in range(1, 9)
            ]


def test_sum_sees_every_cell() -> None:
    it = row(1)
    for at, cell in enumerate(it):
        other = cell + 1 if isinstance(cell, int) else cell * 2
        assert row_sum((*it[:at], other, *it[at + 1 :])) != row_sum(it)
