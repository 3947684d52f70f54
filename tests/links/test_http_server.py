"""HTTP requests of strangers: invalid, incomplete, and with another host name."""

import asyncio
import gc
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from weakref import WeakSet

import pytest
from aiohttp import web

from gateway.links.endpoint import Endpoint
from gateway.links.http_server import Exchanges, Hosts, host_name
from gateway.links.masks import Masks
from gateway.links.tls import Tls
from gateway.links.websocket import WebSocketListener
from gateway.web.server import WebServer
from tests.links.board import Broker, until
from tests.links.certificates import Authority
from tests.web.page import page
from tests.web.test_web import a_source

ODD = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "odd method": b"G\xc3\x84T / HTTP/1.1\r\nHost: x\r\n\r\n",
    "odd target": b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
    "odd path": b"GET /\xff%ff%00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "odd host": b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "host beyond ASCII": b"GET /api/me HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 9000 + b"\r\n\r\n",
    "odd header": b"GET / HTTP/1.1\r\nHost: x\r\nA\x00: b\r\n\r\n",
    "odd length": b"POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "two lengths": (
        b"POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
    ),
    "odd chunks": (
        b"POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
    "odd encoding": (
        b"POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"
    ),
} | {
    f"{name} {kind} at {path}": b"%s %s HTTP/1.1\r\nHost: x\r\n%s: %s\r\n%s\r\n"
    % (method, path.encode(), name.encode(), value, rest)
    for name in ("Origin", "Cookie", "X-Onceway", "Content-Type", "Accept", "Upgrade", "Connection")
    for kind, value in (("http://[", b"http://["), ("beyond ASCII", b"onceway=\xff\xc3; \xe4"))
    for method, path, rest in (
        (b"GET", "/mqtt", b"Sec-WebSocket-Protocol: mqtt\r\n"),
        (b"GET", "/api/me", b""),
        (b"GET", "/metrics", b""),
        (b"POST", "/api/login", b"Content-Length: 2\r\n\r\n{}"),
        (b"POST", "/api/command", b"Content-Length: 2\r\n\r\n{}"),
    )
}


@asynccontextmanager
async def websocket(folder: Path) -> AsyncIterator[tuple[str, int]]:
    listener = WebSocketListener(Broker().accept, "127.0.0.1", 0)
    await listener.start()
    yield listener.addresses[0]
    await listener.close()


@asynccontextmanager
async def metrics(folder: Path) -> AsyncIterator[tuple[str, int]]:
    server = WebServer("127.0.0.1", 0, a_source(folder))
    await server.start()
    yield server.addresses[0]
    await server.close()


