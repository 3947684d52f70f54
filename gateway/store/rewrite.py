"""What the write-ahead log holds is brought to the disk once more before it is believed.

In: an open store at the gateway's start. Out: a log that is on the disk, whatever happened before.
When an fsync fails, Linux marks the pages as clean although the disk never got them. They can still
be read, so after a restart SQLite takes the commits in them for whole; the gateway would answer for
them, the next fsync would succeed, and a power cut would take them back. Written again, the pages
are dirty again, and the fsync that follows tells the truth. (While the gateway runs no such care is
needed: a commit that failed is tried again, which writes each of its pages again, and a checkpoint
that failed starts over.)
"""

import os
from pathlib import Path

_CHUNK = 1 << 20


def rewrite_log(path: Path) -> None:
    """Write the log of the database at `path` again and wait for the disk. The caller holds
    SQLite's lock for writing. OSError when the disk does not take it.
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
