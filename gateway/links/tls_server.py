"""A listening socket whose connections are counted during their TLS handshake.

In: a socket. Out: for each connection whose TLS handshake succeeds in time, a protocol with its
transport. `loop.create_server(ssl=…)` does the same, but does not report connections during their
handshake, so they could take all memory. This module bounds their number. Beyond the bound, the
address with the most connections loses its oldest (`fair_queue.py`).
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable

from gateway.links.address import format_address
from gateway.links.fair_queue import FairQueue
from gateway.links.faults import blame
from gateway.system.log_throttle import LogThrottle

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
MOST = 1000
MOST_OF_ONE = 500

_AT_ONCE = 128
"""Number of connections accepted before the event loop does other work."""
_PAUSE_S = 1.0
"""Pause after accept(2) has failed, for example with too many open files."""


class TlsServer:
    """The server from its creation until `close`, which closes the socket. Connections stay."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.BaseProtocol],
        backlog: int,
    ) -> None:
        sock.setblocking(False)
        sock.listen(backlog)
        self.sockets = (sock,)
        self._socket = sock
        self._context = context
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._under_way: FairQueue[asyncio.Task[None]] = FairQueue(MOST, MOST_OF_ONE)
        self._throttle = LogThrottle(time.monotonic)
        self._closed = False
        self._resume()

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted (%s)", error.strerror)
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(_PAUSE_S, self._resume)
                return
            connection.setblocking(False)
            address = format_address(peer)
            task = self._loop.create_task(self._shake_hands(connection, address))
            gone = self._under_way.add(address, task)
            task.add_done_callback(
                lambda task, address=address: self._under_way.discard(address, task)  # type: ignore[misc]
            )
            if gone is not None:
                gone.cancel()
                if self._throttle.allows(address.rpartition(":")[0]):
                    log.warning("%s: too many TLS handshakes at a time, one is dropped", address)

    async def _shake_hands(self, connection: socket.socket, address: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._context, ssl_handshake_timeout=TIMEOUT_S
            )
        except OSError:  # includes ssl.SSLError; the handshake logs it (tls.py)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        except Exception as error:
            blame(address, error)
            connection.close()
