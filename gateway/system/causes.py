"""Reasons why a disk or a database accepts no data, each with its sentence and its remedy.

In: an error of SQLite or of the operating system. Out: the cause in words, as a clause without a
full stop, and what to do. All texts of the product that name such a cause take it from this module.
"""

import errno
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import NamedTuple

from gateway.errors import OncewayError


class Cause(NamedTuple):
    """The cause of an error. reason: a clause. todo: the remedy, a sentence without a full stop."""

    reason: str
    todo: str


FULL = Cause("the disk is full", "Make room on the disk: sudo onceway doctor")
QUOTA = Cause("the disk quota of this account is used up", "Make room, or raise the quota")
READ_ONLY = Cause(
    "the disk or the file is read-only",
    "See why with dmesg: the kernel makes a disk with errors read-only. After the repair, mount the"
    " disk for writing",
)
FAILS = Cause("the disk fails: it reports an error", "Look at dmesg, and replace the disk")
DAMAGED = Cause("the database is damaged", "See: onceway store check")
LINK = Cause("the path is a symbolic link", "Remove the link, or name another file")
BUSY = Cause(
    "another program has locked the database", "End the program that has the database open"
)
CANNOT_OPEN = Cause(
    "the file cannot be opened",
    "See whether the file and its folder exist, and whether this account may write to both",
)
GONE = Cause(
    "the file or its folder does not exist",
    "Check that this is the right folder, and that its disk is mounted",
)
FORBIDDEN = Cause(
    "this account has no permission", "Give the file or folder to the service's account"
)
NO_MEMORY = Cause("the machine has no memory left", "See what takes the memory: free -m")
NO_FILES = Cause("too many files are open", "Raise LimitNOFILE of the service")
TOO_BIG = Cause("a value or file is larger than its limit", "See the error, and the log")
UNKNOWN = Cause("an error without a known cause", "See the log")

_SQLITE = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_IOERR: FAILS,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_BUSY: BUSY,
    sqlite3.SQLITE_LOCKED: BUSY,
    sqlite3.SQLITE_PROTOCOL: BUSY,
    sqlite3.SQLITE_CANTOPEN: CANNOT_OPEN,
    sqlite3.SQLITE_PERM: FORBIDDEN,
    sqlite3.SQLITE_AUTH: FORBIDDEN,
    sqlite3.SQLITE_NOMEM: NO_MEMORY,
    sqlite3.SQLITE_TOOBIG: TOO_BIG,
}
"""Causes by the primary result code, the low byte of an extended code
(https://sqlite.org/rescode.html).
"""

_EXTENDED = {sqlite3.SQLITE_IOERR_NOMEM: NO_MEMORY}
"""Causes of extended result codes that differ from the cause of their primary code."""

_SYSTEM = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: QUOTA,
    errno.EROFS: READ_ONLY,
    errno.EIO: FAILS,
    errno.ENODEV: FAILS,
    errno.ENXIO: FAILS,
    errno.ELOOP: LINK,
    errno.ENOENT: GONE,
    errno.ENOTDIR: GONE,
    errno.ESTALE: GONE,
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
    errno.ENOMEM: NO_MEMORY,
    errno.EMFILE: NO_FILES,
    errno.ENFILE: NO_FILES,
    errno.EFBIG: TOO_BIG,
    errno.EAGAIN: BUSY,
    errno.EBUSY: BUSY,
}

_OF_MACHINE = (FULL, QUOTA, READ_ONLY, FAILS, NO_MEMORY, NO_FILES)
"""Faults and shortages of the machine. Their remedy does not depend on the file or the program."""


def cause(error: BaseException, *folders: Path) -> Cause:
    """Return the cause of an error, or UNKNOWN if no cause is known. folders: the folders of the
    databases. SQLite has one code for several causes of a failed write. If an error has this code,
    or the database cannot be opened, a test file in each of these folders shows the cause.
    """
    if isinstance(error, OSError):
        return _SYSTEM.get(error.errno or 0, UNKNOWN)
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return UNKNOWN
    found = _EXTENDED.get(code) or _SQLITE.get(code & 0xFF, UNKNOWN)
    tried = folders if found in (FAILS, CANNOT_OPEN) else ()
    return next(filter(None, map(_of_folder, tried)), found)


def of_machine(error: BaseException | None) -> Cause | None:
    """Return the cause of an error if it is a shortage or a fault of the machine (`_OF_MACHINE`),
    else None. If the cause of an error is UNKNOWN, the error's `__cause__` is examined.
    """
    known = set[int]()
    while error is not None and id(error) not in known:  # an error can be its own cause
        found = cause(error)
        if found is not UNKNOWN:
            return found if found in _OF_MACHINE else None
        known.add(id(error))
        error = error.__cause__
    return None


def advised(error: OncewayError) -> OncewayError:
    """Return the error itself. If it has no hint, and its cause is a shortage or a fault of the
    machine, the remedy for this cause becomes the hint.
    """
    if error.hint is None and (found := of_machine(error)):
        error.hint = found.todo
    return error


def _of_folder(folder: Path) -> Cause | None:
    """Try to write a file in a folder. If that fails, return the cause, if it is known."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(os.urandom(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return _SYSTEM.get(error.errno or 0)
    return None


def remedy(reason: str) -> str:
    """Return the remedy of the cause with this `reason`; empty if there is no such cause."""
    known = {*_SQLITE.values(), *_EXTENDED.values(), *_SYSTEM.values()}
    return next((one.todo for one in known if one.reason == reason), "")
