"""A serial port as a non-blocking file descriptor.

In: a path and a baud rate. Out: an open, locked, raw terminal, or an OncewayError that says what to
do.
"""

import contextlib
import errno
import fcntl
import grp
import os
import termios
from types import TracebackType
from typing import Self

import serial

from gateway.errors import OncewayError

PTY_SLAVES = range(136, 144)
"""Major device numbers of Unix98 pseudo terminals (Documentation/admin-guide/devices.txt of Linux).
"""

_CFLAG, _CC = 2, 6


class PortBusy(OncewayError):
    """Error: another program uses the port."""


class Tty:
    """An open port: 8 data bits, no parity, 1 stop bit, raw, exclusive. DTR does not change when
    the port is closed, so the next opening does not reset a board.
    """

    def __init__(self, path: str, baud: int) -> None:
        """Open `path`. Raises OncewayError if the port is missing, busy or no serial port, if the
        baud rate is not supported, or if this account has no permission.
        """
        self.path = path
        try:
            # Locks with flock, which ends with the process in any case.
            self._serial = serial.Serial(path, baud, timeout=0, exclusive=True)
        except (OSError, ValueError) as error:
            raise _open_error(error, path, baud) from error
        self.fd: int = self._serial.fileno()
        try:
            self._settle()
        except termios.error as error:
            self._serial.close()
            raise _open_error(OSError(*error.args), path, baud) from error

    def _settle(self) -> None:
        attributes = termios.tcgetattr(self.fd)
        attributes[_CFLAG] &= ~termios.HUPCL
        # With VMIN 0, "no data yet" and "unplugged" both read as no bytes.
        attributes[_CC][termios.VMIN] = 1
        termios.tcsetattr(self.fd, termios.TCSANOW, attributes)
        if os.major(os.fstat(self.fd).st_rdev) not in PTY_SLAVES:
            # Excludes programs that ignore locks. On a pseudo terminal, the exclusion would outlive
            # this process and lock out the next one.
            fcntl.ioctl(self.fd, termios.TIOCEXCL)
            # Otherwise some adapters (FTDI) hold received bytes for 16 ms, which costs a small
            # window most of its throughput.
            with contextlib.suppress(ValueError):
                self._serial.set_low_latency_mode(True)

    def read(self, length: int) -> bytes:
        """Return the received bytes; empty if none has arrived. Raises OSError if the port is
        gone.
        """
        try:
            data = os.read(self.fd, length)
        except BlockingIOError:
            return b""
        if not data:
            raise OSError(errno.ENXIO, "the port has hung up")
        return data

    def write(self, data: bytes) -> int:
        """Return the number of bytes that the system accepted, maybe 0. Raises OSError if the port
        is gone.
        """
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self._serial.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _open_error(error: Exception, path: str, baud: int) -> OncewayError:
    number = getattr(error, "errno", None)
    if number in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return OncewayError(
            "there is no such serial port",
            path,
            "Plug the board in; `ls /dev/serial/by-id` lists the boards.",
        )
    if number == errno.EISDIR or "configure" in str(error) or os.path.isfile(path):
        return OncewayError("this is not a serial port", path)
    if number in (errno.EAGAIN, errno.EBUSY):
        return PortBusy("the serial port is in use by another program", path, "Stop that program.")
    if number in (errno.EACCES, errno.EPERM):
        return OncewayError(
            "no permission to open the serial port",
            path,
            f"Add the user to the group {_group_of(path)} and log in again.",
        )
    if number == errno.EINVAL or isinstance(error, ValueError):
        return OncewayError(
            f"the serial port does not support {baud} baud",
            path,
            "Choose a rate that the adapter and the board support.",
        )
    return OncewayError(f"cannot open the serial port: {error}", path)


def _group_of(path: str) -> str:
    try:
        return grp.getgrgid(os.stat(path).st_gid).gr_name
    except (OSError, KeyError):
        return "dialout"
