"""MQTT over TCP and TLS: a listener, and a transport that needs no task.

In: an address to listen on, or sockets that systemd has opened. Out: a `Transport` for each
connection, handed to `accept`.
"""

import asyncio
import socket
from collections.abc import Collection, Sequence
from typing import cast

from gateway.access.peer import Peer
from gateway.links.address import format_address
from gateway.links.endpoint import AtEndpoint, Endpoint, unacknowledged
from gateway.links.faults import blame
from gateway.links.tls import Tls, common_name
from gateway.links.transport import Accept, Receiver

LINGER = 10.0
"""Seconds that a closed connection may take to send its queued bytes."""
READ_ON_S = 1.0
"""Seconds for which `linger` reads and discards the bytes of the peer."""


class TcpTransport(asyncio.Protocol):
    """One TCP connection: a Protocol for the event loop, a `Transport` for the broker."""

    high_water = 32 * 1024
    enough = high_water
    """Number of `unsent` bytes above which the broker stops writing a large payload, until
    `Receiver.writable` is called. A transport with this attribute accepts a `memoryview`.
    """

    proxied_address: tuple[str, int] | None = None
    peer: Peer
    _transport: asyncio.Transport
    _receiver: Receiver | None = None
    """The broker's side of the connection; None before the broker accepts it and after its end."""

    def __init__(self, listener: str, accept: Accept, connections: "set[TcpTransport]") -> None:
        self._listener = listener
        self._accept = accept
        self._connections = connections
        self._closed = False
        self._linger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        try:
            self._begin()
        except Exception as error:
            blame(self._listener, error)
            self.abort()

    def _begin(self) -> None:
        transport = self._transport
        transport.set_write_buffer_limits(self.high_water)
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.peer = Peer(
            self._listener,
            format_address(self.proxied_address or transport.get_extra_info("peername")),
            certificate_name=common_name(transport.get_extra_info("peercert")),
        )
        self._receiver = self._accept(self)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._closed or self._receiver is None:
            return
        try:
            self._receiver.receive(data)
        except Exception as error:
            self._fail(error)

    def resume_writing(self) -> None:
        if self._closed or self._receiver is None:
            return
        try:
            self._receiver.writable()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        blame(self.peer.address, error)
        self.lose("internal error")

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self._linger is not None:
            self._linger.cancel()
        self.lose(str(error) if error else "closed by the peer")
        self._receiver = None  # breaks a reference cycle

    def lose(self, reason: str) -> None:
        """Close the connection at once, and tell the broker why. Do nothing if it was closed
        already.
        """
        if not self._closed:
            self.abort()
            if self._receiver is not None:
                self._receiver.lost(reason)

    def write(self, data: bytes | memoryview) -> None:
        if not self._closed:  # uvloop raises an error for a closed transport
            self._transport.write(data)

    def close(self) -> None:
        self._closed = True
        self._transport.close()
        if self.unsent:
            # A peer that never reads would keep the connection and its bytes without end.
            self._linger = asyncio.get_running_loop().call_later(LINGER, self._transport.abort)

    def linger(self) -> None:
        if self._closed or not self._transport.can_write_eof():  # TLS keeps reading by itself
            self.close()
            return
        self._closed = True
        self._transport.write_eof()
        self._linger = asyncio.get_running_loop().call_later(READ_ON_S, self._transport.abort)

    def abort(self) -> None:
        self._closed = True
        self._transport.abort()

    def pause_reading(self) -> None:
        if not self._closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._closed:
            self._transport.resume_reading()

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    @property
    def undelivered(self) -> int:
        return self.unsent + unacknowledged(self._transport)


class TcpListener(AtEndpoint):
    """A listener that hands each connection of an endpoint to `accept`. Parameters: see
    `Endpoint`.
    """

    def __init__(
        self,
        accept: Accept,
        host: str,
        port: int,
        *,
        name: str = "tcp",
        tls: Tls | None = None,
        sockets: Sequence[socket.socket] = (),
        proxy_protocol: Collection[str] = (),
    ) -> None:
        self._accept = accept
        self._name = name
        super().__init__(Endpoint(host, port, tls=tls, sockets=sockets, proxies=proxy_protocol))
        self._connections: set[TcpTransport] = set()

    async def start(self, *, waits: bool = False) -> None:
        """Listen. waits: if this machine does not have the address yet, whether to return and try
        again later. Raises OncewayError if the address is in use, unknown or not allowed.
        """
        await self._endpoint.listen(
            lambda: TcpTransport(self._name, self._accept, self._connections), waits=waits
        )

    async def close(self) -> None:
        """Stop listening, and drop the connections that the broker has not closed."""
        self.stop()
        for connection in tuple(self._connections):
            connection.lose("the gateway closes the listener")
