"""Reading a local file without blocking on special files.

In: a path. Out: the first bytes of the file, or OSError. Opening a FIFO blocks until another
program writes to it, and opening a device may do anything. So only a regular file is opened.
"""

import errno
import os
import stat

NO_REGULAR_FILE = errno.ENXIO
"""Error number for a path that is not a regular file. The system gives the same number if a socket
is opened, but then with its own text.
"""

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def first_bytes(path: str, limit: int) -> bytes:
    """Return the first `limit` bytes of a regular file. Raises OSError for any other file."""
    _refuse(path, os.stat(path))
    # a file that replaces this one at this moment cannot block either
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
