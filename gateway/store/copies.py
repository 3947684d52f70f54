"""`DATA/copies.db`: replicas of other gateways' spool rows
(`gateway/site/replication/receiving.py`).

In: spool rows of other gateways. A *line* is the series of rows of one spool, and has a small
number in this file. Out: the same rows, a page at a time. The file is separate from the gateway's
own store, so backup, salvage and older versions ignore it. If it is lost, no reading is lost: each
gateway sends its spool again.

Each row has a CRC-32 over its cells (`row_checks.py`), written in the same commit. If a row has
changed, it is not returned: the log names it, and it stays in the table `copy_damaged`. Version
0.2.0 writes no checks. The rows that it added, above the last row in `line_check`, get their checks
when the file is opened.
"""

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from gateway.store.apply import put
from gateway.store.row_checks import row_sum
from gateway.store.schema import connect

log = logging.getLogger(__name__)

FILE = "copies.db"
_VERSION = 1
_BITS = 40
"""Number of low bits of a row's key that hold the row's id in its own spool. The higher bits hold
the line's number. So the rows of a line are adjacent in the table, and writing a new row of a
thousand bytes changes one page.
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
_CHECKS = """
CREATE TABLE IF NOT EXISTS copy_check (key INTEGER PRIMARY KEY, sum INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS line_check (number INTEGER PRIMARY KEY, last INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS copy_damaged AS SELECT * FROM copy WHERE 0;
CREATE INDEX IF NOT EXISTS copy_damaged_key ON copy_damaged (key);
"""
_MASK = (1 << _BITS) - 1
_PAGE_ROWS, _PAGE_BYTES = 1024, 1 << 20

LineRow = tuple[int, str, int, str]
"""A row of the table `line`: number, member, id of the last row received, and facts about the line
that its member has told (JSON). A line is a series of spool rows of another gateway.
"""


class Copies:
    """The replicas in `DATA/copies.db`, which is created if it does not exist. Only one thread at a
    time may use this object. Raises sqlite3.Error, OSError.
    """

    def __init__(self, folder: Path) -> None:
        self._db = connect(folder / FILE)
        self._file = folder / FILE
        self._aside = set[int]()
        """Keys of damaged rows that were set aside since the start."""
        try:
            if self._db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT")
            self._db.executescript(_CHECKS)
            self._db.text_factory = lambda data: data.decode(errors="replace")  # checks find them
            self._add_missing()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    @property
    def damaged(self) -> int:
        """Number of changed rows that were found and set aside since the start. Any thread may read
        it.
        """
        return len(self._aside)

    def lines(self) -> list[LineRow]:
        return self._db.execute("SELECT number, member, last, told FROM line").fetchall()

    def sizes(self, part: int) -> list[tuple[int, int, int]]:
        """Return, for each group of `part` consecutive row ids of a line: the line's number
        (`LineRow`), the highest id of a row, and the size of the group's rows in bytes. Groups
        without rows are left out.
        """
        found = self._db.execute(
            "SELECT max(key), sum(length(payload) + length(topic) + length(client) + 64) FROM copy"
            " GROUP BY key / ? ORDER BY 1",
            (part,),
        )
        return [(key >> _BITS, key & _MASK, size) for key, size in found]

    def gaps(self) -> dict[int, tuple[int, int]]:
        """Return the id of the first missing row and the number of missing rows, by the number of
        the line (`LineRow`). Lines without a missing row are left out.
        """
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
        """Return how many rows each unknown line (`LineRow`) has, by the line's number."""
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
        """Write one transaction. lines: new or changed lines. rows: for each row, the number of its
        line, and its cells. drops: for each number of a line, an id; the line's rows with lower ids
        are deleted. forgotten: numbers of lines to delete.
        """
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for number in forgotten:
                self._drop(number, 1 << _BITS)
                self._db.execute("DELETE FROM line WHERE number = ?", (number,))
                self._db.execute("DELETE FROM line_check WHERE number = ?", (number,))
            for number, first in drops.items():
                self._drop(number, first)
            self._db.executemany("INSERT OR REPLACE INTO line VALUES (?, ?, ?, ?)", lines)
            found = [(number << _BITS | row[0], *row[1:]) for number, row in rows]
            put(self._db, "copy", found)
            self._check(found, [(line[0], line[2]) for line in lines])
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _drop(self, number: int, first: int) -> None:
        within = number << _BITS, (number << _BITS) + first
        self._db.execute("DELETE FROM copy WHERE key >= ? AND key < ?", within)
        self._db.execute("DELETE FROM copy_check WHERE key >= ? AND key < ?", within)

    def _check(self, rows: Iterable[Sequence[Any]], lasts: Iterable[tuple[int, int]]) -> None:
        """Write the checks of rows. lasts: pairs of a line's number and the last row id of the
        line. From now on, all rows of the line up to this id have checks.
        """
        many = self._db.executemany
        many("INSERT OR REPLACE INTO copy_check VALUES (?, ?)", [(r[0], _sum(r)) for r in rows])
        many("INSERT OR REPLACE INTO line_check VALUES (?, ?)", lasts)

    def _add_missing(self) -> None:
        """Write the checks that rows lack because an older version of Onceway has added them."""
        newer = self._db.execute(
            "SELECT line.number, line.last, coalesce(line_check.last, -1) FROM line"
            " LEFT JOIN line_check USING (number) WHERE line.last > coalesce(line_check.last, -1)"
        ).fetchall()
        for number, last, checked in newer:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                rows = self._db.execute(
                    "SELECT * FROM copy WHERE key > ? AND key < ?",
                    ((number << _BITS) + checked, (number + 1) << _BITS),
                )
                self._check(rows, [(number, last)])

    def page(self, number: int, first: int, count: int, most: int) -> list[tuple[Any, ...]]:
        """Return rows of a line (`LineRow`) from id `first` on. Rows that do not match their check
        are left out and set aside. The page has at most `count` rows, and at most `most` bytes of
        payloads, but at least one row if any remains. number: number of the line.
        """
        rows: list[tuple[Any, ...]] = []
        begin, end = (number << _BITS) + first, (number + 1) << _BITS
        found = self._db.execute(
            "SELECT copy.*, sum FROM copy LEFT JOIN copy_check USING (key)"
            " WHERE key >= ? AND key < ? ORDER BY key",
            (begin, end),
        )
        for *row, check in found:
            if _sum(row) != check:
                self._set_aside(row[0])
                continue
            most -= len(row[6])
            if rows and most < 0:
                break
            rows.append((row[0] & _MASK, *row[1:]))
            if len(rows) == count:
                break
        return rows

    def _set_aside(self, key: int) -> None:
        if key in self._aside:
            return
        self._aside.add(key)
        log.error(
            "%s: the copy of row %d of spool %d (table line) has changed since it was stored. It"
            " does not land, and stays in the table copy_damaged",
            self._file,
            key & _MASK,
            key >> _BITS,
        )
        self._db.execute(
            "INSERT INTO copy_damaged SELECT * FROM copy WHERE key = ?1"
            " AND key NOT IN (SELECT key FROM copy_damaged)",
            (key,),
        )


def _sum(row: Sequence[Any]) -> int:
    """Return the check of a row; -1 if a cell has an impossible value."""
    try:
        return row_sum(row)
    except (TypeError, ValueError):
        return -1


def adopted(line: dict[str, Any], rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Convert rows of a line (`LineRow`) to rows for this gateway's spool. They keep the ids of the
    line. A row without a device gets the key with which the member itself would land it. line:
    facts about the line, from its member.

    A row without a time of receipt gets one if the line's facts have the start time of the row's
    boot. Otherwise the row gets boot 0. No gateway has this boot, so the row never gets a time.
    """
    found = []
    for number, device, incarnation, sequence, *rest, boot, monotonic, received in rows:
        if device is None:
            device = f"@{line['name']}"
            (incarnation, *_) = (
                epoch for first, epoch in reversed(line["epochs"]) if first <= number
            )
        if received is None:
            if boot == line["boot"] and line["clock"] is not None:
                received = line["clock"] + monotonic
            else:
                boot = 0
        found.append((number, device, incarnation, sequence, *rest, boot, monotonic, received))
    return found


def is_damaged(error: Exception) -> bool:
    """Whether an error says that the file is not a sound database. After other errors, another
    attempt may succeed.
    """
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
        return True  # the file's schema has changed
    return not isinstance(error, OSError | sqlite3.OperationalError)


def put_aside(folder: Path, error: Exception) -> None:
    """Rename the unreadable database of replicas in `folder`. A new one can then take its place.
    The database must be closed. error: the reason, for the log."""
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
    """Append all readable replicas in a folder to the spool of a store, with new ids. During the
    call, no other program may use the replicas or the store. Return the number of rows.
    """
    if not (folder / FILE).is_file():
        return 0
    count = 0
    with database:
        database.execute("BEGIN IMMEDIATE")
        (last,) = database.execute("SELECT id FROM spool_last").fetchone()
        for rows in _readable(folder):
            put(
                database,
                "spool",
                [(last + count + index, *row[1:]) for index, row in enumerate(rows, 1)],
            )
            count += len(rows)
    return count


def _readable(folder: Path) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the readable replicas of all spools, converted by `adopted` to rows of this gateway's
    spool, a page at a time.
    """
    try:
        with closing(Copies(folder)) as shelf:
            for number, _, _, source in sorted(shelf.lines()):
                first = 0
                while rows := shelf.page(number, first, _PAGE_ROWS, _PAGE_BYTES):
                    first = rows[-1][0] + 1
                    yield adopted(json.loads(source), rows)
    except (sqlite3.DatabaseError, ValueError, TypeError, KeyError) as error:
        if not is_damaged(error):
            raise
        log.error(
            "%s: the rest of the copies for other members cannot be read (%s)", folder / FILE, error
        )
