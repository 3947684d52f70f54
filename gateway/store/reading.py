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
    ends: list[Any] = []
    for order in ("ASC", "DESC"):
        last = None
        by = ", ".join(f"{key} {order}" for key in keys)
        try:
            for row in database.execute(f"SELECT {', '.join(keys)}, * FROM {table} ORDER BY {by}"):  # noqa: S608 - names of ours
                last = row[0] if len(keys) == 1 else row[: len(keys)]
                yield row[len(keys) :]
        except sqlite3.DatabaseError:
            ends.append(last)
        else:
            return
    if next(kind for _, name, kind, *_ in columns if name == keys[-1]) == "INTEGER":
        yield from _numbered(database, table, keys, [name for _, name, *_ in columns])
    else:
        yield Gap(*ends)


def _numbered(
    database: sqlite3.Connection, table: str, keys: list[str], columns: list[str]
) -> Iterator[Row | Gap]:
    """Read a table in the order of its last key column. If a table has two key columns, the first
    is the number of a session, and the rows of each session are read separately.
    """
    if len(keys) == 1:
        yield from _run(
            database,
            f"SELECT * FROM {table} WHERE {keys[0]} >= ?",  # noqa: S608
            (),
            keys[0],
            columns,
        )
        return
    for item in _run(database, "SELECT id FROM session WHERE id >= ?", (), "id", ["id"]):
        if not isinstance(item, Gap):
            query = f"SELECT * FROM {table} WHERE {keys[0]} = ? AND {keys[1]} >= ?"  # noqa: S608 - names of ours
            yield from _run(database, query, item, keys[1], columns)


def _run(
    database: sqlite3.Connection, query: str, fixed: Row, key: str, columns: list[str]
) -> Iterator[Row | Gap]:
    query, place, at = f"{query} ORDER BY {key}", columns.index(key), 0
    while True:
        try:
            for row in database.execute(query, (*fixed, at)):
                yield row
                at = max(at, row[place] + 1)
            return
        except (sqlite3.DatabaseError, TypeError):
            after = _next_readable(database, query, fixed, at)
            yield Gap((*fixed, at) if fixed else at, after)
            if after is None:
                return
            at = after


def _next_readable(database: sqlite3.Connection, query: str, fixed: Row, at: int) -> int | None:
    """Return a readable key above `at`, or None. The search doubles its steps, then bisects the
    last step. So it may skip readable keys between two damaged places.
    """

    def reads(key: int) -> bool:
        try:
            database.execute(f"{query} LIMIT 1", (*fixed, key)).fetchone()
        except sqlite3.DatabaseError:
            return False
        return True

    step = 1
    while not reads(at + step):
        step *= 2
        if at + step > _END:
            return None
    low, high = step // 2, step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reads(at + middle) else (middle, high)
    return at + high
