"""Reads a damaged table: all readable rows, and the gaps.

In: a damaged database and the name of a table. Out: rows, a few of them twice, and a `Gap` where no
row could be read. A table is first read from its beginning and from its end, page after page,
without a search for keys. If the key of a table is a number, reading continues after a damaged
page, so that only the rows of the damaged page are lost.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_END = 1 << 62
_ROWS_OF_A_PAGE = 512  # a page has 4096 bytes, and a row at least 8

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
    for item in list(_run(database, "session WHERE id >= ?", (), "id", ["id"])):
        if not isinstance(item, Gap):
            rest = f"{table} WHERE {keys[0]} = ? AND {keys[1]} >= ?"
            yield from _run(database, rest, item, keys[1], columns)


def _run(
    database: sqlite3.Connection, rest: str, fixed: Row, key: str, columns: list[str]
) -> Iterator[Row | Gap]:
    rest, place, at = f"{rest} ORDER BY {key}", columns.index(key), 0
    while True:
        try:
            for row in _rows(database, columns, rest, (*fixed, at)):
                yield row
                at = max(at, row[place] + 1)
            return
        except (sqlite3.DatabaseError, TypeError):
            after = _next_readable(database, f"SELECT * FROM {rest}", fixed, at)  # noqa: S608
            yield Gap((*fixed, at) if fixed else at, after)
            if after is None:
                return
            at = after


def _next_readable(database: sqlite3.Connection, query: str, fixed: Row, at: int) -> int | None:
    """Return the lowest readable key above `at`, or None. The search tries each of the next keys,
    as many as a page may have, and then doubles its steps and bisects the last one. So readable
    keys may be skipped only between two damaged inner pages of the table.
    """

    def reads(key: int) -> bool:
        try:
            database.execute(f"{query} LIMIT 1", (*fixed, key)).fetchone()
        except sqlite3.DatabaseError:
            return False
        return True

    step = 1
    while not reads(at + step):
        step += 1 if step < _ROWS_OF_A_PAGE else step
        if at + step > _END:
            return None
    if step <= _ROWS_OF_A_PAGE:
        return at + step
    low, high = step // 2, step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reads(at + middle) else (middle, high)
    return at + high
