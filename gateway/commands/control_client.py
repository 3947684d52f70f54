"""The client side of the control socket: sends a request to a running gateway
(`gateway/service/control.py` has the requests).

In: a data directory and a request. Out: rows, or NotRunning if no gateway uses the directory.
"""

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from gateway.errors import NotAllowed, OncewayError

FILE = "control.sock"
"""File name of the socket."""

TIMEOUT_S = 30.0
"""Longest wait for an answer, in seconds; for a long request, the longest wait for the next row."""

LONGEST_ROW = 64 << 20
"""Longest row accepted, in bytes. The longest row is the state of a gateway with thousands of
boards.
"""

LEND_S = 900.0
"""Longest time for which a port is lent, in seconds. It is enough to write to a board twice."""

INSTALLED = Path("/var/lib/onceway")
"""Data directory of the Debian package's gateway, as in its configuration."""

RUN = Path("/run/onceway")
"""Folder of the control socket, for a gateway from the Debian package (`systemd/onceway.tmpfiles`).
The folder has the set-group-ID bit, so files created in it belong to the group ADMIN.
"""

ADMIN = "onceway-admin"
"""The group of people who may command the gateway (`systemd/onceway.sysusers`). The uplink's
account is not a member, so an attacker in the uplink cannot command the gateway.
"""

WHO_MAY = (
    f"Run the command with sudo, or join the group {ADMIN}: `sudo usermod -aG {ADMIN} $USER`, then"
    " log in again"
)

Row = dict[str, Any]


class NotRunning(Exception):
    """Error: no gateway listens in this data directory."""


def ask(folder: Path, **request: str) -> list[Row]:
    """Send a request to the gateway of this data directory. Return the rows of the answer. Raises
    NotRunning if no gateway runs, OncewayError for other failures.
    """
    with _asked(folder, request) as rows:
        return list(rows)


def follow(folder: Path, **request: str) -> Iterator[Row]:
    """Do the same as `ask`, but yield each row as soon as it arrives."""
    with _asked(folder, request) as rows:
        yield from rows


@contextmanager
def lent(folder: Path, port: str) -> Iterator[None]:
    """Make the gateway of this data directory release a port until the context ends. Raises
    NotRunning if no gateway runs, OncewayError for other failures.
    """
    with _asked(folder, {"do": "lend", "port": os.path.realpath(port)}) as rows:
        next(rows)
        yield


def place(folder: Path) -> Path:
    """Return the folder of the control socket. The Debian package has its own folder, which belongs
    to the group of people who may command the gateway.
    """
    return RUN if folder == INSTALLED and RUN.is_dir() else folder


@contextmanager
def _asked(folder: Path, request: Mapping[str, str]) -> Iterator[Iterator[Row]]:
    """Send a request. The context's value is an iterator of the answer's rows."""
    folder = place(folder)
    where = str(folder / FILE)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as channel:
        channel.settimeout(TIMEOUT_S)
        try:
            with short(folder) as path:
                channel.connect(path)
            with suppress(BrokenPipeError):  # it has refused already: its answer can be read
                channel.sendall(json.dumps(request).encode() + b"\n")
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
            raise NotRunning from error
        except PermissionError as error:
            raise NotAllowed("this account may not talk to the gateway", where, WHO_MAY) from error
        except OSError as error:
            raise _mute(error, where) from error
        yield _read(_lines(channel, where), where)


def _mute(error: OSError, where: str) -> OncewayError:
    text = f"the gateway does not answer ({error.strerror or error})"
    return OncewayError(text, where, "See its log: journalctl -u onceway-gateway")


def _foreign(where: str) -> OncewayError:
    return OncewayError(
        "a program other than the gateway answers at the control socket",
        where,
        "End that program, then restart the gateway",
    )


def _lines(channel: socket.socket, where: str) -> Iterator[bytes]:
    """Yield the lines of the answer. Raises OncewayError if a line is too long (LONGEST_ROW), and
    TimeoutError if no line is complete in time.
    """
    begun = bytearray()
    end = time.monotonic() + TIMEOUT_S
    while data := _receive(channel, end):
        *lines, rest = data.split(b"\n")
        if not lines and len(begun) + len(rest) > LONGEST_ROW:
            raise _foreign(where)
        for line in lines:
            yield bytes(begun + line)
            begun.clear()
        if lines:
            end = time.monotonic() + TIMEOUT_S
        begun += rest
    if begun:
        yield bytes(begun)


def _receive(channel: socket.socket, end: float) -> bytes:
    """Return some bytes, or none at the end of the connection. Raises TimeoutError at `end`."""
    remaining = end - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("timed out")
    channel.settimeout(remaining)
    return channel.recv(1 << 20)


def _parse(line: bytes, where: str) -> Row:
    """Return a line of the answer. Raises OncewayError if another program has the socket."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _foreign(where)
    return answer


def _read(lines: Iterable[bytes], where: str) -> Iterator[Row]:
    try:
        for line in lines:
            answer = _parse(line, where)
            if "row" in answer:
                yield answer["row"]
            elif "error" in answer:
                error = OncewayError(
                    answer["error"], answer.get("where") or where, answer.get("hint")
                )
                error.exit_code = answer.get("code", error.exit_code)
                raise error
            else:
                return
    except OSError as error:
        raise _mute(error, where) from error
    raise OncewayError("the gateway ended in the middle of its answer", where)


@contextmanager
def short(folder: Path) -> Iterator[str]:
    """Yield a socket path that fits into a socket address (108 bytes), however long the folder's
    path is.
    """
    file = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{file}/{FILE}"
    finally:
        with suppress(OSError):
            os.close(file)
