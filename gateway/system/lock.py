"""One process per data directory and job: a lock file with the name of its holder.

In: a path. Out: the lock, or an error that names the holder. The kernel releases the lock when the
holder ends, for whatever reason. The lock belongs to the open file (an "open file description
lock", fcntl(2)). Unlike a lock of flock(2), its state can be read without taking it. Unlike a
process's own record lock, it stays when another part of the process closes the same file.
"""

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

from gateway.errors import NotAllowed, OncewayError
from gateway.system.accounts import share
from gateway.system.causes import cause

_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock` on 64-bit Linux: type, whence, start, length (0 = the whole file), process."""


class Locked(OncewayError):
    """Error: another process does this job on this data directory."""

    exit_code = 4


class ProcessLock:
    """A file lock that one process holds, from creation until `close`. Raises Locked, which names
    the process that holds it.
    """

    def __init__(self, path: Path) -> None:
        # root locks in folders of others, who might put a link to a file of root's there
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.open(path, flags, 0o640)
        except OSError as error:
            kind = NotAllowed if isinstance(error, PermissionError) else OncewayError
            reason, todo = cause(error)
            text = f"cannot take the lock: {reason} ({error.strerror})"
            raise kind(text, str(path), todo) from error
        try:
            fcntl.fcntl(
                self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            )
        except BlockingIOError:
            name = _name(self._file)
            os.close(self._file)
            raise Locked(
                f"already in use by {name}",
                str(path),
                "Stop it first, or use another data directory.",
            ) from None
        with suppress(OSError):  # a full disk: the lock holds, only its holder has no name
            share(path)
            # after root has held the lock for a moment, the service must be able to take it
            if not os.geteuid():
                owner = path.parent.stat()
                os.fchown(self._file, owner.st_uid, owner.st_gid)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"process {os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        os.close(self._file)


def holder(path: Path) -> str | None:
    """Return the holder of the lock at `path` (`process 1234`). Return None if the lock is free or
    cannot be read. Does not take the lock.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = fcntl.fcntl(
            file, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        )
        return None if _FLOCK.unpack(asked)[0] == fcntl.F_UNLCK else _name(file)
    finally:
        os.close(file)


def _name(file: int) -> str:
    return os.pread(file, 64, 0).decode(errors="replace").strip() or "another process"
