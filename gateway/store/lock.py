"""One gateway per data directory: a lock that the kernel takes back when its holder dies.

In: a folder. Out: a held lock, or an error that says who holds it.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.store.schema import StoreError


class DataLock:
    """flock on `DATA/lock`, which holds the process id of its holder. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file = -1

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise StoreError(f"cannot use the data directory ({error.strerror})", str(self._path.parent)) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise StoreError(
                f"another gateway uses this data directory (process {holder})",
                str(self._path.parent),
                "Stop that one, or name another directory",
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
        os.close(self._file)
