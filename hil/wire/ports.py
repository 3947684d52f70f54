"""The two ends of a wire: the board's port, which is there, and the gateway's, which is made here."""

import errno
import os
import select
import tty
from pathlib import Path

from gateway.errors import OncewayError


class Port:
    """The gateway's port: a pseudo-terminal whose slave side is offered at `link`."""

    def __init__(self, link: Path) -> None:
        self.fd, slave = os.openpty()
        tty.setraw(slave)
        self._slave = os.ttyname(slave)
        os.close(slave)  # from here on the master hangs up whenever nobody has the port open
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
            if error.errno == errno.EIO:  # closed a moment ago; the next turn sees the hang-up
                return b""
            raise

    def remove(self) -> None:
        """Whoever has the port open gets a hang-up."""
        self.link.unlink(missing_ok=True)
        os.close(self.fd)


def open_board(path: Path) -> int:
    """Open the board's port, which resets an Uno. Raises OncewayError."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(fd)
    except OSError as error:
        raise OncewayError(f"cannot open the board's port ({error.strerror})", str(path)) from error
    return fd
