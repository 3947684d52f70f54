"""Checkpoints that run while commits continue, so that no acknowledgement waits for one; and a firm
bound for the write-ahead log (the log).

In: a call after each commit. Out: a log that stays short. SQLite copies the log's pages into the
database while commits continue (PASSIVE), on a separate thread and connection. Only the pages that
were added meanwhile are copied between two commits, on the writer's thread. After that the next
commit starts the log again. SQLite's automatic checkpoint would do all of it inside a commit.

Bounds, in bytes of the log as SQLite counts them (frames, `wal.py`), not in commits:

    WAL_BYTES       that many bytes are not copied yet: a checkpoint begins while commits continue
    WAL_LIMIT       the log has that many bytes: the writer waits, copies the rest, and truncates
                    the file (TRUNCATE). So the file holds WAL_LIMIT and one commit at most
    WAL_WARN_BYTES  a reader has kept its view of the database for so long that the log could not
                    be truncated: a warning is logged, once until the file is short again. Commits
                    continue
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gateway.store.log_readers import log_readers
from gateway.store.schema import BUSY_TIMEOUT_S, WAL_BYTES, WAL_LIMIT, connect
from gateway.store.wal import FRAME_BYTES, Index
from gateway.system.jobs import Job

log = logging.getLogger(__name__)

WAL_WARN_BYTES = 4 * WAL_LIMIT
"""Size of the write-ahead log, in bytes, at which a warning is logged."""

CHECKPOINT_S = 30.0
"""Seconds for which a checkpoint that is due may fail before the failure is reported as a problem.
"""

_REST_PAGES = 64
_ROUNDS = 4
_READERS_S = 0.2
"""Longest wait of the writer for readers, in seconds. While readers prevent the truncation of the
log, the writer waits once for each WAL_BYTES by which the log has grown.
"""
_OTHERS_S = 2.0
"""Longest wait of the writer for a checkpoint of another process, in seconds."""
_POLL_S = 0.005


class LogJob(Job):
    """The background job that shows whether checkpoints succeed. path: path of the database."""

    def __init__(self, path: Path) -> None:
        failure = "the store's write-ahead log cannot be copied into the database"
        super().__init__("checkpoint", failure, CHECKPOINT_S)
        self.too_large = False
        """Whether the log has reached WAL_WARN_BYTES because it could not be truncated."""
        self._path = path

    @property
    def holders(self) -> list[str]:
        """The programs that prevent SQLite from truncating the log; empty unless the log is too
        large or a checkpoint is overdue.
        """
        return log_readers(self._path) if self.too_large or self.overdue else []

    @property
    def problem(self) -> str | None:
        if not (self.too_large or self.overdue):
            return None
        text = (
            f"the store's write-ahead log has more than {WAL_WARN_BYTES // 1_000_000} MB"
            if self.too_large
            else f"{self.failure} for more than {self.bound_s:.0f} s"
        )
        if self.error is not None:
            return f"{text} ({self.error})"
        holders = ", ".join(self.holders) or "an unknown program"
        return f"{text}: a read transaction stays open in {holders}"


class Checkpointer:
    """The checkpoints of one store.

    between_commits: calls a function on the writer's thread, with the writer's connection, when no
    commit is in progress.
    """

    def __init__(
        self, path: Path, between_commits: Callable[[Callable[[sqlite3.Connection], None]], None]
    ) -> None:
        self._database = connect(path)
        self._between_commits = between_commits
        (page,) = self._database.execute("PRAGMA page_size").fetchone()
        self._frame = page + FRAME_BYTES
        self._index = Index(path)
        self._frames = 0
        """Number of frames that the log had after the last commit."""
        self.waits = 0
        """Number of times since the start that the writer had to wait because the log had reached
        its bound.
        """
        self.idle = threading.Event()
        """Event that is set while no checkpoint is in progress."""
        self.idle.set()
        self._copying = threading.Lock()
        """Held during a checkpoint: SQLite refuses a second checkpoint at the same time."""
        self._waits_at = WAL_LIMIT
        """Size of the log, in bytes, at which the writer waits. Raised while a reader prevents the
        truncation.
        """
        self.job = LogJob(path)
        self._stopping = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-checkpoint")
        self._thread.start()

    def committed(self) -> None:
        """Begin a checkpoint if one is due. Called on the writer's thread after each commit."""
        self._frames, copied = self._index.look()
        if (self._frames - copied) * self._frame < WAL_BYTES:
            return
        self.job.begin()
        if self.idle.is_set():
            self.idle.clear()
            self._due.set()

    def keep_bound(self, database: sqlite3.Connection) -> None:
        """If the log has reached its bound, copy and truncate it. Wait for readers for at most
        `_READERS_S`. Call this on the writer's thread, with its connection, after each commit:
        after `committed`, and after the report of the commit.
        """
        size = self._frames * self._frame
        if size >= self._waits_at:
            self.waits += 1
            cut = self._cut(database)
            self._waits_at = WAL_LIMIT if cut else size + WAL_BYTES
            self._report(size, cut)
        elif size < WAL_LIMIT:
            self._waits_at = WAL_LIMIT
            self._report(size, cut=True)

    def stop(self) -> None:
        """End the thread. A checkpoint in progress is completed."""
        self._stopping = True
        self._due.set()
        self._thread.join()
        self._database.close()

    def finish(self, database: sqlite3.Connection) -> None:
        """Copy the pages that the checkpoint on the other thread has not copied. Called on the
        writer's thread with its connection.
        """
        try:
            with self._copying:
                self._note(checkpoint(database))
        except sqlite3.Error as error:
            self.job.fail(error)
        finally:
            self.idle.set()

    def _run(self) -> None:
        while self._due.wait() and not self._stopping:
            self._due.clear()
            try:
                self._copy()
            except Exception as error:
                self.job.fail(error)
            self._between_commits(self.finish)

    def _copy(self) -> None:
        """Copy the log's pages, up to _ROUNDS times, until at most _REST_PAGES new pages remain."""
        for _ in range(_ROUNDS):
            with self._copying:
                rest = checkpoint(self._database)
            if rest <= _REST_PAGES:
                break

    def _cut(self, database: sqlite3.Connection) -> bool:
        """Copy the rest of the log and truncate its file. Return False if a reader still needs the
        log, or after an error.
        """
        deadline = time.monotonic() + _OTHERS_S
        with self._copying:
            database.execute(f"PRAGMA busy_timeout={_READERS_S * 1000:.0f}")
            try:
                while True:
                    busy, pages, _ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    # -1: another process makes a checkpoint, for which SQLite does not wait
                    if pages >= 0 or time.monotonic() > deadline:
                        if not busy:
                            self.job.succeed()
                        return not busy
                    time.sleep(_POLL_S)
            except sqlite3.Error as error:
                self.job.fail(error)
                return False
            finally:
                database.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000:.0f}")

    def _note(self, rest: int) -> None:
        """Note a success if the rest of the log is smaller than WAL_BYTES. rest: number of pages
        that the last checkpoint could not copy.
        """
        if rest * self._frame < WAL_BYTES:
            self.job.succeed()

    def _report(self, size: int, cut: bool) -> None:
        if not cut and size >= WAL_WARN_BYTES and not self.job.too_large:
            self.job.too_large = True
            log.warning("%s. Until this ends, the log grows", self.job.problem)
        elif cut and self.job.too_large:
            self.job.too_large = False
            log.warning("the store's write-ahead log is short again")


def checkpoint(database: sqlite3.Connection) -> int:
    """Copy as many pages as possible into the database. Return the number of pages that remain in
    the log. Raises sqlite3.Error.
    """
    _, pages, done = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return max(0, int(pages) - int(done))
