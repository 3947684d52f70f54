"""Checkpoints beside the commits, so that no acknowledgement waits for one.

In: "another commit is in the write-ahead log". Out: a log that stays short. SQLite copies the log's
pages into the database while commits go on (PASSIVE), on a thread and a connection of its own; only
the pages that came meanwhile are copied between two commits, on the writer's thread. After that the
next commit starts the log again. SQLite's automatic checkpoint would do all of it inside a commit.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from gateway.store.schema import connect

log = logging.getLogger(__name__)

WAL_BYTES = 4_096_000
"""A checkpoint is due when the log has about so many: a page that changed often meanwhile is copied
once.
"""

_REST_PAGES = 64
_ROUNDS = 4
_FIRST_GUESS = 8.0
"""Pages that a commit writes."""


class Checkpointer:
    """between_commits: runs a function on the writer's thread when no commit is under way."""

    def __init__(
        self, path: Path, between_commits: Callable[[Callable[[sqlite3.Connection], None]], None]
    ) -> None:
        self._database = connect(path)
        self._between_commits = between_commits
        (page,) = self._database.execute("PRAGMA page_size").fetchone()
        self._most = WAL_BYTES // page
        self._commits = 0
        self._pages_per_commit = _FIRST_GUESS
        self._running = False
        self._stopping = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-checkpoint")
        self._thread.start()

    def committed(self) -> None:
        """Another commit; called on the writer's thread."""
        self._commits += 1
        if not self._running and self._commits * self._pages_per_commit >= self._most:
            self._running = True
            self._due.set()

    def stop(self) -> None:
        self._stopping = True
        self._due.set()
        self._thread.join()
        self._database.close()

    def finish(self, database: sqlite3.Connection) -> None:
        """Copy the rest; called on the writer's thread with its connection."""
        try:
            checkpoint(database)
        finally:
            self._running = False

    def _run(self) -> None:
        while self._due.wait() and not self._stopping:
            self._due.clear()
            try:
                self._copy()
            except Exception:
                log.exception("a checkpoint met an internal error")
            self._between_commits(self.finish)

    def _copy(self) -> None:
        """Copy until little is left that comes meanwhile."""
        commits, self._commits = self._commits, 0
        for attempt in range(_ROUNDS):
            pages, rest = checkpoint(self._database)
            if not attempt and pages:
                self._pages_per_commit = max(1.0, pages / commits)
            if rest <= _REST_PAGES:
                break


def checkpoint(database: sqlite3.Connection) -> tuple[int, int]:
    """Copy what can be copied now; returns pages in the log, and how many of them are left."""
    try:
        _, pages, done = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.Error as error:
        log.warning("the store's log cannot be copied into the database now (%s)", error)
        return 0, 0
    return max(0, pages), max(0, pages - done)
