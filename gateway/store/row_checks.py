"""A check for each row of the spool, until its batch is cut; for each message in a queue, until it
is sent; and for each retained message, will and message that is set aside.

In: rows as the broker hands them to the writer. Out: CRC-32s over all cells of each row, and
whether a row that was read still has the cells that were written. SQLite checks no value that it
reads: without these checks, a bit that flips on the card becomes a signed reading.

The spool. The CRCs of up to CHUNK rows make one row of `spool_check`, which is written with a later
commit: one more page at each commit would wear the card. A row gets its check after EACH further
rows or EACH_S seconds. Until then, and after a kill until the next start, SQLite's log holds the
row, and the log has checksums of its own. `meta.spool.checked` is the id of the last row with a
check. A row up to this id fails if its check is damaged or missing, since one fault of the card can
damage both a row and the adjacent check. A row with a higher id passes only if it can be a new row:
one of the last EACH rows of the table, in order. A new row with a changed id is detected, because
its neighbours do not have adjacent ids.

Messages. The number of a row of `message` consists of the broker's number and BITS bits of a CRC
over the other cells, which costs no page. A queue entry refers to its message by the row number, so
neither a changed message nor another message can take its place. One change in a million is not
detected.

Other contents. Each retained message, will and message that is set aside has a CRC-32 in
`content_check`, written in the same commit. A start leaves out a row whose check differs, and logs
it.

Anti-replay windows. A row of `mark` has 13 bits of a CRC in its column `kept`, on the page that is
written anyway. A start leaves out a row whose check differs: if the board sends a reading again,
the reading is stored again.

A version of Onceway that does not know the checks leaves their tables alone, and continues from the
highest number of a message. That version also counts its start (`meta.boot`) without
`meta.spool.boot`. So the two numbers differ, rows of that version pass, and they get a check at the
next start of this version.
"""

import json
import re
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from time import monotonic
from typing import Any
from zlib import crc32

from gateway.broker.store_rows import MarkRow, MessageRow, QueueRow

TABLE = """
CREATE TABLE IF NOT EXISTS spool_check (
    last INTEGER PRIMARY KEY, first INTEGER NOT NULL, sums BLOB NOT NULL) STRICT;
"""
_CELLS = (
    "spool.id, CAST(spool.device AS BLOB), spool.incarnation, spool.sequence,"
    " CAST(spool.client AS BLOB), CAST(spool.topic AS BLOB), CAST(spool.payload AS BLOB),"
    " spool.boot, spool.monotonic, spool.received"
)
_READABLE = re.sub(
    r"spool\.(incarnation|sequence|boot|monotonic|received)",
    r"iif(typeof(spool.\1) IN ('integer', 'null'), spool.\1, CAST(spool.\1 AS BLOB))",
    _CELLS,
)
"""Like `_CELLS`, but a damaged number, which may be text, is read as bytes."""
SOUND = f"spool_is_sound({_CELLS})"
"""SQL condition: true if a row of `spool` still has the cells with which it was stored. The
connection must be prepared by `cells.teach`.
"""
CHECKED = "spool.checked"
WRITER = "spool.boot"
"""Key in `meta`: the number of the last start of a version that writes checks."""
CHUNK = 128
"""Largest number of spool rows whose checks are in one row of `spool_check`, which then has 0.5
kB.
"""
EACH = 64
"""Number of new spool rows after which their checks are written."""
EACH_S = 60.0
"""Longest time in seconds until the check of a spool row is written."""
_BOUNDS = struct.Struct("<qq")
_LATEST = "SELECT coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?), 0)"

BITS = 20
_MASK = (1 << BITS) - 1
OURS = (
    "(SELECT count(*) = 2 AND min(value) = max(value) FROM meta"
    " WHERE key IN ('boot', 'spool.boot'))"
)
"""SQL condition: true if the last start was a start of a version that writes checks."""
FITS = (
    f"(NOT {OURS} OR message_fits(message.id, CAST(message.topic AS BLOB), message.retain,"
    " message.count, message.properties, message.expires, message.body))"
)
"""SQL condition: false if a row of `message` no longer has the cells with which it was stored. If
OURS is false, the condition is true for every row. The connection must be prepared by
`cells.teach`.
"""

