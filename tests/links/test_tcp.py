"""The TCP listener, with real sockets on loopback."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from gateway.errors import OncewayError
from gateway.links import tcp
from gateway.links.address import format_address
from gateway.links.tcp import TcpListener, TcpTransport
from gateway.links.transport import Lingering
from tests.links.board import Broker, until


@pytest.fixture
def broker() -> Broker:
    return Broker()


@contextlib.asynccontextmanager
async def listening(
    broker: Broker, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[TcpListener, int]]:
    listener = TcpListener(broker.accept, host, 0)
    await listener.start()
    try:
        yield listener, listener.addresses[0][1]
    finally:
        await listener.close()


@pytest.mark.mqtt("MQTT-4.2.0-1", "311:MQTT-7.1.1-1")
async def test_bytes_go_both_ways_and_the_peer_is_named(broker: Broker) -> None:
    async with listening(broker) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT")
        await until(lambda: broker.connections and broker.last.received == b"CONNECT")
        transport = broker.last.transport
        host, client_port = writer.get_extra_info("sockname")
        assert (transport.peer.listener, transport.peer.address, transport.peer.device) == (
            "tcp",
            f"{host}:{client_port}",
            None,
        )
        transport.write(b"CONN")
        transport.write(b"ACK")
        assert await reader.readexactly(7) == b"CONNACK"
        writer.close()
        await until(lambda: broker.last.reason)
        assert broker.last.reason == "closed by the peer"


async def test_close_sends_queued_bytes_without_a_callback(broker: Broker) -> None:
    async with listening(broker) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: broker.connections)
        data = bytes(5_000_000)
        broker.last.transport.write(data)
        broker.last.transport.close()
        assert await reader.read(-1) == data
        writer.close()
        assert broker.last.reason is None


async def test_abort_drops_the_connection(broker: Broker) -> None:
    async with listening(broker) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: broker.connections)
        broker.last.transport.abort()
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        broker.last.transport.write(b"too late")
        writer.close()
        assert broker.last.reason is None


async def test_a_reader_that_does_not_read_shows_in_unsent_and_writable_comes_when_it_does(
    broker: Broker,
) -> None:
    async with listening(broker) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: broker.connections)
        transport = broker.last.transport
        total = 0
        while transport.unsent <= transport.high_water:
            transport.write(bytes(65536))
            total += 65536
            await asyncio.sleep(0)
        assert broker.last.writable_calls == 0
        await reader.readexactly(total)
        await until(lambda: broker.last.writable_calls)
        assert transport.unsent == 0
        writer.close()


async def test_a_reader_that_reads_very_slowly_shows_in_undelivered(broker: Broker) -> None:
    """`unsent` does not count these bytes, because the operating system has accepted them into its
    buffers.
    """
    async with listening(broker) as (_, port):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", port))
        sock.setblocking(False)
        await until(lambda: broker.connections)
        transport = broker.last.transport
        while transport.unsent <= transport.high_water:
            transport.write(bytes(65536))
            await asyncio.sleep(0)
        unsent, undelivered = transport.unsent, transport.undelivered
        assert undelivered > unsent
        for _ in range(5):
            await asyncio.get_running_loop().sock_recv(sock, 2048)
        await until(lambda: transport.undelivered < undelivered)
        assert transport.unsent == unsent
        transport.abort()
        await until(lambda: transport.undelivered == 0)
        sock.close()


async def test_paused_reading_holds_the_bytes_back(broker: Broker) -> None:
    async with listening(broker) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: broker.connections)
        broker.last.transport.pause_reading()
        writer.write(b"later")
        await writer.drain()
        _other_reader, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(b"now")
        await until(lambda: broker.last.received == b"now")
        assert broker.connections[0].received == b""
        broker.connections[0].transport.resume_reading()
        await until(lambda: broker.connections[0].received == b"later")
        writer.close()
        other.close()


@pytest.mark.parametrize("end", ["close", "linger", "abort"])
async def test_calls_after_the_end_of_a_connection_change_nothing(end: str, broker: Broker) -> None:
    """uvloop raises an error for some calls of a closed transport."""
    async with listening(broker) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: broker.connections)
        transport = broker.last.transport
        assert isinstance(transport, TcpTransport)
        transport.write(b"last")
        getattr(transport, end)()
        transport.pause_reading()
        transport.resume_reading()
        transport.write(b"too late")
        transport.lose("lost too late")
        transport.linger()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20) in (b"last", b"")
        writer.close()
        await until(lambda: not listener._connections)
        transport.pause_reading()
        transport.resume_reading()
        transport.write(b"too late")
        assert (broker.last.reason, broker.last.received) == (None, b"")


async def test_lingering_connection_drops_what_comes_and_resets_no_peer(broker: Broker) -> None:
    """Without the lingering, the unread bytes would cause a reset, which destroys the reason."""
    async with listening(broker) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: broker.connections)
        transport = broker.last.transport
        assert isinstance(transport, Lingering)
        transport.write(b"the reason")
        transport.linger()
        for _ in range(20):
            writer.write(bytes(100_000))
            await writer.drain()
        assert await asyncio.wait_for(reader.read(), 20) == b"the reason"
        writer.close()
        await until(lambda: not listener._connections)
        assert (broker.last.reason, broker.last.received) == (None, b"")


async def test_a_closed_listener_loses_its_connections_and_accepts_no_more(broker: Broker) -> None:
    async with listening(broker) as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: broker.connections)
        await listener.close()
        assert broker.last.reason == "the gateway closes the listener"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        writer.close()


async def test_ipv6(broker: Broker) -> None:
    async with listening(broker, "::1") as (_, port):
        _, writer = await asyncio.open_connection("::1", port)
        await until(lambda: broker.connections)
        assert broker.last.transport.peer.address.startswith("[::1]:")
        writer.close()


async def test_every_address_of_both_families(broker: Broker) -> None:
    listener = TcpListener(broker.accept, "", 0)
    await listener.start()
    try:
        assert {host for host, _ in listener.addresses} == {"0.0.0.0", "::"}
        for host, port in listener.addresses:
            _, writer = await asyncio.open_connection(
                "127.0.0.1" if host == "0.0.0.0" else "::1", port
            )
            writer.close()
        await until(lambda: len(broker.connections) == 2)
    finally:
        await listener.close()


async def test_a_peer_that_never_reads_does_not_keep_a_closed_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "LINGER", 0.1)
    async with listening(broker) as (listener, port):
        with socket.create_connection(("127.0.0.1", port)):
            await until(lambda: broker.connections)
            broker.last.transport.write(bytes(20_000_000))
            broker.last.transport.close()
            await until(lambda: not listener._connections)


async def test_an_address_in_use_says_what_to_do(broker: Broker) -> None:
    async with listening(broker) as (_, port):
        with pytest.raises(
            OncewayError, match=f"127.0.0.1:{port}: the address is in use. Something listens"
        ) as caught:
            await TcpListener(broker.accept, "127.0.0.1", port).start()
        assert caught.value.hint


@pytest.mark.parametrize(
    ("host", "said"),
    [("192.0.2.1", "does not have that address"), ("no-such-host.invalid", "cannot be resolved")],
)
async def test_an_impossible_address_says_why(broker: Broker, host: str, said: str) -> None:
    with pytest.raises(OncewayError, match=said):
        await TcpListener(broker.accept, host, 0).start()


async def test_hundreds_of_connections_at_once_are_all_taken(broker: Broker) -> None:
    async with listening(broker) as (_, port):
        sockets = [socket.socket() for _ in range(300)]
        for sock in sockets:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        await until(lambda: len(broker.connections) == len(sockets))
        for sock in sockets:
            sock.close()
        await until(lambda: all(connection.reason for connection in broker.connections))


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (("127.0.0.1", 1883), "127.0.0.1:1883"),
        (("::1", 1883, 0, 0), "[::1]:1883"),
        ("/run/x", "/run/x"),
    ],
)
def test_addresses_as_text(address: object, text: str) -> None:
    assert format_address(address) == text
