"""Reading a local file without blocking on special files.

Out: its first bytes, or OSError. To open a FIFO blocks until another program writes to it, and a
device may do anything, so only a regular file is opened.
"""

import errno
import os
import stat

NO_REGULAR_FILE = errno.ENXIO
"""Error number for a special file: the same as for opening a socket, but with a text of Onceway."""

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def first_bytes(path: str, limit: int) -> bytes:
    """Return the first `limit` bytes of a file. Raises OSError."""
    _refuse(path, os.stat(path))
    # not even a file that replaces this one right now can block
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        _refuse(path, os.fstat(descriptor))
        return file.read(limit)


def _refuse(path: str, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if kind != stat.S_IFREG:
        raise OSError(
            NO_REGULAR_FILE,
            f"Not a regular file, but {_KINDS.get(kind, 'another kind of file')}",
            path,
        )