Sum = tuple[int, int]
"""The id of a spool row, and its checksum (`row_sum`)."""


def row_sum(row: Sequence[Any]) -> int:
    """Return the checksum of a row of the spool. Column `received` may be set later, so its own CRC
    is combined by XOR: the checksum can then be changed without reading the other cells.
    """
    number, device, incarnation, sequence, client, topic, payload, boot, monotonic, received = row
    names = f"({number}, {device!r}, {incarnation}, {sequence}, {client!r}, {topic!r}, "
    cells = crc32(payload, crc32(f"{names}{boot}, {monotonic})".encode(errors="replace")))
    return cells if received is None else cells ^ _time_sum(received)


@lru_cache(4)
def _time_sum(received: int) -> int:
    return crc32(b"%d" % received)


class SpoolChecks:
    """The checks of spool rows that the writer has not written yet. each: number of unwritten
    checks at which `put` writes all of them.
    """

    def __init__(self, each: int = EACH) -> None:
        self.pending: list[Sum] = []
        """Checks of committed rows that are not written yet."""
        self._each = each
        self._since = monotonic()

    @property
    def due(self) -> bool:
        """Whether the oldest pending check has waited for EACH_S seconds, so that it must be
        written.
        """
        return bool(self.pending) and monotonic() - self._since >= EACH_S

    def put(
        self,
        database: sqlite3.Connection,
        rows: Iterable[Sequence[Any]],
        clock: int | None = None,
        boot: int = 0,
    ) -> list[Sum]:
        """Add the checks of a commit's rows, inside the commit's transaction. Checks may stay in
        memory at first. If they are many or old, or if `clock` is given, all are written. Return
        the checks that remain in memory, which `pending` must get after the commit. clock: time of
        the gateway's start `boot` in µs since 1970, given when it becomes known. Then the rows of
        this boot that have no time yet get their time.
        """
        rest = [*self.pending, *[(row[0], row_sum(row)) for row in rows]]
        if not self.pending:
            self._since = monotonic()
        if len(rest) >= self._each or clock is not None or monotonic() - self._since >= EACH_S:
            _write(database, rest)
            rest = []
        if clock is not None:
            add_times(database, clock, boot)
        return rest

    def flush(self, database: sqlite3.Connection) -> None:
        """Write all pending checks, in a transaction of their own. Raises sqlite3.Error."""
        if self.pending:
            with database:
                database.execute("BEGIN IMMEDIATE")
                _write(database, self.pending)
            self.pending = []


def _write(database: sqlite3.Connection, sums: Sequence[Sum]) -> None:
    """Write the checks `sums` of new rows. Delete checks of rows that have left the spool."""
    if not sums:
        return
    lowest = "(SELECT coalesce(min(id), 1 << 62) FROM spool)"
    database.execute(f"DELETE FROM spool_check WHERE last < {lowest}")  # noqa: S608 - a text of ours
    database.executemany(
        "INSERT OR REPLACE INTO spool_check (last, first, sums) VALUES (?, ?, ?)", _chunks(sums)
    )
    database.execute(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (CHECKED, f"{sums[-1][0]}")
    )


def _chunks(sums: Sequence[Sum]) -> Iterator[tuple[int, int, bytes]]:
    """Yield rows of `spool_check`, each for at most CHUNK consecutive ids."""
    begins = [0, *(n for n, (a, b) in enumerate(pairwise(sums), 1) if b[0] != a[0] + 1), len(sums)]
    for begin, end in pairwise(begins):
        for at in range(begin, end, CHUNK):
            part = sums[at : min(at + CHUNK, end)]
            first, last = part[0][0], part[-1][0]
            yield last, first, _sealed(first, last, [value for _, value in part])


