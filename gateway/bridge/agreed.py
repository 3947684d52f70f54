"""The file DATA/bridges/NAME.agreed of one bridge: for each topic, the digest of the retained
message that both brokers had last (the agreement).

In: topics whose retained message is about to be forwarded, and changed digests, with the number of
the mark that covers them (`agreement.py`). Out: the content of the file at a start. If the file is
missing or cannot be read, it counts as empty: then nothing is proven, and no retained message is
deleted. Backups leave the file out, because a restored store is older than the agreements.

One thread does all work on the file, in order. Requested work is done even if its caller is
cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from gateway.bridge.agreement import Digest
from gateway.bridge.pairing import AGREED, FOLDER
from gateway.errors import OncewayError
from gateway.store.schema import connect, make_folder
from gateway.system.sync import sync

log = logging.getLogger(__name__)

_TABLES = """
CREATE TABLE IF NOT EXISTS agreed (topic TEXT PRIMARY KEY, digest BLOB NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS doubted (topic TEXT PRIMARY KEY, sent INTEGER NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS far_mark (id INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS clean_stop (id INTEGER PRIMARY KEY) STRICT;
"""
_Found = TypeVar("_Found")
_SUFFIXES = ("", "-wal", "-shm")


class Kept(NamedTuple):
    """The content of a bridge's file of agreements. agreements: by topic, the digest of the
    retained message that both brokers had last. number: number of the last mark (`agreement.py`).
    doubted: by topic in doubt, the direction of the last forwarded message: True if it went to the
    other broker.
    """

    agreements: dict[str, bytes]
    number: int
    doubted: dict[str, bool]


class AgreedFile:
    """The file with the agreements of one bridge. volatile: returns whether this gateway has the
    retained message of a topic in memory only. At the first start after a kill, the agreements
    about such topics are dropped, because the messages may be lost.
    """

    def __init__(
        self, data: Path, name: str, volatile: Callable[[str], bool] = lambda topic: False
    ) -> None:
        self._name = name
        self._volatile = volatile
        self._path = data / FOLDER / f"{name}{AGREED}"
        self._unsaved: dict[str, Digest] = {}
        """Changed digests that could not be written; the next call of `write` writes them."""
        self._thread = ThreadPoolExecutor(1, f"agreed-{name}")

    def close(self) -> None:
        """Note in the file that the gateway stops cleanly. The call does not wait for the disk."""
        self._thread.submit(self._note_stop)
        self._thread.shutdown(wait=False)

    def read(self) -> asyncio.Future[Kept]:
        return self._do(self._read)

    def doubt(self, topics: list[str], *, sent: bool) -> asyncio.Future[bool]:
        """Note on disk that retained messages of these topics are about to be forwarded. sent:
        whether they go to the other broker. If the note cannot be written, delete all agreements in
        the file and return False.
        """
        return self._do(lambda: self._doubt(topics, sent))

    def write(self, changed: dict[str, Digest], number: int) -> asyncio.Future[None]:
        """Write changed digests of messages that both brokers have, by topic; None deletes a
        digest. The topics are then no longer in doubt. number: number of the mark that covers them.
        Raises OncewayError if the disk fails; the next call then writes these digests again.
        """
        return self._do(lambda: self._write(changed, number))

    def clear(self) -> asyncio.Future[None]:
        """Delete the agreements about all topics. Raises OncewayError if the disk fails."""
        return self._do(self._clear)

    def _do(self, call: Callable[[], _Found]) -> asyncio.Future[_Found]:
        return asyncio.shield(asyncio.wrap_future(self._thread.submit(call)))

    # -- in the thread

    def _read(self) -> Kept:
        try:
            with closing(self._open()) as database, database:
                agreements = dict(database.execute("SELECT topic, digest FROM agreed").fetchall())
                found = database.execute("SELECT topic, sent FROM doubted").fetchall()
                row = database.execute("SELECT number FROM far_mark").fetchone()
                doubted = {topic: bool(sent) for topic, sent in found}
                if not self._has_stopped(database):
                    agreements = {
                        topic: agreements[topic]
                        for topic in agreements
                        if not self._volatile(topic)
                    }
                return Kept(agreements, 0 if row is None else row[0], doubted)
        except (sqlite3.Error, OSError, OncewayError) as error:
            self._give_up("cannot be read", error)
            return Kept({}, 0, {})

    def _has_stopped(self, database: sqlite3.Connection) -> bool:
        """Delete the note of a clean stop from the agreements. Return whether one was deleted."""
        try:
            return database.execute("DELETE FROM clean_stop WHERE id = 1").rowcount > 0
        except sqlite3.Error:  # the disk is full
            return False

    def _note_stop(self) -> None:
        with suppress(sqlite3.Error, OSError, OncewayError):
            if self._path.exists():
                with closing(self._open()) as database, database:
                    database.execute("INSERT OR REPLACE INTO clean_stop VALUES (1)")

    def _doubt(self, topics: list[str], sent: bool) -> bool:
        for topic in topics:
            self._unsaved.pop(topic, None)
        try:
            with closing(self._open()) as database, database:
                database.execute("BEGIN IMMEDIATE")
                rows = [(topic, sent) for topic in topics]
                database.executemany("INSERT OR REPLACE INTO doubted VALUES (?, ?)", rows)
        except (sqlite3.Error, OSError, OncewayError) as error:
            self._give_up("cannot be written", error)
            return False
        return True

    def _write(self, changed: dict[str, Digest], number: int) -> None:
        changed = self._unsaved = self._unsaved | changed
        topics = [(topic,) for topic in changed]
        rows = [(topic, state) for topic, state in changed.items() if state is not None]
        try:
            with closing(self._open()) as database, database:
                database.execute("BEGIN IMMEDIATE")
                database.executemany("DELETE FROM agreed WHERE topic = ?", topics)
                database.executemany("DELETE FROM doubted WHERE topic = ?", topics)
                database.executemany("INSERT INTO agreed VALUES (?, ?)", rows)
                database.execute("INSERT OR REPLACE INTO far_mark VALUES (1, ?)", (number,))
        except (sqlite3.Error, OSError) as error:
            raise OncewayError(
                f"the agreements about retained messages cannot be written ({error})",
                str(self._path),
            ) from error
        self._unsaved = {}

    def _clear(self) -> None:
        self._unsaved = {}
        try:
            if self._path.exists():
                self._remove()
        except OSError as error:
            raise OncewayError(
                f"the agreements about retained messages cannot be deleted ({error})",
                str(self._path),
            ) from error

    def _give_up(self, failure: str, error: Exception) -> None:
        """Log an error and remove the file, which would otherwise hold outdated agreements."""
        log.warning(
            "bridge %s: the agreements about retained messages %s (%s: %s). The bridge does not"
            " forward deletions that happen during an outage, until it has compared both brokers"
            " again",
            self._name,
            failure,
            self._path,
            error,
        )
        self._unsaved = {}
        with suppress(OSError):
            self._remove()

    def _remove(self) -> None:
        for suffix in _SUFFIXES:
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        sync(self._path.parent)

    def _open(self) -> sqlite3.Connection:
        make_folder(self._path.parent)
        database = connect(self._path)
        database.executescript(_TABLES)
        return database
