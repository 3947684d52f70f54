"""The lease: one writer at a time for tables on a local file system, where Delta's commit is not
atomic between processes.

In: a table's location. Out: the lease, held until the `with` block ends or the process dies. Other
stores (HDFS, ABFS, GCS) make commits atomic, so this module does nothing for them; for S3, see the
README.
"""

import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.ingest.delta.local_disk import local_path

REMIND_SECONDS = 60.0

log = logging.getLogger("onceway.ingest")


@contextmanager
def lease(location: str) -> Iterator[bool]:
    """Hold the lease of the table at `location` within the context. If another process has it,
    wait, and log which process. Only tables on a local file system have a lease. The lease of
    `publications` is also for the tables beside it. The value of the context is whether there is a
    lease.
    """
    path = lock_file(location)
    if path is None:
        yield False
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        _take(file.fileno(), path)
        os.ftruncate(file.fileno(), 0)
        os.pwrite(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield True  # closing the file returns the lease


def lock_file(location: str) -> Path | None:
    """Return the lock file of a local table, e.g. `/lake/.publications.lease`. None for other file
    systems.
    """
    table = local_path(location)
    return None if table is None else table.parent / f".{table.name}.lease"


def _take(descriptor: int, path: Path) -> None:
    remind = 0.0
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
        if time.monotonic() > remind:
            log.warning(
                "waiting for %s: %s writes to the table",
                path,
                path.read_text().strip() or "another process",
            )
            remind = time.monotonic() + REMIND_SECONDS
        time.sleep(0.05)
