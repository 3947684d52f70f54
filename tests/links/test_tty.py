"""A serial port as a file descriptor: what a failed opening tells the user, exclusive use, and a
line that accepts no more bytes.
"""

import errno
import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import serial

from gateway.errors import OncewayError
from gateway.links import tty
from gateway.links.tty import Tty
from tests.links.board import Pty

TIOCGEXCL = 0x80045440
"""Request of ioctl(2) for whether a terminal is exclusive; `termios` lacks it."""


@pytest.fixture
def line() -> Iterator[Pty]:
    line = Pty()
    yield line
    os.close(line.master)


@pytest.mark.parametrize(
    ("error", "said", "hint"),
    [
        (serial.SerialException(errno.EACCES, "denied"), "no permission to open", "group uucp and"),
        (serial.SerialException(errno.EPERM, "denied"), "no permission to open", "group uucp and"),
        (OSError(errno.EINVAL, "invalid"), "does not support 300 baud", "Choose a rate"),
        (ValueError("Failed to set custom baud rate"), "does not support 300 baud", "Choose a"),
        (OSError(errno.EIO, "I/O error"), r"cannot open the serial port: .*I/O error", None),
    ],
)
def test_failed_opening_says_why_and_what_to_do(
    error: Exception, said: str, hint: str | None, line: Pty, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    groups = {os.stat(line.path).st_gid: SimpleNamespace(gr_name="uucp")}
    monkeypatch.setattr(tty.grp, "getgrgid", groups.__getitem__)
    monkeypatch.setattr(serial, "Serial", fail)
    with pytest.raises(OncewayError, match=said) as caught:
        Tty(line.path, 300)
    assert caught.value.where == line.path
    assert (hint or "") in (caught.value.hint or "")
    assert (hint is None) == (caught.value.hint is None)


def test_a_port_of_an_unknown_group_is_opened_by_members_of_dialout(
    line: Pty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, the number of the device's group may have no name."""

    def fail(*_: object, **__: object) -> None:
        raise serial.SerialException(errno.EACCES, "denied")

    monkeypatch.setattr(serial, "Serial", fail)
    monkeypatch.setattr(tty.grp, "getgrgid", {}.__getitem__)
    with pytest.raises(OncewayError) as caught:
        Tty(line.path, 115_200)
    assert "group dialout and" in (caught.value.hint or "")


def test_an_impossible_rate_is_refused(line: Pty) -> None:
    with pytest.raises(OncewayError, match="does not support -1 baud"):
        Tty(line.path, -1)


@pytest.mark.parametrize("call", ["tcgetattr", "tcsetattr"])
def test_a_port_that_vanishes_during_its_opening_stays_neither_open_nor_locked(
    call: str, line: Pty, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise termios.error(errno.EIO, "Input/output error")

    before = sorted(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(tty, "termios", SimpleNamespace(**vars(termios) | {call: fail}))
        with pytest.raises(OncewayError, match=r"cannot open the serial port: .*Input"):
            Tty(line.path, 115_200)
    assert sorted(os.listdir("/proc/self/fd")) == before
    Tty(line.path, 115_200).close()


@pytest.mark.parametrize("real", [False, True])
def test_only_a_real_port_excludes_programs_that_ignore_locks(
    real: bool, line: Pty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """real: the pseudo terminal counts as a real port. Like some adapters, it has no low latency
    mode, and can be opened without it.
    """
    if real:
        monkeypatch.setattr(tty, "PTY_SLAVES", range(0))
    with Tty(line.path, 115_200) as port:
        assert struct.unpack("i", fcntl.ioctl(port.fd, TIOCGEXCL, bytes(4))) == (real,)
        fcntl.ioctl(port.fd, termios.TIOCNXCL)


def test_a_line_that_is_full_keeps_what_it_has_and_takes_more_after_a_read(line: Pty) -> None:
    """The loop ends when a write returns 0. The kernel may still move bytes to the other side after
    that, so a further write may take some.
    """
    with Tty(line.path, 115_200) as port:
        sent, data = b"", bytes(range(256)) * 16
        while count := port.write(data):
            sent += data[:count]
        received = b""
        while len(received) < len(sent):
            received += os.read(line.master, 65_536)
        assert received == sent
        assert port.write(b"more") == 4
