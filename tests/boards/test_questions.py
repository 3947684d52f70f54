"""The gateway knows how often a board measures, whoever changed that: a person here, or by MQTT."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import cbor2
import pytest

from gateway.boards.reports import Boards
from gateway.commands.control_client import ask
from gateway.mqtt.packets import Publish, Side, Version
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.stream import PacketStream
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.boards.test_answers import payload
from tests.links.board import Pty, until
from tests.service.boards import Sensor, configuration
from tests.service.process import GatewayProcess, gateway

KEY = bytes(range(16))
STATUS = [{-2: "roof-1:", 0: "boot", 2: 3}, {0: "life", 2: 100}]


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[tuple[Sensor, GatewayProcess]]:
    data, line = folder / "data", Pty()
    data.mkdir()
    registry = Registry(data / "registry.db")
    registry.finish(registry.begin(Identity("roof-1", KEY), "uno", "/dev/null"), "ab" * 32)
    file = configuration(folder, [line])
    async with gateway(folder, "--config", str(file)) as running:
        sensor = Sensor(line, "roof-1", KEY)
        await sensor.connect()
        await sensor.subscribe("commands/roof-1")
        await sensor.measure(1)
        yield sensor, running
        sensor.unplug()


def commands(sensor: Sensor) -> list[Publish]:
    """Return what the gateway has sent to the board so far."""
    stream = PacketStream(100_000, Version.V5, Side.SERVER)
    stream.feed(bytes(sensor.board.received))
    return [packet for packet in stream if isinstance(packet, Publish)]


async def expects(folder: Path, interval_s: float) -> None:
    """Wait until the gateway expects readings so often."""
    async with asyncio.timeout(10):
        found = None
        while found != interval_s:
            (row,) = await asyncio.to_thread(ask, folder / "data", do="boards")
            found = row["interval_s"]


async def test_a_command_of_the_gateway_sets_what_is_expected(tmp_path: Path) -> None:
    async with site(tmp_path):
        request = {"do": "command", "client": "roof-1", "text": "interval 60 min"}
        assert await asyncio.to_thread(ask, tmp_path / "data", **request) == [{"sent": True}]
        await expects(tmp_path, 3600)


async def test_a_board_that_somebody_else_has_set_is_asked(tmp_path: Path) -> None:
    async with site(tmp_path) as (sensor, _):
        status = cbor2.dumps(STATUS)
        await sensor.publish("sensors/roof-1/status", status)
        assert not commands(sensor), "a start is no change"
        await sensor.publish("sensors/roof-1/status", status)
        await until(lambda: bool(commands(sensor)))
        (question,) = commands(sensor)
        assert question.payload == b"interval"
        correlation = (question.properties or {})[PropertyId.CORRELATION_DATA]
        await sensor.publish("logs/roof-1", payload(2, 7_200_000, correlation))
        await expects(tmp_path, 7200)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (payload(2, 5000, b"abc"), None),
        (payload(3, 1, b"abc"), None),
        (b"unknown command: interval", b""),
    ],
)
def test_an_answer_to_the_gateway_is_no_answer_to_a_person(
    tmp_path: Path, said: bytes, asked: bytes | None
) -> None:
    boards, heard = Boards(tmp_path), list[tuple[str, float]]()
    boards.interval = lambda name, seconds: heard.append((name, seconds))
    boards.asked["roof-1"] = b"abc"
    boards.met("roof-1", "logs/roof-1", said, None, 0, None)
    assert boards.asked.get("roof-1") == asked
    assert heard == ([("roof-1", 5.0)] if said[0] >> 4 == 2 else [])
    assert boards.answers == {}


def test_the_answer_to_a_person_is_shown(tmp_path: Path) -> None:
    boards = Boards(tmp_path)
    boards.asked["roof-1"] = b"abc"
    boards.met("roof-1", "logs/roof-1", payload(2, 5000, b"xyz"), None, 0, None)
    assert boards.answers == {"roof-1": "5000"}
