"""`[home_assistant]`: boards and their commands appear in Home Assistant without further
settings.
"""

import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
import pytest

from gateway.boards.admission import FILE
from gateway.boards.bundled_firmware import ROOT
from gateway.mqtt.packets import Connect, Publish, Suback, Subscribe, Subscription
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.links.board import Pty, until
from tests.service.boards import Sensor, configuration
from tests.service.process import GatewayProcess, gateway
from tests.service.wire import Wire, wire

BOARD = "homeassistant/device/onceway_site-1_roof-1/config"
GATEWAY = "homeassistant/device/onceway_site-1/config"


@pytest.fixture
def line() -> Iterator[Pty]:
    yield (line := Pty())
    os.close(line.master)


@asynccontextmanager
async def running_with(
    folder: Path, line: Pty, text: str = "", key: bytes | None = None
) -> AsyncIterator[tuple[GatewayProcess, Sensor]]:
    file = configuration(folder, [line], f"[home_assistant]\n{text}{UPLINK}")
    async with gateway(folder, "--config", str(file)) as running:
        sensor = Sensor(line, "roof-1", key)
        await sensor.connect()
        yield running, sensor
        sensor.board.power_off()


UPLINK = '[uplink]\nlanding = "file:///landing"\n'


async def hear(client: Wire, *filters: str) -> None:
    client.send(Subscribe(1, [Subscription(item, 0) for item in filters]))
    await client.take(Suback)


async def until_told(client: Wire, topic: str) -> Any:
    """Return the next message on a topic as JSON, or None if its payload is empty."""
    while True:
        packet = await client.take(Publish)
        if packet.topic == topic:
            return json.loads(packet.payload) if packet.payload else None


async def test_a_board_appears_with_its_values_and_commands(tmp_path: Path, line: Pty) -> None:
    async with (
        running_with(tmp_path, line) as (running, sensor),
        wire(running.port, Connect("ha")) as client,
    ):
        await hear(client, "homeassistant/#")
        await sensor.measure(3.25)
        message = await until_told(client, BOARD)
        assert message["device"]["via_device"] == "onceway_site-1"
        value = message["components"]["adc0"]
        assert value["state_topic"] == "readings/roof-1/adc0"
        assert (value["device_class"], value["unit_of_measurement"]) == ("voltage", "V")
        await sensor.measure(21.5, "t", "Cel")
        message = await until_told(client, BOARD)
        assert message["components"]["t"]["unit_of_measurement"] == "°C"

        async with wire(running.port, Connect("later")) as later:
            await hear(later, "homeassistant/#", "readings/#")
            assert "problem" in (await until_told(later, GATEWAY))["components"]
            figures = await until_told(later, "readings/$gateway")
            assert (figures["problems"], figures["waiting"]) == ([], 2)


async def test_everything_is_announced_again_when_home_assistant_has_started(
    tmp_path: Path, line: Pty
) -> None:
    rules = (
        '[[acl]]\nwrite = ["sensors/#", "homeassistant/status"]\n'
        'read = ["homeassistant/#", "readings/#"]\n'
    )
    async with (
        running_with(tmp_path, line, rules) as (running, sensor),
        wire(running.port, Connect("ha")) as client,
    ):
        await hear(client, "homeassistant/device/#")
        await sensor.measure(3.25)
        first = await until_told(client, BOARD)
        # the gateway sends its messages once or twice, not 101 times
        for payload in (b"offline", *[b"online"] * 100):
            client.send(Publish("homeassistant/status", payload))
        await running.logged("Home Assistant has started")
        topics = {}
        while not topics.keys() >= {BOARD, GATEWAY}:
            packet = await client.take(Publish)
            topics[packet.topic] = packet
        assert json.loads(topics[BOARD].payload) == first
        assert not any("error" in line for line in running.log)
        assert sum("Home Assistant has started" in line for line in running.log) <= 2


async def test_a_board_that_goes_is_cleared_and_one_that_is_dead_is_unavailable(
    tmp_path: Path, line: Pty
) -> None:
    (tmp_path / "data").mkdir()
    registry = Registry(tmp_path / "data" / FILE)
    registry.admit("roof-1")
    async with (
        running_with(tmp_path, line) as (running, sensor),
        wire(running.port, Connect("ha")) as client,
    ):
        await hear(client, "homeassistant/device/#", "readings/roof-1/#")
        await sensor.measure(3.25)
        message = await until_told(client, BOARD)
        state = "readings/roof-1/$state"
        assert {"topic": state} in message["availability"]
        sensor.unplug()
        while (packet := await client.take(Publish, within=60)).payload != b"offline":
            assert packet.topic != state or packet.payload == b"online"
        assert packet.topic == state
        registry.revoke("roof-1")
        assert await until_told(client, BOARD) is None
        # the empty reading comes last: Home Assistant would otherwise take it for a value
        assert await until_told(client, "readings/roof-1/adc0") is None
        client.send(Publish("homeassistant/status", b"online"))
        assert await until_told(client, BOARD) is None, "said again to one that was not there"
    line.master = os.open(os.devnull, os.O_RDONLY)


