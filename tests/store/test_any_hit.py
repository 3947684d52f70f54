"""Any damage to the bytes of the database is harmless or noticed, whichever table it concerns. A
start with a damaged image must refuse it, log a finding, or read the same rows as before.
"""

import random
import sqlite3
from contextlib import closing

import pytest

from gateway.broker.store_rows import Commit
from gateway.store import twins
from gateway.store.apply import apply
from gateway.store.cells import sound, teach
from gateway.store.recovery import recover
from tests.broker.harness import World
from tests.store.test_references import world

assert world
CHECKS = {"twin", "spool_check", "content_check"}
MAY_CHANGE = {"queue", "flow", "origin", "batch_content"}
"""Tables in which a changed bit may stay unnoticed, because it breaks no rule
(gateway/docs/card.md, Limits).
"""
MAY_LOSE = {"retained", "will", "aside", "mark", "message", "spool"}
"""Tables whose rows have a check. If a row is lost together with its check, the loss may remain
unnoticed.
"""
SOAK = pytest.mark.soak


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill the store with few messages, so that the tables for other things have a larger share of
    the pages.
    """
    monkeypatch.setattr("tests.store.test_references.COUNT", 30)


def opened(image: bytes) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.deserialize(image)
    return database


Rows = dict[str, set[tuple[object, ...]]]


def read(database: sqlite3.Connection) -> Rows:
    teach(database)
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    return {
        table: set(
            database.execute(
                f"SELECT * FROM {table} WHERE " + (sound("spool") if table == "spool" else "1")
            )
        )
        for (table,) in database.execute(names).fetchall()
        if table not in CHECKS
    }


def silent(rows: Rows, before: Rows) -> set[str]:
    """Return the tables that differ from `before` in a way that the start should have noticed. Some
    tables may lose rows, and some may change.
    """
    return {
        table
        for table, found in rows.items()
        if (found - before[table] if table in MAY_LOSE else found != before[table])
    } - MAY_CHANGE


def unread(image: bytes) -> bytearray:
    """Return one byte for each byte of the image: 1 for an unused byte, which SQLite does not read,
    otherwise 0. The unused bytes of a page are between its array of cell pointers and its cells
    (https://sqlite.org/fileformat.html, section 1.6).
    """
    size = int.from_bytes(image[16:18], "big")
    found = bytearray(len(image))
    for page in range(0, len(image), size):
        head = page or 100
        kind, cells, begin = image[head], image[head + 3 : head + 5], image[head + 5 : head + 7]
        if kind in (2, 5, 10, 13):
            end = head + (8 if kind > 5 else 12) + 2 * int.from_bytes(cells, "big")
            begun = page + int.from_bytes(begin, "big")
            found[end:begun] = b"\1" * (begun - end)
    return found


@pytest.mark.parametrize("hits", [100, pytest.param(10_000, marks=SOAK)])
@pytest.mark.parametrize("sizes", [(1, 8, 64), (0,)], ids=["bytes", "bits"])
def test_random_hits_change_no_row_in_silence(
    world: World, caplog: pytest.LogCaptureFixture, hits: int, sizes: tuple[int, ...]
) -> None:
    marks = [(f"board-{number}", 0, 7, 5000 + number, -1, b"") for number in range(40)]
    apply(world.database, Commit(9, marks=marks))
    image, draw = world.database.serialize(), random.Random(44)
    with closing(opened(image)) as database:
        recover(database, None, 20)
        before = read(database)
    assert {*twins.TABLES, "mark", "retained", "will"} <= before.keys()
    count = {"refused": 0, "told": 0, "harmless": 0}
    wrong: list[str] = []
    dead = unread(image)
    assert len(image) * 0.7 < sum(dead) < len(image) * 0.9
    for _ in range(hits):
        hit, at, size = bytearray(image), draw.randrange(len(image)), draw.choice(sizes)
        if size:
            hit[at : at + size] = draw.randbytes(len(hit[at : at + size]))
        else:
            hit[at] ^= 1 << draw.randrange(8)
        if all(dead[at : at + (size or 1)]):
            count["harmless"] += 1
            continue
        caplog.clear()
        with closing(opened(bytes(hit))) as database:
            try:
                recover(database, None, 20)
                rows = read(database)
            except (sqlite3.Error, ValueError, TypeError):
                count["refused"] += 1
                continue
        if "the store is not whole" in caplog.text:
            count["told"] += 1
            continue
        if tables := silent(rows, before):
            wrong.append(f"{size} bytes at {at}: {tables}")
        count["harmless"] += 1
    print(hits, count, wrong)
    assert wrong == []
    assert min(count.values()) >= hits // 500, count
