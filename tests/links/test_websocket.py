"""MQTT over WebSocket, with aiohttp's client, and with a client that breaks the rules."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import pytest

from gateway.errors import OncewayError
from gateway.links import fragments, websocket
from gateway.links.tls import Tls
from gateway.links.websocket import WebSocketListener
from tests.links.board import Broker, until
from tests.links.certificates import Authority


@pytest.fixture
def broker() -> Broker:
    return Broker()


@contextlib.asynccontextmanager
async def listening(broker: Broker, **options: object) -> AsyncIterator[WebSocketListener]:
    listener = WebSocketListener(broker.accept, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()


def url(listener: WebSocketListener, path: str = "/mqtt") -> str:
    return f"http://127.0.0.1:{listener.addresses[0][1]}{path}"


@contextlib.asynccontextmanager
async def connected(
    listener: WebSocketListener, *, max_msg_size: int = 4_000_000
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url(listener), protocols=["mqtt"], max_msg_size=max_msg_size) as client,
    ):
        yield client


@pytest.mark.mqtt(
    "MQTT-6.0.0-1", "MQTT-6.0.0-2", "MQTT-6.0.0-4", "311:MQTT-6.0.0-1", "311:MQTT-6.0.0-4"
)
async def test_binary_messages_with_any_borders_arrive(broker: Broker) -> None:
    async with listening(broker) as listener, connected(listener) as client:
        assert client.protocol == "mqtt"
        for piece in (b"CON", b"NECTPUB", b"LISH"):
            await client.send_bytes(piece)
        await until(lambda: broker.connections and broker.last.received == b"CONNECTPUBLISH")
        peer = broker.last.transport.peer
        assert peer.listener == "websocket"
        assert peer.address.startswith("127.0.0.1:")
        broker.last.transport.write(b"CONN")
        broker.last.transport.write(b"ACK")
        message = await client.receive(10)
        assert (message.type, message.data) == (aiohttp.WSMsgType.BINARY, b"CONNACK")
        await client.close()
        await until(lambda: broker.last.reason)
        assert broker.last.reason == "closed by the peer"


async def test_a_peer_that_pings_reads_nothing_and_goes_is_no_error_of_ours(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """The peer is not authenticated. A traceback for each such connection would fill the log."""
    async with listening(broker) as listener:
        _, writer = await _opened(listener)
        await until(lambda: broker.connections)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        pings = (b"\x89\xfd" + bytes(4) + bytes(125)) * 1000
        with contextlib.suppress(TimeoutError):
            while True:  # until the connection has no room for the answers
                writer.write(pings)
                await asyncio.wait_for(writer.drain(), 1)
        writer.transport.abort()
        await until(lambda: broker.last.reason)
    assert broker.last.reason == "the connection was lost"
    assert "Traceback" not in caplog.text


@pytest.mark.mqtt("MQTT-6.0.0-1", "311:MQTT-6.0.0-1")
async def test_a_text_message_closes_the_connection(broker: Broker) -> None:
    async with listening(broker) as listener, connected(listener) as client:
        await client.send_str("CONNECT")
        assert (await client.receive(10)).type is aiohttp.WSMsgType.CLOSE
        assert "text message" in (broker.last.reason or "")
        assert broker.last.received == b""


@pytest.mark.mqtt("MQTT-6.0.0-3")
@pytest.mark.parametrize("protocols", [[], ["chat"]])
async def test_a_client_that_does_not_offer_mqtt_is_refused(
    broker: Broker, protocols: list[str]
) -> None:
    async with listening(broker) as listener, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(url(listener), protocols=protocols)
        assert caught.value.status == 400
        assert not broker.connections


async def test_close_sends_queued_bytes_without_a_callback(broker: Broker) -> None:
    async with listening(broker) as listener, connected(listener, max_msg_size=0) as client:
        await until(lambda: broker.connections)
        broker.last.transport.write(bytes(3_000_000))
        broker.last.transport.close()
        received = 0
        async for message in client:
            received += len(message.data)
        assert received == 3_000_000
        assert client.close_code == aiohttp.WSCloseCode.OK
        assert broker.last.reason is None


async def test_abort_drops_the_connection(broker: Broker) -> None:
    async with listening(broker) as listener, connected(listener) as client:
        await until(lambda: broker.connections)
        broker.last.transport.write(b"lost")
        broker.last.transport.abort()
        assert (await client.receive(10)).type in (
            aiohttp.WSMsgType.CLOSED,
            aiohttp.WSMsgType.ERROR,
        )
        assert broker.last.reason is None


async def test_unsent_grows_for_a_client_that_does_not_read_and_writable_comes_when_it_does(
    broker: Broker,
) -> None:
    async with listening(broker) as listener, connected(listener, max_msg_size=0) as client:
        await until(lambda: broker.connections)
        transport = broker.last.transport
        total = 0
        while transport.unsent <= 4 * transport.high_water:
            transport.write(bytes(65536))
            total += 65536
            await asyncio.sleep(0)
        assert broker.last.writable_calls == 0
        while total > 0:
            total -= len((await client.receive(10)).data)
        await until(lambda: broker.last.writable_calls)
        assert broker.last.writable_calls == 1
        await until(lambda: transport.undelivered == 0)


async def test_paused_reading_holds_messages_back(broker: Broker) -> None:
    async with (
        listening(broker) as listener,
        connected(listener) as client,
        connected(listener) as other,
    ):
        await until(lambda: len(broker.connections) == 2)
        broker.connections[0].transport.pause_reading()
        await client.send_bytes(b"later")
        await other.send_bytes(b"now")
        await until(lambda: broker.connections[1].received == b"now")
        assert broker.connections[0].received == b""
        broker.connections[0].transport.resume_reading()
        await until(lambda: broker.connections[0].received == b"later")


async def test_a_message_beyond_the_limit_closes_the_connection(broker: Broker) -> None:
    async with listening(broker, max_message=1000) as listener, connected(listener) as client:
        await client.send_bytes(bytes(1001))
        message = await client.receive(10)
        assert (message.type, message.data) == (
            aiohttp.WSMsgType.CLOSE,
            aiohttp.WSCloseCode.MESSAGE_TOO_BIG,
        )
        await until(lambda: broker.connections and broker.last.reason)
        assert broker.last.received == b""


async def test_an_error_in_the_broker_costs_that_connection_only(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        listening(broker) as listener,
        connected(listener) as client,
        connected(listener) as other,
    ):
        await until(lambda: len(broker.connections) == 2)
        connection = broker.connections[0]
        connection.receive = lambda data: 1 / 0  # type: ignore[method-assign, assignment]
        await client.send_bytes(b"boom")
        assert (await client.receive(10)).type is aiohttp.WSMsgType.CLOSE
        assert connection.reason == "internal error"
        await other.send_bytes(b"fine")
        await until(lambda: broker.connections[1].received == b"fine")
        assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://evil.example", 403),
        ("null", 403),
        ("https://dashboard.example", 101),
        ("same", 101),
    ],
)
async def test_a_web_page_must_be_of_this_host_or_listed(
    broker: Broker, origin: str, status: int
) -> None:
    async with (
        listening(broker, origins=["https://dashboard.example"]) as listener,
        aiohttp.ClientSession() as session,
    ):
        headers = {"Origin": url(listener, "") if origin == "same" else origin}
        if status == 101:
            async with session.ws_connect(url(listener), protocols=["mqtt"], headers=headers):
                await until(lambda: broker.connections)
        else:
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await session.ws_connect(url(listener), protocols=["mqtt"], headers=headers)
            assert caught.value.status == status
            assert not broker.connections


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.0.2.1:9001", 101),
        ("[::1]:9001", 101),
    ],
)
async def test_websocket_origin_is_checked_against_dns_rebinding(
    broker: Broker, host: str, status: int
) -> None:
    """With DNS rebinding, the page and the Host header have the same name, but this name is not the
    gateway's.
    """
    async with listening(broker) as listener, aiohttp.ClientSession() as session:
        headers = {"Origin": f"http://{host}", "Host": host}
        if status == 101:
            async with session.ws_connect(url(listener), protocols=["mqtt"], headers=headers):
                await until(lambda: broker.connections)
        else:
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await session.ws_connect(url(listener), protocols=["mqtt"], headers=headers)


@pytest.mark.parametrize(("path", "status"), [("/mqtt", 426), ("/", 404), ("/mqtt/x", 404)])
async def test_a_plain_request_is_answered_with_a_description(
    broker: Broker, path: str, status: int
) -> None:
    async with (
        listening(broker) as listener,
        aiohttp.ClientSession() as session,
        session.get(url(listener, path)) as response,
    ):
        assert response.status == status
        assert "MQTT" in await response.text()


async def test_a_connection_that_never_becomes_a_websocket_is_closed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "_UPGRADE_TIMEOUT", 0.2)
    async with listening(broker) as listener, connected(listener) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.addresses[0][1])
        writer.write(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n")
        assert await asyncio.wait_for(reader.read(), 10) == b""
        await client.send_bytes(b"still here")
        await until(lambda: broker.last.received == b"still here")
        writer.close()


async def test_message_that_waited_for_a_closed_reader_is_dropped(broker: Broker) -> None:
    async with listening(broker) as listener, connected(listener) as client:
        await until(lambda: broker.connections)
        transport = broker.last.transport
        transport.pause_reading()
        await client.send_bytes(b"too late")
        await client.ping()
        await asyncio.sleep(0.01)
        transport.write(b"last")
        transport.close()
        transport.write(b"too late")
        message = await client.receive(10)
        assert (message.type, message.data) == (aiohttp.WSMsgType.BINARY, b"last")
        assert (await client.receive(10)).type is aiohttp.WSMsgType.CLOSE
        await until(lambda: not listener._connections)
        assert (broker.last.reason, broker.last.received) == (None, b"")


async def test_a_client_that_vanishes_during_its_upgrade_reaches_no_broker(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = aiohttp.web.WebSocketResponse.prepare
    gone: list[bool] = []

    async def prepare_and_lose(response: Any, request: aiohttp.web.BaseRequest) -> Any:
        done = await prepare(response, request)
        if request.transport is not None:  # aiohttp calls it once more
            request.transport.abort()
            await until(lambda: request.transport is None)
            gone.append(True)
        return done

    monkeypatch.setattr(aiohttp.web.WebSocketResponse, "prepare", prepare_and_lose)
    async with listening(broker) as listener, aiohttp.ClientSession() as session:
        with contextlib.suppress(aiohttp.ClientError):
            client = await session.ws_connect(url(listener), protocols=["mqtt"])
            assert (await client.receive(10)).type in (
                aiohttp.WSMsgType.CLOSED,
                aiohttp.WSMsgType.ERROR,
            )
        await until(lambda: gone)
    assert not broker.connections
    assert not caplog.records


async def test_a_stopped_listener_keeps_its_connections_and_can_start_again(broker: Broker) -> None:
    async with listening(broker) as listener, connected(listener) as client:
        await until(lambda: broker.connections)
        listener.stop()
        await listener.start()
        async with connected(listener) as other:
            await other.send_bytes(b"new")
            await until(lambda: broker.last.received == b"new")
            await client.send_bytes(b"old")
            await until(lambda: broker.connections[0].received == b"old")


async def test_a_listener_that_never_started_can_be_closed(broker: Broker) -> None:
    """For example, the gateway cannot listen on another listener's address."""
    listener = WebSocketListener(broker.accept, "127.0.0.1", 0)
    await listener.close()
    assert listener.addresses == []


