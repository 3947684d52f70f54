"""A connection to the server of the hook, within a deadline.

In: the server's URL and a deadline. Out: a socket, TLS or plain. Raises OSError (such as
TimeoutError) if there is none in time. The system's name lookup has no timeout, so a separate
thread does it, one for all concurrent callers: a silent name server blocks only that thread.
"""

import socket
import ssl
import threading
import time
from concurrent.futures import Future
from typing import Any
from urllib.parse import SplitResult


class Server:
    def __init__(self, url: SplitResult) -> None:
        self._host = url.hostname or ""
        self._encrypted = url.scheme == "https"
        self._port = url.port or (443 if self._encrypted else 80)
        self._lock = threading.Lock()
        self._lookup: Future[list[Any]] | None = None
        """The lookup in progress."""

    def connect(self, until: float) -> socket.socket:
        """Connect. until: on the clock of `time.monotonic`. The TLS handshake still has to
        be done.
        """
        found = self._connected(self._addresses(until), until)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._encrypted:
            return found
        context = ssl.create_default_context()
        return context.wrap_socket(found, server_hostname=self._host, do_handshake_on_connect=False)

    def _addresses(self, until: float) -> list[Any]:
        """Return the results of `socket.getaddrinfo`, at least one."""
        with self._lock:
            lookup = self._lookup
            if lookup is None:
                lookup = self._lookup = Future()
                args = (lookup,)
                threading.Thread(
                    target=self._look_up, args=args, name="lookup", daemon=True
                ).start()
        return lookup.result(max(0.0, until - time.monotonic()))

    def _look_up(self, lookup: Future[list[Any]]) -> None:
        try:
            lookup.set_result(socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM))
        except Exception as error:
            lookup.set_exception(error)
        with self._lock:
            self._lookup = None

    def _connected(self, addresses: list[Any], until: float) -> socket.socket:
        for index, (family, kind, protocol, _, address) in enumerate(addresses):
            left = until - time.monotonic()
            if left <= 0:
                break
            found = socket.socket(family, kind, protocol)
            found.settimeout(left / (len(addresses) - index))  # leave time for the next ones
            try:
                found.connect(address)
            except OSError:
                found.close()
                if index == len(addresses) - 1:
                    raise
            else:
                found.settimeout(max(0.001, until - time.monotonic()))
                return found
        raise TimeoutError("no connection in time")
