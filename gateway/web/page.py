"""The page over HTTP: files, logins, live figures, and commands.

In: requests of browsers. Out: `static/` without a login; with a login, what its user may see of the
gateway (`sight.py`). A connection serves one request and lasts twenty seconds at most, or
an hour as a stream of server-sent events. Each request has a role in `_ROUTES`.

    POST /api/login, /api/logout     JSON {"user", "password"}; the session is a cookie
    GET  /api/me                     the user, if one is logged in; the token for requests that
                                     change something
    GET  /api/events                 text/event-stream: the whole state once, then changes
    GET  /api/board?name=            a board with its readings of the last hours
    GET  /api/where?device=&sequence=    where one reading is
    GET  /api/clients?wanted=        sessions, retained messages, refusals
    GET  /api/air                    radios, and how each board was heard
    GET  /api/site                   the members of the site (`gateway/site/wiring/membership.py`)
    GET  /api/log?after=&wanted=&level=    the last log lines: operators only
    POST /api/command                JSON {"device", "command"}: operators only; the reply has `to`,
                                     and so has the board's answer, later in the board's row
    POST /api/board-log              JSON {"device"}: asks a board for its log; operators only
    POST /api/registry               JSON {"device", "change"}: admit or revoke; operators only
    GET  /api/ports                  ports and kinds of boards: operators only
    POST /api/flash                  JSON {"deed", "device", "kind", "port", "empty"}: add, update
                                     or replace a board; operators only
    GET  /api/flash                  text/event-stream: the progress of the job; operators only
    POST /api/end                    JSON {"client"}: ends a session; operators only
    GET  /api/messages?filter=       text/event-stream: matching messages, live
    POST /api/publish                JSON {"topic", "payload", "qos", "retain"}: operators only
    POST /api/notify-test            a test on each notification channel: operators only

Requests that change something must come from this page: the cookie is SameSite=Strict, `Origin`
must equal the requested host, and the header X-Onceway must carry the session's token.
"""

import asyncio
import hmac
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.resources import files
from typing import Any, ClassVar, Protocol

from aiohttp import hdrs, web

from gateway.errors import OncewayError
from gateway.links.endpoint import AtEndpoint, Endpoint
from gateway.links.forwarded import Proxies
from gateway.links.http_server import Exchanges, Hosts
from gateway.links.tls import Tls
from gateway.mqtt.errors import quote
from gateway.mqtt.packets import Publish
from gateway.payload.answers import CORRELATION
from gateway.web.clients import Clients
from gateway.web.live import Live
from gateway.web.log_lines import LogLines
from gateway.web.messages import Messages, Watching
from gateway.web.sight import Sight
from gateway.web.streams import Stream, Streams

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
MOST_STREAMS = 16
LIFETIME_S = 20.0
STREAM_S = 3600.0
WRITE_S = 30.0
"""Longest time for one write to a browser, in seconds. After that, the browser counts as gone."""
COOKIE = "onceway"
_LONGEST_BODY = 8192
_LONGEST_NAME = 256
_SHUTDOWN_TIMEOUT = 1.0
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src"
        " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Server": "onceway",
}


class Login(Protocol):
    """A user's login on the page, valid until it ends or expires."""

    user: str
    operator: bool
    csrf: str


class Logins(Protocol):
    """Logins of the page (`gateway/web/page_logins.py`)."""

    async def login(self, user: str, password: str, address: str) -> str | tuple[int, str]: ...

    def session(self, token: str | None) -> Login | None: ...

    def logout(self, token: str | None) -> None: ...


Command = Callable[[str, str, str, bytes], Awaitable[str | None]]
"""A function that sends a command for a user. Parameters: user, board, command, Correlation Data.
Returns why the command was not sent, or None.
"""
BoardLog = Callable[[str, str], Awaitable[list[dict[str, Any]]]]
"""A function of user and board. Returns the board's log (`gateway/boards/log.py`), or raises
OncewayError.
"""
Change = Callable[[str, str, str], Awaitable[str | None]]
"""A function that admits or revokes a board. Parameters: user, board, and `admit` or `revoke`.
Returns why the registry is unchanged, or None if it has changed.
"""
Where = Callable[[str, int], dict[str, Any]]
"""Function that returns where a reading is. Arguments: board, sequence. It may run on any thread.
"""


