"""The uplink's view of the gateway's database: waiting rows, cut batches, and landed ones.

In and out: tables `spool`, `batch` and `meta` of DATA/gateway.db (`gateway/store/README.md`). Every
change is one short transaction, because the gateway's writer waits for it. All methods raise
sqlite3.OperationalError if the database is busy or the disk is full, with nothing changed.
"""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.errors import NotAllowed, OncewayError
from gateway.store import run_marks
from gateway.store.cells import sound, teach
from gateway.store.references import spool_holes
from gateway.store.schema import (
    FILE,
    ROW_SIZE,
    START_GATEWAY,
    StoreError,
    closed_to_us,
    connect,
    connect_to_read,
    has_log,
    leave_log,
    refuse_half_salvaged,
)
from gateway.system.accounts import may_use
from gateway.system.causes import cause
from gateway.uplink.damaged_rows import HELD, DamagedRows
from gateway.uplink.manifest import Row
from gateway.uplink.numbers import COUNTED, IDENTITIES, NAME, Numbers

KEEP = 50_000  # landed batches that are remembered
EVER = (1 << 63) - 1  # above every spool id
RECENT, RECENT_BATCHES = 100_000, 10_000
"""Largest numbers of newest rows and newest batches from which the rate is estimated: a day at one
reading a second.
"""

OUTAGE = "uplink.outage"  # in `meta`: JSON with since (µs UTC) and error, while there is one
WAY = "uplink.way"  # in `meta`: how the landing place refuses an existing name (`landing.Way`)
RIVAL = "uplink.rival"  # in `meta`: another gateway of our name; JSON: seen (µs UTC), what, note
_BATCHES, _MESSAGES, _BYTES, _FAILURES = (
    "uplink.batches",
    "uplink.readings",  # the key's name since 0.1; its value has always been the number of messages
    "uplink.bytes",
    "uplink.failures",
)

_SELECT = f"""
    SELECT coalesce(device, :anonymous),
        CASE WHEN device IS NULL THEN :incarnation ELSE incarnation END,
           CASE WHEN device IS NULL THEN id ELSE sequence END, nullif(client, device), topic,
           payload, received, boot, monotonic, id
    FROM spool WHERE id > :after AND id < :before AND {sound("spool")} ORDER BY id LIMIT :count
"""  # noqa: S608 - texts of ours


@dataclass(frozen=True, slots=True)
class Cut:
    """A row of the table `batch`: the rows with spool ids `first` to `last` are batch `number`.
    size: size of the Parquet file in bytes. cut, landed: times in µs since 1970 (UTC). landed is
    None until the batch is verified at the landing place.
    """

    number: int
    first: int
    last: int
    rows: int
    size: int
    sha256: str
    cut: int
    landed: int | None


