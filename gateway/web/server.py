"""`/metrics`, `/healthz` and `/status` over HTTP.

In: an address and a `Source`. Out: answers to GET. A connection serves one request and lives ten
seconds at most, and there are at most 32 of them. A client that asks too much, or says nothing,
costs no more.
"""

import asyncio

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from gateway.links.endpoint import Endpoint
from gateway.web.everything import everything
from gateway.web.health import health
from gateway.web.metrics import registry
from gateway.web.source import Source
from gateway.web.uplink import UplinkReader

MOST_CONNECTIONS = 32
LIFETIME_S = 10.0
_SHUTDOWN_TIMEOUT = 1.0


class WebServer:
    """The HTTP server of metrics and health. Runs until `close`."""

    def __init__(self, host: str, port: int, source: Source) -> None:
        self._endpoint = Endpoint(host, port)
        self._source = source
        self._uplink = UplinkReader(source.folder)
        self._server: web.Server | None = None

    async def start(self) -> None:
        """Listen. Raises OncewayError."""
        server = self._server = web.Server(self._answer, access_log=None)

        def connection() -> asyncio.BaseProtocol:
            if len(server.connections) >= MOST_CONNECTIONS:
                return _Busy()
            handler = server()
            asyncio.get_running_loop().call_later(LIFETIME_S, _abort, handler)
            return handler

        await self._endpoint.listen(connection)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses listened on, as (host, port)."""
        return self._endpoint.addresses

    async def close(self) -> None:
        self._endpoint.close()
        if self._server is not None:
            await self._server.shutdown(_SHUTDOWN_TIMEOUT)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        pages = {"/metrics": self._metrics, "/healthz": self._health, "/status": self._status}
        page = pages.get(request.path)
        if page is None:
            response = web.Response(status=404, text="Here are /metrics, /healthz and /status.\n")
        elif request.method not in ("GET", "HEAD"):
            response = web.Response(
                status=405, headers={"Allow": "GET, HEAD"}, text="This can only be read.\n"
            )
        else:
            response = await page()
        response.headers.update({"Cache-Control": "no-store", "Server": "onceway"})
        response.force_close()
        return response

    async def _metrics(self) -> web.Response:
        uplink = await self._uplink.state() if self._source.broker.config.uplink else None
        return web.Response(
            body=generate_latest(registry(self._source, uplink)),
            headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4},
        )

    async def _status(self) -> web.Response:
        uplink = await self._uplink.state() if self._source.broker.config.uplink else None
        return web.json_response(everything(self._source, uplink))

    async def _health(self) -> web.Response:
        body = health(self._source)
        return web.json_response(body, status=200 if body["status"] == "ok" else 503)


class _Busy(asyncio.Protocol):
    """A protocol that closes a connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _abort(handler: web.RequestHandler) -> None:
    if handler.transport is not None:
        handler.transport.abort()