async def test_a_closed_listener_loses_its_connections(broker: Broker) -> None:
    async with listening(broker) as listener, connected(listener) as client:
        await until(lambda: broker.connections)
        await listener.close()
        assert broker.last.reason == "the gateway closes the listener"
        assert (await client.receive(10)).type in (
            aiohttp.WSMsgType.CLOSED,
            aiohttp.WSMsgType.ERROR,
        )


async def test_over_tls_with_a_client_certificate(broker: Broker, tmp_path: Path) -> None:
    import ssl

    authority = Authority(tmp_path)
    context = ssl.create_default_context(cafile=authority.path)
    context.load_cert_chain(*authority.issue("dashboard"))
    async with listening(
        broker, tls=Tls(*authority.issue("gateway"), client_ca=authority.path)
    ) as listener:
        secure = url(listener).replace("http", "https")
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(secure, protocols=["mqtt"], ssl=context) as client,
        ):
            await client.send_bytes(b"CONNECT")
            await until(lambda: broker.connections and broker.last.received == b"CONNECT")
            assert broker.last.transport.peer.certificate_name == "dashboard"


async def test_an_address_in_use_says_what_to_do(broker: Broker) -> None:
    async with listening(broker) as listener:
        with pytest.raises(OncewayError, match="the address is in use"):
            await WebSocketListener(broker.accept, *listener.addresses[0]).start()


