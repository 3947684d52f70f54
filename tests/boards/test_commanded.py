"""After a command has changed a board's interval, the gateway expects readings at that interval."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.commands.control_client import ask
from gateway.mqtt.packets import Connect, Puback, Publish
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.links.board import Pty
from tests.service.boards import Sensor, configuration
from tests.service.process import GatewayProcess, gateway
from tests.service.wire import wire

KEY = bytes(range(16))
STATUS = [{-2: "roof-1:", 0: "boot", 2: 3}, {0: "life", 2: 100}]


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[tuple[Sensor, GatewayProcess]]:
    data, line = folder / "data", Pty()
    data.mkdir()
    registry = Registry(data / "registry.db")
    registry.finish(registry.begin(Identity("roof-1", KEY), "uno", "/dev/null"), "ab" * 32)
    file = configuration(folder, [line])
    file.write_text(file.read_text().replace("[[listener]]", "[[listener]]\nanonymous = true"))
    async with gateway(folder, "--config", str(file)) as running:
        sensor = Sensor(line, "roof-1", KEY)
        await sensor.connect()
        await sensor.subscribe("commands/roof-1")
        await sensor.measure(1)
        yield sensor, running
        sensor.unplug()


async def expects(folder: Path, interval_s: float) -> None:
    """Wait until the gateway expects a reading of its only board every `interval_s` seconds."""
    async with asyncio.timeout(60):
        found = None
        while found != interval_s:
            (row,) = await asyncio.to_thread(ask, folder / "data", do="boards")
            found = row["interval_s"]


async def test_command_of_any_client_sets_the_expected_interval_at_once(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as (_, running), wire(running.port, Connect("phone")) as phone:
        for number, (text, interval_s) in enumerate((("interval 60 min", 3600), ("reboot", 3600))):
            phone.send(Publish("commands/roof-1", text.encode(), 1, number + 1))
            await phone.take(Puback)
            await expects(tmp_path, interval_s)


async def test_command_of_the_gateway_sets_the_expected_interval(tmp_path: Path) -> None:
    async with site(tmp_path):
        request = {"do": "command", "client": "roof-1", "text": "interval 60 min"}
        assert await asyncio.to_thread(ask, tmp_path / "data", **request) == [{"sent": True}]
        await expects(tmp_path, 3600)
