"""`/metrics`, `/healthz` and `/status` over HTTP.

In: an address and a `Source`. Out: answers to GET. A connection serves one request and lasts ten
seconds at most, and there are at most 32 of them. So a client that asks too often, or sends
nothing, does no harm.
"""

from collections.abc import Collection

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from gateway.links.endpoint import AtEndpoint, Endpoint
from gateway.links.http_server import Exchanges, Hosts
from gateway.web.everything import everything
from gateway.web.health import health
from gateway.web.metrics import registry
from gateway.web.source import Source
from gateway.web.uplink import UplinkReader

MOST_CONNECTIONS = 32
LIFETIME_S = 10.0
_SHUTDOWN_TIMEOUT = 1.0


class WebServer(AtEndpoint):
    """The HTTP server of metrics and health. Runs until `close`. hosts: see `Hosts`."""

    def __init__(self, host: str, port: int, source: Source, hosts: Collection[str] = ()) -> None:
        super().__init__(Endpoint(host, port))
        self._source = source
        self._uplink = UplinkReader(source.folder)
        self._hosts = Hosts(hosts)
        self._exchanges = Exchanges(
            self._answer, "metrics", most=MOST_CONNECTIONS, lifetime_s=LIFETIME_S
        )

    async def start(self) -> None:
        """Listen. If the machine does not have the address yet, wait for it in the background.
        Raises OncewayError.
        """
        await self._endpoint.listen(self._exchanges.connection, waits=True)

    async def close(self) -> None:
        self._endpoint.close()
        await self._exchanges.close(_SHUTDOWN_TIMEOUT)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        pages = {"/metrics": self._metrics, "/healthz": self._health, "/status": self._status}
        page = pages.get(request.path)
        if refusal := self._hosts.refuses(request):
            response = web.Response(status=421, text=f"{refusal}\n")
        elif page is None:
            response = web.Response(status=404, text="Here are /metrics, /healthz and /status.\n")
        elif request.method not in ("GET", "HEAD"):
            response = web.Response(
                status=405, headers={"Allow": "GET, HEAD"}, text="Use GET: this is read-only.\n"
            )
        else:
            response = await page()
        response.headers.update({"Cache-Control": "no-store", "Server": "onceway"})
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
