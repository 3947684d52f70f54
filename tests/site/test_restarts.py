"""Gateways of a site as processes that are killed or restarted, and clients that connect as soon as
the listener is open. Each client finds its session, and the message that waits in it.
"""

import asyncio
import signal
from pathlib import Path

import pytest

from gateway.mqtt.packets import (
    Connack,
    Connect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId
from tests.service.process import free_port
from tests.service.wire import Wire
from tests.site.gateways import Gateways, gateways
from tests.site.rolling import NAMES

CLIENTS = [f"client-{number}" for number in range(24)]
AGAIN_S = 0.005
OPENS_S = 60.0


async def fill(site: Gateways, name: str, clients: list[str]) -> None:
    """Publish a message for each of these clients, whose sessions are at a gateway."""
    publisher, _ = await site.connect(name, f"publisher of {name}", clean=True)
    for number, client in enumerate(clients, 1):
        publisher.send(Publish(client, b"waits", 1, number))
        assert (await publisher.take(Puback)).reason == 0
    publisher.writer.close()


async def subscribe(site: Gateways, name: str, client: str) -> None:
    wire, _ = await site.connect(name, client)
    wire.send(Subscribe(1, [Subscription(client, 1)]))
    await wire.take(Suback)
    wire.writer.close()


async def come(port: int, client: str) -> tuple[bool, bytes]:
    """Connect a client as soon as the port is open. Return Session Present, and the payload that
    waited.
    """
    async with asyncio.timeout(OPENS_S):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(AGAIN_S)
            else:
                break
    wire = Wire(reader, writer, Version.V5)
    properties = {PropertyId.SESSION_EXPIRY_INTERVAL: 3600}
    wire.send(Connect(client, Version.V5, clean_start=False, properties=properties))
    connack = await wire.take(Connack)
    assert connack.reason == 0, connack
    if not connack.session_present:
        writer.close()
        return False, b""
    message = await wire.take(Publish)
    wire.send(Puback(message.packet_id))
    await writer.drain()
    writer.close()
    return True, message.payload


async def restart(site: Gateways, name: str, how: signal.Signals, away_s: float) -> None:
    """End a gateway, and start it again after `away_s` seconds, while all clients try to connect to
    it. Assert that each finds its session and its message.
    """
    config, port = site.config(name), free_port()
    text = config.read_text().replace('bind = "127.0.0.1:0"', f'bind = "127.0.0.1:{port}"')
    config.write_text(text)
    await site.running[name].end(how)
    await asyncio.sleep(away_s)
    coming = asyncio.gather(*(come(port, client) for client in CLIENTS))
    await site.start(name)
    found = dict(zip(CLIENTS, await coming, strict=True))
    assert found == dict.fromkeys(CLIENTS, (True, b"waits"))
    assert (await site.figures(name))["marked"] == 0


async def shared_out(site: Gateways) -> None:
    """Create a third of the sessions at each gateway, and publish a message for each. The clients
    are away.
    """
    coming = (subscribe(site, NAMES[n % 3], client) for n, client in enumerate(CLIENTS))
    await asyncio.gather(*coming)
    for number, name in enumerate(NAMES):
        await fill(site, name, CLIENTS[number::3])


@pytest.mark.soak
async def test_clients_find_their_sessions_at_a_gateway_that_was_killed(tmp_path: Path) -> None:
    """The gateway stays off for longer than the other members wait for it."""
    async with gateways(tmp_path, *NAMES) as site:
        await shared_out(site)
        await restart(site, NAMES[1], signal.SIGKILL, 10.0)


@pytest.mark.soak
async def test_clients_find_their_sessions_in_a_rolling_restart(tmp_path: Path) -> None:
    async with gateways(tmp_path, *NAMES) as site:
        await shared_out(site)
        for name in NAMES:
            await restart(site, name, signal.SIGTERM, 0.0)
            await site.joined()
            await fill(site, name, CLIENTS)
