"""`[mirror]`: the readings of boards as JSON, for programs that cannot read SenML in CBOR."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from gateway.boards.admission import FILE
from gateway.mqtt.packets import Connect, Publish, Suback, Subscribe, Subscription
from provisioning.registry import Registry
from tests.links.board import Pty
from tests.service.boards import Sensor, configuration
from tests.service.process import gateway
from tests.service.wire import wire


@pytest.fixture
def line() -> Iterator[Pty]:
    yield (line := Pty())
    os.close(line.master)


async def heard(port: int, count: int) -> dict[str, bytes]:
    """Subscribe, and return the newest message of each topic as soon as there are `count`
    topics.
    """
    found: dict[str, bytes] = {}
    async with wire(port, Connect("reader")) as client:
        client.send(Subscribe(1, [Subscription("readings/#", 0)]))
        await client.take(Suback)
        while len(found) < count:
            packet = await client.take(Publish)
            found[packet.topic] = packet.payload
    return found


async def test_mirrored_readings_are_public_and_not_written_to_disk(
    tmp_path: Path, line: Pty
) -> None:
    sections = '[mirror]\n[uplink]\nlanding = "file:///landing"\n'
    file = str(configuration(tmp_path, [line], sections))
    async with gateway(tmp_path, "--config", file) as running:
        sensor = Sensor(line, "roof-1")
        await sensor.connect()
        await sensor.measure(3.25)
        await sensor.measure(21.5, "t", "Cel")
        found = await heard(running.port, 4)
        assert await running.end() == 0
    with closing(sqlite3.connect(tmp_path / "data" / "gateway.db")) as database:
        topics = database.execute("SELECT topic FROM spool ORDER BY id").fetchall()
        assert topics == [("sensors/roof-1/adc0",), ("sensors/roof-1/t",)]
        assert database.execute("SELECT count(*) FROM retained").fetchone() == (0,)
    shown = json.loads(found["readings/roof-1/adc0"])
    moment = datetime.strptime(shown.pop("time"), "%Y-%m-%dT%H:%M:%S%z")
    assert abs(time.time() - moment.timestamp()) < 600
    assert shown == {"value": 3.25, "unit": "V", "quality": "synchronised"}
    assert json.loads(found["readings/roof-1/t"])["unit"] == "Cel"
    assert found["readings/roof-1/$state"] == found["readings/$state"] == b"online"

    sensor.board.power_off()
    async with gateway(tmp_path, "--config", file) as running:
        later = await heard(running.port, 4)
    assert later["readings/roof-1/t"] == found["readings/roof-1/t"], "kept over a restart"
    assert later["readings/roof-1/$state"] == b"offline"


async def test_a_board_that_is_revoked_disappears(tmp_path: Path, line: Pty) -> None:
    file = str(configuration(tmp_path, [line], "[mirror]\n"))
    (tmp_path / "data").mkdir()
    registry = Registry(tmp_path / "data" / FILE)
    registry.admit("roof-1")
    async with gateway(tmp_path, "--config", file) as running:
        sensor = Sensor(line, "roof-1")
        await sensor.connect()
        await sensor.measure(3.25)
        async with wire(running.port, Connect("reader")) as client:
            client.send(Subscribe(1, [Subscription("readings/+/+", 0)]))
            await client.take(Suback)
            there = {(await client.take(Publish)).topic for _ in range(2)}
            registry.revoke("roof-1")
            cleared = {}
            while there - {topic for topic, payload in cleared.items() if not payload}:
                packet = await client.take(Publish)
                cleared[packet.topic] = packet.payload
        assert there == {"readings/roof-1/adc0", "readings/roof-1/$state"}


async def test_json_topics_are_off_without_their_section(tmp_path: Path, line: Pty) -> None:
    async with gateway(tmp_path, "--config", str(configuration(tmp_path, [line]))) as running:
        sensor = Sensor(line, "roof-1")
        await sensor.connect()
        async with wire(running.port, Connect("reader")) as client:
            client.send(Subscribe(1, [Subscription("#", 0)]))
            await client.take(Suback)
            await sensor.measure(3.25)
            assert (await client.take(Publish)).topic == "sensors/roof-1/adc0"
        await running.end()
    assert not (tmp_path / "data" / "readings.json").exists()
