"""How much payload the disk still takes.

In: the data directory, and how many pages inside the database are free. Out: bytes of payload. The broker refuses what goes beyond before
it is in a commit: a publisher that is refused knows at once and can go on, while one whose commit failed waits until there is space. The
reserve is for what must go on: acknowledgements, deletes, the write-ahead log.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

from gateway.store.schema import FILE

RESERVE = 16_000_000
_SHARE = 8
"""No more than this part of a small disk is kept in reserve."""

_COPIES = 4
"""A payload may go into a queue and into the spool, and each of them through the log into the database."""


class Space:
    """inside: bytes in pages of the database that hold nothing, as the writer saw them last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / f"{FILE}-wal"
        self._may_use_all = os.geteuid() == 0  # a file system keeps its last blocks for root
        self.inside = 0

    def count_inside(self, database: sqlite3.Connection) -> None:
        """Look again how much is free inside the database."""
        with contextlib.suppress(sqlite3.Error):
            (pages,) = database.execute("PRAGMA freelist_count").fetchone()
            (size,) = database.execute("PRAGMA page_size").fetchone()
            self.inside = pages * size

    def room(self) -> int:
        """Bytes of payload that may still come; system calls that do not wait for the disk."""
        try:
            disk = os.statvfs(self._folder)
            log = os.stat(self._log).st_size  # the database grows by so much at the next checkpoint
        except OSError:
            return 0
        free = (disk.f_bfree if self._may_use_all else disk.f_bavail) * disk.f_frsize
        reserve = min(RESERVE, disk.f_blocks * disk.f_frsize // _SHARE)
        return max(0, free + self.inside - log - reserve) // _COPIES
