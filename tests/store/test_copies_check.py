"""A bit that flips in a replica, or in a row on its way to one, does not become a reading at
another gateway.
"""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.store.apply import apply
from gateway.store.copies import _BITS, FILE, Copies, bring_all, is_damaged
from gateway.store.recovery import recover
from gateway.store.schema import open_store
from gateway.uplink import copied
from tests.store.test_spool_checks import commit, row

COUNT = 60
LINE = (3, "barn", COUNT, "{}")


def rows(count: int = COUNT) -> list[tuple[int, tuple[object, ...]]]:
    return [(LINE[0], (*row(n)[:3], n, *row(n)[4:])) for n in range(1, count + 1)]


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    with closing(Copies(tmp_path)) as made:
        made.write([LINE], rows(), {}, [])
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return tmp_path


def landing(folder: Path) -> list[tuple[object, ...]]:
    """Return the rows that would land from the line of the copies, read in small pages."""
    found, first = list[tuple[object, ...]](), 0
    with closing(Copies(folder)) as opened:
        assert not opened.damaged
        while page := opened.page(LINE[0], first, 7, 1 << 20):
            found += page
            first = page[-1][0] + 1
    return found


RIGHT = [item for _, item in rows()]


def test_changed_replica_does_not_land_and_is_reported(
    shelf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = [
        "payload = x'00' WHERE key & 0xff = 7",
        "topic = CAST(x'ff' AS TEXT) WHERE key & 0xff = 8",
        "received = received + 1 WHERE key & 0xff = 9",
        "key = key + 1024 WHERE key & 0xff = 10",
        *(f"boot = 5 WHERE key & 0xff = {number}" for number in range(20, 40)),
    ]
    with closing(sqlite3.connect(shelf / FILE)) as database, database:
        for change in changes:
            database.execute(f"UPDATE copy SET {change}")
    for _ in range(2):  # the second start finds the changed rows again, and stores each only once
        caplog.clear()
        assert landing(shelf) == [it for it in RIGHT if it[0] not in (7, 8, 9, 10, *range(20, 40))]
    assert caplog.text.count("has changed since it was stored") == len(changes)
    with closing(sqlite3.connect(shelf / FILE)) as database:
        assert database.execute("SELECT count(*) FROM copy_damaged").fetchone() == (len(changes),)


@pytest.mark.parametrize("hits", [150, pytest.param(10_000, marks=pytest.mark.soak)])
def test_random_hits_let_no_wrong_replica_land(shelf: Path, hits: int) -> None:
    image, draw, count = (shelf / FILE).read_bytes(), random.Random(44), 0
    for number in range(hits):
        hit = bytearray(image)
        at, size = draw.randrange(len(hit)), draw.choice([1, 1, 8, 64])
        hit[at : at + size] = draw.randbytes(len(hit[at : at + size]))
        folder = shelf / f"{number}"  # SQLite shares locks of one file within a process
        folder.mkdir()
        (folder / FILE).write_bytes(hit)
        try:
            found = landing(folder)
        except (sqlite3.Error, ValueError, OverflowError):
            continue  # an error is reported, and no row lands
        finally:
            shutil.rmtree(folder)
        assert not [it for it in found if it not in RIGHT], f"{size} bytes at {at}"
        count += 1
    assert count > hits / 3


def test_rows_of_version_0_2_0_get_their_checks(shelf: Path) -> None:
    with closing(sqlite3.connect(shelf / FILE)) as database, database:
        for table in ("copy_check", "line_check", "copy_damaged"):
            database.execute(f"DROP TABLE {table}")
    assert landing(shelf) == RIGHT
    more = ((LINE[0] << _BITS) + COUNT + 1, *RIGHT[-1][1:])
    with closing(sqlite3.connect(shelf / FILE)) as database, database:
        database.execute(f"INSERT INTO copy VALUES ({', '.join('?' * 10)})", more)
        database.execute("UPDATE line SET last = last + 1")
    assert landing(shelf) == [*RIGHT, (COUNT + 1, *RIGHT[-1][1:])]


def test_dropped_replicas_take_their_checks_along(shelf: Path) -> None:
    with closing(Copies(shelf)) as opened:
        opened.write([], [], {LINE[0]: 50}, [])
        assert opened._db.execute("SELECT count(*) FROM copy_check").fetchone() == (COUNT - 49,)
        opened.write([], [], {}, [LINE[0]])
        assert opened._db.execute("SELECT count(*) FROM copy_check").fetchone() == (0,)
        assert opened._db.execute("SELECT count(*) FROM line_check").fetchone() == (0,)


def test_changed_row_of_the_spool_is_not_replicated_and_numbers_stay(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, "site-7")) as database:
        recover(database, None, 16)
        apply(database, commit(*map(row, range(1, COUNT + 1))))
        whole, _, known = copied.rows(database, 0, COUNT + 1, 10, 1 << 20, (0, 0))
        assert [it[0] for it in whole] == list(range(1, 11))
        database.execute("UPDATE spool SET payload = x'00' WHERE id BETWEEN 3 AND 25")
        found, after, known = list(whole[:0]), 0, (0, 0)
        while True:
            page, is_all, known = copied.rows(database, after, COUNT + 1, 10, 1 << 20, known)
            found += page
            if is_all:
                break
            after = page[-1][0]
        assert [it[0] for it in found] == [1, 2, *range(26, COUNT + 1)]
        nameless = [it[3] for it in found if it[1] is None]
        assert nameless == [n // 3 for n in (*range(27, COUNT + 1, 3),)]


TOLD = '{"name": "barn", "epochs": [[0, 5]], "boot": 3, "clock": 1000}'


def brought(shelf: Path) -> list[tuple[object, ...]]:
    """Return the rows that a rescue puts into the spool from the copies in a folder."""
    with closing(open_store(shelf, "site-7")) as database:
        recover(database, None, 16)
        count = bring_all(shelf, database)
        found = database.execute("SELECT topic, payload FROM spool ORDER BY id").fetchall()
        assert len(found) == count
    return found


@pytest.mark.parametrize(
    "told",
    [
        "{",
        "[]",
        "{}",
        TOLD.replace("name", "names"),
        TOLD.replace("[[0, 5]]", "[[99, 5]]"),
        TOLD.replace("[[0, 5]]", "7"),
        TOLD.replace("[[0, 5]]", "[7]"),
        TOLD.replace("1000", '"1000"'),
    ],
)
def test_damaged_facts_of_a_line_cost_the_lines_behind_it_only(
    shelf: Path, caplog: pytest.LogCaptureFixture, told: str
) -> None:
    """The facts come from another member, and have no check."""
    with closing(Copies(shelf)) as opened:
        bare = [(2, (1, None, None, 1, "c", "first", b"", 3, 9, None))]
        opened.write([(2, "shed", 1, TOLD)], bare, {}, [])
        bare = [(4, (1, None, None, 1, "c", "last", b"", 3, 9, None))]
        opened.write([(LINE[0], "barn", COUNT, TOLD), (4, "loft", 1, told)], bare, {}, [])
    found = brought(shelf)
    assert [topic for topic, _ in found] == ["first", *["barn/air"] * COUNT]
    assert "the rest of the copies for other members cannot be read" in caplog.text


def test_shelf_with_another_schema_counts_as_damaged(
    shelf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(shelf / FILE)) as database:
        database.execute("DROP TABLE line")
    with pytest.raises(sqlite3.OperationalError) as refused:
        Copies(shelf)
    assert is_damaged(refused.value), "it is put aside, and the members send their rows again"
    assert brought(shelf) == []
    assert "the rest of the copies for other members cannot be read (no such table" in caplog.text


def test_disk_that_fails_does_not_pass_for_a_shelf_without_copies(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later rescue may read them."""
    with closing(Copies(shelf)) as opened:
        opened.write([(LINE[0], "barn", COUNT, TOLD)], [], {}, [])

    page = Copies.page

    def fails(self: Copies, number: int, first: int, count: int, most: int) -> object:
        if first:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
            raise error
        return page(self, number, first, 7, most)

    with monkeypatch.context() as broken:
        broken.setattr(Copies, "page", fails)
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            brought(shelf)
    assert len(brought(shelf)) == COUNT, "nothing of the first try is left"


def test_write_that_fails_leaves_nothing_and_the_next_one_succeeds(shelf: Path) -> None:
    bad = [(9, (1, "d", 7, 1, "c", None, b"", 3, 9, None))]
    with closing(Copies(shelf)) as opened:
        with pytest.raises(sqlite3.IntegrityError):
            opened.write([(9, "shed", 1, TOLD)], bad, {LINE[0]: COUNT}, [])
        assert opened.lines() == [LINE]
        opened.write([(9, "shed", 1, TOLD)], [], {}, [])
        assert [line[0] for line in opened.lines()] == [LINE[0], 9]
    assert landing(shelf) == RIGHT
