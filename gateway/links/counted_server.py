"""A listening socket with a bound for connections that have not begun: their proxy has not named
its client yet, or their TLS handshake is not complete.

In: a socket. Out: for each connection that begins in time, a protocol with its transport. asyncio's
own server (`loop.create_server(ssl=…)`) does not report connections during their handshake, so they
could take all memory. Beyond the bound, the address with the most connections loses its oldest
connection (`gateway/system/fair_queue.py`).
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable

from gateway.links.address import format_address
from gateway.links.faults import blame
from gateway.links.forwarded import Proxies
from gateway.links.proxy_header import ProxyHeaderError, claims_header, read_header
from gateway.system.fair_queue import FairQueue
from gateway.system.log_throttle import LogThrottle

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
MOST = 1000
MOST_OF_ONE = 500

_AT_ONCE = 128
"""Number of connections accepted before the event loop does other work."""
_PAUSE_S = 1.0
"""Pause in seconds after accept(2) has failed, for example with too many open files."""


class CountedServer:
    """A server that accepts connections from its creation until `close`. `close` closes the
    listening socket; open connections stay. context: the TLS context, or None. proxies: proxies
    that begin a connection with a PROXY header, or None if no header is expected.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        proxies: Proxies | None,
        protocol: Callable[[], asyncio.BaseProtocol],
        backlog: int,
    ) -> None:
        sock.setblocking(False)
        sock.listen(backlog)
        self.sockets = (sock,)
        self._socket = sock
        self._context = context
        self._proxies = proxies
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
                if self._throttle.allows("accept"):
                    log.error("no connection can be accepted (%s)", error.strerror)
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(_PAUSE_S, self._resume)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._begin(connection, peer))
            self._count(format_address(peer), task)

    def _count(self, address: str, task: asyncio.Task[None]) -> None:
        """Count a connection for an address until its task ends. If too many are counted, cancel
        the task that `FairQueue.add` returns.
        """
        excess = self._under_way.add(address, task)
        task.add_done_callback(lambda task: self._under_way.discard(address, task))
        if excess is not None:
            excess.cancel()
            kind = "TLS handshakes" if self._context else "connections without a PROXY header"
            self._say(address, f"too many {kind} at the same time: one is closed")

    def _say(self, address: str, text: str) -> None:
        if self._throttle.allows(address.rpartition(":")[0]):
            log.warning("%s: %s", address, text)

    async def _begin(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        address = format_address(peer)
        try:
            proxied = None
            if self._proxies is not None:
                async with asyncio.timeout(TIMEOUT_S):
                    proxied = await self._read_header(connection, peer[0])
            if proxied is not None:
                address = self._recount(peer, proxied)
            await self._loop.connect_accepted_socket(
                lambda: self._named(proxied),
                connection,
                ssl=self._context,
                ssl_handshake_timeout=TIMEOUT_S if self._context else None,
            )
        except ProxyHeaderError as error:
            connection.close()
            self._say(address, f"closed: {error}")
        except OSError:  # includes ssl.SSLError; the handshake logs it (tls.py)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        except Exception as error:
            blame(address, error)
            connection.close()

    async def _read_header(self, connection: socket.socket, host: str) -> tuple[str, int] | None:
        """Return the client's address from a proxy's header, or None if the peer is the client.
        Raises ProxyHeaderError if a header is invalid, or does not come from a proxy of the
        listener.
        """
        if self._proxies is not None and host in self._proxies:
            return await read_header(connection)
        if await claims_header(connection):
            raise ProxyHeaderError("a PROXY header from an address that is not in proxy_protocol")
        return None

    def _recount(self, peer: tuple[str, int], proxied: tuple[str, int]) -> str:
        """Move a connection from the count of its proxy's address to the count of its client's
        address. Return the client's address.
        """
        task, address = asyncio.current_task(), format_address(proxied)
        assert task is not None  # noqa: S101 - for the type checker
        self._under_way.discard(format_address(peer), task)
        self._count(address, task)
        return address

    def _named(self, proxied: tuple[str, int] | None) -> asyncio.BaseProtocol:
        protocol = self._protocol()
        if proxied is not None:
            protocol.proxied_address = proxied  # type: ignore[attr-defined]
        return protocol
