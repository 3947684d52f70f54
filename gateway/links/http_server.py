"""HTTP servers that untrusted clients can reach: WebSocket listeners, the web page, metrics.

In: a handler of requests. Out: an aiohttp server. A request that cannot be read makes one throttled
log line without a traceback. `Exchanges` also bounds the number and the lifetime of connections.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from ipaddress import ip_address
from typing import Any, cast

from aiohttp import web

from gateway.links.address import format_address
from gateway.links.faults import blame
from gateway.mqtt.errors import quote
from gateway.system.fair_queue import FairQueue
from gateway.system.log_throttle import LogThrottle

log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_PRIVATE = (".local", ".lan", ".internal", ".home.arpa", ".localhost")
"""Suffixes of host names that no stranger can register on the internet."""
_LONGEST_REASON = 200


def server(handler: Handler, name: str, longest_body: int = 0) -> web.Server:
    """Return a server for a handler. name: name of the listener, for log lines. longest_body:
    largest body of a request, in bytes; 0 if no handler reads a body.
    """
    quiet: Any = _OneLine(name)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(request)
        except (web.HTTPException, ConnectionError):
            raise
        except (ValueError, web.RequestPayloadError) as error:  # such as a header that is not text
            quiet.exception("", exc_info=error)
            return _closing(400, "The request cannot be read.\n")
        except Exception as error:
            blame(f"{name}: {request.path[:_LONGEST_REASON]}", error, "a request failed")
            return _closing(500, "The request failed. The gateway's log says why.\n")

    def request(
        message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            loop,
            client_max_size=longest_body,
            remote=_proxied_host(protocol.transport),
        )

    return web.Server(answer, request_factory=request, access_log=None, logger=quiet)


def _proxied_host(transport: Any) -> str | None:
    """Return the client's host as reported by a proxy, or None."""
    between = transport.get_protocol() if transport is not None else None
    address = between.proxied_address if isinstance(between, Between) else None
    return address[0] if address is not None else None


class Complaints:
    """Throttled log lines about requests that are refused. name: name of the listener."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._throttle = LogThrottle(time.monotonic)

    def add(self, request: web.BaseRequest, reason: str, text: str) -> None:
        """Log a refused request, once per burst of requests with the same reason and address."""
        address = request.remote or "unknown address"
        if self._throttle.allows(f"{reason} {address}"):
            log.warning("%s: %s: %s", self._name, address, text)


class _OneLine:
    """A logger for aiohttp, with the two methods that aiohttp calls while it serves. `exception`
    logs one throttled line for each kind of exception; `debug` does nothing.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._throttle = LogThrottle(time.monotonic)

    def debug(self, *_: object, **__: object) -> None: ...

    def exception(self, _text: str, *_: object, exc_info: Any = None, **__: object) -> None:
        kind = type(exc_info).__name__
        if self._throttle.allows(kind):
            reason = quote(str(exc_info)[:_LONGEST_REASON])
            log.warning("%s: a request cannot be read (%s: %s)", self._name, kind, reason)


class Between(asyncio.Protocol):
    """A protocol between a connection's transport and aiohttp's protocol. It hands the
    transport's calls to aiohttp's protocol.
    """

    transport: asyncio.Transport
    address: str
    proxied_address: tuple[str, int] | None = None

    def __init__(self, handler: asyncio.Protocol) -> None:
        self._handler = handler

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.address = format_address(self.proxied_address or transport.get_extra_info("peername"))
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._handler.connection_lost(error)


