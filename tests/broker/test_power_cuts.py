"""Acknowledged messages arrive despite cuts at any time, at QoS 2 exactly once.

A publisher and a subscriber keep their state, as the standard requires, although their connections
break. The disk commits at any time, and the gateway's power is cut. Hypothesis draws the order of
these events.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.mqtt.packets import Connack, Puback, Pubcomp, Publish, Pubrec, Pubrel, Version
from tests.broker.harness import Client, World

V4, V5 = Version.V3_1_1, Version.V5


class Publisher:
    """A client that publishes numbered messages, and keeps each until it is acknowledged. complete:
    payloads with PUBACK or PUBCOMP.
    """

    def __init__(self, world: World, version: Version) -> None:
        self.world = world
        self.version = version
        self.client: Client | None = None
        self.published: list[bytes] = []
        self.complete: list[bytes] = []
        self._flights: dict[int, Publish | None] = {}
        self._payloads: dict[int, bytes] = {}

    def connect(self) -> None:
        self.client = session(self.world, "publisher", self.version)
        for packet_id, packet in self._flights.items():
            self.client.send(
                Pubrel(packet_id)
                if packet is None
                else Publish(packet.topic, packet.payload, packet.qos, packet_id, dup=True)
            )

    def publish(self, qos: int, count: int) -> None:
        """Publish several messages in one piece, so that the broker may receive them as one run."""
        packets = []
        for _ in range(count):
            packet_id = next(number for number in range(1, 100) if number not in self._flights)
            payload = b"%05d" % len(self.published)
            self.published.append(payload)
            packet = self._flights[packet_id] = Publish("t", payload, qos, packet_id)
            self._payloads[packet_id] = payload
            packets.append(packet)
        if self.client is not None:
            self.client.send(*packets)

    def read(self, count: int) -> None:
        client = self.client
        while client is not None and client.received and count:
            count -= 1
            match client.received.pop(0):
                case Pubrec(packet_id=number):
                    self._flights.pop(number)
                    self._flights[number] = None
                    client.send(Pubrel(number))
                case Puback(packet_id=number) | Pubcomp(packet_id=number):
                    if number in self._flights:
                        del self._flights[number]
                        self.complete.append(self._payloads[number])


class Subscriber:
    """A client that subscribes at QoS 2, and keeps the packet identifiers between PUBLISH and
    PUBREL. delivered: QoS and payload of each message.
    """

    def __init__(self, world: World, version: Version) -> None:
        self.world = world
        self.version = version
        self.client: Client | None = None
        self.delivered: list[tuple[int, bytes]] = []
        self._held: set[int] = set()

    def connect(self) -> None:
        self.client = session(self.world, "subscriber", self.version)

    def read(self, count: int) -> None:
        client = self.client
        while client is not None and client.received and count:
            count -= 1
            match client.received.pop(0):
                case Publish(qos=1, packet_id=number, payload=payload):
                    self.delivered.append((1, payload))
                    client.send(Puback(number))
                case Publish(qos=2, packet_id=number, payload=payload):
                    if number not in self._held:
                        self._held.add(number)
                        self.delivered.append((2, payload))
                    client.send(Pubrec(number))
                case Pubrel(packet_id=number):
                    self._held.discard(number)
                    client.send(Pubcomp(number))


def session(world: World, name: str, version: Version) -> Client:
    slow, world.slow_disk = world.slow_disk, False
    client = (
        world.durable(name) if version == V5 else world.accepted(name, version=version, clean=False)
    )
    world.slow_disk = slow
    return client


ACTS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 2), st.integers(1, 5)),
    st.tuples(st.sampled_from(["publisher reads", "subscriber reads"]), st.integers(1, 6)),
    st.tuples(
        st.sampled_from(
            ["commit", "commit", "power cut", "publisher drops", "subscriber drops", "reconnect"]
        )
    ),
)


@pytest.fixture(params=[1, 3, 256])
def page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this many rows of a queue in memory. The other rows wait in the store."""
    monkeypatch.setattr("gateway.broker.send_flow.MOST_PENDING", request.param)
    monkeypatch.setattr("gateway.broker.send_flow.PAGE_LOW", request.param)
    monkeypatch.setattr("gateway.store.queue_reads.PAGE_ROWS", request.param)


@pytest.mark.usefixtures("page")
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(ACTS, max_size=60),
    st.sampled_from([V4, V5]),
    st.sampled_from([V4, V5]),
    st.sampled_from([1, 3, 100]),
)
def test_acknowledged_messages_survive_and_qos_2_arrives_once(
    acts: list[tuple[object, ...]], left: Version, right: Version, window: int
) -> None:
    world = World(inflight=window)
    publisher, subscriber = Publisher(world, left), Subscriber(world, right)
    subscriber.connect()
    assert subscriber.client is not None
    subscriber.client.subscribe("t")
    publisher.connect()
    world.slow_disk = True
    for act in acts:
        match act:
            case ("publish", int(qos), int(count)) if (
                len(publisher.published) - len(publisher.complete) < 90
            ):
                publisher.publish(qos, count)
            case ("publisher reads", int(count)):
                publisher.read(count)
            case ("subscriber reads", int(count)):
                subscriber.read(count)
            case ("commit",):
                world.commit()
            case ("power cut",):
                world.power_cut()
                publisher.client = subscriber.client = None
            case ("publisher drops",):
                drop(publisher)
            case ("subscriber drops",):
                drop(subscriber)
            case ("reconnect",):
                reconnect(publisher, subscriber)
    settle(world, publisher, subscriber)
    check(publisher, subscriber)
    assert (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM message")
        == [(0,)]
    )


def drop(side: Publisher | Subscriber) -> None:
    if side.client is not None:
        side.client.drop()
        side.client = None


def reconnect(*sides: Publisher | Subscriber) -> None:
    for side in sides:
        if side.client is None:
            side.connect()


def settle(world: World, publisher: Publisher, subscriber: Subscriber) -> None:
    """Reconnect both clients, and complete all exchanges."""
    world.slow_disk = False
    world.commit()
    reconnect(publisher, subscriber)
    for client in (publisher.client, subscriber.client):
        assert client is not None
        assert not client.closed
    for _ in range(20):
        publisher.read(1000)
        subscriber.read(1000)
    world.commit()
    world.commit()


def check(publisher: Publisher, subscriber: Subscriber) -> None:
    assert sorted(publisher.complete) == publisher.published
    assert {payload for _, payload in subscriber.delivered} == set(publisher.published), "lost"
    twice = [payload for qos, payload in subscriber.delivered if qos == 2]
    assert len(twice) == len(set(twice)), "delivered twice"


def test_a_connack_with_session_present_is_not_forged() -> None:
    world = World()
    world.durable("s").subscribe("t")
    world.power_cut()
    assert world.connect("s", clean=False).take(Connack).session_present
    world.power_cut()
    assert not world.connect("other", clean=False).take(Connack).session_present
