"""A server that counts connections before they begin: many at once, and a machine without a free
file descriptor. TLS handshakes and PROXY headers have tests of their own.
"""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

import pytest

from gateway.links import counted_server
from gateway.links.counted_server import CountedServer
from tests.links.board import until


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(b"welcome")
        transport.close()


def boom() -> asyncio.Protocol:
    raise ArithmeticError("boom")


@contextlib.asynccontextmanager
async def serving(
    protocol: Callable[[], asyncio.Protocol] = Greeting,
) -> AsyncIterator[tuple[CountedServer, tuple[str, int]]]:
    """Serve. At the end, no callback of the event loop may have failed."""
    errors: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, told: errors.append(told))
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = CountedServer(sock, None, None, protocol, 100)
    try:
        yield server, sock.getsockname()
    finally:
        if sock.fileno() >= 0:
            server.close()
        await asyncio.sleep(0)
    assert not errors


@contextlib.contextmanager
def no_free_descriptor() -> Iterator[None]:
    lowest = os.dup(0)
    os.close(lowest)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def read(client: socket.socket) -> bytes:
    async with asyncio.timeout(20):
        return await asyncio.get_running_loop().sock_recv(client, 100)


def connecting(address: tuple[str, int], count: int) -> list[socket.socket]:
    found = [socket.create_connection(address) for _ in range(count)]
    for client in found:
        client.setblocking(False)
    return found


async def test_all_of_many_connections_are_accepted_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counted_server, "_AT_ONCE", 2)
    async with serving() as (_, address):
        for client in connecting(address, 7):
            assert await read(client) == b"welcome"
            client.close()


async def test_a_machine_without_free_descriptors_accepts_again_after_a_pause(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_server, "_PAUSE_S", 0.01)
    async with serving() as (server, address):
        resumed: list[bool] = []
        resume = server._resume
        monkeypatch.setattr(server, "_resume", lambda: resumed.append(True) or resume())
        (client,) = connecting(address, 1)
        with no_free_descriptor():
            await until(lambda: len(resumed) > 2)
        assert await read(client) == b"welcome"
        client.close()
    assert caplog.messages == ["no connection can be accepted (Too many open files)"]


async def test_server_that_closes_in_its_pause_stays_closed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_server, "_PAUSE_S", 600.0)
    async with serving() as (server, address):
        (client,) = connecting(address, 1)
        with no_free_descriptor():
            await until(lambda: "can be accepted" in caplog.text)
        server.close()
        server._resume()  # the pause is over
        with contextlib.suppress(ConnectionError):
            assert await read(client) == b""
        client.close()


async def test_an_error_of_ours_closes_that_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(boom) as (_, address):
        for client in connecting(address, 2):
            assert await read(client) == b""
            client.close()
    assert "ArithmeticError: boom" in caplog.text
