"""Twins of rows that change rarely: copies of their cells, and a search for rows that differ.

In: an open store. Out: rows that have changed or are gone since they were written. The copies are
rows of `twin`, which triggers of SQLite write in the same transaction as the row. So the copies
stay up to date whichever program writes the table, even a version that does not know the copies.
The tables that change with each reading have checks instead (`row_checks.py`), because a copy would
cost a page at each commit.
"""

import sqlite3
from dataclasses import dataclass
from typing import Any

_TABLE = """
CREATE TABLE IF NOT EXISTS twin (
    kind TEXT, key TEXT, cells TEXT NOT NULL, PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID;
"""
_COLUMNS = {
    "meta": (("key",), ("value",)),
    "session": (("id",), ("client", "expiry", "left", "incarnation", "user")),
    "subscription": (("session", "filter"), ("options", "identifier")),
    "journey": (
        ("session",),
        ("lineage", "moves", "closed", "tails", "filters", "key", "user", "member", "done"),
    ),
    "place": (("key",), ("epoch", "doubtful", "older")),
    "given": (("key",), ("member", "parts", "messages", "ends")),
    "batch": (("number",), ("first", "last", "rows", "bytes", "sha256", "cut", "landed")),
}
"""Columns by table: first the columns of the key, then the other copied columns."""
TABLES = tuple(_COLUMNS)
_Bound = tuple[str, str] | None
"""A key of the table `twin`: kind and key. None for no bound."""


def columns(table: str) -> tuple[str, ...]:
    """Return the columns of a table that `twin` copies, the columns of the key first."""
    return tuple(name for names in _COLUMNS[table] for name in names)


def _key(table: str, row: str) -> str:
    # a text, because a search in the index of `key` does not find a number
    return "'' || " + " || ' ' || ".join(f"{row}.{name}" for name in _COLUMNS[table][0])


def cells_of(table: str, row: str) -> str:
    """Return an SQL expression that joins the cells of a row to one text, as `twin` stores it. row:
    name of the row or table in SQL.
    """
    return " || ' ' || ".join(f"coalesce({row}.{name}, '-')" for name in _COLUMNS[table][1])


def _put(table: str, row: str) -> str:
    values = f"'{table}', {_key(table, row)}, {cells_of(table, row)}"
    return f"INSERT OR REPLACE INTO twin SELECT {values}"


def _drop(table: str) -> str:
    return f"DELETE FROM twin WHERE kind = '{table}' AND key = ({_key(table, 'old')})"  # noqa: S608


def _triggers(table: str) -> dict[str, str]:
    """Return the CREATE TRIGGER statements for a table, by name of the trigger."""
    put = _put(table, "new")
    if table == "session":
        # in schema 1, which has no column `user`, the name means the column of the outer query
        user = "(SELECT user FROM session WHERE session.id = new.id)"
        put = f"{put.replace('new.user', user)} FROM (SELECT NULL AS user)"
    parts = {"INSERT": put, "UPDATE": f"{_drop(table)}; {put}", "DELETE": _drop(table)}
    return {
        f"twin_{table}_{event.lower()}": f"CREATE TRIGGER twin_{table}_{event.lower()}"
        f" AFTER {event} ON {table} BEGIN {body}; END"
        for event, body in parts.items()
    }


def _has(database: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_schema WHERE name = ?"
    return database.execute(query, (name,)).fetchone() is not None


def make(database: sqlite3.Connection) -> None:
    """Create `twin` and its triggers if they are missing. Copy the rows of each table that lacked a
    trigger. Call this inside a transaction.
    """
    database.execute(_TABLE)
    for table in TABLES:
        missing = [text for name, text in _triggers(table).items() if not _has(database, name)]
        for statement in missing:
            database.execute(statement)
        if missing:
            fill(database, (table,))


def fill(database: sqlite3.Connection, tables: tuple[str, ...] = TABLES) -> None:
    """Replace the copies of these tables in `twin` by copies of all their present rows."""
    for table in tables:
        database.execute("DELETE FROM twin WHERE kind = ?", (table,))
        database.execute(f"{_put(table, table)} FROM {table}")


def accept(database: sqlite3.Connection, first: _Bound, after: _Bound) -> None:
    """Add every missing copy whose key is between `first` and `after`; None: no bound. A salvage
    calls this for a damaged part of `twin`, because a row without a copy would count as changed.
    """
    bounds = [f"(kind, key) {sign} (?, ?)" for sign, key in ((">", first), ("<", after)) if key]
    within = " AND ".join(bounds) or "TRUE"
    for table in TABLES:
        values = f"'{table}' AS kind, {_key(table, table)} AS key, {cells_of(table, table)}"
        database.execute(
            f"INSERT OR IGNORE INTO twin SELECT * FROM (SELECT {values} FROM {table})"  # noqa: S608
            f" WHERE {within}",
            (*(first or ()), *(after or ())),
        )


def drop(database: sqlite3.Connection) -> None:
    """Delete `twin` and its triggers, because the triggers name columns that another schema
    lacks.
    """
    for table in TABLES:
        for name in _triggers(table):
            database.execute(f"DROP TRIGGER IF EXISTS {name}")
    database.execute("DROP TABLE IF EXISTS twin")


@dataclass(frozen=True, slots=True)
class Changed:
    """A row that differs from its copy. key: its key, as `twin` has it. row: the first column of
    its key. is_missing: whether the row is gone, and only the copy exists. cells: the cells in the
    copy.
    """

    table: str
    key: str
    row: Any
    is_missing: bool
    cells: str

    @property
    def number(self) -> int:
        """The first column of the key, if it is a number; else 0."""
        found = str(self.row).partition(" ")[0]
        return int(found) if found.isdecimal() else 0

    def __str__(self) -> str:
        key = repr(self.key)[:60] if self.table in ("meta", "place", "given") else self.key[:60]
        problem = (
            "the row is gone"
            if self.is_missing
            else "its cells have changed since they were stored"
        )
        return f"row {key} of {self.table}: {problem}"


def changed(database: sqlite3.Connection, table: str) -> list[Changed]:
    """Return the rows of a table that differ from their copies, and the copies without a row. Empty
    if the store has no copies of the table.
    """
    if not (_has(database, "twin") and all(_has(database, name) for name in _triggers(table))):
        return []
    key, cells, first = _key(table, table), cells_of(table, table), _COLUMNS[table][0][0]
    strict, database.text_factory = database.text_factory, _lenient
    try:
        found = database.execute(
            f"SELECT '{table}', {key}, {table}.{first}, 0, coalesce(cells, '')"  # noqa: S608
            f" FROM {table} LEFT JOIN twin ON kind = '{table}' AND twin.key = ({key})"
            f" WHERE cells IS NOT {cells} UNION ALL"
            f" SELECT kind, key, key, 1, cells FROM twin WHERE kind = '{table}'"
            f" AND key NOT IN (SELECT coalesce({key}, '') FROM {table})"
        ).fetchall()
    finally:
        database.text_factory = strict
    return [
        Changed(kind, _text(key), row, bool(is_missing), text)
        for kind, key, row, is_missing, text in found
    ]


def _text(key: Any) -> str:
    """Return a key as text. Bytes that are not UTF-8 are replaced."""
    return _lenient(key) if isinstance(key, bytes) else str(key or "")


def _lenient(data: bytes) -> str:
    return data.decode(errors="replace")