async def _opened(listener: WebSocketListener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a WebSocket for a client that writes its frames by itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.addresses[0][1])
    writer.write(
        b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert b" 101 " in (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]
    return reader, writer


def _fragment(size: int, first: bool) -> bytes:
    """Return a fragment of a binary message, masked with zeros, which is not the last one (RFC
    6455, section 5.4).
    """
    return bytes((0x02 if first else 0x00, 0x80 | 126)) + size.to_bytes(2, "big") + bytes(4 + size)


async def test_fragments_of_unknown_clients_take_bounded_memory(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fragments, "MOST_BYTES_BEFORE", 1_000_000)
    async with listening(broker) as listener:
        readers = []
        for _ in range(20):
            reader, writer = await _opened(listener)
            for number in range(4):
                writer.write(_fragment(50_000, first=not number))
            readers.append((reader, writer))
        gone = [asyncio.ensure_future(reader.read()) for reader, _ in readers]
        await until(lambda: sum(item.done() for item in gone) >= 15)
        async with connected(listener) as client:
            await client.send_bytes(b"CONNECT")
            await until(lambda: broker.last.received == b"CONNECT")
        assert sum(not item.done() for item in gone) in (4, 5), "200 kB each, 1 MB in all"
        assert "incomplete messages take too much memory" in caplog.text
        for item in gone:
            item.cancel()
        for _, writer in readers:
            writer.close()


async def test_whole_messages_count_for_nothing_however_many_come(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fragments, "MOST_BYTES_BEFORE", 600_000)
    monkeypatch.setattr(fragments, "MOST_BYTES", 600_000)
    async with listening(broker) as listener, connected(listener) as client:
        for number in range(3000):
            await client.send_bytes(bytes(number % 700))
        wanted = sum(number % 700 for number in range(3000))
        await until(lambda: len(broker.last.received) == wanted)
        for _ in range(3):
            await client.send_bytes(bytes(90_000))
        await until(lambda: len(broker.last.received) == wanted + 270_000)
        assert broker.last.reason is None


async def test_connections_before_their_websocket_upgrade_are_bounded(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fragments, "MOST_UPGRADING", 5)
    async with listening(broker) as listener:
        streams = [
            await asyncio.open_connection("127.0.0.1", listener.addresses[0][1]) for _ in range(12)
        ]
        gone = [asyncio.ensure_future(reader.read()) for reader, _ in streams]
        await until(lambda: sum(item.done() for item in gone) == 7)
        async with connected(listener) as client:
            await client.send_bytes(b"CONNECT")
            await until(lambda: broker.last.received == b"CONNECT")
        for item in gone:
            item.cancel()
        for _, writer in streams:
            writer.close()


@pytest.mark.parametrize("opcode", [0x81, 0x82, 0x02, 0x88, 0x89, 0x8A])
async def test_a_frame_without_a_mask_closes_the_connection(broker: Broker, opcode: int) -> None:
    """RFC 6455, section 5.1: a proxy might read unmasked bytes as a request to itself."""
    async with listening(broker) as listener:
        reader, writer = await _opened(listener)
        writer.write(b"\x82\x83" + bytes(4) + b"fit" + bytes((opcode, 3)) + b"CON")
        closed = await asyncio.wait_for(reader.read(), 20)
        assert closed[:1] == b"\x88"
        assert closed[2:4] == (1002).to_bytes(2, "big")
        await until(lambda: broker.connections and broker.last.reason)
        assert "without a mask" in (broker.last.reason or "")
        assert broker.last.received == b"fit"
        writer.close()


async def test_client_refused_before_the_upgrade_is_answered_and_logged_once_for_each_reason(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    refused = [
        ("/other", "Sec-WebSocket-Protocol: mqtt", "asks for '/other'"),
        ("/mqtt", "Origin: https://evil.example", "https://evil.example"),
        ("/mqtt", "Sec-WebSocket-Protocol: chat", "offers no WebSocket subprotocol"),
    ]
    async with listening(broker) as listener:
        for path, header, _ in refused * 30:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.addresses[0][1])
            writer.write(
                f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Version: 13\r\n{header}\r\n"
                "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
            )
            assert b"HTTP/1.1 4" in await asyncio.wait_for(reader.read(), 20)
            writer.close()
    assert len(caplog.messages) == len(refused)
    for (_, _, text), line in zip(refused, caplog.messages, strict=True):
        assert text in line
        assert "127.0.0.1" in line
