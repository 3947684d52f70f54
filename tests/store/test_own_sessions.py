"""Sessions of internal clients, such as a bridge or another member of the site. If the store cannot
read one, the log reports it once, and a new session begins.
"""

import pytest

from gateway.config import INSIDE
from gateway.mqtt.packets import Connack, Connect, Packet, Puback, Publish, Subscribe, Subscription
from gateway.runtime.internal_client import Client
from tests.broker.harness import FOREVER, World

COUNT = 600
OWN = "session = (SELECT id FROM session WHERE client = 'bridge-b')"


class Bridge:
    """An internal client. received: its messages; None: the end of the connection."""

    def __init__(self, world: World) -> None:
        self.received: list[Packet | None] = []
        connect = Connect("bridge-b", clean_start=False, properties=FOREVER)
        self.client = Client(world.engine, "bridge b", INSIDE, self._came, connect)
        self._world = world
        world.turn()

    def _came(self, packet: Packet | None) -> None:
        self.received.append(packet)
        if isinstance(packet, Publish):
            self.client.send(Puback(packet.packet_id))

    @property
    def present(self) -> bool:
        (connack,) = [packet for packet in self.received if isinstance(packet, Connack)]
        return connack.session_present

    @property
    def messages(self) -> int:
        return sum(isinstance(packet, Publish) for packet in self.received)

    def take(self) -> "Bridge":
        """Let four seconds pass, with a commit after each. Return this bridge, which has then
        received its packets.
        """
        for _ in range(4):
            self._world.sleep(1)
            self._world.commit()
        return self


@pytest.fixture
def world() -> World:
    world = World()
    bridge = Bridge(world)
    bridge.client.send(Subscribe(1, [Subscription("w/#", 1)]))
    world.turn()
    bridge.client.leave()
    publisher = world.accepted("p", answers=True)
    for number in range(COUNT):
        publisher.publish("w/x", f"{number}", qos=1)
    world.commit()
    world.power_cut()
    return world


def test_whole_session_goes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    bridge = Bridge(world).take()
    assert bridge.present
    assert bridge.messages == COUNT
    assert caplog.messages == []


@pytest.mark.parametrize("column", ["count = 5000000000", "count = 0"])
def test_queue_that_cannot_be_read_is_reported_once_and_a_new_session_begins(
    world: World, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    world.database.execute(f"UPDATE queue SET {column} WHERE first = 300 AND {OWN}")
    bridge = Bridge(world).take()
    assert bridge.received[-1] is None
    lines = [line for line in caplog.messages if "its queue cannot be read" in line]
    assert len(lines) == 1
    assert "The session ends, and a new one begins" in lines[0]
    again = Bridge(world).take()
    assert not again.present
    again.client.send(Subscribe(1, [Subscription("w/#", 1)]))
    world.turn()
    world.accepted("q", answers=True).publish("w/x", "new", qos=1)
    assert again.take().messages == 1
    assert [line for line in caplog.messages if "its queue cannot be read" in line] == lines


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE subscription SET options = 77 WHERE {OWN}",
        f"UPDATE flow SET next = 0 WHERE {OWN}",
        "UPDATE session SET expiry = -1 WHERE client = 'bridge-b'",
    ],
)
def test_damaged_row_is_reported_once_and_a_new_session_begins(
    world: World, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    world.database.execute(statement)
    world.power_cut()
    lines = [line for line in caplog.messages if "the store is not whole" in line]
    assert all("session of bridge-b" in line for line in lines)
    assert "The session ends, and a new one begins" in lines[0]
    assert not Bridge(world).take().present
    caplog.clear()
    world.power_cut()
    assert caplog.messages == []
