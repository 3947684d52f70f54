"""One job at a time on a port, and on a name. In: what is wanted. Out: it is ours for as long as
the context lasts, or an OncewayError.

Held as the name of an abstract socket (unix(7)): no file can be left behind, and the kernel lets go
of it however the process ends. The port itself cannot be held open instead: opening it is what
resets the board, at each run of avrdude.
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
    """A serial port, by whatever name it is called."""
    try:
        device = os.stat(path).st_rdev
    except OSError as error:
        raise OncewayError(f"the port is gone ({error.strerror})", path) from error
    with _held(
        f"port {device}",
        OncewayError("the port is in use by another `onceway device` command", path, _HINT),
    ):
        yield


@contextmanager
def name(registry: Path, wanted: str) -> Iterator[None]:
    """A device's name in a registry."""
    busy = OncewayError(
        f"another `onceway device` command is writing to {wanted!r}", str(registry), _HINT
    )
    with _held(f"name {registry.resolve()} {wanted}", busy):
        yield


@contextmanager
def _held(what: str, busy: OncewayError) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mark:
        try:
            mark.bind(f"\0onceway {hashlib.sha256(what.encode()).hexdigest()}")
        except OSError as error:
            raise busy if error.errno == errno.EADDRINUSE else error from None
        yield
