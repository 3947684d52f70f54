"""Observer of the gateway's spool, read only. In: the gateway's database. Out: publications
committed since the last call, as events of the history, and counts.
"""

import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from hil.observe.history import KEY, History, sighting

QUERY = """SELECT id AS spool_id, device, incarnation, sequence, client, topic, received, boot,
    monotonic, payload FROM spool WHERE id > ? ORDER BY id"""
SIZE = "SELECT coalesce(sum(length(payload) + length(CAST(topic AS BLOB)) + 64), 0) FROM spool"
"""Bytes of the rows, as `spool.max_bytes` counts them."""
NEWEST = "SELECT id FROM spool_last"
LOCKED_TIMEOUT = 1.0  # s to wait for the gateway's writer


SHELF = "copies.db"


def copies_kept(shelf: Path) -> int:
    """Return how many rows of other gateways' spools a gateway keeps (`[site] copies = 2`). Raises
    sqlite3.OperationalError while the database is in recovery.
    """
    if not shelf.exists():
        return 0
    with closing(sqlite3.connect(f"{shelf.absolute().as_uri()}?mode=ro", uri=True)) as database:
        [count] = database.execute("SELECT count(*) FROM copy").fetchone()
        return int(count)


class SpoolHop:
    """Observer of the table `spool`: its rows, and how many rows were ever committed and landed.
    stored: the mapping to use as attribute `stored`, if several gateways share one.
    """

    def __init__(
        self, database: Path, history: History, stored: dict[str, set[int]] | None = None
    ) -> None:
        self._uri = f"{database.absolute().as_uri()}?mode=ro"
        self._shelf = database.with_name(SHELF)
        self._history = history
        self._last = self._before = 0
        self._restores = 0
        """Number of times that the store was restored from a backup."""
        self._covered = False
        self._is_dead = False
        self.origin = ""
        """`GATEWAY/EPOCH` of the batches that the uplink numbers now."""
        self._renumbered = False
        """Whether the uplink has begun another epoch: the store lacks the earlier batches."""
        self.committed = 0
        self.landed = 0
        self.largest = 0
        """Largest number of bytes that the spool's rows have had at one time."""
        self.kept = 0
        """Number of other gateways' rows of which this gateway keeps copies."""
        self.stored = defaultdict[str, set[int]](set) if stored is None else stored
        """Sequences, modulo 2^16, of all rows seen so far, by device."""

    def waits(self) -> bool:
        """Whether the spool has a row that has not landed yet."""
        with self._opened() as database:
            return bool(*_first(database, "SELECT count(*) FROM spool"))

    def begin_behind(self, row: int) -> None:
        """Ignore rows with ids up to `row`: a used store had them before the run."""
        self._last = self._before = row

    def restored(self) -> int:
        """Note that a backup has replaced the store: from now on, spool ids after the backup's last
        row belong to other publications. Return the id of that row.
        """
        with self._opened() as database:
            [self._last] = _first(database, "SELECT id FROM spool_last")
        self._restores += 1
        self.committed = self._last
        return self._last

    def bury(self, database: Path, *, lost: bool) -> int:
        """Read for the last time, from the database of a gateway that is gone for good. Return the
        number of rows that had not landed. lost: whether these rows may be lost; if so, record
        `died` for each."""
        self._uri = f"{database.absolute().as_uri()}?mode=ro"
        self._look()
        with self._opened() as opened:
            rows = opened.execute(
                "SELECT device, incarnation, sequence, id FROM spool WHERE id > (SELECT coalesce("
                "max(last), 0) FROM batch WHERE landed NOT NULL)"
            ).fetchall()
        for row in rows if lost else ():  # only their position identifies the gateway's own rows
            data = dict(zip((*KEY, "position"), row, strict=True))
            self._history.add("spool", "died", **data)
        self._is_dead = True
        self.kept = 0
        self.landed = self.committed
        return len(rows)

    @contextmanager
    def covered(self) -> Iterator[None]:
        """Context in which this observer reads nothing. While no gateway runs, SQLite also shows
        rows that were written but not synced, which a simulated power cut loses.
        """
        self._covered = True
        try:
            yield
        finally:
            self._covered = False

    def look(self) -> None:
        """Read new rows. A database that is missing, or in recovery, is read at the next call."""
        if not (self._covered or self._is_dead):
            with suppress(sqlite3.OperationalError):
                self._look()
                self.kept = copies_kept(self._shelf)

    def _look(self) -> None:
        with self._opened() as database:
            meta = dict(database.execute("SELECT key, value FROM meta"))
            numbered = f"{meta['gateway']}/{meta['epoch']}"
            self._renumbered |= self.origin not in ("", numbered)
            self.origin = numbered
            origin = numbered + " restored" * self._restores
            rows = database.execute(QUERY, (self._last,))
            for values in rows:
                row = dict(zip((name for name, *_ in rows.description), values, strict=True))
                self._history.add("spool", "publication", **sighting(row, origin))
                self._last = row["spool_id"]
                if row["device"] is not None:
                    self.stored[row["device"]].add(row["sequence"] & 0xFFFF)
            self.largest = max(self.largest, *_first(database, SIZE))
            [last] = _first(database, "SELECT id FROM spool_last")
            self.committed = max(self.committed, self._last - self._before, last - self._before)
            [self.landed] = _first(
                database, "SELECT coalesce(sum(rows), 0) FROM batch WHERE landed NOT NULL"
            )
            if self._restores or self._renumbered:  # earlier batches are not in the store
                [waits] = _first(database, "SELECT count(*) FROM spool")
                self.landed = self.committed - waits

    def close(self) -> bool:
        """Read for the last time, after the gateway has ended, and record the rows that are still
        in the spool. Return False if the spool cannot be read completely.
        """
        if self._is_dead:
            return True
        with suppress(sqlite3.DatabaseError):
            self._look()
            with self._opened() as database:
                waiting = database.execute(
                    "SELECT device, incarnation, sequence FROM spool WHERE device NOT NULL"
                )
                for key in waiting:
                    self._history.add("spool", "waiting", **dict(zip(KEY, key, strict=True)))
            return True
        return False

    def _opened(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(self._uri, uri=True, timeout=LOCKED_TIMEOUT))


def _first(database: sqlite3.Connection, query: str) -> list[int]:
    return list(database.execute(query).fetchone() or [0])


def holds_publication(database: Path) -> bool:
    """Return whether the write-ahead log ends with a publication that readers cannot see yet. The
    gateway is stopped after the sync of this commit, and has not announced it, so other connections
    do not see it. A copy of database and log contains it, as after a kill.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / database.name
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{database}{suffix}", f"{copy}{suffix}")
        return _newest(copy, "rw") > _newest(database, "ro")


def _newest(database: Path, mode: str) -> int:
    uri = f"{database.absolute().as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True)) as opened:
        return int(opened.execute(NEWEST).fetchone()[0] or 0)
