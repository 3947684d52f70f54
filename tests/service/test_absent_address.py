"""If the address of a listener is missing at the start, for example because DHCP is late, the
listener waits and all other parts work.
"""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.commands import control_client as control
from gateway.errors import OncewayError
from gateway.links import endpoint
from gateway.links.endpoint import Endpoint
from gateway.links.tcp import TcpListener
from gateway.links.websocket import WebSocketListener
from gateway.mqtt.packets import Connect, Puback, Publish
from tests.links.board import Broker, until
from tests.service.floods.coming import with_tls
from tests.service.process import gateway
from tests.service.wire import wire

ABSENT = "192.0.2.1"
"""An address for documentation (RFC 5737), which no machine has."""
LISTENERS = """
[[listener]]
bind = "192.0.2.1:1"
anonymous = true
[[listener]]
bind = "[2001:db8::1]:2"
tls = { certificate = "FOLDER/gateway.pem", key = "FOLDER/gateway.key" }
[[listener]]
type = "websocket"
bind = "[fe80::1%none0]:3"
anonymous = true
"""
PAGES = """
[page]
bind = "[2001:db8::1]:4"
[web]
bind = "192.0.2.1:5"
"""


def status(data: Path) -> dict[str, Any]:
    (found,) = control.ask(data, do="status")
    return found


async def test_addresses_that_are_absent_stop_nothing_else_and_are_problems(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "gateway.toml"
    with_tls(tmp_path)
    text = f'[gateway]\ndata = "{data}"\n[[listener]]\nbind = "127.0.0.1:0"\n'
    file.write_text(text + LISTENERS.replace("FOLDER", str(tmp_path)) + PAGES)
    async with gateway(data, "--config", str(file)) as running:
        async with wire(running.port, Connect("c")) as client:
            client.send(Publish("t", b"x", 1, 1))
            await client.take(Puback)
        await until(lambda: len(status(data)["problems"]) == 5)
        problems = status(data)["problems"]
        assert {problem["part"] for problem in problems} == {"listeners"}
        for port in range(1, 6):
            (problem,) = (item for item in problems if f":{port}: " in item["what"])
            assert "The gateway" in problem["what"]
            assert sum(f":{port}: " in line and "gateway runs" in line for line in running.log) == 1
        running.process.send_signal(signal.SIGHUP)
        await running.logged("read again")
        assert status(data)["problems"] == problems
        file.write_text(text + PAGES)
        running.process.send_signal(signal.SIGHUP)
        await until(lambda: len(status(data)["problems"]) == 2)
        assert await running.end() == 0


def tcp(broker: Broker) -> TcpListener:
    return TcpListener(broker.accept, ABSENT, 0)


def websocket(broker: Broker) -> WebSocketListener:
    return WebSocketListener(broker.accept, ABSENT, 0)


@pytest.mark.parametrize("make", [tcp, websocket])
async def test_a_listener_listens_when_its_address_comes(
    make: Callable[[Broker], Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(endpoint, "AGAIN_S", 0.01)
    listener = make(Broker())
    await listener.start(waits=True)
    assert "192.0.2.1:0: this machine does not have that address" in listener.waits_for
    assert listener.stalled_s == 0, "the watchdog starts nothing anew because of it"
    assert listener.addresses == []
    listener._endpoint._host = "127.0.0.1"
    await until(lambda: listener.waits_for is None)
    _, writer = await asyncio.open_connection(*listener.addresses[0])
    writer.close()
    assert "listening on 127.0.0.1" in caplog.text
    await listener.close()
    assert listener.stalled_s > 0


async def test_an_endpoint_that_waits_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "AGAIN_S", 0.01)
    waiting = Endpoint(ABSENT, 0)
    await waiting.listen(asyncio.Protocol, waits=True)
    task = waiting._waiting
    waiting.close()
    assert task is not None
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waiting.waits_for is None
    assert not waiting.is_listening


async def test_address_that_stays_absent_is_an_error_as_before() -> None:
    with pytest.raises(OncewayError, match="does not have that address"):
        await Endpoint(ABSENT, 0).listen(asyncio.Protocol)
    taken = Endpoint("127.0.0.1", 0)
    await taken.listen(asyncio.Protocol)
    with pytest.raises(OncewayError, match="in use"):
        await Endpoint(*taken.addresses[0]).listen(asyncio.Protocol, waits=True)
    taken.close()