Get = Callable[[], Awaitable[bytes | None]]
"""A function that returns the next event of a stream, or None after the last one."""
Publishing = Callable[[str, Publish], Awaitable[str | None]]
"""A function that publishes a message for a user. It returns the reason if the message was refused,
else None.
"""


Site = Callable[[], Awaitable[dict[str, Any]]]
"""A function that returns the members of the site, and the names of removed members."""


class Flash(Protocol):
    """Writes firmware to boards (`gateway/web/page_flash.py`)."""

    async def choices(self) -> dict[str, Any]: ...

    async def start(
        self, user: str, deed: str, device: str, kind: str, port: str, empty: bool
    ) -> str | None: ...

    def watch(self) -> Get: ...


@dataclass(frozen=True, slots=True)
class Deeds:
    """Actions of the gateway for users of the page."""

    command: Command
    board_log: BoardLog
    change: Change
    where: Where
    watch: Watching
    publish: Publishing
    flash: Flash
    site: Site | None
    """A function that returns the members of the site; None if the gateway belongs to no site."""
    notify: Callable[[], Awaitable[list[str]]] | None = None
    """Sends a test on each notification channel and returns their names; None without [notify].
    Raises OncewayError.
    """


class Needs(Enum):
    """The role that a request needs. VIEWER: any user who may log in."""

    VIEWER = "viewer"
    OPERATOR = "operator"


class _Gate:
    """Login, logout, and the check of a request's session."""

    def __init__(self, logins: Logins, proxies: Proxies, *, secure: bool) -> None:
        self._logins = logins
        self._proxies = proxies
        self._secure = secure

    def login(self, request: web.BaseRequest) -> Login | None:
        return self._logins.session(request.cookies.get(COOKIE))

    def session(self, request: web.BaseRequest, needs: "Needs") -> Login:
        """Return the session of a request. Raises _Refused if there is none, if its user lacks the
        role `needs`, or if a POST comes from another page.
        """
        changes = request.method == "POST"
        if changes:
            _same_origin(request)
        session = self.login(request)
        if session is None:
            raise _Refused(401, "Log in first.")
        if changes:
            _from_page(request, session)
        if needs is Needs.OPERATOR and not session.operator:
            raise _Refused(
                403, f"{session.user} may only look. See `operators` under [page] in gateway.toml."
            )
        return session

    async def log_in(self, request: web.BaseRequest) -> web.Response:
        _same_origin(request)
        user, password = _strings(await _body(request), "user", "password")
        found = await self._logins.login(user, password, self._proxies.client(request))
        if isinstance(found, tuple):
            raise _Refused(*found)
        response = web.json_response(_me(self._logins.session(found)))
        response.set_cookie(
            COOKIE, found, path="/", httponly=True, samesite="Strict", secure=self._secure
        )
        return response

    async def log_out(self, request: web.BaseRequest) -> web.Response:
        self._logins.logout(request.cookies.get(COOKIE))
        response = web.json_response({})
        response.del_cookie(COOKIE, path="/")
        return response

    async def user(self, request: web.BaseRequest) -> web.Response:
        return web.json_response(_me(self.login(request)))