@dataclass(frozen=True, slots=True)
class Volume:
    """The size of a spool. rows, bytes: as the broker counts them. waiting: number of rows in no
    batch yet. recent_bytes: bytes that arrived in the last `span_us`. Rows with a time in the
    future, from a wrong clock, are not in recent_bytes.
    """

    rows: int
    bytes: int
    waiting: int
    recent_bytes: int
    span_us: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals since the database was created. batches, messages, bytes: number of landed batches,
    number of messages in them, and size of their Parquet files. A message is a publication: a
    reading, a status of a board or another one. failures: failed attempts. held: rows that were set
    aside because they were damaged.
    """

    batches: int
    messages: int
    bytes: int
    failures: int
    held: int = 0  # prose: JSON key


class NoSpool(StoreError):
    """The spool cannot be opened until the gateway is started with this data directory."""


class Spool(DamagedRows):
    """A connection to the gateway's database, for use in one thread. Raises NoSpool, or StoreError
    if it cannot be opened. to_read: whether it is read-only, with all reads in one snapshot.

    Use it in a `with` block. The end of the block closes the connection. An error of SQLite in the
    block gets advice, and names the damaged row that caused it.
    """

    def __init__(self, data: Path, to_read: bool = False) -> None:
        path = self._path = data / FILE
        self._to_read = to_read
        refuse_half_salvaged(data)
        try:
            if not path.is_file():
                raise NoSpool("there is no gateway database", str(path), START_GATEWAY)
            super().__init__(connect_to_read(path) if to_read else connect(path))
            if to_read:
                self._db.execute("BEGIN")
            self._inode = path.stat().st_ino
            made = self._db.execute("PRAGMA user_version").fetchone()[0]
            teach(self._db)
        except PermissionError as error:
            raise NotAllowed(
                "this account may not read the gateway's data",
                str(path),
                "Run the command with sudo",
            ) from error
        except sqlite3.Error as error:
            if not (to_read or may_use(data) or has_log(path)):
                text = "the database has no write-ahead log, and this account may not create one"
                raise NoSpool(text, str(path), START_GATEWAY) from error
            raise self._unusable(error) from error
        if not made:
            raise NoSpool("the database has no spool", str(path), START_GATEWAY)

    def close(self) -> None:
        self._db.close()
        if not self._to_read and not has_log(self._path):
            _note_closed(self._path)
        leave_log(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        wrong = self._to_read and isinstance(error, TypeError | ValueError)
        damaged = self.damaged_row() if wrong else None
        self.close()
        if isinstance(error, sqlite3.Error):
            raise self._unusable(error) from error
        if damaged is not None:
            text = f"the gateway's database is damaged ({damaged})"
            raise StoreError(text, str(self._path), "See: onceway store check") from error

    def check_not_replaced(self) -> None:
        """Raise OncewayError if the database file was removed or replaced: after a restore, new
        rows are in another file.
        """
        if not self._path.is_file() or self._path.stat().st_ino != self._inode:
            raise OncewayError(
                "the gateway's database was removed or replaced",
                str(self._path),
                "Start the uplink again",
            )

    def _unusable(self, error: sqlite3.Error) -> StoreError:
        if (closed := closed_to_us(self._path, error)) is not None:
            return closed
        reason, todo = cause(error, self._path.parent)
        return StoreError(
            f"the gateway's database cannot be used: {reason} ({error})", str(self._path), todo
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # Values by name

    def put(self, values: dict[str, str | None]) -> None:
        """Set values of the table `meta`, all or none. A value None removes its key."""
        with self._transaction() as db:
            _put(db, values)

    def new_name(self) -> str | None:
        """Return the gateway's new name if the current batch numbers belong to an older name; else
        None.
        """
        name = self.get("gateway")
        return name if name != self.origin().gateway else None

    # Rows

    def waiting(self, count: int) -> tuple[int, int]:
        """Return the number of rows that are in no batch yet, and their size. At most `count` rows
        are counted. Size: characters of the topics plus bytes of the payloads.
        """
        row = self._db.execute(
            "SELECT count(*), coalesce(sum(length(topic) + length(payload)), 0)"
            " FROM (SELECT topic, payload FROM spool WHERE id > ? ORDER BY id LIMIT ?)",
            (self.last_cut()[1], count),
        ).fetchone()
        return row[0], row[1]

    def lacks_time(self, count: int) -> bool:
        """Whether one of the oldest `count` waiting rows has no time of receipt yet, but can still
        get one, because the gateway has not restarted since the receipt.
        """
        found = self._db.execute(
            "SELECT max(received IS NULL AND boot = (SELECT CAST(value AS INTEGER) FROM meta WHERE"
            " key = 'boot')) FROM (SELECT received, boot FROM spool WHERE id > ? ORDER BY id"
            " LIMIT ?)",
            (self.last_cut()[1], count),
        ).fetchone()
        return bool(found[0])

    def waits_for_clock(self) -> bool:
        """Whether the newest waiting row has no time of receipt yet, but can still get one. If so,
        the gateway's clock is not synchronised.
        """
        found = self._db.execute(
            "SELECT received IS NULL AND boot = (SELECT CAST(value AS INTEGER) FROM meta WHERE"
            " key = 'boot') FROM spool WHERE id > ? ORDER BY id DESC LIMIT 1",
            (self.last_cut()[1],),
        ).fetchone()
        return bool(found and found[0])

    def rows(self, after: int, count: int, max_bytes: int = EVER, before: int = EVER) -> list[Row]:
        """Return the oldest rows with after < id < before: at most `count`, with topics and
        payloads of at most `max_bytes` (but at least one row). All returned rows have keys of the
        same epoch.

        The key of a row without identity is @GATEWAY, the epoch and the spool id; `with_numbers`
        replaces the spool id by the row's number.
        """
        oldest = self._db.execute("SELECT min(id) FROM spool WHERE id > ?", (after,)).fetchone()[0]
        if oldest is None:
            return []
        identities = self.identities()
        epoch = next(epoch for first, epoch in reversed(identities) if first <= oldest)
        before = min([before, *(first for first, _ in identities if first > oldest)])
        key = {
            "anonymous": self.nameless(),
            "incarnation": int(epoch, 16),
            "after": after,
            "before": before,
            "count": count,
        }
        rows: list[Row] = []
        size = 0
        for row in self._db.execute(_SELECT, key):
            size += len(row[4]) + len(row[5])
            if size > max_bytes and rows:
                break
            rows.append(row)
        return rows

    def holes(self, after: int, ids: list[int]) -> list[tuple[int, int]]:
        """Return the ranges of spool ids without a row, between `after` and the last of `ids`. ids:
        the ids of the next rows.
        """
        begin = after if after else ids[0] - 1
        if ids[-1] - begin == len(ids):
            return []
        return [hole for hole in spool_holes(self._db, after) if hole[1] < ids[-1]]

    def oldest(self) -> int:
        """Return the smallest spool id of a row. For an empty spool, return the id after the newest
        batch.
        """
        row = self._db.execute("SELECT min(id) FROM spool").fetchone()
        return int(row[0]) if row[0] is not None else self.last_cut()[1] + 1

    def volume(self, since: int, known: tuple[int, int] | None = None) -> Volume:
        """Return the size of the spool, and the number of bytes that arrived after the time `since`
        (µs UTC). Only the newest rows and batches are read to count these bytes. known: the running
        gateway's counts of rows and bytes; without them, the whole spool is read.
        """
        now = time.time_ns() // 1000
        rows, size = (
            known
            or self._db.execute(
                f"SELECT count(*), coalesce(sum({ROW_SIZE}), 0) FROM spool"  # noqa: S608
            ).fetchone()
        )
        unlanded = self.unlanded()
        recent, newest, oldest = self._db.execute(
            "SELECT coalesce(sum(iif(coalesce(received, :now) BETWEEN :since AND :now, size, 0)),"  # noqa: S608
            " 0), count(*), min(iif(typeof(received) = 'integer', received, NULL))"
            f" FROM (SELECT received, {ROW_SIZE} AS size FROM spool WHERE id > :last"
            " ORDER BY id DESC LIMIT :count)",
            {"last": self.last_cut()[1], "since": since, "now": now, "count": RECENT},
        ).fetchone()
        cut, first = (0, None)
        if newest < RECENT:  # otherwise these rows alone give the rate
            cut, first = self._db.execute(
                "SELECT coalesce(sum(iif(cut BETWEEN ? AND ?, spool_bytes, 0)), 0), min(cut)"
                " FROM (SELECT number, cut FROM batch ORDER BY number DESC LIMIT ?)"
                " JOIN batch_content USING (number)",
                (since, now, RECENT_BATCHES),
            ).fetchone()
        begun = min(first or now, oldest or now)
        waiting = max(0, rows - (unlanded.rows if unlanded else 0))
        return Volume(rows, size, waiting, recent + cut, max(0, now - max(since, begun)))

    def find(self, device: str, sequence: int) -> list[tuple[int, int]]:
        """Return (incarnation, spool id) of the rows of the spool with this device and sequence.
        The whole spool is read.
        """
        if device == self.nameless():
            return self._find_anonymous(sequence)
        return self._db.execute(
            "SELECT incarnation, id FROM spool WHERE device = ? AND sequence = ?",
            (device, sequence),
        ).fetchall()

    def _find_anonymous(self, number: int) -> list[tuple[int, int]]:
        """Return the same as `find` for a row without identity. The spool does not store the number
        of such a row, so the rows are counted.
        """
        first = self._db.execute("SELECT min(id) FROM spool").fetchone()[0]
        rank = number - self.counted_before(first or 1)
        found = self._db.execute(
            "SELECT id FROM spool WHERE device IS NULL ORDER BY id LIMIT 1 OFFSET ?",
            (max(0, rank - 1),),
        ).fetchone()
        if rank < 1 or found is None:
            return []
        return [(row[1], row[-1]) for row in self.rows(found[0] - 1, 1, before=found[0] + 1)]

    def ends(self) -> tuple[int | None, int]:
        """Return the arrival of the oldest row (µs UTC; None if there is no row, or its time is
        unknown), and the highest spool id of a row (0 if there is no row).
        """
        first = self._db.execute("SELECT received FROM spool ORDER BY id LIMIT 1").fetchone()
        (last,) = self._db.execute("SELECT coalesce(max(id), 0) FROM spool").fetchone()
        return (first[0] if first else None), int(last)

    def delete(self, after: int, last: int, count: int) -> int:
        """Delete the oldest `count` rows with after < id <= last, although they have not landed.
        Return how many were deleted.
        """
        with self._transaction() as db:
            _keep_last(db)
            return db.execute(
                "DELETE FROM spool WHERE id IN (SELECT id FROM spool WHERE id > ? AND id <= ?"
                " ORDER BY id LIMIT ?)",
                (after, last, count),
            ).rowcount

    # Batches

    def last_landed(self) -> tuple[int, int | None]:
        """Return the number of the newest landed batch and its time (µs UTC); (0, None) before the
        first.
        """
        row = self._db.execute(
            "SELECT number, landed FROM batch WHERE landed IS NOT NULL ORDER BY number DESC LIMIT 1"
        ).fetchone()
        if row:
            self._check("batch", row[0])
        return row or (0, None)

    def unlanded(self) -> Cut | None:
        """Return the oldest batch that was cut and has not landed, or None."""
        row = self._db.execute(
            "SELECT number, first, last, rows, bytes, sha256, cut, landed FROM batch"
            # batches land in order, so only the newest batches have not landed
            " WHERE number > ? AND landed IS NULL ORDER BY number LIMIT 1",
            (self.last_landed()[0],),
        ).fetchone()
        if row is not None:
            self._check("batch", row[0])
        return None if row is None else Cut(*row)

    def batch_of(self, spool_id: int) -> int | None:
        """Return the number of the batch that contains the row with this spool id, or None."""
        low, high = self.oldest_known_batch() or 1, self.last_cut()[0]
        while low <= high:
            middle = (low + high) // 2
            number, first, last = self._db.execute(
                "SELECT number, first, last FROM batch WHERE number >= ? ORDER BY number LIMIT 1",
                (middle,),
            ).fetchone()
            if first <= spool_id <= last:
                return int(number)
            if spool_id < first:
                high = middle - 1
            else:
                low = number + 1
        return None

    def landed_batches(self) -> Iterator[tuple[Cut, bytes | None]]:
        """Yield the landed batches that are remembered, newest first, each with its packed keys
        (`keys.py`), or None if these are gone.
        """
        for row in self._db.execute(
            "SELECT number, first, last, rows, bytes, sha256, cut, landed, keys FROM batch LEFT"
            " JOIN batch_content USING (number) WHERE landed IS NOT NULL ORDER BY number DESC"
        ):
            yield Cut(*row[:-1]), row[-1]

    def oldest_known_batch(self) -> int | None:
        number = self._db.execute("SELECT min(number) FROM batch").fetchone()[0]
        return None if number is None else int(number)

    def record(self, cut: Cut, spool_bytes: int, keys: bytes, anonymous: int = 0) -> None:
        """Record a batch, so that its number, rows and bytes never change. Its file must be on
        disk. spool_bytes: size of the rows in the spool. keys: packed keys of the rows (`keys.py`).
        anonymous: number of rows without identity.
        """
        before = self.counted_before(cut.first)
        counted = {"first": cut.first, "before": before, "after": before + anonymous}
        with self._transaction() as db:
            db.execute(
                "INSERT INTO batch (number, first, last, rows, bytes, sha256, cut, landed) VALUES"
                " (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    cut.number,
                    cut.first,
                    cut.last,
                    cut.rows,
                    cut.size,
                    cut.sha256,
                    cut.cut,
                    cut.landed,
                ),
            )
            db.execute(
                "INSERT INTO batch_content (number, spool_bytes, keys) VALUES (?, ?, ?)",
                (cut.number, spool_bytes, keys),
            )
            _put(db, {COUNTED: json.dumps(counted)})
            if cut.number == 1:
                _put(db, {NAME: self.origin().gateway})

    def landed(self, cut: Cut) -> None:
        """Mark a batch as landed and remove its rows from the spool, in one transaction."""
        with self._transaction() as db:
            db.execute(
                "UPDATE batch SET landed = ? WHERE number = ?", (time.time_ns() // 1000, cut.number)
            )
            db.execute("DELETE FROM spool WHERE id BETWEEN ? AND ?", (cut.first, cut.last))
            _add(db, {_BATCHES: 1, _MESSAGES: cut.rows, _BYTES: cut.size})
            for table in ("batch", "batch_content"):
                db.execute(f"DELETE FROM {table} WHERE number <= ?", (cut.number - KEEP,))  # noqa: S608 - the names stand here

    # Records of work

    def failed(self, outage: str | None) -> None:
        """Count a failed attempt. outage: the new value of OUTAGE in `meta`; None keeps the present
        one.
        """
        with self._transaction() as db:
            _add(db, {_FAILURES: 1})
            if outage is not None:
                _put(db, {OUTAGE: outage})

    def totals(self) -> Totals:
        return Totals(
            *(int(self.get(key) or 0) for key in (_BATCHES, _MESSAGES, _BYTES, _FAILURES, HELD))
        )

    # A new epoch

    def renumber(
        self, epoch: str, meta: dict[str, str | None], landed_before: int = 0, new_key: bool = False
    ) -> None:
        """Begin new batch numbers under `epoch`: the recorded batches are deleted, and their rows
        are cut again from number 1.

        landed_before: a spool id; rows with lower ids have landed and leave the spool. new_key:
        whether the remaining rows without identity get the new epoch in their key. This is needed
        if another generation of this store has used their spool ids under the old epoch. meta:
        values set in the same transaction.
        """
        identities = self.identities()
        if new_key:
            identities = [
                *(entry for entry in identities if entry[0] < landed_before),
                (landed_before, epoch),
            ]
        with self._transaction() as db:
            _keep_last(db)
            db.execute("DELETE FROM spool WHERE id < ?", (landed_before,))
            db.execute("DELETE FROM batch")
            db.execute("DELETE FROM batch_content")
            _put(db, {NAME: None, **meta, "epoch": epoch, IDENTITIES: json.dumps(identities)})


def _note_closed(path: Path) -> None:
    """Record in the database that its whole write-ahead log was copied into it. Call this if this
    program was the last one to close the database. By this record, the next start knows that no
    commit is lost, even if the gateway was killed.
    """
    with suppress(sqlite3.Error, FileNotFoundError):
        if path.stat().st_size:  # else a restore is under way, and SQLite would begin a database
            with closing(connect(path)) as database:
                run_marks.end(database)


def with_numbers(rows: list[Row], spool: Numbers) -> list[Row]:
    """Return the rows of one batch, in order. In rows without identity, the sequence was the spool
    id until now: replace it with the row's number (`gateway/uplink/numbers.py`).
    """
    nameless = spool.nameless()
    if not any(row[0] == nameless for row in rows):
        return rows
    numbers = count(spool.counted_before(rows[0][-1]) + 1)
    return [(*row[:2], next(numbers), *row[3:]) if row[0] == nameless else row for row in rows]


def _keep_last(db: sqlite3.Connection) -> None:
    """Store the highest spool id ever given, before rows without a batch are deleted."""
    db.execute("INSERT OR REPLACE INTO meta SELECT 'spool.last', CAST(id AS TEXT) FROM spool_last")


def _add(db: sqlite3.Connection, values: dict[str, int]) -> None:
    add = (
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value ="
        " CAST(value AS INTEGER) + excluded.value"
    )
    db.executemany(add, values.items())


def _put(db: sqlite3.Connection, values: dict[str, str | None]) -> None:
    for key, value in values.items():
        if value is None:
            db.execute("DELETE FROM meta WHERE key = ?", (key,))
        else:
            db.execute(
                "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value"
                " = excluded.value",
                (key, value),
            )
