"""Locks on a port and on a device name, so that only one job uses each. In: a port or a name. Out:
a lock for as long as the context lasts, or an OncewayError.

A lock is the name of an abstract socket (unix(7)): it leaves no file, and the kernel frees it
however the process ends. The port cannot be kept open instead, because each run of avrdude must
open it, which resets the board.
"""

import errno
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.errors import OncewayError

_HINT = "Wait until it is done"


@contextmanager
def port(path: str) -> Iterator[None]:
    """Hold the lock of a serial port within the context. All paths of one port have the same lock.
    Raises OncewayError if the port is gone, or locked by another command.
    """
    try:
        device = os.stat(path).st_rdev
    except OSError as error:
        raise OncewayError(f"the port is gone ({error.strerror})", path) from error
    with _locked(
        f"port {device}",
        OncewayError("the port is in use by another `onceway` command", path, _HINT),
    ):
        yield


@contextmanager
def name(registry: Path, wanted: str) -> Iterator[None]:
    """Hold the lock of a device's name in a registry within the context. Raises OncewayError if
    another command holds this lock.
    """
    busy = OncewayError(
        f"another `onceway device` command is writing to {wanted!r}", str(registry), _HINT
    )
    with _locked(f"name {registry.resolve()} {wanted}", busy):
        yield


@contextmanager
def _locked(subject: str, busy: OncewayError) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mark:
        try:
            mark.bind(f"\0onceway {hashlib.sha256(subject.encode()).hexdigest()}")
        except OSError as error:
            raise busy if error.errno == errno.EADDRINUSE else error from None
        yield
