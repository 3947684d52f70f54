"""MQTT over WebSocket (MQTT 5, section 6): one HTTP endpoint, binary messages, subprotocol `mqtt`.

In: an address to listen on, or sockets that systemd has opened. Out: a `Transport` for each
connection, handed to `accept`. For each connection, aiohttp starts a task that reads. A second
task writes all queued bytes in one message.
"""

import asyncio
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import cast

from aiohttp import WSMessage, WSMsgType, web

from gateway.access.peer import Peer
from gateway.links.address import format_address
from gateway.links.endpoint import AtEndpoint, Endpoint, unacknowledged
from gateway.links.faults import blame
from gateway.links.forwarded import Proxies
from gateway.links.fragments import Counted, Fragments
from gateway.links.http_server import Complaints, host_name, is_address, server
from gateway.links.tcp import LINGER
from gateway.links.tls import Tls, common_name
from gateway.links.transport import Accept, Receiver
from gateway.mqtt.errors import quote

PATH = "/mqtt"
_UPGRADE_TIMEOUT = 10.0
_SHUTDOWN_TIMEOUT = 1.0
SUBPROTOCOLS = ("mqtt", "mqttv3.1")
"""Accepted subprotocols [MQTT-6.0.0-3]; clients of MQTT 3.1 ask for the second."""


class WebSocketTransport:
    """The `Transport` of one WebSocket."""

    high_water = 256 * 1024
    enough = 32 * 1024

    def __init__(
        self, websocket: web.WebSocketResponse, transport: asyncio.Transport, peer: Peer
    ) -> None:
        self.peer = peer
        self.closed = False
        self._websocket = websocket
        self._transport = transport
        self._outgoing = bytearray()
        self._sending = 0
        self._resume_at = -1
        """Largest number of `unsent` bytes at which `writable` is called; -1: it is not called."""
        self._wake = asyncio.Event()
        self._readable = asyncio.Event()
        self._readable.set()

    def write(self, data: bytes | memoryview) -> None:
        if not self.closed:
            self._outgoing += data
            most = self.enough if isinstance(data, memoryview) else self.high_water
            if self.unsent > most:
                self._resume_at = most // 4
            self._wake.set()

    def close(self) -> None:
        self.closed = True
        self._wake.set()
        self._readable.set()
        if self.unsent:
            asyncio.get_running_loop().call_later(LINGER, self._transport.abort)

    def abort(self) -> None:
        self._outgoing.clear()
        self.close()
        self._transport.abort()

    def lose(self, receiver: Receiver, reason: str) -> None:
        """Tell the broker that the connection is gone, unless the broker closed it."""
        if not self.closed:
            self._outgoing.clear()
            self.close()
            receiver.lost(reason)

    def pause_reading(self) -> None:
        self._readable.clear()

    def resume_reading(self) -> None:
        self._readable.set()

    @property
    def unsent(self) -> int:
        return len(self._outgoing) + self._sending + self._transport.get_write_buffer_size()

    @property
    def undelivered(self) -> int:
        return self.unsent + unacknowledged(self._transport)

    async def read(self, receiver: Receiver, counted: Counted) -> str:
        """Hand messages to the broker until the connection ends; return the reason."""
        async for message in self._websocket:
            if message.type is WSMsgType.BINARY:
                counted.message(len(message.data))
            await self._readable.wait()
            if self.closed:
                break
            if problem := _problem_of(message):
                lacking = counted.masks.lacking
                return "a frame without a mask [RFC 6455, section 5.1]" if lacking else problem
            receiver.receive(message.data)
        return "closed by the peer"

    async def send_all(self, receiver: Receiver) -> None:
        """Run `send`. An internal error ends the connection, because no other task writes."""
        try:
            await self.send(receiver)
        except Exception as error:
            blame(self.peer.address, error)
            self.lose(receiver, "internal error")
            self._transport.abort()

    async def send(self, receiver: Receiver) -> None:
        """Send queued bytes until the broker has closed the connection and all bytes are sent."""
        with suppress(ConnectionError):
            while self._outgoing or not self.closed:
                if self._outgoing:
                    data, self._outgoing = bytes(self._outgoing), bytearray()
                    self._sending = len(data)
                    await self._websocket.send_bytes(data)
                    self._sending = 0
                else:
                    await self._wake.wait()
                    self._wake.clear()
                if self.unsent <= self._resume_at and not self.closed:
                    self._resume_at = -1
                    receiver.writable()
            await self._websocket.close()


def _problem_of(message: WSMessage) -> str | None:
    if message.type is WSMsgType.BINARY:
        return None
    if message.type is WSMsgType.TEXT:
        return "a text message, but MQTT needs binary messages [MQTT-6.0.0-1]"
    return str(message.data)