class PageServer(AtEndpoint):
    """The HTTP server of the page. Runs until `close`. hosts: see `Hosts`. proxies: see
    `Proxies`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: Tls | None,
        live: Live,
        clients: Clients,
        lines: LogLines,
        logins: Logins,
        deeds: Deeds,
        hosts: Collection[str] = (),
        proxies: Collection[str] = (),
    ) -> None:
        super().__init__(Endpoint(host, port, tls=tls))
        self._gate = _Gate(logins, Proxies(proxies), secure=tls is not None)
        self._live = live
        self._clients = clients
        self._lines = lines
        self._deeds = deeds
        self._searching = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._files = {f"/{name}": file for name, file in _static().items()}
        self._files["/"] = self._files["/index.html"]
        self._hosts = Hosts(hosts)
        self._exchanges = Exchanges(
            self._answer,
            "page",
            most=MOST_CONNECTIONS,
            lifetime_s=LIFETIME_S,
            longest_body=_LONGEST_BODY,
        )
        self._streams = Streams(MOST_STREAMS)

    async def start(self) -> None:
        """Listen. If the machine does not have the address yet, wait for it in the background.
        Raises OncewayError.
        """
        await self._endpoint.listen(self._exchanges.connection, waits=True)
        self._lines.start()

    async def close(self) -> None:
        self._endpoint.close()
        self._lines.close()
        self._live.close()
        await self._exchanges.close(_SHUTDOWN_TIMEOUT)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._route(request)
        except _Refused as refusal:
            response = web.json_response({"error": refusal.text}, status=refusal.status)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.path
        if refusal := self._hosts.refuses(request):
            raise _Refused(421, refusal)
        if path in self._files and method in ("GET", "HEAD"):
            kind, body = self._files[path]
            return web.Response(body=body, content_type=kind, charset="utf-8")
        if answer := self._OPEN.get((method, path)):
            return await answer(self._gate, request)
        if (method, path) not in self._ROUTES:
            raise _Refused(404, "There is no such page.")
        needs, handler = self._ROUTES[method, path]
        return await handler(self, request, self._gate.session(request, needs))

    def _sight(self, session: Login) -> Sight:
        return self._live.sights.of(session.user, operator=session.operator)

    async def _ports(self, request: web.BaseRequest, session: Login) -> web.Response:
        return web.json_response(await self._deeds.flash.choices())

    async def _watch_flash(self, request: web.BaseRequest, session: Login) -> web.StreamResponse:
        with self._streaming(request, session):
            return await self._stream(request, self._deeds.flash.watch())

    async def _find_clients(self, request: web.BaseRequest, session: Login) -> web.Response:
        wanted = request.query.get("wanted", "")[:_LONGEST_NAME]
        return web.json_response(await self._clients.find(self._sight(session), wanted))

    async def _air(self, request: web.BaseRequest, session: Login) -> web.Response:
        return web.json_response(self._live.air(self._sight(session)))

    async def _site(self, request: web.BaseRequest, session: Login) -> web.Response:
        if self._deeds.site is None:
            raise _Refused(404, "This gateway belongs to no site.")
        if not self._sight(session).whole:
            raise _Refused(403, "Your access rules do not let you see the whole site.")
        return web.json_response(await self._deeds.site())

    async def _send(self, request: web.BaseRequest, session: Login) -> web.Response:
        device, text = _strings(await _body(request), "device", "command")
        if device not in self._live.boards.rows:
            raise _Refused(404, "There is no such board.")
        correlation = secrets.token_bytes(CORRELATION)
        _done(await self._deeds.command(session.user, device, text, correlation))
        return web.json_response({"to": correlation.hex()})

    async def _ask_board(self, request: web.BaseRequest, session: Login) -> web.Response:
        (device,) = _strings(await _body(request), "device")
        if device not in self._live.boards.rows:
            raise _Refused(404, "There is no such board.")
        if self._asking.locked():
            raise _Refused(
                503, "Another user is reading the log of a board. Try again in a moment."
            )
        with self._streaming(request, session):
            async with self._asking:
                try:
                    return web.json_response(await self._deeds.board_log(session.user, device))
                except OncewayError as error:
                    text = str(error)
                    end = "" if text.endswith("?") else "."
                    raise _Refused(409, f"{text}{end}") from error

    async def _register(self, request: web.BaseRequest, session: Login) -> web.Response:
        device, change = _strings(await _body(request), "device", "change")
        if change not in ("admit", "revoke"):
            raise _Refused(400, "Send admit or revoke.")
        if device not in self._live.boards.rows:
            raise _Refused(404, "There is no such board.")
        return _done(await self._deeds.change(session.user, device, change))

    async def _flash(self, request: web.BaseRequest, session: Login) -> web.Response:
        body = await _body(request)
        deed, device, kind, port = _strings(body, "deed", "device", "kind", "port")
        empty = body.get("empty") is True
        return _done(await self._deeds.flash.start(session.user, deed, device, kind, port, empty))

    async def _try_notify(self, request: web.BaseRequest, session: Login) -> web.Response:
        if self._deeds.notify is None:
            raise _Refused(409, "No notifications are sent: the configuration has no [notify].")
        try:
            return web.json_response({"ways": await self._deeds.notify()})
        except OncewayError as error:
            raise _Refused(409, f"{error}.") from error

    async def _end(self, request: web.BaseRequest, session: Login) -> web.Response:
        (client,) = _strings(await _body(request), "client")
        if not await self._clients.end(client):
            raise _Refused(404, "There is no such session.")
        log.warning("%s: the session was ended by %s", quote(client), quote(session.user))
        return web.json_response({})

    async def _log(self, request: web.BaseRequest, session: Login) -> web.Response:
        query = request.query
        found = self._lines.after(
            _number(query.get("after", "0")),
            query.get("wanted", "")[:_LONGEST_NAME],
            query.get("level", "info"),
        )
        return web.json_response(found)

    async def _board(self, request: web.BaseRequest, session: Login) -> web.Response:
        found = self._live.board(request.query.get("name", ""), self._sight(session))
        if found is None:
            raise _Refused(404, "There is no such board.")
        return web.json_response(found)

    async def _search(self, request: web.BaseRequest, session: Login) -> web.Response:
        device, number = request.query.get("device", ""), request.query.get("sequence", "")
        if not 0 < len(device) <= _LONGEST_NAME:
            raise _Refused(400, "Name a board.")
        sequence = _number(number)
        sight = self._sight(session)
        if not sight.whole and not (device in self._live.boards.rows and sight.board(device)):
            raise _Refused(404, "There is no such board.")
        if self._searching.locked():
            raise _Refused(503, "Another user is searching for a reading. Try again in a moment.")
        async with self._searching:  # the search reads the whole spool
            return web.json_response(await asyncio.to_thread(self._deeds.where, device, sequence))

    async def _publish(self, request: web.BaseRequest, session: Login) -> web.Response:
        body = await _body(request)
        (topic,) = _strings(body, "topic")
        payload, qos, retain = (body.get(key) for key in ("payload", "qos", "retain"))
        fits = isinstance(payload, str) and type(qos) is int and isinstance(retain, bool)
        if not fits or qos not in (1, 2):
            raise _Refused(400, "Send payload as a text, qos 1 or 2, and retain.")
        message = Publish(topic, payload.encode(errors="replace"), qos, retain=retain)
        problem = await self._deeds.publish(session.user, message)
        if problem is None:
            log.warning("%s has published to %s", quote(session.user), quote(topic))
        return _done(problem)

    async def _watch(self, request: web.BaseRequest, session: Login) -> web.StreamResponse:
        messages = Messages(lambda: self._live.utc)
        with self._streaming(request, session):
            stop = self._deeds.watch(
                session.user, request.query.get("filter", "")[:_LONGEST_NAME], messages
            )
            try:
                return await self._stream(request, messages.get)
            finally:
                stop()

    async def _news(self, request: web.BaseRequest, session: Login) -> web.StreamResponse:
        with self._streaming(request, session):
            subscriber = self._live.subscribe(self._sight(session))
            try:
                return await self._stream(request, subscriber.get)
            finally:
                self._live.unsubscribe(subscriber)

    @contextmanager
    def _streaming(self, request: web.BaseRequest, session: Login) -> Iterator[None]:
        """Within the context, count the request's connection as a stream, which may stay open for
        longer than LIFETIME_S. Raises _Refused if there are too many streams.
        """
        stream = Stream(session.user, session.operator, partial(self._exchanges.drop, request))
        if not self._streams.add(stream):
            raise _Refused(503, "Too many browsers show the page. Close one, then try again.")
        try:
            with self._exchanges.lasting(request):
                yield
        finally:
            self._streams.discard(stream)

    async def _stream(self, request: web.BaseRequest, get: Get) -> web.StreamResponse:
        """Send events until there are no more, the session has ended, or STREAM_S are over."""
        response = web.StreamResponse(headers=_HEADERS | {"X-Accel-Buffering": "no"})
        response.content_type, response.charset = "text/event-stream", "utf-8"
        response.force_close()
        with suppress(TimeoutError, ConnectionError):
            await response.prepare(request)
            async with asyncio.timeout(STREAM_S):
                while (event := await get()) is not None:
                    if self._gate.login(request) is None:
                        break
                    async with asyncio.timeout(WRITE_S):
                        await response.write(b"data: " + event + b"\n\n")
        return response

    async def _log_out(self, request: web.BaseRequest, _session: Login) -> web.Response:
        return await self._gate.log_out(request)

    _OPEN: ClassVar[
        dict[tuple[str, str], Callable[[_Gate, web.BaseRequest], Awaitable[web.StreamResponse]]]
    ] = {("POST", "/api/login"): _Gate.log_in, ("GET", "/api/me"): _Gate.user}
    """The handlers of requests that need no login."""

    _ROUTES: ClassVar[
        dict[
            tuple[str, str],
            tuple[
                Needs,
                Callable[["PageServer", web.BaseRequest, Login], Awaitable[web.StreamResponse]],
            ],
        ]
    ] = {
        ("POST", "/api/logout"): (Needs.VIEWER, _log_out),
        ("POST", "/api/command"): (Needs.OPERATOR, _send),
        ("POST", "/api/board-log"): (Needs.OPERATOR, _ask_board),
        ("POST", "/api/registry"): (Needs.OPERATOR, _register),
        ("GET", "/api/ports"): (Needs.OPERATOR, _ports),
        ("POST", "/api/flash"): (Needs.OPERATOR, _flash),
        ("GET", "/api/flash"): (Needs.OPERATOR, _watch_flash),
        ("POST", "/api/publish"): (Needs.OPERATOR, _publish),
        ("GET", "/api/messages"): (Needs.VIEWER, _watch),
        ("POST", "/api/end"): (Needs.OPERATOR, _end),
        ("POST", "/api/notify-test"): (Needs.OPERATOR, _try_notify),
        ("GET", "/api/clients"): (Needs.VIEWER, _find_clients),
        ("GET", "/api/log"): (Needs.OPERATOR, _log),
        ("GET", "/api/events"): (Needs.VIEWER, _news),
        ("GET", "/api/air"): (Needs.VIEWER, _air),
        ("GET", "/api/site"): (Needs.VIEWER, _site),
        ("GET", "/api/board"): (Needs.VIEWER, _board),
        ("GET", "/api/where"): (Needs.VIEWER, _search),
    }
    """For each request that needs a login, by method and path: the role it needs, and its handler.
    """


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def _static() -> dict[str, tuple[str, bytes]]:
    """Return the page's files: content type and content by name."""
    folder = files("gateway.web").joinpath("static")
    found = {}
    for file in folder.iterdir():
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            found[file.name] = kind, file.read_bytes()
    return found


