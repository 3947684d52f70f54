"""A PUBACK whose message all receivers have acknowledged waits for no disk: nothing is left that a
power cut could take.
"""

import pytest

from gateway.config import QueueSection
from gateway.mqtt.packets import Puback, Publish, Pubrec, Subscription
from tests.broker.harness import Client, World


def reader(world: World, name: str = "reader", *, answers: bool = True) -> Client:
    """A client whose session is kept. answers: it acknowledges what it gets at once."""
    client = world.durable(name, answers=answers)
    client.subscribe("t", qos=1)
    return client


def acknowledged(client: Client) -> list[int]:
    return [packet.packet_id for packet in client.take_all(Puback)]


@pytest.mark.mqtt("MQTT-4.3.2-4")
def test_what_all_receivers_have_is_acknowledged_before_a_commit_and_leaves_no_trace() -> None:
    world = World()
    first, second = reader(world, "first"), reader(world, "second")
    publisher = world.accepted()
    world.commit()
    commits = len(world.commits)
    world.slow_disk = True
    for number in range(1, 4):
        publisher.publish("t", b"%d" % number, 1)
        assert acknowledged(publisher) == [number]
    assert len(world.commits) == commits
    assert world.broker.changes.bytes == world.broker.queued == 0
    world.power_cut()
    world.slow_disk = False
    assert world.rows("SELECT count(*) FROM message") == [(0,)]
    for client in (first, second):
        assert client.payloads == [b"1", b"2", b"3"]
    assert reader(world, "first").payloads == []


@pytest.mark.parametrize("where", ["deaf", "away", "gone meanwhile"])
def test_while_a_receiver_lacks_it_the_disk_must_have_it(where: str) -> None:
    world = World()
    reader(world)
    other = reader(world, "other", answers=False)
    if where == "away":
        other.drop()
    publisher = world.accepted()
    world.slow_disk = True
    publisher.publish("t", b"x", 1)
    if where == "gone meanwhile":
        other.drop()
    assert acknowledged(publisher) == []
    world.commit()
    assert acknowledged(publisher) == [1]
    world.power_cut()
    world.slow_disk = False
    assert world.durable("other", answers=True).payloads == [b"x"]


def test_a_receiver_that_acknowledges_while_the_disk_is_busy_is_enough() -> None:
    world = World()
    slow = reader(world, answers=False)
    publisher = world.accepted()
    world.slow_disk = True
    publisher.publish("t", b"x", 1)
    assert acknowledged(publisher) == []
    slow.send(Puback(slow.take(Publish).packet_id))
    assert acknowledged(publisher) == [1]


def test_a_receiver_that_does_not_acknowledge_costs_the_publisher_a_moment() -> None:
    world = World()
    reader(world, answers=False)
    publisher = world.accepted()
    publisher.publish("t", b"x", 1)
    assert acknowledged(publisher) == [1]
    assert world.rows("SELECT count(*) FROM queue") == [(1,)]


@pytest.mark.parametrize("what", ["retained", "spool", "share"])
def test_what_stays_here_waits_for_the_disk_whoever_has_it(what: str) -> None:
    world = World()
    client = world.durable("reader", answers=True)
    topic = "spool/t" if what == "spool" else "t"
    client.subscribe(Subscription(topic, 1))
    if what == "share":
        client.subscribe(Subscription(f"$share/g/{topic}", 1))
    publisher = world.accepted()
    world.slow_disk = True
    publisher.publish(topic, b"x", 1, retain=what == "retained")
    assert b"x" in client.payloads
    assert acknowledged(publisher) == []
    world.commit()
    assert acknowledged(publisher) == [1]


def test_a_session_that_ends_by_a_message_has_ended_on_disk_before_the_puback() -> None:
    """Or it would be there again after a power cut, with a gap that nobody is told of."""
    world = World(
        queue=[QueueSection(clients="slow", messages=1, full="end the session")], inflight=1
    )
    reader(world)
    reader(world, "slow", answers=False)
    publisher = world.accepted()
    publisher.publish("t", b"1", 1)
    assert acknowledged(publisher) == [1]
    world.slow_disk = True
    publisher.publish("t", b"2", 1)
    assert "slow" not in world.broker.sessions
    publisher.publish("t", b"3", 1)
    assert acknowledged(publisher) == []
    world.commit()
    assert acknowledged(publisher) == [2, 3]
    publisher.publish("t", b"4", 1)
    assert acknowledged(publisher) == [4]
    world.power_cut()
    world.slow_disk = False
    assert "slow" not in world.broker.sessions


def test_receivers_whose_sessions_are_not_kept_change_nothing() -> None:
    world = World()
    other = world.accepted(answers=False)
    other.subscribe("t", qos=1)
    reader(world)
    publisher = world.accepted()
    world.slow_disk = True
    publisher.publish("t", b"1", 1)
    assert acknowledged(publisher) == [1]
    other.send(Puback(other.take(Publish).packet_id))
    assert world.broker.changes.waits == 0


@pytest.mark.mqtt("MQTT-4.6.0-2")
def test_pubacks_leave_in_the_order_of_their_messages() -> None:
    world = World()
    reader(world)
    world.durable("other").subscribe("u", qos=1)
    publisher = world.accepted()
    world.slow_disk = True
    publisher.publish("u", b"x", 1)
    publisher.publish("t", b"x", 1)
    assert acknowledged(publisher) == []
    world.commit()
    assert acknowledged(publisher) == [1, 2]


def test_what_waits_for_the_disk_does_not_leave_with_a_puback_that_need_not() -> None:
    world = World()
    slow = reader(world, answers=False)
    publisher = world.durable("p")
    world.slow_disk = True
    publisher.publish("t", b"1", 1)
    publisher.publish("t", b"2", 2)
    slow.send(*(Puback(packet.packet_id) for packet in slow.take_all(Publish)))
    assert acknowledged(publisher) == [1]
    assert publisher.take_all(Pubrec) == []
    world.commit()
    assert len(publisher.take_all(Pubrec)) == 1