class WebSocketListener(AtEndpoint):
    """A listener that serves `/mqtt` on an endpoint. Parameters that are not described here: see
    `Endpoint`.

    origins: web pages (`https://dashboard.example`) that may connect, in addition to pages from the
    listener's own address. A browser reports where a page comes from. Without this check, any page
    that a user visits could connect to a broker on the user's own network. max_message: largest
    WebSocket message, in bytes. origins and max_message may be changed while the listener runs.
    proxies: proxies that name their clients in `X-Forwarded-For` (`forwarded.py`). For a proxied
    client, the port is the proxy's.
    """

    def __init__(
        self,
        accept: Accept,
        host: str,
        port: int,
        *,
        name: str = "websocket",
        tls: Tls | None = None,
        sockets: Sequence[socket.socket] = (),
        origins: Collection[str] = (),
        max_message: int = 1_000_000,
        proxies: Collection[str] = (),
        proxy_protocol: Collection[str] = (),
    ) -> None:
        self._accept = accept
        self._name = name
        super().__init__(Endpoint(host, port, tls=tls, sockets=sockets, proxies=proxy_protocol))
        self.origins = origins
        self.max_message = max_message
        self._proxies = Proxies(proxies)
        self._fragments = Fragments()
        self._complaints = Complaints(name)
        self._connections: dict[asyncio.BaseTransport, tuple[WebSocketTransport, Receiver]] = {}
        self._server: web.Server | None = None

    async def start(self, *, waits: bool = False) -> None:
        """Listen. waits: if this machine does not have the address yet, whether to return and try
        again later. Raises OncewayError if the address is in use, unknown or not allowed.
        """
        if self._server is None:
            self._server = server(self._serve, self._name)
        await self._endpoint.listen(partial(self._connection, self._server), waits=waits)

    def change_proxies(self, proxies: Collection[str]) -> None:
        """Replace the proxies, for connections from now on."""
        self._proxies = Proxies(proxies)

    async def close(self) -> None:
        """Stop listening, and drop the connections that the broker has not closed."""
        self.stop()
        for connected, receiver in tuple(self._connections.values()):
            connected.lose(receiver, "the gateway closes the listener")
            connected.abort()
        if self._server is not None:
            await self._server.shutdown(_SHUTDOWN_TIMEOUT)

    def _connection(self, server: web.Server) -> asyncio.BaseProtocol:
        handler = server()
        asyncio.get_running_loop().call_later(_UPGRADE_TIMEOUT, self._expire, handler)
        return Counted(self._fragments, handler)

    def _expire(self, handler: web.RequestHandler) -> None:
        """Close a connection that has not become a WebSocket in time."""
        transport = handler.transport
        if transport is not None and transport not in self._connections:
            transport.close()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        refusal = self._refuses(request)
        if refusal is not None:
            refusal.force_close()
            return refusal
        websocket = web.WebSocketResponse(
            protocols=SUBPROTOCOLS, max_msg_size=self.max_message, compress=False
        )
        await websocket.prepare(request)
        transport = request.transport
        if transport is None:
            return websocket
        counted = cast(Counted, transport.get_protocol())
        counted.upgraded()
        seen = counted.proxied_address or transport.get_extra_info("peername")
        if isinstance(seen, tuple):
            seen = self._proxies.client(request) or seen[0], seen[1]
        address = format_address(seen)
        peer = Peer(
            self._name, address, certificate_name=common_name(transport.get_extra_info("peercert"))
        )
        connected = WebSocketTransport(websocket, transport, peer)
        try:
            receiver = self._accept(connected)
        except Exception as error:
            blame(address, error)
            connected.abort()
            return websocket
        self._connections[transport] = connected, receiver
        sender = asyncio.create_task(connected.send_all(receiver))
        reason = "internal error"
        try:
            reason = await connected.read(receiver, counted)
        except ConnectionError:  # while a ping is answered
            reason = "the connection was lost"
        except Exception as error:
            blame(address, error)
        finally:
            del self._connections[transport]
            connected.lose(receiver, reason)
            await sender
        return websocket

    def _refuses(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer to a request that cannot become a WebSocket, or None."""
        if request.path != PATH:
            text = f"asks for {quote(request.path)}, but MQTT is at {PATH}"
            self._complaints.add(request, "path", text)
            return web.Response(status=404, text=f"MQTT over WebSocket is at {PATH}.\n")
        origin = request.headers.get("Origin")
        if not self._is_welcome(origin, request.host):
            text = f"the origin {quote(origin or '')} is not one of the listener's `origins`"
            self._complaints.add(request, "origin", text)
            return web.Response(
                status=403,
                text=(
                    "This page may not connect: its origin is not one of the listener's"
                    " `origins`.\n"
                ),
            )
        offers = _offers_mqtt(request)
        if "Upgrade" in request.headers and not offers:
            text = "offers no WebSocket subprotocol `mqtt` [MQTT-6.0.0-3]"
            self._complaints.add(request, "subprotocol", text)
            return web.Response(
                status=400,
                text="The client must offer the WebSocket subprotocol `mqtt` [MQTT-6.0.0-3].\n",
            )
        if not offers or not web.WebSocketResponse(protocols=SUBPROTOCOLS).can_prepare(request):
            return web.Response(
                status=426,
                headers={"Upgrade": "websocket"},
                text="Connect with an MQTT client over WebSocket.\n",
            )
        return None

    def _is_welcome(self, origin: str | None, host: str) -> bool:
        """Whether a page of this origin may connect. If origin is None, the client is not a page,
        and may connect. A domain name that is equal in origin and host proves nothing: its owner
        may let it point to this machine for a moment (DNS rebinding). An address cannot be
        redirected in this way.
        """
        return (
            origin is None
            or origin in self.origins
            or (origin.partition("://")[2] == host and _is_machine(host_name(host)))
        )


def _is_machine(name: str) -> bool:
    """Whether the name of an HTTP Host is an address or `localhost`, and not a domain name."""
    return is_address(name) or name == "localhost"


def _offers_mqtt(request: web.BaseRequest) -> bool:
    """Whether a client offers one of `SUBPROTOCOLS`."""
    offered = request.headers.getall("Sec-WebSocket-Protocol", ())
    names = {name.strip() for line in offered for name in line.split(",")}
    return not names.isdisjoint(SUBPROTOCOLS)