def _sealed(first: int, last: int, sums: Sequence[int]) -> bytes:
    data = struct.pack(f"<{len(sums)}I", *sums)
    return data + crc32(data, crc32(_BOUNDS.pack(first, last))).to_bytes(4, "little")


def _opened(first: Any, last: Any, sealed: Any) -> list[int]:
    """Return the checks of the spool rows from id `first` to `last`; empty if the checks are
    damaged. sealed: the column with the checks.
    """
    if not (isinstance(first, int) and isinstance(sealed, bytes) and len(sealed) % 4 == 0):
        return []
    found = list(struct.unpack(f"<{len(sealed) // 4}I", sealed))[:-1]
    fits = len(found) == last - first + 1 and _sealed(first, last, found) == sealed
    return found if fits else []


def note_start(database: sqlite3.Connection, boot: int) -> None:
    """Record that this start is by a version that writes checks. boot: number of the start."""
    database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (WRITER, f"{boot}"))


def add_missing(database: sqlite3.Connection, ours: bool) -> None:
    """Write checks of the spool rows that have none: the newest rows before a kill, and rows that
    an older version wrote. Call this at a start, inside a transaction. ours: whether the last start
    was one of a version that writes checks.
    """
    (newest,) = database.execute("SELECT max(last) FROM spool_check").fetchone()
    (checked,) = database.execute(_LATEST, (CHECKED,)).fetchone()
    if ours and (newest or not checked):
        _write(database, sorted(_new_rows(database, checked).items()))
    else:
        # a salvage of an older version has copied `meta`, but no checks
        _add_all(database, 0 if newest is None else checked)
    database.execute(
        "INSERT OR REPLACE INTO meta SELECT ?, CAST(id AS TEXT) FROM spool_last", (CHECKED,)
    )


def _add_all(database: sqlite3.Connection, after: int) -> None:
    query = f"SELECT {_READABLE} FROM spool WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608 - names of ours
    while rows := database.execute(query, (after, 32 * CHUNK)).fetchall():
        _write(database, [(row[0], value) for row in rows if (value := _sum(row)) is not None])
        after = rows[-1][0]


def _new_rows(database: sqlite3.Connection, checked: int) -> dict[int, int]:
    """Return checks of the newest rows that have none, by id. A row is left out if its id does not
    lie between its neighbours' ids. checked: id of the last row with a check.
    """
    query = f"SELECT {_READABLE} FROM spool ORDER BY id DESC LIMIT ?"  # noqa: S608 - names of ours
    rows = database.execute(query, (EACH + 1,)).fetchall()
    above = [1 << 62, *(row[0] for row in rows)]
    below = [*above[2:], None]
    found = {}
    for row, high, low in zip(rows, above, below, strict=False):
        number, after = row[0], -1 if low is None else low
        if checked < number < high and number > after:
            # the newest row has one neighbour
            if high == above[0] and after != number - 1 and not _has_left(database, number - 1):
                continue
            if (value := _sum(row)) is not None:
                found[number] = value
    return found


def _has_left(database: sqlite3.Connection, number: int) -> bool:
    """Whether it is known why no row has this id: the row has left in a batch, was discarded or set
    aside, or the id was skipped.
    """
    last, noted, skipped = database.execute(
        "SELECT coalesce((SELECT last FROM batch ORDER BY number DESC LIMIT 1), 0),"
        " coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'spool.last'), 0),"
        " (SELECT value FROM meta WHERE key = 'spool.gone')"
    ).fetchone()
    ranges = json.loads(skipped) if skipped else []
    return number <= max(last, noted) or any(first <= number <= end for first, end in ranges)


