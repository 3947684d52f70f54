"""Free ports of this machine."""

import secrets
import socket
from contextlib import suppress

_FIRST, _COUNT = 20_000, 12_000


def free_port() -> int:
    """Return a free port below 32,000. The system gives ports from 32,768 on to any connection, so
    a parallel run might get such a port first.
    """
    while True:
        port = _FIRST + secrets.randbelow(_COUNT)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
