"""The shelf: `DATA/copies.db`, copies of other gateways' spools
(`gateway/site/replication/receiving.py`).

In: rows of other spools by their line, a small number. Out: the same, a page at a time. Apart from
the gateway's own store, so a backup, a salvage or an older version knows nothing of it, and losing
it costs no reading: each line's gateway has its own spool, and sends it again.
"""

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from gateway.store.apply import put
from gateway.store.schema import connect

log = logging.getLogger(__name__)

FILE = "copies.db"
_VERSION = 1
_BITS = 40
"""A row's key is its line's number and, in so many low bits, its id there: the rows of a line are
together, and a row of a thousand bytes touches one page.
"""
_TABLES = f"""
CREATE TABLE line (
    number INTEGER PRIMARY KEY, member TEXT NOT NULL, last INTEGER NOT NULL, told TEXT NOT NULL)
    STRICT;
CREATE TABLE copy (
    key INTEGER PRIMARY KEY, device TEXT, incarnation INTEGER, sequence INTEGER NOT NULL,
    client TEXT NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL,
    boot INTEGER NOT NULL, monotonic INTEGER NOT NULL, received INTEGER) STRICT;
PRAGMA user_version={_VERSION};
"""
_MASK = (1 << _BITS) - 1
_PAGE_ROWS, _PAGE_BYTES = 1024, 1 << 20

LineRow = tuple[int, str, int, str]
"""number, member, last row that came, what the member told of it (JSON)."""


class Copies:
    """Opens the file, or makes it. Used by one thread at a time. Raises sqlite3.Error, OSError."""

    def __init__(self, folder: Path) -> None:
        self._db = connect(folder / FILE)
        if self._db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT")

    def close(self) -> None:
        self._db.close()

    def lines(self) -> list[LineRow]:
        return self._db.execute("SELECT number, member, last, told FROM line").fetchall()

    def sizes(self, part: int) -> list[tuple[int, int, int]]:
        """(line, highest id, bytes) of what is there, joined by so many ids."""
        found = self._db.execute(
            "SELECT max(key), sum(length(payload) + length(topic) + length(client) + 64) FROM copy"
            " GROUP BY key / ? ORDER BY 1",
            (part,),
        )
        return [(key >> _BITS, key & _MASK, size) for key, size in found]

    def gaps(self) -> dict[int, tuple[int, int]]:
        """By line: its first row that is gone, and how many are, among those that it is to have."""
        found = self._db.execute(
            "SELECT number, min(begin), sum(stop - begin) FROM"
            " (SELECT line.number, key & ?1 AS stop,"
            " lag(key & ?1, 1, json_extract(told, '$.first') - 1)"
            " OVER (PARTITION BY line.number ORDER BY key) + 1 AS begin FROM line JOIN"
            " (SELECT key, key >> ?2 AS number FROM copy UNION ALL"
            " SELECT (number << ?2) + last + 1, number FROM line) AS rows"
            " ON rows.number = line.number) WHERE stop > begin GROUP BY number",
            (_MASK, _BITS),
        )
        return {number: (first, count) for number, first, count in found}

    def orphans(self) -> dict[int, int]:
        """Rows of lines of which nothing is known: their number by that of the line."""
        return dict(
            self._db.execute(
                "SELECT key >> ?1, count(*) FROM copy"
                " WHERE key >> ?1 NOT IN (SELECT number FROM line) GROUP BY 1",
                (_BITS,),
            )
        )

    def write(
        self,
        lines: Sequence[LineRow],
        rows: Iterable[tuple[int, Sequence[Any]]],
        drops: dict[int, int],
        forgotten: Sequence[int],
    ) -> None:
        """One transaction. rows: with their line. drops: by line, below which id all go."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for number in forgotten:
                self._drop(number, 1 << _BITS)
                self._db.execute("DELETE FROM line WHERE number = ?", (number,))
            for number, first in drops.items():
                self._drop(number, first)
            self._db.executemany("INSERT OR REPLACE INTO line VALUES (?, ?, ?, ?)", lines)
            put(self._db, "copy", [(number << _BITS | row[0], *row[1:]) for number, row in rows])
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _drop(self, number: int, first: int) -> None:
        self._db.execute(
            "DELETE FROM copy WHERE key >= ? AND key < ?",
            (number << _BITS, (number << _BITS) + first),
        )

    def page(self, number: int, first: int, count: int, most: int) -> list[tuple[Any, ...]]:
        """Rows of a line from this id on: so many at most, and of payloads so many bytes, but one
        at least.
        """
        rows: list[tuple[Any, ...]] = []
        found = self._db.execute(
            "SELECT * FROM copy WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
            ((number << _BITS) + first, (number + 1) << _BITS, count),
        )
        for row in found:
            most -= len(row[6])
            if rows and most < 0:
                break
            rows.append((row[0] & _MASK, *row[1:]))
        return rows


def adopted(line: dict[str, Any], rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows of a line as rows of this gateway's spool, but for their ids: under the keys that their
    own gateway would have landed them under. line: what its member told of it.

    A row without a time gets it if its boot is known to have begun at one; else it is of boot 0,
    which no gateway has, so that nobody here gives it another time.
    """
    found = []
    for number, device, incarnation, sequence, *rest, boot, monotonic, received in rows:
        if device is None:
            device = f"@{line['name']}"
            incarnation = next(
                epoch for first, epoch in reversed(line["epochs"]) if first <= number
            )
        if received is None:
            if boot == line["boot"] and line["clock"] is not None:
                received = line["clock"] + monotonic
            else:
                boot = 0
        found.append((number, device, incarnation, sequence, *rest, boot, monotonic, received))
    return found


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether it says that the file is no sound database; another try may do better otherwise."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError
    )


def put_aside(folder: Path, error: sqlite3.Error) -> None:
    """The file cannot be read, and a new one takes its place. Nobody has it open."""
    log.error(
        "%s: copies for other members cannot be read (%s), and are put aside; the members send them"
        " again",
        folder / FILE,
        error,
    )
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            (folder / f"{FILE}{suffix}").replace(folder / f"{FILE}.damaged{suffix}")


def bring_all(folder: Path, database: sqlite3.Connection) -> int:
    """Put all that the shelf in a folder has, as far as it can be read, behind the rows of a
    store's spool; nobody else uses either. Returns how many rows.
    """
    if not (folder / FILE).is_file():
        return 0
    brought = 0
    with database:
        database.execute("BEGIN IMMEDIATE")
        (last,) = database.execute("SELECT id FROM spool_last").fetchone()
        for rows in _readable(folder):
            put(
                database,
                "spool",
                [(last + brought + index, *row[1:]) for index, row in enumerate(rows, 1)],
            )
            brought += len(rows)
    return brought


def _readable(folder: Path) -> Iterator[list[tuple[Any, ...]]]:
    """Rows of all lines, as `adopted` gives them."""
    try:
        with closing(Copies(folder)) as shelf:
            for number, _, _, told in sorted(shelf.lines()):
                first = 0
                while rows := shelf.page(number, first, _PAGE_ROWS, _PAGE_BYTES):
                    first = rows[-1][0] + 1
                    yield adopted(json.loads(told), rows)
    except sqlite3.DatabaseError as error:
        if not is_damaged(error):
            raise
        log.error(
            "%s: the rest of the copies for other members cannot be read (%s)", folder / FILE, error
        )