def add_times(database: sqlite3.Connection, clock: int, boot: int) -> None:
    """Set the time of the rows that one start of the gateway stored before the clock was known, and
    change their checks. Call this inside a transaction. boot: number of that start. clock: time of
    that start in µs since 1970.
    """
    unknown = "received IS NULL AND boot = ?"
    (first,) = database.execute(f"SELECT min(id) FROM spool WHERE {unknown}", (boot,)).fetchone()  # noqa: S608
    if first is None:
        return
    chunks = database.execute(
        "SELECT last, first, sums FROM spool_check WHERE last >= ? ORDER BY last", (first,)
    )
    for last, begin, sealed in chunks.fetchall():
        sums = _opened(begin, last, sealed)
        if not sums:
            continue
        for row, since in database.execute(
            f"SELECT id, monotonic FROM spool WHERE id BETWEEN ? AND ? AND {unknown}",  # noqa: S608
            (begin, last, boot),
        ):
            sums[row - begin] ^= _time_sum(clock + since)
        database.execute(
            "UPDATE spool_check SET sums = ? WHERE last = ?", (_sealed(begin, last, sums), last)
        )
    database.execute(f"UPDATE spool SET received = ? + monotonic WHERE {unknown}", (clock, boot))  # noqa: S608


def _text(data: Any) -> Any:
    return data.decode(errors="replace") if isinstance(data, bytes) else data


def _sum(cells: Sequence[Any]) -> int | None:
    """Return the check of a spool row; None if a cell has an impossible value. cells: those of
    `_CELLS`.
    """
    number, device, incarnation, sequence, client, topic, payload, *rest = cells
    if any(isinstance(cell, bytes) for cell in (incarnation, sequence, *rest)):
        return None
    names = number, _text(device), incarnation, sequence, _text(client), _text(topic)
    try:
        return row_sum((*names, payload, *rest))
    except (TypeError, ValueError):
        return None


class Verifier:
    """The SQL function `spool_is_sound` of a connection: whether a spool row still has the cells
    with which it was stored. Checking many rows is fast only in the order of their ids.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._first, self._sums = 0, list[int]()
        self._new = dict[int, int]()
        """Checks of rows that are newer than the last written check, by id."""

    def __call__(self, *cells: Any) -> bool:
        number, value = cells[0], _sum(cells)
        if not isinstance(number, int) or value is None:
            return False
        if self._knows(number, value):
            return True
        found = self._look(number)  # also if the row has got its time, and with it another check
        return found or self._knows(number, value)

    def _knows(self, number: int, value: int) -> bool:
        at = number - self._first
        if 0 <= at < len(self._sums):
            return value == self._sums[at]
        return self._new.get(number) == value

    def _look(self, number: int) -> bool:
        """Read the check of this row, and the neighbouring checks that are stored with it. Return
        True if the row needs no check, because a version without checks wrote it.
        """
        self._sums, self._new = [], {}
        database = self._database
        try:
            (newest,) = database.execute("SELECT max(last) FROM spool_check").fetchone()
        except sqlite3.OperationalError as error:
            if not str(error).startswith("no such table"):
                raise
            return True
        query = "SELECT first, last, sums FROM spool_check WHERE last >= ? ORDER BY last LIMIT 1"
        row = database.execute(query, (number,)).fetchone()
        if row is not None and (sums := _opened(*row)) and row[0] <= number:
            self._first, self._sums = row[0], sums
            return False
        (checked,) = database.execute(_LATEST, (CHECKED,)).fetchone()
        if number <= checked:
            return newest is None  # an older version has made a new store
        (writer,) = database.execute(_LATEST, (WRITER,)).fetchone()
        (boot,) = database.execute(_LATEST, ("boot",)).fetchone()
        if not 0 < writer == boot:
            return row is None
        self._new = _new_rows(database, checked)
        return False


def number_of(column: str) -> str:
    """Return an SQL expression for the broker's number of a message. column: the column with the
    message's row number, as SQL.
    """
    return f"({column} >> {BITS})"


def content_sum(
    topic: Any, retain: Any, count: Any, properties: Any, expires: Any, body: Any
) -> int:
    """Return the check of a message: a number of BITS bits. topic: text, or its bytes in UTF-8."""
    name = topic.encode(errors="replace") if isinstance(topic, str) else topic
    return crc32(body, crc32(_numbers(retain, count, properties, expires), crc32(name))) & _MASK


@lru_cache(16, typed=True)
def _numbers(retain: Any, count: Any, properties: Any, expires: Any) -> bytes:
    """Return the part of a check's input that is equal in most messages, and so is cached."""
    return b" %d %d %b %a" % (retain, count, properties, expires)


