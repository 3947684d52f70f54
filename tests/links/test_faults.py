"""An error in Onceway's own code at a link ends one connection, or closes one port for a moment. No
other one is affected.
"""

import ast
import asyncio
import inspect
import time
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import aiohttp
import pytest

from gateway.links import faults, serial_port
from gateway.links.lora import port as lora_port
from gateway.links.serial_port import SerialListener, SerialPort
from gateway.links.tcp import TcpListener
from gateway.links.websocket import PATH, WebSocketListener, WebSocketTransport
from gateway.runtime import engine, output
from gateway.system.log_throttle import LogThrottle
from tests.links.board import Board, Broker, Connection, Pty, until
from tests.links.test_serial_port import listening as serial_listening

_SCHEDULES = {
    "call_soon": 0,
    "call_soon_threadsafe": 0,
    "call_later": 1,
    "call_at": 1,
    "add_reader": 1,
    "add_writer": 1,
    "add_done_callback": 0,
}
"""Functions that schedule a call in the event loop. The value is the position of the argument with
the function to call.
"""
_GUARDED = ("self._do", "partial(self._do", "self.do", "partial(self.do", "self._engine.do")
"""Prefixes of calls whose exceptions the engine or the port handles."""
_HARMLESS = {
    "call",  # Engine.call_later: its users handle their exceptions
    "self._engine.fail",  # the end of the engine itself
    "self._scan",  # sets its timer first, and opens each port in a call of its own
    "self._wake",  # sets a flag and calls `call_soon`
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a new log throttle, so that earlier tests silence no message of this test."""
    monkeypatch.setattr(faults, "_throttle", LogThrottle(time.monotonic))


def boom(*args: Any) -> Any:
    raise ArithmeticError("boom")


def callbacks(module: ModuleType) -> Iterator[str]:
    """Yield the source of each call that a module schedules in the event loop."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            place = _SCHEDULES.get(node.func.attr)
            if place is not None and ast.unparse(node.func.value) != "turns":
                yield ast.unparse(node.args[place])


@pytest.mark.parametrize(
    "module", [engine, output, serial_port, lora_port], ids=lambda item: item.__name__
)
def test_callbacks_of_the_event_loop_are_guarded(module: ModuleType) -> None:
    """If an unguarded callback raised an exception, the event loop would log it and continue as if
    nothing had happened.
    """
    found = list(callbacks(module))
    assert found
    for callback in found:
        assert callback.startswith(_GUARDED) or callback in _HARMLESS, callback


# -- TCP


async def tcp(broker: Any) -> tuple[TcpListener, int]:
    listener = TcpListener(broker.accept, "127.0.0.1", 0)
    await listener.start()
    return listener, listener.addresses[0][1]


async def ended(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 20) == b""


@pytest.mark.parametrize("call", ["accept", "receive", "writable"])
async def test_an_error_costs_one_tcp_connection(
    call: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    listener, port = await tcp(broker)
    other, tell = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: broker.connections)
    with monkeypatch.context() as patch:
        if call == "accept":
            patch.setattr(Broker, "accept", boom)
            listener._accept = broker.accept
        else:
            patch.setattr(Connection, call, boom)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if call != "accept":
            await until(lambda: len(broker.connections) == 2)
        if call == "writable":
            broker.last.transport.write(bytes(8_000_000))
            await reader.readexactly(8_000_000)
        writer.write(b"boom")
        await ended(reader)
        writer.close()
    if call != "accept":
        assert broker.last.reason == "internal error"
    assert "ArithmeticError: boom" in caplog.text
    tell.write(b"fine")
    await until(lambda: broker.connections[0].received == b"fine")
    broker.connections[0].transport.write(b"yes")
    assert await other.readexactly(3) == b"yes"
    tell.close()
    await listener.close()


# -- WebSocket


@pytest.mark.parametrize("call", ["accept", "send"])
async def test_an_error_costs_one_websocket(
    call: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    listener = WebSocketListener(lambda transport: broker.accept(transport), "127.0.0.1", 0)
    await listener.start()
    url = f"http://127.0.0.1:{listener.addresses[0][1]}{PATH}"
    async with aiohttp.ClientSession() as session:
        other = await session.ws_connect(url, protocols=["mqtt"])
        await until(lambda: broker.connections)
        with monkeypatch.context() as patch:
            if call == "accept":
                patch.setattr(broker, "accept", boom)
            else:
                patch.setattr(WebSocketTransport, "send", boom)
            client = await session.ws_connect(url, protocols=["mqtt"])
            found = await client.receive(20)
            assert found.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        if call == "send":
            assert broker.last.reason == "internal error"
        assert "ArithmeticError: boom" in caplog.text
        await other.send_bytes(b"fine")
        await until(lambda: broker.connections[0].received == b"fine")
        broker.connections[0].transport.write(b"yes")
        assert (await other.receive(20)).data == b"yes"
    await listener.close()


# -- serial ports


@pytest.mark.parametrize("call", ["_on_readable", "_on_timer", "_resume", "_on_port_lost"])
async def test_after_an_error_a_serial_port_is_opened_again(
    call: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call from the event loop to the port may raise an error. The port is then opened again,
    and the board greets again.
    """
    broker, line = Broker(), Pty()
    async with serial_listening(broker, line.path) as listener:
        board = Board(line)
        await until(lambda: board.started)
        (port,) = _ports(listener)
        first = broker.last
        with monkeypatch.context() as patch:
            patch.setattr(SerialPort, call, boom)
            asyncio.get_running_loop().call_soon(port._do, getattr(port, call))
            await until(lambda: first.reason)
        assert first.reason == "internal error"
        assert "ArithmeticError: boom" in caplog.text
        await until(lambda: len(board.started) == 2)
        board.write(b"fine")
        await until(lambda: broker.last.received == b"fine")
        board.power_off()


async def test_an_error_at_one_serial_port_keeps_no_other_closed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, bad, good = Broker(), Pty(), Pty()
    original = SerialPort.open

    def open_or_not(port: SerialPort) -> None:
        if port.path == bad.path:
            boom()
        original(port)

    monkeypatch.setattr(SerialPort, "open", open_or_not)
    paths = [bad.path, good.path]
    monkeypatch.setattr(serial_port.glob, "has_magic", lambda path: True)
    monkeypatch.setattr(serial_port.glob, "glob", lambda path: paths)
    async with serial_listening(broker, "*"):
        board = Board(good)
        await until(lambda: board.started)
        assert "ArithmeticError: boom" in caplog.text
        board.power_off()


def _ports(listener: SerialListener) -> list[SerialPort]:
    return list(listener._ports.values())
