"""The endpoint of a network listener: an address, or sockets that systemd has opened; with or
without TLS.

In: host and port, or sockets. Out: a running server for any asyncio protocol, or an OncewayError
that says what to do. An endpoint may wait for an address that this machine does not have yet, for
example because DHCP is late. The rest of the gateway runs meanwhile.
"""

import asyncio
import errno
import fcntl
import logging
import math
import os
import socket
import struct
import termios
from collections.abc import Callable, Collection, Sequence

from gateway.errors import OncewayError
from gateway.links.address import format_address
from gateway.links.counted_server import CountedServer
from gateway.links.forwarded import Proxies
from gateway.links.tls import Tls

log = logging.getLogger(__name__)

AGAIN_S = 2.0
"""Seconds between two attempts to listen on an address that this machine does not have yet."""
_BACKLOG = 1024


class AddressAbsent(OncewayError):
    """Error: this machine does not have the address to listen on."""


class Endpoint:
    """A listening endpoint. host: a name, an address, or "" for all addresses of IPv4 and IPv6.
    port: 0 lets the system choose; see `addresses`. tls: accept only TLS; None for plain TCP.
    sockets: listening sockets to use in place of host and port. proxies: addresses and networks of
    proxies that name their clients (`proxy_header.py`). With proxies, each protocol gets the
    client's `proxied_address`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: Tls | None = None,
        sockets: Sequence[socket.socket] = (),
        proxies: Collection[str] = (),
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._proxies = proxies
        self._sockets = sockets
        self._servers: list[asyncio.Server | CountedServer] = []
        self._protocol: Callable[[], asyncio.BaseProtocol] = asyncio.Protocol
        self.waits_for: str | None = None
        """The reason for not listening yet, in a sentence; None if the endpoint does not wait."""
        self._waiting: asyncio.Task[None] | None = None

    async def listen(
        self, protocol: Callable[[], asyncio.BaseProtocol], *, waits: bool = False
    ) -> None:
        """Listen, and create a `protocol` for each connection. Raises OncewayError. waits: what to
        do if this machine does not have the address yet. True: return, and try again every AGAIN_S
        seconds. False: raise AddressAbsent.
        """
        self._protocol = protocol
        try:
            await self._listen()
        except AddressAbsent as error:
            if not waits:
                raise
            self.waits_for = f"{error.where}: {error.what}. The gateway waits for the address"
            log.error("%s; the rest of the gateway runs. %s", self.waits_for, error.hint)
            self._waiting = asyncio.get_running_loop().create_task(self._try_again())

    async def _try_again(self) -> None:
        while self.waits_for is not None:
            await asyncio.sleep(AGAIN_S)
            try:
                await self._listen()
            except OncewayError as error:
                self.waits_for = f"{error.where}: {error.what}. The gateway tries again"
            else:
                self.waits_for = None
                where = ", ".join(map(format_address, self.addresses))
                log.warning("the address exists now: listening on %s", where)

    async def _listen(self) -> None:
        protocol = self._protocol
        try:
            if self._sockets:
                await self._serve([_second_handle(sock) for sock in self._sockets])
            else:
                loop = asyncio.get_running_loop()
                found = await loop.create_server(
                    protocol, self._host or None, self._port, start_serving=False
                )
                await self._serve([_second_handle(sock) for sock in found.sockets])
                found.close()
        except OSError as error:
            raise _listen_error(error, format_address((self._host, self._port))) from error

    async def change(self, tls: Tls | None, proxies: Collection[str] = ()) -> None:
        """Use these certificates and proxies for new connections. Open connections stay, and the
        port is never closed. An endpoint cannot change between TLS and plain TCP.
        """
        same = tls is None and list(proxies) == list(self._proxies)
        self._tls, self._proxies = tls, proxies
        if same or self.waits_for is not None:
            return
        sockets = [_second_handle(sock) for server in self._servers for sock in server.sockets]
        self.close()
        await self._serve(sockets)

    async def _serve(self, sockets: Sequence[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        context = self._tls.context if self._tls else None
        proxies = Proxies(self._proxies) if self._proxies else None
        self._servers = [
            await loop.create_server(self._protocol, sock=sock, backlog=_BACKLOG)
            if context is None and proxies is None
            else CountedServer(sock, context, proxies, self._protocol, _BACKLOG)
            for sock in sockets
        ]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses on which the endpoint listens, as (host, port)."""
        return [sock.getsockname()[:2] for server in self._servers for sock in server.sockets]

    @property
    def is_listening(self) -> bool:
        """Whether the system accepts connections for the endpoint. Also true while the endpoint
        waits for its address.
        """
        if self.waits_for is not None:
            return True
        sockets = [sock for server in self._servers for sock in server.sockets]
        try:
            return bool(sockets) and all(
                sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) for sock in sockets
            )
        except OSError:
            return False

    def close(self) -> None:
        """Accept no more connections. `listen` may be called again."""
        if self._waiting is not None:
            self._waiting.cancel()
        self.waits_for = self._waiting = None
        for server in self._servers:
            server.close()
        self._servers = []


class AtEndpoint:
    """Base class of a listener or server with one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses on which the endpoint listens, as (host, port)."""
        return self._endpoint.addresses

    @property
    def waits_for(self) -> str | None:
        """The reason for not listening yet, in a sentence; None if the endpoint does not wait."""
        return self._endpoint.waits_for

    @property
    def stalled_s(self) -> float:
        """Return 0 while the endpoint listens or waits for its address, else infinity."""
        return 0.0 if self._endpoint.is_listening else math.inf

    async def change(self, tls: Tls | None, proxy_protocol: Collection[str] = ()) -> None:
        """Use these certificates and proxies for new connections."""
        await self._endpoint.change(tls, proxy_protocol)

    def stop(self) -> None:
        """Accept no more connections, and keep the existing connections. `start` listens again."""
        self._endpoint.close()


def unacknowledged(transport: asyncio.Transport) -> int:
    """Return the number of bytes that the operating system has accepted and the peer has not
    acknowledged, whether they were sent or not. Source: tcp(7), SIOCOUTQ, which has the same number
    as TIOCOUTQ.
    """
    sock: socket.socket = transport.get_extra_info("socket")
    if sock.fileno() < 0:
        return 0  # closed
    (count,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    return int(count)


def _second_handle(sock: socket.socket) -> socket.socket:
    """Return a duplicate of a listening socket, because a server closes the socket that it was
    given.
    """
    handle = socket.socket(fileno=os.dup(sock.fileno()))
    handle.setblocking(False)
    return handle


def _listen_error(error: OSError, where: str) -> OncewayError:
    if isinstance(error, socket.gaierror):
        return AddressAbsent(
            "the name of the address to listen on cannot be resolved",
            where,
            "Name an address of this machine, or 0.0.0.0 for all.",
        )
    if error.errno == errno.EADDRINUSE:
        return OncewayError(
            "the address is in use",
            where,
            "Something listens there already: stop it, or choose another port.",
        )
    # asyncio of Python 3.13 leaves out the error number
    if error.errno == errno.EADDRNOTAVAIL or "could not bind on any address" in str(error):
        return AddressAbsent(
            "this machine does not have that address",
            where,
            "Name an address of this machine, or 0.0.0.0 for all.",
        )
    if error.errno == errno.EACCES:
        return OncewayError(
            "not allowed to listen there",
            where,
            "Ports below 1024 need the capability CAP_NET_BIND_SERVICE; choose a higher port.",
        )
    return OncewayError(f"cannot listen: {error.strerror or error}", where)
