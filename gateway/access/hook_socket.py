"""A connection to the server of the hook, within a deadline.

In: the server's URL and a deadline. Out: a socket, TLS or plain. Raises OSError (such as
TimeoutError) if no connection is made in time.
"""

import socket
import ssl
import time
from urllib.parse import SplitResult

from gateway.system.dial import connect


class Server:
    def __init__(self, url: SplitResult) -> None:
        self._host = url.hostname or ""
        self._encrypted = url.scheme == "https"
        self._port = url.port or (443 if self._encrypted else 80)

    def connect(self, until: float) -> socket.socket:
        """Return a connected socket. until: the deadline, on the clock of `time.monotonic`. For
        https, the caller makes the TLS handshake.
        """
        found = connect(self._host, self._port, until)
        found.settimeout(max(0.001, until - time.monotonic()))
        if not self._encrypted:
            return found
        context = ssl.create_default_context()
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        return context.wrap_socket(
            found,
            server_hostname=self._host,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,  # an end without close_notify may be an attacker's
        )
