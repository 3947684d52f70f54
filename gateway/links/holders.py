"""Processes that have a serial port open. In: the path of the port. Out: processes by name and
number.
"""

import os
import stat
from pathlib import Path

from gateway.links.tty import PTY_SLAVES


def holders(port: str) -> list[str]:
    """Return the other processes that have this port open, as `name (pid N)`; empty if there is no
    such port. Processes of other users are visible only to root.
    """
    try:
        status = os.stat(port)
    except OSError:
        return []
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            if any(_is_open(fd, status) for fd in (process / "fd").iterdir()):
                found.append(f"{(process / 'comm').read_text().strip()} (pid {process.name})")
        except OSError:
            continue  # the process has ended, or is not readable
    return found


def _is_open(fd: Path, port: os.stat_result) -> bool:
    """Whether a file descriptor in /proc refers to this port. For a real terminal, equal device
    numbers prove this. Pseudo terminals (devpts) of two containers may have the same number. So for
    a pseudo terminal, the file system and the inode must be equal, too.
    """
    try:
        status = fd.stat()
    except OSError:
        return False
    if not stat.S_ISCHR(status.st_mode) or status.st_rdev != port.st_rdev:
        return False
    return os.major(port.st_rdev) not in PTY_SLAVES or os.path.samestat(status, port)
