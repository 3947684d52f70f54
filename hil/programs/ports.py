"""Ports of this machine that nobody listens on."""

import secrets
import socket
from contextlib import suppress

_FIRST, _COUNT = 20_000, 12_000


def free_port() -> int:
    """None of those that the system gives to connections (from 32,768 on): another run beside this
    one may be given such a port before anybody listens on it.
    """
    while True:
        port = _FIRST + secrets.randbelow(_COUNT)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
