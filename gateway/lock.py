"""One process per data directory and job: a lock file that says who holds it.

In: a path. Out: the lock, or an error that names the holder. The kernel drops the lock when the holder dies, however it dies.
"""

import fcntl
import os
from pathlib import Path

from gateway.errors import OncewayError


class Locked(OncewayError):
    """Another process does this job on this data directory."""

    exit_code = 4


class ProcessLock:
    """Held from creation until `close`. Raises Locked, naming the holder."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            hint = "Is that the data directory, and may this account write there?"
            raise OncewayError(f"cannot take the lock ({error.strerror})", str(path), hint) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 64, 0).decode(errors="replace").strip() or "another process"
            os.close(self._file)
            raise Locked(f"already in use by {holder}", str(path), "Stop it first, or use another data directory.") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        os.close(self._file)


def holder(path: Path) -> str | None:
    """Who holds the lock at `path` (`process 1234`); None when nobody does, or it cannot be seen."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return os.pread(file, 64, 0).decode(errors="replace").strip()
    finally:
        os.close(file)
