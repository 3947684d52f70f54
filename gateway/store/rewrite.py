"""A start writes the write-ahead log again, before it relies on the log.

In: an open store at the gateway's start. Out: a log that is on the disk, even after a failed fsync.
If an fsync fails, Linux marks the pages as clean although the disk never got them. Programs can
still read these pages, so after a restart SQLite treats their commits as complete. The gateway
would acknowledge the commits, the next fsync would succeed, and a power cut would lose the commits.
Writing the log again makes the pages dirty again, and the next fsync reports the truth.

A running gateway need not rewrite its log: a failed commit is tried again, which writes each of its
pages again, and a failed checkpoint starts over.
"""

import os
from pathlib import Path

_CHUNK = 1 << 20


def rewrite_log(path: Path) -> None:
    """Write the log of the database at `path` again and sync it. The caller holds SQLite's write
    lock. Raises OSError if the disk does not accept the log.
    """
    file = os.open(path.with_name(path.name + "-wal"), os.O_RDWR | os.O_CLOEXEC)
    try:
        at = 0
        while data := os.pread(file, _CHUNK, at):
            at += os.pwrite(file, data, at)
        if at:
            os.fsync(file)
    finally:
        os.close(file)