def _me(session: Login | None) -> dict[str, Any]:
    if session is None:
        return {"user": None}
    return {"user": session.user, "operator": session.operator, "csrf": session.csrf}


def _done(problem: str | None) -> web.Response:
    """Return an empty answer, or raise _Refused if there was a problem."""
    if problem is not None:
        raise _Refused(409, problem)
    return web.json_response({})


def _same_origin(request: web.BaseRequest) -> None:
    """Raise _Refused if a request comes from another page. Browsers send `Origin` with each POST. A
    request without `Origin` comes from a program, and passes.
    """
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and origin.partition("://")[2] != request.host:
        raise _Refused(403, "This request comes from another page.")


def _from_page(request: web.BaseRequest, session: Login) -> None:
    """Raise _Refused if a request does not have the session's token, which only the page knows."""
    token = _bytes(request.headers.get("X-Onceway", ""))
    if not hmac.compare_digest(token, session.csrf.encode()):
        raise _Refused(403, "This request does not come from the page. Load the page again.")


def _bytes(text: str) -> bytes:
    """Return the bytes of a header, which need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise _Refused(400, "Give a whole number, such as 42.")
    return int(text)


async def _body(request: web.BaseRequest) -> Any:
    """Return the JSON of a request. Raises _Refused if the body is not JSON."""
    if request.content_type != "application/json":
        raise _Refused(415, "Send JSON.")
    try:
        return json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise _Refused(400, "The request is not valid JSON.") from error


def _strings(body: Any, *keys: str) -> list[str]:
    values = [body.get(key) if isinstance(body, dict) else None for key in keys]
    found = [value for value in values if isinstance(value, str) and value.isprintable()]
    if len(found) < len(keys):
        raise _Refused(400, f"Send the texts {' and '.join(keys)}.")
    return found
