"""A damaged table loses the rows on its bad pages, and no other row, whatever its keys are."""

import random
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.store.reading import Gap, read
from gateway.store.schema import FILE, open_store
from tests.store.test_salvage import damage, root_of

ROWS = 4000


def spool(n: int) -> tuple[Any, ...]:
    return n, "d", 1, n, "c", "t", bytes(n % 150), 1, n, None


def message(n: int) -> tuple[Any, ...]:
    """The number of a row of `message` has a check in its lowest 20 bits, so numbers are sparse."""
    return n << 20 | (n * 7919) & 0xFFFFF, "t", 0, 1, b"", None, bytes(n % 200)


def queue(n: int) -> tuple[Any, ...]:
    """An entry of the queue may stand for many messages, so the keys of a session are sparse."""
    return 1 + n % 3, 1 + n * 1000, 1000, n, 0, 2, b"", "", 5


def retained(n: int) -> tuple[Any, ...]:
    return f"topic/{n:05}", "c", 0, b"", None, bytes(n % 100), None


TABLES = {"spool": spool, "message": message, "queue": queue, "retained": retained}


def filled(folder: Path, table: str) -> tuple[set[tuple[Any, ...]], list[tuple[int, int]]]:
    """Return all rows of a table, and number and count of rows of each of its leaf pages."""
    with closing(open_store(folder, "site-7")) as database:
        database.executemany("INSERT INTO session VALUES (?, ?, 9, NULL, 0, NULL)", [
            (number, f"c{number}") for number in (1, 2, 3)
        ])  # fmt: skip
        made = [TABLES[table](n) for n in range(1, ROWS + 1)]
        places = ",".join("?" * len(made[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({places})", made)
        rows = set(database.execute(f"SELECT * FROM {table}"))
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        leaves = database.execute(
            "SELECT pageno, ncell FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path",
            (table,),
        ).fetchall()
    assert len(leaves) > 90
    return rows, leaves


def salvaged(folder: Path, table: str) -> set[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / FILE)) as database:
        return {item for item in read(database, table) if not isinstance(item, Gap)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("table", ["spool", "message", "queue"])
def test_only_the_rows_on_bad_pages_are_lost(tmp_path: Path, table: str, seed: int) -> None:
    rows, leaves = filled(tmp_path, table)
    drawn = random.Random(seed)
    bad = drawn.sample(leaves, (1, 2, 20, len(leaves) // 3)[seed])
    for page, _ in bad:
        damage(tmp_path, page - 1)
    found = salvaged(tmp_path, table)
    assert found <= rows
    # in a table without row numbers, a row that separates two bad pages can be reached by no search
    between = sum(one in bad and other in bad for one, other in pairwise(leaves))
    more = between if table == "queue" else 0
    lost = sum(count for _, count in bad)
    assert lost <= len(rows - found) <= lost + more


def test_table_with_text_keys_keeps_what_is_before_and_after_its_bad_pages(tmp_path: Path) -> None:
    rows, leaves = filled(tmp_path, "retained")
    by_place = sorted(leaves)
    (first, lost), (last, more) = by_place[40], by_place[42]
    for page in (first, last):
        damage(tmp_path, page - 1)
    gone = rows - salvaged(tmp_path, "retained")
    between = by_place[41][1] + 2  # with the rows that separate pages
    assert lost + more <= len(gone) <= lost + more + between


def test_queue_of_sessions_that_cannot_be_read_is_read_from_both_ends(tmp_path: Path) -> None:
    rows, leaves = filled(tmp_path, "queue")
    for page, _ in (leaves[20], leaves[60]):
        damage(tmp_path, page - 1)
    damage(tmp_path, root_of(tmp_path, "session") - 1)
    found = salvaged(tmp_path, "queue")
    ends = sum(count for _, count in leaves[:20] + leaves[61:])
    assert found <= rows
    assert ends <= len(found) < len(rows) - sum(count for _, count in leaves[20:61])
    assert {row[0] for row in found} >= {1, 3}, "the first session, and the last one"