async def told(address: tuple[str, int], request: bytes, wait_s: float = 20) -> bytes:
    """Return the answer to a request, or b"" if none comes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    try:
        async with asyncio.timeout(wait_s):
            return await reader.read()
    except (ConnectionError, TimeoutError):
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("serve", [websocket, metrics])
async def test_an_odd_request_is_no_error_of_ours_and_no_line_each(
    serve: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serve(tmp_path) as address:  # type: ignore[attr-defined]
        for name, request in ODD.items():
            answer = await told(address, request, 0.2)
            assert b" 500 " not in answer.partition(b"\r\n")[0], name
        first = len(caplog.records)
        for request in ODD.values():
            await told(address, request, 0.2)
    assert "Traceback" not in caplog.text
    assert not any(record.exc_info for record in caplog.records)
    assert first <= 12
    assert len(caplog.records) <= first + 1
    assert max(len(record.getMessage()) for record in caplog.records) < 500


async def test_odd_requests_to_the_page(tmp_path: Path) -> None:
    async with page(tmp_path, []) as shown:
        host, _, port = shown.url.removeprefix("http://").partition(":")
        for _ in range(2):
            for name, request in ODD.items():
                answer = await told((host, int(port)), request, 0.2)
                assert b" 500 " not in answer.partition(b"\r\n")[0], name
        text = "".join(shown.running.log)
    assert "Traceback" not in text
    assert text.count("cannot be read") <= 12


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("[fe80::1%25eth0]", True),
        ("localhost:8080", True),
        ("gateway", True),
        ("pi.local:8080", True),
        ("pi.fritz.lan", True),
        ("pi.home.arpa.", True),
        ("proxy.example:443", True),
        ("PROXY.example", True),
        ("evil.example", False),
        ("evil.example:8080", False),
        ("127.0.0.1.evil.example", False),
        ("local.evil.example", False),
        ("xproxy.example", False),
        ("proxy.example.evil.example", False),
        ("evil.example.", False),
        ("[::1].evil.example", False),
        ("evil.example@127.0.0.1", False),
    ],
)
async def test_a_name_that_a_stranger_can_register_is_no_name_of_ours(
    host: str, fits: bool, tmp_path: Path
) -> None:
    async def greet(request: web.BaseRequest) -> web.Response:
        return web.Response(text=Hosts(["proxy.example"]).refuses(request) or "welcome")

    async with exchanging(greet) as (address, _):
        answer = await told(address, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.endswith(b"welcome") == fits, host_name(host)
    assert fits or b"`hosts` of [gateway] in gateway.toml" in answer


async def test_metrics_and_page_answer_no_stranger_s_name(tmp_path: Path) -> None:
    async with metrics(tmp_path) as address, page(tmp_path, []) as shown:
        host, _, port = shown.url.removeprefix("http://").partition(":")
        for place, paths in (
            (address, ("/metrics", "/healthz", "/status", "/")),
            ((host, int(port)), ("/", "/api/me", "/api/events", "/nowhere")),
        ):
            for path in paths:
                request = f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n"
                assert b" 421 " in (await told(place, request.encode())).partition(b"\r\n")[0]


# -- half of a request, and clients that do not read the answer


@asynccontextmanager
async def exchanging(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    most: int = 4,
    lifetime_s: float = 600.0,
) -> AsyncIterator[tuple[tuple[str, int], Exchanges]]:
    found = Exchanges(handler, "page", most=most, lifetime_s=lifetime_s, longest_body=100)
    endpoint = Endpoint("127.0.0.1", 0)
    await endpoint.listen(found.connection)
    yield endpoint.addresses[0], found
    endpoint.close()
    await found.close(0.1)


BIG = b"x" * 50_000_000


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nhalf",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
        b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_slow_http_client_stops_no_other_client(half: bytes) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=BIG if request.path == "/big" else b"here")

    async with exchanging(answer) as (address, _), AsyncExitStack() as stack:
        for _ in range(12):
            _, writer = await asyncio.open_connection(*address)
            stack.callback(writer.close)
            writer.write(half)
            await writer.drain()
            assert (await told(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).endswith(b"here")


async def test_a_lasting_exchange_outlives_the_others_and_can_be_ended() -> None:
    found: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/":
            return web.Response(text="here")
        with exchanges.lasting(request):
            found.append(request)
            await asyncio.sleep(600)
        return web.Response()

    async with exchanging(answer, lifetime_s=0.2) as (address, exchanges):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: found)
        silent, other = await asyncio.open_connection(*address)
        assert await asyncio.wait_for(silent.read(), 20) == b"", "its time is over"
        ended = asyncio.ensure_future(reader.read())
        for _ in range(9):
            assert (await told(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).endswith(b"here")
        assert not ended.done()
        exchanges.drop(found[0])
        with suppress(ConnectionError):
            assert await asyncio.wait_for(ended, 20) == b""
        for one in (writer, other):
            one.close()


async def test_a_body_that_is_too_long_is_refused_unread() -> None:
    read: list[bytes] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        read.append(await request.read())
        return web.Response(text="here")

    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    async with exchanging(answer) as (address, _):
        assert (await told(address, head % 100 + bytes(100))).endswith(b"here")
        refused = await told(address, head % 101 + bytes(101), 1)
        assert b" 413 " in refused.partition(b"\r\n")[0]
        assert refused.endswith(b'{"error": "The request is too long."}')
    assert read == [bytes(100)]


async def test_a_request_whose_client_has_gone_counts_for_nothing() -> None:
    """The handler of a request may run on after the end of its connection."""
    lasted: list[bool] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        exchanges.drop(request)
        await until(lambda: request.transport is None)
        with exchanges.lasting(request):
            lasted.append(True)
        exchanges.drop(request)
        return await exchanges._answer(request) if len(lasted) == 1 else web.Response()

    async with exchanging(answer, most=1) as (address, exchanges):
        assert await told(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        await until(lambda: len(lasted) == 2)
        assert not exchanges._open


async def test_failed_tls_handshakes_leave_nothing_behind(tmp_path: Path) -> None:
    """For example, a browser that refuses the certificate fails in the handshake."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response()

    found = Exchanges(answer, "page", most=4, lifetime_s=0.05)
    made: WeakSet[asyncio.BaseProtocol] = WeakSet()
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: errors.append(told))

    def connection() -> asyncio.BaseProtocol:
        protocol = found.connection()
        made.add(protocol)
        return protocol

    authority = Authority(tmp_path)
    tls = Tls(*authority.issue("localhost"))
    endpoint = Endpoint("127.0.0.1", 0, tls=tls)
    await endpoint.listen(connection)
    port = endpoint.addresses[0][1]
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"no handshake\r\n\r\n")
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 20)
        writer.close()
    trusting = ssl.create_default_context(cafile=str(authority.path))
    silent, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    assert await asyncio.wait_for(silent.read(), 20) == b"", "its time is over, and theirs"
    writer.close()
    await until(lambda: gc.collect() >= 0 and not made)
    assert errors == []
    endpoint.close()
    await found.close(0.1)


async def test_an_error_of_ours_is_logged_once_and_costs_that_request_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        raise ZeroDivisionError(type(asyncio.get_running_loop()))

    async with exchanging(answer) as (address, _):
        for _ in range(50):
            assert b" 500 " in await told(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert caplog.text.count("Traceback") == 1


# -- masks of WebSocket frames

HEAD = b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n"


def frame(payload: bytes, masked: bool = True) -> bytes:
    size = len(payload)
    length = size if size < 126 else 126 if size < 1 << 16 else 127
    more = b"" if size < 126 else size.to_bytes(2 if size < 1 << 16 else 8, "big")
    return bytes((0x82, length | 0x80 * masked)) + more + bytes(4 * masked) + payload


@pytest.mark.parametrize("size", [0, 1, 125, 126, 300, 65_535, 65_536])
@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1000, 1 << 20])
def test_each_frame_is_read_across_any_split(size: int, step: int) -> None:
    good = HEAD + frame(b"a" * size) + frame(b"") + frame(b"\x82\x01\x00" * 9)
    for bad, wanted in ((b"", good), (frame(b"evil", masked=False), good + b"\xf2\x80")):
        masks, passed = Masks(), b""
        stream = good + bad
        for begin in range(0, len(stream), step):
            passed += masks.checked(stream[begin : begin + step])
        assert masks.lacking == bool(bad)
        assert passed == wanted
        if bad:
            assert masks.checked(frame(b"more")) == b""
