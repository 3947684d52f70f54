"""A message is either in the queue or set aside, wherever the power fails. Messages that are set
aside have a bound.
"""

import pytest

from gateway.bridge.aside_rows import Aside, Bound, Message
from gateway.bridge.setting_aside import SetAside, set_aside
from gateway.broker.store_rows import ASIDE_OVERHEAD
from gateway.mqtt.packets import Pubcomp, Publish, Pubrec, Pubrel
from gateway.mqtt.properties import PropertyId as P
from tests.broker.harness import Client, World

MOST = Bound(10, 10_000)
PLAIN = {P.CONTENT_TYPE: "text/plain"}


def flying(world: World, qos: int, *payloads: bytes) -> tuple[Client, list[Publish]]:
    """Return a client, and its messages in flight."""
    client = world.durable("bridge")
    client.subscribe("t")
    publisher = world.accepted(answers=True)
    for payload in payloads:
        publisher.publish("t", payload, qos, properties=dict(PLAIN))
    return client, client.take_all(Publish)


def put(world: World, packet: Publish, taken: bool = False) -> SetAside | None:
    world.engine.begin()
    session = world.broker.sessions["bridge"]
    return set_aside(
        world.broker, session, packet.packet_id, "cloud", "because", MOST, received=taken
    )


def kept(world: World) -> list[tuple[bytes, str]]:
    return world.rows("SELECT payload, reason FROM aside ORDER BY id")  # type: ignore[return-value]


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_moves_in_one_commit(qos: int, taken: bool, committed: bool) -> None:
    """A power cut before that commit leaves the message in the queue. A power cut after it leaves
    it only among the set-aside messages.
    """
    world = World()
    _, (first, second) = flying(world, qos, b"bad", b"good")
    world.slow_disk = True
    assert put(world, first, taken) == SetAside("t", 0)
    world.turn()
    assert kept(world) == []
    if committed:
        world.commit()
    world.power_cut()
    world.slow_disk = False
    assert kept(world) == ([(b"bad", "because")] if committed else [])
    assert Aside(world.broker).numbers("cloud") == ([1] if committed else [])
    again = world.durable("bridge", answers=True)
    sent = {packet.payload for packet in again.take_all(Publish)}
    assert sent == ({b"good"} if committed else {b"bad", b"good"})
    released = [packet.packet_id for packet in again.take_all(Pubrel)]
    if committed and qos == 2:
        assert (first.packet_id in released) == taken
    assert second.payload == b"good"


def test_an_identifier_that_the_receiver_may_hold_is_released_first() -> None:
    world = World()
    client, (packet,) = flying(world, 2, b"bad")
    put(world, packet, taken=True)
    world.turn()
    assert client.take(Pubrel).packet_id == packet.packet_id
    assert list(world.broker.sessions["bridge"].send_flow.flights.released) == [packet.packet_id]
    client.send(Pubcomp(packet.packet_id))
    assert not world.broker.sessions["bridge"].send_flow.flights.count
    world.commit()
    assert world.rows("SELECT count(*) FROM queue") == [(0,)]


def test_only_messages_in_flight_are_set_aside() -> None:
    world = World()
    client, (packet,) = flying(world, 2, b"good")
    client.send(Pubrec(packet.packet_id))
    assert put(world, packet) is None
    client.drop()
    assert put(world, packet) is None
    world.commit()
    assert kept(world) == []


def test_a_message_of_a_run_is_set_aside_as_itself() -> None:
    """Publications that arrive in one piece share memory. If one is set aside, the others must not
    go with it.
    """
    world = World()
    client = world.durable("bridge")
    client.subscribe("t")
    publisher = world.accepted(answers=True)
    publisher.send(*(Publish("t", b"%02d" % number, 2, number + 1) for number in range(9)))
    packets = client.take_all(Publish)
    for packet in packets[3:6]:
        put(world, packet)
    world.commit()
    assert [payload for payload, _ in kept(world)] == [b"03", b"04", b"05"]


@pytest.mark.parametrize("most", [Bound(3, 10_000), Bound(10, 3 * (1 + 1 + ASIDE_OVERHEAD))])
def test_the_oldest_goes_at_the_bound(most: Bound) -> None:
    world = World()
    aside = Aside(world.broker)
    lost = 0
    for number in range(5):
        world.engine.begin()
        message = Message("t", b"%d" % number, 0, False, b"", None)
        lost += aside.keep("cloud", message, "because", most, None)
        if number % 2:
            world.commit()
    world.commit()
    assert lost == 2
    assert [payload for payload, _ in kept(world)] == [b"2", b"3", b"4"]
    assert (
        aside.keep("cloud", Message("t", bytes(20_000), 0, False, b"", None), "", most, None) == 1
    )
    world.power_cut()
    assert Aside(world.broker).numbers("cloud") == [3, 4, 5]
    assert Aside(world.broker).size("cloud") == 3 * (1 + 1 + ASIDE_OVERHEAD)
    assert Aside(world.broker).forget("cloud", 4)
    assert not Aside(world.broker).forget("cloud", 4)
    assert not Aside(world.broker).forget("other", 5)
    world.commit()
    assert [payload for payload, _ in kept(world)] == [b"2", b"4"]


def test_properties_and_expiry_are_kept() -> None:
    world = World()
    client = world.durable("bridge")
    client.subscribe("t")
    world.accepted(answers=True).publish("t", b"x", 2, properties={P.MESSAGE_EXPIRY_INTERVAL: 100})
    (packet,) = client.take_all(Publish)
    put(world, packet)
    world.commit()
    ((expires, qos, properties),) = world.rows("SELECT expires, qos, properties FROM aside")
    assert expires / 1000 == pytest.approx(world.broker.now + 100, abs=1)
    assert (qos, properties) == (2, b"")
    assert P.MESSAGE_EXPIRY_INTERVAL in (packet.properties or {})
