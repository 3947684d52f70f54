"""Connections to a host name with several addresses, some of which do not answer or refuse."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gateway.bridge.far import FarConnection
from gateway.config import BridgeSection
from gateway.mqtt.packets import Connack, Connect, Side, Version
from gateway.system.dial import DELAY_S, connect, connected
from tests.service.process import free_port
from tests.service.wire import Wire

Place = tuple[str, int]


@contextmanager
def silent(host: str = "127.0.0.1", port: int = 0) -> Iterator[Place]:
    """Yield an address that does not answer SYN packets, because its backlog is full."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as full, ExitStack() as clients:
        full.bind((host, port))
        full.listen(0)
        for _ in range(4):
            client = clients.enter_context(socket.socket(family))
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        yield full.getsockname()[:2]


@contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[Place]:
    with socket.create_server((host, 0)) as server:
        yield server.getsockname()


def named(monkeypatch: pytest.MonkeyPatch, *places: Place) -> None:
    """Let every host name have these addresses."""
    rows = [
        (
            socket.AF_INET6 if ":" in place[0] else socket.AF_INET,
            socket.SOCK_STREAM,
            0,
            "",
            place,
        )
        for place in places
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)


def refusing() -> Place:
    return "127.0.0.1", free_port()


def test_a_silent_first_address_costs_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent("::1") as dead, listening() as good:
        named(monkeypatch, dead, good)
        found = connect("name", 1, time.monotonic() + 30)
        assert found.getpeername() == good
        found.close()


def test_each_failed_address_is_logged_with_its_own_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with silent("::1") as dead, caplog.at_level(logging.WARNING):
        named(monkeypatch, dead, refusing())
        with pytest.raises(OSError, match=r"127\.0\.0\.1: Connection refused; ::1: no answer"):
            connect("two.example", 1, time.monotonic() + 4 * DELAY_S)
    assert "no connection to two.example at ::1: no answer" in caplog.text
    assert "no connection to two.example at 127.0.0.1: Connection refused" in caplog.text


def test_a_failed_address_is_logged_when_another_one_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with listening() as good, caplog.at_level(logging.WARNING):
        named(monkeypatch, refusing(), good)
        connect("half.example", 1, time.monotonic() + 30).close()
    assert "no connection to half.example at 127.0.0.1: Connection refused" in caplog.text


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_silent_is_a_timeout(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    with silent() as dead:
        named(monkeypatch, *[dead] * count)
        with pytest.raises(TimeoutError, match="no answer"):
            connect("name", 1, time.monotonic() + 0.5)


def test_families_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many silent addresses of one family (IPv6) delay the other family only a little."""
    with silent("::1") as dead, listening() as good:
        named(monkeypatch, *[dead] * 40, good)
        begin = time.monotonic()
        connect("name", 1, begin + 30).close()
        assert time.monotonic() - begin < 40 * DELAY_S


@pytest.mark.parametrize(
    ("last", "wanted"), [([], 0), (["127.0.0.1"], 1), (["127.0.0.1", "127.0.0.2"], 0)]
)
def test_addresses_that_served_nothing_are_tried_last(
    monkeypatch: pytest.MonkeyPatch, last: list[str], wanted: int
) -> None:
    with listening() as one, listening("127.0.0.2") as two:
        named(monkeypatch, one, two)
        with connect("name", 1, time.monotonic() + 30, last) as found:
            assert found.getpeername() == (one, two)[wanted]


def test_last_address_is_tried_if_no_other_one_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent("::1") as dead, listening() as good:
        named(monkeypatch, good, dead)
        connect("name", 1, time.monotonic() + 30, [good[0]]).close()


async def test_silent_name_server_delays_no_other_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lookup blocks neither the event loop nor the thread pool, and all attempts share one
    lookup.
    """
    goes_on, asked = threading.Event(), []

    def hang(*args: object, **more: object) -> list[object]:
        asked.append(args)
        goes_on.wait(30)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    tries = [connected("silent.example", 1, 1) for _ in range(50)]
    waiting = asyncio.gather(*tries, return_exceptions=True)
    for _ in range(20):
        assert await asyncio.to_thread(lambda: 1) == 1
    found = await waiting
    assert {str(error) for error in found} == {"the name server does not answer for silent.example"}
    assert len(asked) == 1
    goes_on.set()


@pytest.mark.parametrize("name", ["lookup", "dial"])
async def test_a_name_is_looked_up_again_after_a_lack_of_threads(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    with listening() as good:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(OSError, match="can't start new thread"):
                await connected(*good, 20)
        (await connected(*good, 20)).close()


async def test_a_bridge_connects_past_a_silent_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Wire(reader, writer, Version.V5, Side.CLIENT)
        await client.pick(Connect)
        client.send(Connack(False))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    with silent("::1") as dead:
        named(monkeypatch, dead, server.sockets[0].getsockname())
        far = FarConnection(lambda packets: None, lambda why, blamed: None, lambda: None, 1_000)
        section = BridgeSection(name="b", server="mqtt://two.example", up=["#"])
        assert (await far.open(section, "client")).reason == 0
        far.close()
    server.close()
