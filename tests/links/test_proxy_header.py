"""PROXY headers: only proxies of the configuration may state a client's address, and no header
takes much time or memory.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import ConfigError, parse
from gateway.links import counted_server, proxy_header
from gateway.links.proxy_header import (
    LONGEST,
    SIGNATURE,
    ProxyHeaderError,
    client_of,
    read_header,
)
from gateway.links.tcp import TcpListener
from gateway.links.tls import Tls
from gateway.links.websocket import WebSocketListener
from tests.links.board import Broker, until
from tests.links.certificates import Authority
from tests.links.test_tls import client_context

OURS = ["127.0.0.1", "192.0.2.0/24"]


def header(
    source: str = "203.0.113.9", port: int = 4711, command: int = 0x21, more: bytes = b""
) -> bytes:
    host = ip_address(source)
    family = 0x11 if host.version == 4 else 0x21
    data = host.packed * 2 + struct.pack(">HH", port, 1883) + more
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(data)) + data


LOCAL = SIGNATURE + b"\x20\0\0\0"
UNKNOWN = SIGNATURE + b"\x21\0\0\x02xy"
UNIX = SIGNATURE + b"\x21\x31" + struct.pack(">H", 216) + bytes(216)


@contextlib.asynccontextmanager
async def listening(
    broker: Broker,
    proxies: Sequence[str] = OURS,
    *,
    tls: Tls | None = None,
    kind: type[TcpListener] | type[WebSocketListener] = TcpListener,
) -> AsyncIterator[tuple[TcpListener | WebSocketListener, int]]:
    listener = kind(broker.accept, "127.0.0.1", 0, tls=tls, proxy_protocol=proxies)
    await listener.start()
    try:
        yield listener, listener.addresses[0][1]
    finally:
        await listener.close()


async def coming(port: int, data: bytes, host: str = "127.0.0.1") -> socket.socket:
    """Connect from an address, and send bytes."""
    sock = socket.create_connection(("127.0.0.1", port), source_address=(host, 0))
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_sendall(sock, data)
    return sock


async def rest_of(sock: socket.socket) -> bytes:
    """Return all bytes that come until the listener closes the connection."""
    found = b""
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            while data := await asyncio.get_running_loop().sock_recv(sock, 1 << 16):
                found += data
    sock.close()
    return found


@pytest.mark.parametrize(
    ("sent", "address"),
    [
        (header(), "203.0.113.9:4711"),
        (header("2001:db8::9"), "[2001:db8::9]:4711"),
        (header("::ffff:203.0.113.9"), "203.0.113.9:4711"),
        (header(more=b"\x03\0\4abcd" * 500), "203.0.113.9:4711"),
        (header(command=0x20), "127.0.0.1:"),
        (LOCAL, "127.0.0.1:"),
        (UNKNOWN, "127.0.0.1:"),
        (UNIX, "127.0.0.1:"),
    ],
)
async def test_a_client_of_a_proxy_has_the_address_that_the_proxy_tells(
    sent: bytes, address: str
) -> None:
    broker = Broker()
    async with listening(broker) as (_, port):
        sock = await coming(port, sent + b"CONNECT")
        await until(lambda: broker.connections and broker.last.received == b"CONNECT")
        assert broker.last.transport.peer.address.startswith(address)
        broker.last.transport.write(b"CONNACK")
        broker.last.transport.close()
        assert await rest_of(sock) == b"CONNACK"


async def test_a_header_that_comes_byte_by_byte_is_read() -> None:
    broker = Broker()
    async with listening(broker) as (_, port):
        sock = await coming(port, b"")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in header() + b"C":
            await asyncio.get_running_loop().sock_sendall(sock, bytes([byte]))
            await asyncio.sleep(0)
        await until(lambda: broker.connections and broker.last.received == b"C")
        assert broker.last.transport.peer.address == "203.0.113.9:4711"
        sock.close()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"PROXY TCP4 203.0.113.9 127.0.0.1 4711 1883\r\n", "version 1 of the PROXY protocol"),
        (b"\x10\x10\0\4MQTT\x05\x02\0\0\0\0\0\0", "no PROXY header"),
        (SIGNATURE + b"\x31\x11\0\x0c" + bytes(12), "unknown version or command 0x31"),
        (SIGNATURE + b"\x22\x11\0\x0c" + bytes(12), "unknown version or command 0x22"),
        (SIGNATURE + b"\x21\x12\0\x0c" + bytes(12), "not for a TCP connection: 0x12"),
        (SIGNATURE + b"\x21\x11\0\x0b" + bytes(11), "too short"),
        (SIGNATURE + b"\x21\x21\0\x0c" + bytes(12), "too short"),
        (SIGNATURE + b"\x21\x11\xff\xff", "a PROXY header of 65535 bytes"),
    ],
)
async def test_a_proxy_that_sends_no_header_is_closed_with_one_line(
    sent: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    async with listening(broker) as (_, port):
        for _ in range(3):
            assert await rest_of(await coming(port, sent)) == b""
    assert not broker.connections
    (line,) = caplog.messages
    assert line.startswith("127.0.0.1:")
    assert why in line


async def test_unnamed_proxies_are_clients_and_may_name_no_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    async with listening(broker) as (_, port):
        for _ in range(20):
            assert await rest_of(await coming(port, header() + b"CONNECT", "127.0.0.2")) == b""
        assert not broker.connections
        (line,) = caplog.messages
        assert "127.0.0.2:" in line
        assert "not in proxy_protocol" in line
        sock = await coming(port, b"CONNECT", "127.0.0.2")
        await until(lambda: broker.connections and broker.last.received == b"CONNECT")
        assert broker.last.transport.peer.address.startswith("127.0.0.2:")
        sock.close()


async def test_a_handshake_of_tls_comes_behind_the_header(tmp_path: Path) -> None:
    broker, authority = Broker(), Authority(tmp_path)
    async with listening(broker, tls=Tls(*authority.issue("gateway"))) as (listener, port):
        _, writer = await asyncio.open_connection(
            sock=await coming(port, header()),
            ssl=client_context(authority),
            server_hostname="127.0.0.1",
        )
        writer.write(b"CONNECT")
        await until(lambda: broker.connections and broker.last.received == b"CONNECT")
        assert broker.last.transport.peer.address == "203.0.113.9:4711"
        writer.close()
        assert listener.stalled_s == 0


async def test_a_websocket_has_the_address_that_the_proxy_tells() -> None:
    broker = Broker()
    request = (
        b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    async with listening(broker, kind=WebSocketListener) as (_, port):
        sock = await coming(port, header() + request)
        await until(lambda: broker.connections)
        assert broker.last.transport.peer.address == "203.0.113.9:4711"
        sock.close()
        await until(lambda: broker.last.reason)


@pytest.mark.parametrize("sent", [b"", SIGNATURE[:7], header()[:-1]])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
async def test_a_connection_that_does_not_begin_is_closed(
    sent: bytes, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_server, "TIMEOUT_S", 0.2)
    broker = Broker()
    async with listening(broker) as (_, port):
        assert await rest_of(await coming(port, sent, host)) == b""
    assert not broker.connections


async def test_connections_that_do_not_begin_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(counted_server, "MOST", 5)
    broker = Broker()
    async with listening(broker) as (_, port):
        silent = [await coming(port, SIGNATURE) for _ in range(12)]
        ends = [asyncio.ensure_future(rest_of(sock)) for sock in silent]
        await until(lambda: sum(end.done() for end in ends) == 7)
        sock = await coming(port, header() + b"CONNECT")
        await until(lambda: broker.connections and broker.last.received == b"CONNECT")
        sock.close()
        for end in ends:
            end.cancel()
        for other in silent:
            other.close()
    assert len([line for line in caplog.messages if "too many connections" in line]) == 1


async def test_a_change_of_the_proxies_holds_for_new_connections_and_ends_none() -> None:
    broker = Broker()
    async with listening(broker, []) as (listener, port):
        first = await coming(port, b"CONNECT")
        await until(lambda: broker.connections and broker.last.received == b"CONNECT")
        await listener.change(None, OURS)
        second = await coming(port, header() + b"CONNECT")
        await until(lambda: len(broker.connections) == 2)
        assert broker.last.transport.peer.address == "203.0.113.9:4711"
        await listener.change(None, [])
        third = await coming(port, b"CONNECT")
        await until(lambda: len(broker.connections) == 3)
        assert broker.last.transport.peer.address.startswith("127.0.0.1:")
        assert [one.reason for one in broker.connections] == [None] * 3
        for sock in (first, second, third):
            sock.close()


@given(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=60))
def test_no_header_ends_in_anything_but_an_address_or_its_error(
    command: int, family: int, data: bytes
) -> None:
    with contextlib.suppress(ProxyHeaderError):
        found = client_of(command, family, data)
        assert found is None or (ip_address(found[0]) and 0 <= found[1] < 1 << 16)


@given(
    st.sampled_from([b"", SIGNATURE, SIGNATURE + b"\x21\x11", SIGNATURE + b"\x21\x21"]),
    st.binary(max_size=80),
    st.integers(1, 20),
)
async def test_any_input_of_a_proxy_is_read_up_to_the_end_of_its_header(
    begin: bytes, data: bytes, step: int
) -> None:
    """The bytes after the header stay in the socket, in whatever pieces the input arrives."""
    sent, loop = begin + data, asyncio.get_running_loop()
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)

        async def send() -> None:
            for at in range(0, len(sent), step):
                far.sendall(sent[at : at + step])
                await asyncio.sleep(0)
            far.shutdown(socket.SHUT_WR)

        sending = loop.create_task(send())
        try:
            await read_header(near)
        except (ProxyHeaderError, ConnectionError):
            await sending
            return
        await sending
        size = 16 + int.from_bytes(sent[14:16], "big")
        assert near.recv(1000) == sent[size:]


async def test_a_long_header_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    exactly = proxy_header._exactly

    async def note(connection: socket.socket, size: int) -> bytes:
        read.append(size)
        return await exactly(connection, size)

    monkeypatch.setattr(proxy_header, "_exactly", note)
    broker = Broker()
    async with listening(broker) as (_, port):
        size = struct.pack(">H", LONGEST + 1)
        await rest_of(await coming(port, SIGNATURE + b"\x21\x11" + size + bytes(200)))
    assert read == [16]


async def test_first_bytes_that_come_as_the_wait_for_them_ends_are_no_error() -> None:
    """The wait may end in the same turn of the event loop in which the bytes arrive."""
    loop, errors = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, told: errors.append(told))
    near, far = socket.socketpair()
    with near, far:
        waiting = loop.create_task(proxy_header.claims_header(near))
        await asyncio.sleep(0)
        far.send(SIGNATURE)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        over = loop.create_future()
        over.cancel()
        proxy_header._wake(over)
        assert await proxy_header.claims_header(near), "the bytes are still in the socket"
    assert errors == []


@pytest.mark.parametrize("kind", ["tcp", "websocket"])
def test_a_listener_behind_a_proxy_of_this_machine_is_open_to_others(kind: str) -> None:
    def section(**more: object) -> object:
        body = {"type": kind, "bind": "127.0.0.1:0"} | more
        return parse({"listener": [body]}, "here").listener[0]

    assert section().is_local  # type: ignore[attr-defined]
    assert not section(proxy_protocol=["127.0.0.1"]).is_local  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="must be an address or a network"):
        section(proxy_protocol=["proxy.example"])
