"""Room on the disk: how much messages may still take of it, and a reserve for all else when
something has filled it.

In: the data directory, and the open store between two commits. Out: `room`, beyond which messages
are refused before they are in a commit; and `DATA/reserve`, a file that is given back to the disk
when there is nothing else left, so that acknowledgements, sessions and deletes go on.

When messages fill the disk, two things are counted: what is outside of the database (free, or the
reserve), and what there is in all, with the pages that are free inside the database, less what the
log has still to bring there. A message takes its place in the log, and again in the database when
the log is copied; deletes make room inside, never outside. So the database may grow until two
reserves are left in all, which are outside then, and the log until one is left outside: what was
deleted always makes room for others.

When something else takes all of the disk at once, the reserve is what is left: for one commit that
is written and one that was gathered meanwhile, each of at most one `backlog` (1/8); for what of the
log is not in the database (kept below 1/4), which grows by both, and for both of them there. That
is 3/4; the rest is for what goes on.
"""

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

from gateway.store.schema import BUSY_TIMEOUT_S, FILE

log = logging.getLogger(__name__)

NAME = "reserve"
RESERVE = 32_000_000
_SHARE = 16
"""Of a small disk the reserve is this part."""

_OUTSIDE, _IN_ALL = 1, 2
_COPIES = 3
"""Of a message: in the log, in the database, and what pages hold beside it."""

_LOW, _HIGH = 0.25, 0.75
"""Distance from those bounds, in reserves: below the first, messages are refused; above the second,
they are taken again.
"""

_BACKLOG, _UNCOPIED = 1 / 8, 1 / 4
_MOST_BACKLOG = 16_000_000
"""Bytes of memory that they may take where the disk has plenty of room."""

_PLENTY = 16
"""With this many reserves free, none is made and nothing is counted."""

_SMALL_LOG = 1 / 16
"""Of a reserve: a log that is not worth a checkpoint."""

_READERS_S = 0.2
"""So long the log waits for those who still read it; who reads longer keeps its space."""


def release(folder: Path) -> bool:
    """Give the reserve of a data directory back to the disk. False: there is none."""
    try:
        (folder / NAME).unlink()
    except OSError:
        return False
    return True


class Space:
    """Used by the writer's thread, with its connection. room: bytes of messages that may still
    come. short: there is none. backlog: bytes of them that should wait for the disk at one time.
    """

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        disk = os.statvfs(folder)
        self.room = self.backlog = 0
        self.short = False
        self._size = min(RESERVE, disk.f_blocks * disk.f_frsize // _SHARE)
        self._folder = folder
        self._database = database
        self._may_use_all = os.geteuid() == 0  # a file system keeps its last blocks for root
        self._page = self._ask("page_size")
        self.look()

    def look(self) -> None:
        """See how much there is. Between two commits."""
        with contextlib.suppress(OSError, sqlite3.Error):  # then all stays as it was
            free = self._free()
            if free >= _PLENTY * self._size and not self.short:
                self.room, self.backlog = free // (_COPIES + 1), _MOST_BACKLOG
                return
            self.backlog = int(_BACKLOG * self._size)
            if self._uncopied() > _UNCOPIED * self._size or self._above() < _HIGH * self._size:
                self._empty_log()
            self._judge(self._above())
            self._keep_reserve()

    def release(self) -> bool:
        """Give the reserve back to the disk. False: there is none any more."""
        return release(self._folder)

    def _above(self) -> int:
        """Bytes between what is there and what has to be left."""
        outside = self._free() + self._held()
        in_all = outside + self._page * self._ask("freelist_count") - self._uncopied()
        return min(outside - _OUTSIDE * self._size, in_all - _IN_ALL * self._size)

    def _uncopied(self) -> int:
        """Bytes by which the database will grow when the log is copied."""
        return max(0, self._page * self._ask("page_count") - (self._folder / FILE).stat().st_size)

    def _ask(self, pragma: str) -> int:
        return int(self._database.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _judge(self, above: int) -> None:
        short = above < (_HIGH if self.short else _LOW) * self._size
        if short and not self.short:
            log.error(
                "the disk is full but for a reserve; new messages are refused until there is space"
            )
        elif self.short and not short:
            log.warning("there is space on the disk again")
        self.short = short
        self.room = 0 if short else above // _COPIES

    def _keep_reserve(self) -> None:
        free, path = self._free(), self._folder / NAME
        if path.exists():  # even if the file system has found a way to take less for it
            if free < _LOW * self._size:
                self.release()
        elif free >= (_OUTSIDE + _LOW) * self._size:
            try:
                with path.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, self._size)
            except OSError:
                self.release()

    def _held(self) -> int:
        """Bytes of the reserve that are on the disk."""
        try:
            return (self._folder / NAME).stat().st_blocks * 512
        except FileNotFoundError:
            return 0

    def _free(self) -> int:
        disk = os.statvfs(self._folder)
        return (disk.f_bfree if self._may_use_all else disk.f_bavail) * disk.f_frsize

    def _empty_log(self) -> None:
        """The log into the database, and its space back to the disk."""
        if (self._folder / f"{FILE}-wal").stat().st_size < _SMALL_LOG * self._size:
            return
        self._database.execute(f"PRAGMA busy_timeout={_READERS_S * 1000:.0f}")
        try:
            # the disk may be too full for it: then there is more reason to refuse messages
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._database.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000:.0f}")