@pytest.mark.sim
async def test_home_assistant_updates_a_board_with_another_firmware_than_the_bundled_one(
    tmp_path: Path, line: Pty
) -> None:
    (tmp_path / "data").mkdir()
    registry, key = Registry(tmp_path / "data" / FILE), bytes(range(16))
    registry.finish(registry.begin(Identity("roof-1", key), "uno", line.path), "ab" * 32)
    shipped = hashlib.sha256((ROOT / "build/firmware/uno/sensor.hex").read_bytes()).hexdigest()
    async with (
        running_with(tmp_path, line, key=key) as (running, sensor),
        wire(running.port, Connect("ha")) as client,
    ):
        await hear(client, "homeassistant/device/#", "readings/roof-1/$firmware")
        await sensor.measure(3.25)
        message = await until_told(client, BOARD)
        assert message["device"]["model"] == "Arduino Uno R3"
        update = message["components"]["update_firmware"]
        assert (update["platform"], update["state_topic"]) == (
            "update",
            "readings/roof-1/$firmware",
        )
        state = await until_told(client, update["state_topic"])
        assert (state["installed_version"], state["latest_version"]) == ("ab" * 6, shipped[:12])
        assert not state["in_progress"]

        install = Publish(update["command_topic"], update["payload_install"].encode())
        client.send(replace(install, payload=b"delete"), install)
        while not (state := await until_told(client, update["state_topic"]))["in_progress"]:
            pass
        line.unplug()
        line.master = os.open(os.devnull, os.O_RDONLY)
        while (state := await until_told(client, update["state_topic"]))["in_progress"]:
            pass
        assert state["release_summary"].startswith("The update failed: ")
        asked = [one for one in running.log if "'Home Assistant' asked for it" in one]
        assert len(asked) == 1, "only the payload of an installation begins one"
        client.send(replace(install, topic="commands/other/update"))
        await running.logged("other: not updated for Home Assistant")


async def test_an_update_that_is_retained_runs_once(tmp_path: Path, line: Pty) -> None:
    """The request is retained, so the gateway receives it again after each start, and must then
    ignore it.
    """
    for start in range(2):
        async with (
            running_with(tmp_path, line) as (running, sensor),
            wire(running.port, Connect("ha")) as client,
        ):
            asked = "not updated for Home Assistant"
            await hear(client, "homeassistant/device/#")
            await sensor.measure(3.25)
            await until_told(client, BOARD)
            if start:
                assert not any(asked in one for one in running.log)
            else:
                client.send(Publish("commands/roof-1/update", b"install", 1, 1, retain=True))
                await running.logged(asked)


async def test_a_press_of_a_button_reaches_the_board(tmp_path: Path, line: Pty) -> None:
    async with (
        running_with(tmp_path, line) as (running, sensor),
        wire(running.port, Connect("ha")) as client,
    ):
        await hear(client, "homeassistant/device/#")
        await sensor.measure(3.25)
        message = await until_told(client, BOARD)
        await sensor.subscribe("commands/roof-1")
        button = message["components"]["command_identify"]
        client.send(Publish(button["command_topic"], button["payload_press"].encode()))
        await until(lambda: b"identify" in sensor.board.received)


async def test_status_of_a_board_is_a_diagnostic_entity(tmp_path: Path, line: Pty) -> None:
    async with (
        running_with(tmp_path, line, "expire_after_s = 90\n") as (running, sensor),
        wire(running.port, Connect("ha")) as client,
    ):
        await hear(client, "homeassistant/device/#")
        pack = cbor2.dumps([{-2: "roof-1:", 0: "life", 2: 11.4}])
        await sensor.publish("sensors/roof-1/status", pack)
        life = (await until_told(client, BOARD))["components"]["life"]
        assert life["entity_category"] == "diagnostic"
        assert "expire_after" not in life
        await sensor.measure(1.0)
        assert (await until_told(client, BOARD))["components"]["adc0"]["expire_after"] == 90
