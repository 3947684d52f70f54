"""Space on the disk: the part that messages may still take, and a reserve for all other writes when
the disk is full.

In: the data directory, and the open store between two commits. Out: `room`, the bytes of messages
that are still accepted; and `DATA/reserve`, a file that is deleted when the disk has no other
space, so that acknowledgements, sessions and deletes continue.

While messages fill the disk, two amounts have a lower bound. The first amount is the space outside
the database: free, or in the reserve. It must be at least one reserve. The second amount adds the
free pages inside the database, less the pages of the log that are not yet copied to the database.
It must be at least two reserves. A message takes space in the log, and again in the database when
the log is copied. A delete frees pages inside the database, never outside. So the database stops
growing when two reserves are left outside, and the log may then take one of them: deleted rows
always make room for new rows.

When another program fills the disk at once, only the reserve remains. It must have room for the
part of the log that is not yet copied, which is kept below 1/4 of the reserve. It must also have
room for two commits, in the log and again in the database: one that is being written, and one that
is gathered meanwhile, each of at most one `backlog` (1/8). The sum is 3/4; the rest is for
acknowledgements and sessions.
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
"""The reserve takes at most 1 / _SHARE of the disk's size."""

_OUTSIDE, _IN_ALL = 1, 2
_COPIES = 3
"""A message takes this many times its size: in the log, in the database, and as overhead of pages.
"""

_LOW, _HIGH = 0.25, 0.75
"""Limits for the result of `Space._above`, as fractions of the reserve. Below `_LOW` the store
refuses messages; from `_HIGH` on it accepts messages again.
"""

_BACKLOG, _UNCOPIED = 1 / 8, 1 / 4
_MOST_BACKLOG = 16_000_000
"""Size limit, in bytes, of the messages that wait in memory for a commit. It applies while the disk
has plenty of space.
"""

_PLENTY = 16
"""Multiple of the reserve's size. With this much free space or more, the store needs no reserve,
and `look` measures nothing else.
"""

_SMALL_LOG = 1 / 16
"""A log below this fraction of the reserve's size is not emptied: that would free too little."""

_READERS_S = 0.2
"""Longest wait for programs that read the log, in seconds. If a read takes longer, the log keeps
its space.
"""


def release(folder: Path) -> bool:
    """Delete the reserve of a data directory. Return whether it was deleted."""
    try:
        (folder / NAME).unlink()
    except OSError:
        return False
    return True


class Space:
    """The free space on the store's disk. Only the writer's thread uses this object, with its
    connection. room: bytes of messages that may still be accepted. short: whether messages are
    refused because the disk is full. backlog: largest number of bytes of messages that may wait for
    a commit.
    """

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        disk = os.statvfs(folder)
        self.room = self.backlog = 0
        self.short = False
        self._size = min(RESERVE, disk.f_blocks * disk.f_frsize // _SHARE)
        self._folder = folder
        self._database = database
        self._may_use_all = os.geteuid() == 0  # only root can use a file system's last blocks
        self._page = self._ask("page_size")
        with contextlib.suppress(OSError, sqlite3.Error):  # the writer measures again
            self.look()

    def look(self) -> None:
        """Measure the space, and make or delete the reserve. Call this between two commits. Raises
        OSError and sqlite3.Error; after an error, the old figures stay.
        """
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
        return release(self._folder)

    def _above(self) -> int:
        """Return by how many bytes the free space exceeds its bounds; negative if it is below one
        of them. The bounds: one reserve must be free outside the database, and two reserves in all,
        free pages of the database included. The smaller excess counts.
        """
        outside = self._free() + self._allocated()
        in_all = outside + self._page * self._ask("freelist_count") - self._uncopied()
        return min(outside - _OUTSIDE * self._size, in_all - _IN_ALL * self._size)

    def _uncopied(self) -> int:
        """Return the number of bytes by which the database will grow when the log is copied."""
        return max(0, self._page * self._ask("page_count") - (self._folder / FILE).stat().st_size)

    def _ask(self, pragma: str) -> int:
        return int(self._database.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _judge(self, above: int) -> None:
        short = above < (_HIGH if self.short else _LOW) * self._size
        if short and not self.short:
            log.error(
                "the disk is full except for a reserve; new messages are refused until there is"
                " space"
            )
        elif self.short and not short:
            log.warning("there is space on the disk again")
        self.short = short
        self.room = 0 if short else above // _COPIES

    def _keep_reserve(self) -> None:
        free, path = self._free(), self._folder / NAME
        if path.exists():  # even if the file system stores it compressed
            if free < _LOW * self._size:
                self.release()
        elif free >= (_OUTSIDE + _LOW) * self._size:
            try:
                with path.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, self._size)
            except OSError:
                self.release()

    def _allocated(self) -> int:
        """Return the number of bytes that the reserve takes on the disk."""
        try:
            return (self._folder / NAME).stat().st_blocks * 512
        except FileNotFoundError:
            return 0

    def _free(self) -> int:
        disk = os.statvfs(self._folder)
        return (disk.f_bfree if self._may_use_all else disk.f_bavail) * disk.f_frsize

    def _empty_log(self) -> None:
        """If the log is not small (_SMALL_LOG), copy it into the database and truncate it. Errors
        of SQLite are ignored.
        """
        if (self._folder / f"{FILE}-wal").stat().st_size < _SMALL_LOG * self._size:
            return
        self._database.execute(f"PRAGMA busy_timeout={_READERS_S * 1000:.0f}")
        try:
            # the disk may be too full for that: then messages are refused anyway
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._database.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000:.0f}")
