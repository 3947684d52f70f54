"""The two ends of a wire: the board's port, which exists already, and the gateway's port, which
this module creates.
"""

import errno
import os
import select
import termios
import tty
from pathlib import Path

from gateway.errors import OncewayError

_CFLAG, _ISPEED, _OSPEED = 2, 4, 5  # indexes in the result of tcgetattr


class Port:
    """The gateway's port: a pseudo-terminal whose slave side is offered at `link`."""

    def __init__(self, link: Path) -> None:
        self.fd, slave = os.openpty()
        tty.setraw(slave)
        self._slave = os.ttyname(slave)
        os.close(slave)  # from here on the master has a hang-up while the port is closed
        os.set_blocking(self.fd, False)
        self.link = link
        link.unlink(missing_ok=True)
        link.symlink_to(self._slave)

    def is_open(self) -> bool:
        poll = select.poll()
        poll.register(self.fd, 0)
        return not any(event & select.POLLHUP for _, event in poll.poll(0))

    def read(self, limit: int) -> bytes:
        try:
            return os.read(self.fd, limit) if limit else b""
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EIO:  # closed a moment ago: the next call will find it closed
                return b""
            raise

    def remove(self) -> None:
        """Remove the port; programs that have it open get a hang-up."""
        self.link.unlink(missing_ok=True)
        os.close(self.fd)


def open_board(path: Path, baud: int) -> int:
    """Open the board's port, which resets an Uno: DTR goes down when the port is closed (HUPCL),
    and up when it is opened. Raises OncewayError.
    """
    rate = getattr(termios, f"B{baud}", None)
    if rate is None:
        raise OncewayError(f"a serial port does not support {baud} bits per second", str(path))
    fd = -1
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(fd)
        attributes = termios.tcgetattr(fd)
        attributes[_CFLAG] = (
            attributes[_CFLAG] & ~(termios.CRTSCTS | termios.CSTOPB)
            | termios.CREAD
            | termios.CLOCAL
            | termios.HUPCL
        )
        attributes[_ISPEED] = attributes[_OSPEED] = rate
        termios.tcsetattr(fd, termios.TCSANOW, attributes)
    except (OSError, termios.error) as error:
        if fd >= 0:
            os.close(fd)
        raise OncewayError(
            f"cannot open the board's port ({os.strerror(error.args[0])})", str(path)
        ) from error
    return fd