class Exchanges:
    """A server that answers one request for each connection. most: limit of the connections whose
    request is incomplete, and a separate limit of those whose request is being answered. If a limit
    is exceeded, the address with the most of these connections loses its oldest one. lifetime_s:
    longest life of a connection, in seconds, unless it is `lasting`. longest_body: largest body of
    a request, in bytes.
    """

    def __init__(
        self, handler: Handler, name: str, *, most: int, lifetime_s: float, longest_body: int = 0
    ) -> None:
        self._handler = handler
        self._lifetime_s = lifetime_s
        self._has_body = longest_body > 0
        self._reading: FairQueue[_Exchange] = FairQueue(most, most)
        self._answering: FairQueue[_Exchange] = FairQueue(most, most)
        self._open: dict[object, _Exchange] = {}
        self._server = server(self._answer, name, longest_body)

    def connection(self) -> asyncio.BaseProtocol:
        handler = self._server()
        return _Exchange(handler, partial(self._begin, handler), partial(self._end, handler))

    @contextmanager
    def lasting(self, request: web.BaseRequest) -> Iterator[None]:
        """Allow the connection of this request to live longer than `lifetime_s`. From now on, this
        connection does not count against `most`.
        """
        found = self._open.get(request.protocol)
        if found is not None:
            found.lasts = True
            self._answering.discard(found.address, found)
        yield

    def drop(self, request: web.BaseRequest) -> None:
        _drop(self._open.get(request.protocol))

    async def close(self, timeout_s: float) -> None:
        """End all connections. timeout_s: seconds for which requests that are being answered may
        continue.
        """
        await self._server.shutdown(timeout_s)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._has_body:
            try:
                await request.read()
            except web.HTTPRequestEntityTooLarge:
                refusal = web.json_response({"error": "The request is too long."}, status=413)
                refusal.force_close()
                return refusal
        found = self._open.get(request.protocol)
        if found is not None:
            self._reading.discard(found.address, found)
            _drop(self._answering.add(found.address, found))
        response = await self._handler(request)
        if not response.prepared:
            response.force_close()
        return response

    def _begin(self, handler: object, exchange: "_Exchange") -> None:
        """Count a connection, and limit its life. A connection whose TLS handshake fails is not
        counted.
        """
        self._open[handler] = exchange
        asyncio.get_running_loop().call_later(self._lifetime_s, self._expire, exchange)
        _drop(self._reading.add(exchange.address, exchange))

    def _end(self, handler: object, exchange: "_Exchange") -> None:
        self._open.pop(handler, None)
        self._reading.discard(exchange.address, exchange)
        self._answering.discard(exchange.address, exchange)

    def _expire(self, exchange: "_Exchange") -> None:
        if not exchange.lasts:
            _drop(exchange)


class _Exchange(Between):
    """One connection. begun, ended: callbacks, called with this connection when it is open and when
    it is lost.
    """

    def __init__(
        self,
        handler: asyncio.Protocol,
        begun: Callable[["_Exchange"], None],
        ended: Callable[["_Exchange"], None],
    ) -> None:
        super().__init__(handler)
        self._begun = begun
        self._ended = ended
        self.lasts = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._begun(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended(self)
        super().connection_lost(error)


def _drop(exchange: _Exchange | None) -> None:
    if exchange is not None:
        exchange.transport.abort()


class Hosts:
    """The host names that a server accepts in requests from browsers. Without this check, the owner
    of a domain could let its name point to this machine for a moment. Then the domain's page could
    read the answers (DNS rebinding). An address, a name without a dot, and a name of a private
    network cannot be redirected in this way. more: further accepted names, as shell patterns, such
    as the names of a proxy or in a certificate.
    """

    def __init__(self, more: Collection[str] = ()) -> None:
        self._more = [name.lower() for name in (socket.gethostname(), *more)]

    def refuses(self, request: web.BaseRequest) -> str | None:
        """Return None if the host name of a request is accepted, else the text of the refusal."""
        name = host_name(request.host)
        if not name or is_address(name) or "." not in name or name.endswith(_PRIVATE):
            return None
        if any(fnmatchcase(name, pattern) for pattern in self._more):
            return None
        return (
            f"This gateway does not have the name {quote(name[:_LONGEST_REASON])}. Use its address"
            " instead, or add the name to `hosts` of [gateway] in gateway.toml."
        )


def host_name(host: str) -> str:
    """Return an HTTP Host without its port and the brackets of IPv6, in lower case."""
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name.lower() if not port or port.startswith(":") else host
    return host.partition(":")[0].rstrip(".").lower()


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _closing(status: int, text: str) -> web.Response:
    response = web.Response(status=status, text=text)
    response.force_close()
    return response