def message_fits(row: Any, *cells: Any) -> bool:
    """Whether a message's row is unchanged: its row number `row` contains the checksum of its
    cells.
    """
    try:
        return bool(row & _MASK == content_sum(*cells))
    except (TypeError, ValueError):
        return False


def row_number(message: MessageRow) -> int:
    """Return the number of a message's row, which consists of the broker's number and the check."""
    return message[0] << BITS | content_sum(*message[1:])


_LISTED = (
    f"FROM json_each(?) JOIN message"
    f" ON message.id BETWEEN value << {BITS} AND value << {BITS} | {_MASK}"
)
NUMBERED = f"message WHERE id IN (SELECT message.id {_LISTED})"
"""SQL after DELETE FROM: the rows of the messages in a list. The list is the parameter: the numbers
that the broker gave to the messages, in JSON.
"""


def with_checks(
    database: sqlite3.Connection, messages: Sequence[MessageRow], queue: Sequence[QueueRow]
) -> tuple[list[MessageRow], list[QueueRow]]:
    """Return the rows as they are stored: each message number of the broker is replaced by a row
    number, which contains the number and a check. Delete stored messages with the same numbers,
    because the broker reuses the number of a message that is no longer needed.
    """
    stored = [(row[0] << BITS | content_sum(*row[1:]), *row[1:]) for row in messages]
    rows = {row[0] >> BITS: row[0] for row in stored}
    numbers = sorted(rows)
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:  # faster than a list
        within = numbers[0] << BITS, numbers[-1] << BITS | _MASK
        database.execute("DELETE FROM message WHERE id BETWEEN ? AND ?", within)
    else:
        database.execute(f"DELETE FROM {NUMBERED}", (json.dumps(numbers),))  # noqa: S608
    if others := {place[3] for place in queue}.difference(rows):
        query = f"SELECT value, message.id {_LISTED}"
        rows.update(database.execute(query, (json.dumps([*others]),)).fetchall())
    row_of = rows.get
    return stored, [
        (session, first, count, row_of(message, message << BITS), skip, flags, extra, share, size)
        for session, first, count, message, skip, flags, extra, share, size in queue
    ]


CONTENT_TABLE = """
CREATE TABLE IF NOT EXISTS content_check (
    kind TEXT, key TEXT, sum INTEGER NOT NULL, PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID;
"""
COLUMNS = {
    "retained": ("topic", "client", "qos", "properties", "expires", "payload"),
    "will": (
        *("client", "due", "delay", "topic", "qos", "retain", "properties", "expiry", "payload"),
    ),
    "aside": (
        *("id", "bridge", "at", "topic", "qos", "retain", "properties", "expires", "payload"),
        "reason",
    ),
    "given_part": ("id", "key", "part", "body"),
}
"""The checked columns by table, in the order of the table, the key first. In `retained`, the column
`version` follows. It is not checked, because the gateways of a site change it.
"""


def cells_sum(*cells: Any) -> int:
    """Return the CRC-32 of these cells. A text counts as its UTF-8."""
    value = 0
    for cell in cells:
        plain = cell.encode() if isinstance(cell, str) else cell
        data = plain if isinstance(plain, bytes) else repr(plain).encode()
        value = crc32(data, crc32(b"%d:" % len(data), value))
    return value


def sum_of(table: str) -> str:
    """Return an SQL expression for the check of a row. table: one of COLUMNS."""
    return f"cells_sum({', '.join(_as_bytes(table, name) for name in COLUMNS[table])})"


def _as_bytes(table: str, name: str) -> str:
    return f"iif(typeof({table}.{name}) = 'text', CAST({table}.{name} AS BLOB), {table}.{name})"


