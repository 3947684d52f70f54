"""Serial ports, checked before they are opened.

In: a kind of board, a path, or neither. Out: the connected ports, or an OncewayError that says why
avrdude would fail at a port.
"""

import errno
import fcntl
import grp
import os
import stat
import termios
from dataclasses import dataclass
from pathlib import Path

from serial.tools.list_ports import comports

from gateway.errors import OncewayError
from gateway.links.holders import holders
from provisioning.boards import Board, by_usb

_BY_ID = Path("/dev/serial/by-id")
_CFLAG = 2
_GROUP_MAY = stat.S_IRGRP | stat.S_IWGRP


@dataclass(frozen=True, slots=True)
class Plugged:
    """A serial port. stable: its name under /dev/serial/by-id, which stays the same if ports are
    plugged in in another order. boards: names of the kinds of board that have its USB ids.
    """

    port: str
    stable: str | None
    boards: list[str]
    description: str
    held_by: list[str]


def plugged() -> list[Plugged]:
    """Return all serial ports of this machine."""
    stable = {path.resolve(): str(path) for path in _BY_ID.iterdir()} if _BY_ID.is_dir() else {}
    return [
        Plugged(
            port.device,
            stable.get(Path(port.device).resolve()),
            [board.name for board in by_usb(port.vid, port.pid)],
            port.description,
            holders(port.device),
        )
        for port in sorted(comports())
    ]


def find(board: Board) -> str:
    """Return the stable name of the only port at which there may be a board of this kind, judged by
    USB ids. Raises OncewayError if there is no such port, or several.
    """
    fitting = [entry for entry in plugged() if board.name in entry.boards]
    if len(fitting) == 1:
        return fitting[0].stable or fitting[0].port
    if not fitting:
        raise OncewayError(
            f"no {board.title} is plugged in",
            hint="`onceway board ports` lists the ports; name the port with --port",
        )
    names = ", ".join(entry.port for entry in fitting)
    raise OncewayError(
        f"several boards look like {board.title}: {names}", hint="Choose one of them with --port"
    )


def look(port: str) -> None:
    """Raise OncewayError if the port is missing, is not a serial port, is not accessible to this
    account, or is visibly held by another process.

    The port is not opened: that would reset the board.
    """
    try:
        status = os.stat(port)
    except (OSError, ValueError):
        known = ", ".join(sorted(p.device for p in comports())) or "none"
        raise OncewayError(
            "there is no such port", port, f"Serial ports here: {known}. Is the board plugged in?"
        ) from None
    if not stat.S_ISCHR(status.st_mode) or not _is_terminal(status.st_rdev):
        raise OncewayError(
            "this is not a serial port",
            port,
            "`onceway board ports` lists the serial ports of this machine",
        )
    if not os.access(port, os.R_OK | os.W_OK):
        raise OncewayError("you may not open this port", port, _who_may(status))
    if holders(port):
        raise _busy(port)


def check(port: str) -> None:
    """Check a port as `look` does, then open it. Raises OncewayError."""
    look(port)
    _try_lock(port)


def _is_terminal(device: int) -> bool:
    """Whether this device number belongs to a driver of terminals (proc(5), /proc/tty/drivers).
    True if the drivers are unknown.
    """
    try:
        drivers = [
            line.split()[-3:-1] for line in Path("/proc/tty/drivers").read_text().splitlines()
        ]
    except OSError:
        return True
    for major, minors in drivers:
        first, _, last = minors.partition("-")
        if os.major(device) == int(major) and int(first) <= os.minor(device) <= int(last or first):
            return True
    return False


def _who_may(status: os.stat_result) -> str:
    if status.st_mode & _GROUP_MAY != _GROUP_MAY:
        return "Only the owner of the port may open it: run the command with sudo"
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    return f"It belongs to the group {group}: run `sudo usermod -aG {group} $USER` and log in again"


def _try_lock(port: str) -> None:
    """Open and lock the port for a moment. Raises OncewayError if another process uses the port
    exclusively (TIOCEXCL) or has locked it, even a process that this account cannot see.
    """
    fd = _open(port)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(port) from None
    finally:
        os.close(fd)


def drop_dtr(port: str) -> None:
    """Clear DTR, so that the next program that opens the port resets the board. A gateway leaves
    DTR set when it closes a port, so that no board is reset. Raises OncewayError.
    """
    fd = _open(port)
    try:
        attributes = termios.tcgetattr(fd)
        attributes[_CFLAG] |= termios.HUPCL
        termios.tcsetattr(fd, termios.TCSANOW, attributes)
    except termios.error as error:
        raise OncewayError(f"this is not a serial port ({error.args[1]})", port) from error
    finally:
        os.close(fd)


def _open(port: str) -> int:
    """Return a descriptor of a port, even if the port waits for a carrier. Raises OncewayError."""
    try:
        return os.open(port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise _busy(port) from None
        raise OncewayError(f"cannot open the port ({error.strerror})", port) from error


def _busy(port: str) -> OncewayError:
    users = " and ".join(holders(port)) or "another process"
    return OncewayError(
        f"the port is in use by {users}",
        port,
        "Stop it first (a running gateway: `systemctl stop onceway-gateway`)",
    )
