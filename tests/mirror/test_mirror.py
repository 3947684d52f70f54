"""The mirror of readings in memory: its messages, faults in it, and the removal of boards."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cbor2
import pytest

from gateway.mirror import json_topics
from gateway.mirror.json_topics import Mirror, connected
from gateway.mirror.last import FILE, LastReadings
from gateway.mqtt.packets import Publish
from tests.broker.harness import Client, World

NOW = 1_767_225_600_000_000


class There:
    """A broker with the mirror and a subscriber. online: boards that are connected. staying: boards
    that are still registered. ill: boards with a problem.
    """

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, topic: str | None = "readings"
    ) -> None:
        self.world = World()
        self.online: set[str] = {"roof-1"}
        self.staying: set[str] = {"roof-1", "roof-2"}
        self.ill: set[str] = set()
        monkeypatch.setattr(json_topics, "connected", lambda engine: self.online)
        engine: Any = self.world.engine
        self.mirror = Mirror(
            engine,
            LastReadings(folder),
            topic,
            self.staying.__contains__,
            lambda name: name not in self.ill,
        )
        self.reader: Client = self.world.accepted()
        self.reader.subscribe("#")

    async def take(self, device: str, *records: dict[int, Any]) -> None:
        self.mirror.take(device, f"sensors/{device}/data", cbor2.dumps(list(records)), NOW)
        await asyncio.sleep(0)

    def heard(self) -> dict[str, bytes]:
        """Return the messages since the last call. Check that no topic comes twice."""
        self.world.turn()
        packets = self.reader.take_all(Publish)
        assert len({packet.topic for packet in packets}) == len(packets)
        return {packet.topic: packet.payload for packet in packets}


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> There:
    return There(tmp_path, monkeypatch)


def value(number: float, name: str = "t") -> dict[int, Any]:
    return {0: name, 1: "Cel", 2: number}


async def test_reading_is_published_after_the_turn_that_took_it(there: There) -> None:
    told: list[str] = []
    there.mirror.on_taken.append(told.append)
    there.mirror.take("roof-1", "sensors/roof-1/data", cbor2.dumps([value(1), value(2, "u")]), NOW)
    there.mirror.take("roof-2", "sensors/roof-2/data", cbor2.dumps([value(3)]), NOW)
    assert there.heard() == {}
    assert told == []
    await asyncio.sleep(0)
    found = there.heard()
    assert {topic: json.loads(text)["value"] for topic, text in found.items()} == {
        "readings/roof-1/t": 1,
        "readings/roof-1/u": 2,
        "readings/roof-2/t": 3,
    }
    assert json.loads(found["readings/roof-1/t"]) == {
        "value": 1,
        "unit": "Cel",
        "time": "2026-01-01T00:00:00Z",
        "quality": "unknown",
    }
    assert sorted(told) == ["roof-1", "roof-2"], "once for each board"
    await there.take("roof-1", value(4))
    assert list(there.heard()) == ["readings/roof-1/t"], "and nothing twice"


async def test_publication_that_cannot_be_read_costs_only_itself(
    there: There, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await there.take("a/b", value(1))
    there.mirror.take("roof-1", "sensors/roof-1/data", b"\xff", NOW)
    await asyncio.sleep(0)
    assert there.heard() == {}
    assert caplog.records == []
    with monkeypatch.context() as broken:
        broken.setattr(json_topics, "readings", lambda *_: 1 / 0)
        for _ in range(2):
            await there.take("roof-1", value(1))
    assert [record.message for record in caplog.records] == [
        "roof-1: a publication to 'sensors/roof-1/data' cannot be mirrored"
    ], "once, not for each"
    await there.take("roof-1", value(1))
    assert list(there.heard()) == ["readings/roof-1/t"]


async def test_state_of_a_board_is_published_when_it_changes(there: There) -> None:
    await there.take("roof-1", value(1))
    await there.take("roof-2", value(2))
    there.heard()
    there.mirror.start()
    found = there.heard()
    assert found.pop("readings/$state") == b"online"
    assert found.pop("readings/roof-1/$state") == b"online"
    assert found.pop("readings/roof-2/$state") == b"offline"
    assert {topic: json.loads(text)["value"] for topic, text in found.items()} == {
        "readings/roof-1/t": 1,
        "readings/roof-2/t": 2,
    }
    there.mirror._look()
    assert there.heard() == {}
    there.ill.add("roof-1")
    there.online.add("roof-2")
    there.mirror._look()
    assert there.heard() == {
        "readings/roof-1/$state": b"offline",
        "readings/roof-2/$state": b"online",
    }
    await there.mirror.close()


async def test_board_that_may_not_connect_is_reported_gone_and_cleared_later(
    there: There,
) -> None:
    gone: list[str] = []
    there.mirror.on_gone.append(gone.append)
    await there.take("roof-1", value(1))
    await there.take("roof-2", value(2), value(3, "u"))
    there.mirror._look()
    there.heard()
    there.staying.clear()
    there.mirror._look()
    assert gone == ["roof-2"], "the other one is still connected"
    assert there.heard() == {}
    assert there.mirror.last.devices == ["roof-1"]
    # the board is back, and sends only one of its two readings
    await there.take("roof-2", value(5))
    there.heard()
    there.mirror._look()
    assert there.heard() == {"readings/roof-2/u": b"", "readings/roof-2/$state": b""}
    assert gone == ["roof-2", "roof-2"]
    there.mirror._look()
    assert there.heard() == {"readings/roof-2/t": b"", "readings/roof-2/$state": b""}
    there.mirror._look()
    assert there.heard() == {}


async def test_state_of_a_board_that_is_back_at_once_is_not_cleared(there: There) -> None:
    await there.take("roof-2", value(2))
    there.mirror._look()
    there.staying.discard("roof-2")
    there.mirror._look()
    there.heard()
    await there.take("roof-2", value(2))
    there.mirror._states["roof-2"] = False
    there.staying.add("roof-2")
    there.heard()
    there.mirror._look()
    assert "readings/roof-2/$state" not in there.heard()


async def test_fault_of_a_sensor_is_mended_by_its_next_value(there: There) -> None:
    await there.take("roof-1", {0: "t.fault", 2: 1})
    assert json.loads(there.heard()["readings/roof-1/t.fault"])["value"] == 1
    await there.take("roof-1", value(1))
    found = there.heard()
    assert json.loads(found["readings/roof-1/t.fault"])["value"] == 0
    assert json.loads(found["readings/roof-1/t"])["value"] == 1


async def test_without_a_topic_values_are_kept_and_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = There(tmp_path, monkeypatch, None)
    await there.take("roof-1", value(1))
    there.mirror.start()
    assert there.heard() == {}
    await there.mirror.close()
    assert "roof-1" in (tmp_path / FILE).read_text()
    assert LastReadings(tmp_path).devices == ["roof-1"]


async def test_values_are_saved_at_intervals_and_an_error_is_reported(
    there: There, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_topics, "LOOK_S", 0.001)
    await there.take("roof-1", value(1))
    there.mirror.start()
    await asyncio.sleep(0.05)
    assert not (tmp_path / FILE).exists(), "ten minutes have not gone by"
    assert there.mirror.looking.age_s < 0.05
    monkeypatch.setattr(json_topics, "SAVE_S", 0.02)
    await asyncio.sleep(0.2)
    assert (tmp_path / FILE).exists()
    monkeypatch.setattr(json_topics, "connected", lambda engine: 1 / 0)
    await asyncio.sleep(0.05)
    assert there.mirror.looking.failures > 1, "it goes on"
    assert "division" in str(there.mirror.looking.error)
    await there.mirror.close()
    assert there.mirror._task is not None
    await asyncio.wait([there.mirror._task], timeout=1)
    assert there.mirror._task.cancelled()


def test_connected_boards_are_those_with_a_device() -> None:
    peers = [SimpleNamespace(device=SimpleNamespace(name="roof-1")), SimpleNamespace(device=None)]
    connections = [SimpleNamespace(peer=peer) for peer in peers]
    engine: Any = SimpleNamespace(broker=SimpleNamespace(connections=connections))
    assert connected(engine) == {"roof-1"}