FITS_BY_TABLE = {
    table: f"(NOT {OURS} OR EXISTS (SELECT 1 FROM content_check WHERE kind = '{table}'"  # noqa: S608
    f" AND content_check.key = CAST({table}.{names[0]} AS TEXT) AND sum = {sum_of(table)}))"
    for table, names in COLUMNS.items()
}
"""SQL conditions by table: true if a row still has the cells with which it was stored. The
connection must be prepared by `cells.teach`.
"""


_SEAL = struct.Struct(">HHH")
_MARK = ("device", "place", "incarnation", "highest", "window", "kept")
MARK_FITS = (
    f"(NOT {OURS} OR length(mark.kept) <> {_SEAL.size}"
    f" OR mark_fits({', '.join(_as_bytes('mark', name) for name in _MARK)}))"
)
"""SQL condition: false if a row of `mark` no longer has the cells with which it was stored. True
for a row without a check; if OURS is false, for every row. The connection must be prepared by
`cells.teach`.
"""


def _seal(*cells: Any) -> bytes:
    """Return the check of a row of `mark`, for its column `kept`, which is empty otherwise. The
    check has 13 bits, in the place of the offset of a set of packet identifiers
    (`message_ids.pack_bits`). Versions without this check read the column as an empty set, because
    only zeros follow the offset. `move_records.py` refuses an offset above 8,192.
    """
    return _SEAL.pack(0, min(cells_sum(*cells) & 0x1FFF, 0x1FFE), 0)


def sealed(mark: MarkRow) -> MarkRow:
    """Return the row of `mark` with its check. If an older version has kept packet identifiers in
    the row, the row has no room for a check, and is returned as it is.
    """
    *cells, kept = mark
    return (*mark[:5], kept if unsealed(kept) else _seal(*cells))


def unsealed(kept: bytes) -> bytes:
    """Return the packet identifiers that an older version kept in a row of `mark`; empty if the
    column has a check. kept: the column.
    """
    is_seal = len(kept) == _SEAL.size and kept[:2] == kept[4:] == b"\0\0"
    return b"" if is_seal else kept


def mark_fits(*row: Any) -> bool:
    """Whether the last column of a `mark` row has the right check, or three packet identifiers that
    an older version wrote. Such identifiers are never 0. In a check, the first and the last of the
    three numbers are 0.
    """
    *cells, kept = row
    # SQLite may ask about any cell, of any type and length.
    whole = isinstance(kept, bytes) and len(kept) == _SEAL.size
    return whole and (all(_SEAL.unpack(kept)) or bool(kept == _seal(*cells)))


def teach_contents(database: sqlite3.Connection) -> None:
    """Prepare a connection for FITS_BY_TABLE and MARK_FITS: register their SQL functions. For a
    store of an older version, also create an empty temporary table of checks."""
    database.create_function("mark_fits", 6, mark_fits, deterministic=True)
    database.create_function("cells_sum", -1, cells_sum, deterministic=True)
    try:
        database.execute("SELECT 1 FROM content_check WHERE kind = ''")
    except sqlite3.OperationalError as error:
        if not str(error).startswith("no such table"):
            raise
        # the store of an older version
        database.execute(CONTENT_TABLE.replace("TABLE", "TEMP TABLE", 1))


def put_checks(database: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Write the checks of rows that the same transaction writes. table: one of COLUMNS."""
    width = len(COLUMNS[table])
    checks = [(table, str(row[0]), cells_sum(*row[:width])) for row in rows]
    database.executemany("INSERT OR REPLACE INTO content_check VALUES (?, ?, ?)", checks)


def is_whole(database: sqlite3.Connection, table: str, row: Sequence[Any]) -> bool:
    """Whether a row, given by its checked columns, has the cells with which it was stored."""
    query = "SELECT sum FROM content_check WHERE kind = ? AND key = ?"
    found = database.execute(query, (table, str(row[0]))).fetchone()
    return found is not None and bool(found[0] == cells_sum(*row))
