"""MQTT over TCP: a listener, and a carrier without a task or a future of its own.

In: an address to listen on. Out: a `Carrier` for each connection, handed to `accept`.
"""

import asyncio
import errno
import socket
from typing import Any, cast

from gateway.errors import OncewayError
from gateway.links.carrier import Accept, Peer, Receiver

_BACKLOG = 1024


class TcpCarrier(asyncio.Protocol):
    """One TCP connection: a Protocol for the event loop, a `Carrier` for the broker."""

    high_water = 256 * 1024

    peer: Peer
    _transport: asyncio.Transport
    _receiver: Receiver

    def __init__(self, listener: str, accept: Accept, connections: "set[TcpCarrier]") -> None:
        self._listener = listener
        self._accept = accept
        self._connections = connections
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(self.high_water)
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connections.add(self)
        self.peer = Peer(self._listener, format_address(transport.get_extra_info("peername")))
        self._receiver = self._accept(self)

    def data_received(self, data: bytes) -> None:
        self._receiver.receive(data)

    def resume_writing(self) -> None:
        if not self._closed:
            self._receiver.writable()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self.lose(str(error) if error else "closed by the peer")

    def lose(self, reason: str) -> None:
        """Tell the broker that the connection is gone, unless it wanted that."""
        if not self._closed:
            self.abort()
            self._receiver.lost(reason)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._closed = True
        self._transport.close()

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


class TcpListener:
    """Listens on one address and hands each connection to `accept`.

    host: a name, an address, or "" for all addresses of IPv4 and IPv6. port: 0 lets the system choose; see `addresses`.
    """

    def __init__(self, accept: Accept, host: str, port: int, *, name: str = "tcp") -> None:
        self._accept = accept
        self._host = host
        self._port = port
        self._name = name
        self._connections: set[TcpCarrier] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises OncewayError when the address is in use, unknown or not allowed."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: TcpCarrier(self._name, self._accept, self._connections), self._host or None, self._port, backlog=_BACKLOG
            )
        except OSError as error:
            raise listen_error(error, format_address((self._host, self._port))) from error

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses listened on, as (host, port)."""
        return [] if self._server is None else [sock.getsockname()[:2] for sock in self._server.sockets]

    async def close(self) -> None:
        """Stop listening, and drop the connections that the broker has not closed."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.lose("the gateway closes the listener")


def format_address(address: Any) -> str:
    """Return a socket address as `127.0.0.1:1883` or `[::1]:1883`."""
    if not isinstance(address, tuple):
        return str(address)
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_error(error: OSError, where: str) -> OncewayError:
    """Say in words why a listener could not start."""
    if isinstance(error, socket.gaierror):
        return OncewayError("the address to listen on is not known", where, "Name an address of this machine, or 0.0.0.0 for all.")
    if error.errno == errno.EADDRINUSE:
        return OncewayError("the address is in use", where, "Another broker or gateway listens there: stop it, or choose another port.")
    if error.errno == errno.EADDRNOTAVAIL:
        return OncewayError("this machine does not have that address", where, "Name an address of this machine, or 0.0.0.0 for all.")
    if error.errno == errno.EACCES:
        return OncewayError(
            "not allowed to listen there", where, "Ports below 1024 need the right CAP_NET_BIND_SERVICE; choose a higher port."
        )
    return OncewayError(f"cannot listen: {error.strerror or error}", where)
