"""Serial ports before they are opened. In: a path. Out: nothing, or an OncewayError that says why avrdude would fail on it."""

import errno
import fcntl
import grp
import os
import stat
from pathlib import Path

from serial.tools.list_ports import comports

from gateway.errors import OncewayError


def holders(port: str) -> list[str]:
    """Processes that have this port open, as `name (pid N)`. Those of other users are seen by root only."""
    device = os.stat(port).st_rdev
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            if any(_is_device(fd, device) for fd in (process / "fd").iterdir()):
                found.append(f"{(process / 'comm').read_text().strip()} (pid {process.name})")
        except OSError:
            continue  # gone meanwhile, or not ours to look at
    return found


def _is_device(fd: Path, device: int) -> bool:
    try:
        status = fd.stat()
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == device


def check(port: str) -> None:
    """Raise OncewayError if the port is missing, no serial port, not ours to open, or held by another process."""
    try:
        status = os.stat(port)
    except FileNotFoundError:
        known = ", ".join(sorted(p.device for p in comports())) or "none"
        raise OncewayError("there is no such port", port, f"Serial ports here: {known}. Is the board plugged in?") from None
    if not stat.S_ISCHR(status.st_mode):
        raise OncewayError("this is not a serial port", port)
    if not os.access(port, os.R_OK | os.W_OK):
        group = grp.getgrgid(status.st_gid).gr_name
        raise OncewayError(
            "you may not open this port",
            port,
            f"It belongs to the group {group}: run `sudo usermod -aG {group} $USER` and log in again",
        )
    held_by = holders(port)
    if held_by:
        raise _busy(port, " and ".join(held_by))
    _try_lock(port)


def _try_lock(port: str) -> None:
    """A port in exclusive use (TIOCEXCL) or locked by a process that we cannot see shows itself here."""
    try:
        fd = os.open(port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise _busy(port, "another process") from None
        raise OncewayError(f"cannot open the port ({error.strerror})", port) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(port, "another process") from None
    finally:
        os.close(fd)


def _busy(port: str, who: str) -> OncewayError:
    return OncewayError(f"the port is in use by {who}", port, "Stop it first (a running gateway: `systemctl stop onceway-gateway`)")
