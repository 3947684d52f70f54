"""Reads a damaged table: all readable rows, and the gaps.

In: a damaged database and the name of a table. Out: rows, a few of them twice, and a `Gap` where no
row could be read. A table is first read from its beginning and from its end, page after page,
without a search for keys. If the key of a table is a number, reading continues after a damaged
page, so that only the rows of the damaged page are lost. In a table without row numbers (`queue`),
a row that separates two damaged pages may be lost, too.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_END = 1 << 62

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of keys without readable rows. first: the lowest key, or None if it is unknown.
    after: the next readable key, or None if there is none.
    """

    first: Any
    after: Any

    def __str__(self) -> str:
        if self.first is None and self.after is None:
            return "all"
        if self.after is None:
            return f"from {self.first!r} on"
        return (
            f"before {self.after!r}"
            if self.first is None
            else f"from {self.first!r} to before {self.after!r}"
        )


def read(database: sqlite3.Connection, table: str) -> Iterator[Row | Gap]:
    """Yield the readable rows of a table, and a `Gap` for each range that cannot be read."""
    try:
        columns = database.execute(f"PRAGMA table_info({table})").fetchall()
    except sqlite3.DatabaseError:
        columns = []
    keys = [name for _, name, _, _, _, place in columns if place]
    if not keys:
        yield Gap(None, None)
        return
    names = [name for _, name, *_ in columns]
    places = [names.index(key) for key in keys]
    ends: list[Any] = []
    for order in ("ASC", "DESC"):
        last = None
        by = ", ".join(f"{key} {order}" for key in keys)
        try:
            for row in _rows(database, names, f"{table} ORDER BY {by}"):
                last = row[places[0]] if len(keys) == 1 else tuple(row[at] for at in places)
                yield row
        except sqlite3.DatabaseError:
            ends.append(last)
        else:
            return
    if next(kind for _, name, kind, *_ in columns if name == keys[-1]) == "INTEGER":
        yield from _numbered(database, table, keys, names)
    else:
        yield Gap(*ends)


def _rows(
    database: sqlite3.Connection, columns: list[str], rest: str, values: Row = ()
) -> Iterator[Row]:
    """Yield all rows up to the first damaged page, and raise sqlite3.DatabaseError there. A cursor
    of `sqlite3` would drop the last row, because it reads the next row before it returns one. So a
    function in the query takes the rows.
    """
    rows: list[Row] = []
    database.create_function("take", -1, lambda *row: rows.append(row))
    try:
        for _ in database.execute(f"SELECT take({', '.join(columns)}) FROM {rest}", values):  # noqa: S608 - names of ours
            yield from rows
            rows.clear()
    except sqlite3.DatabaseError:
        yield from rows
        raise


def _numbered(
    database: sqlite3.Connection, table: str, keys: list[str], columns: list[str]
) -> Iterator[Row | Gap]:
    """Read a table in the order of its last key column. If a table has two key columns, the first
    is the number of a session, and the rows of each session are read separately.
    """
    if len(keys) == 1:
        yield from _run(database, f"{table} WHERE {keys[0]} >= ?", (), keys[0], columns)
        return
    # a list, because `_rows` may read only one query at a time
    for item in list(_run(database, "session WHERE id >= ?", (), "id", ["id"])):
        if not isinstance(item, Gap):
            rest = f"{table} WHERE {keys[0]} = ? AND {keys[1]} >= ?"
            yield from _run(database, rest, item, keys[1], columns)


def _run(
    database: sqlite3.Connection, rest: str, fixed: Row, key: str, columns: list[str]
) -> Iterator[Row | Gap]:
    place, at = columns.index(key), 0
    while True:
        try:
            for row in _rows(database, columns, f"{rest} ORDER BY {key}", (*fixed, at)):
                yield row
                at = max(at, row[place] + 1)
            return
        except (sqlite3.DatabaseError, TypeError):
            first = (*fixed, at) if fixed else at
            found = _readable(database, f"{rest} ORDER BY {key}", fixed, at)
            if found is None:
                yield Gap(first, None)
                return
            below = f"{rest} AND {key} < ? ORDER BY {key} DESC"
            before = _back_to_damage(database, columns, below, (*fixed, at, found))
            keys = (row[place] for row in before if isinstance(row[place], int))
            yield Gap(first, min(keys, default=found))
            yield from before
            at = found


def _readable(database: sqlite3.Connection, rest: str, fixed: Row, at: int) -> int | None:
    """Return a readable key above `at`, or None. The search tries keys at distances that grow by
    5 %. So it finds readable keys between two damaged places, unless they are fewer than a
    twentieth of the keys that are damaged before them.
    """
    step = 1
    while at + step <= _END:
        with suppress(sqlite3.DatabaseError):
            database.execute(f"SELECT * FROM {rest} LIMIT 1", (*fixed, at + step)).fetchone()  # noqa: S608
            return at + step
        step += max(1, step // 20)
    return None


def _back_to_damage(
    database: sqlite3.Connection, columns: list[str], rest: str, values: Row
) -> list[Row]:
    """Return the rows of a query up to the first damaged page."""
    found: list[Row] = []
    with suppress(sqlite3.DatabaseError):
        for row in _rows(database, columns, rest, values):
            found.append(row)
    return found
