"""Side effects of one message: ended sessions, wills, messages to other clients. They are carried
out after the message, in order, and they come to an end.
"""

from typing import Any

import pytest

from gateway.broker import fan_out
from gateway.broker.queue_limits import is_full
from gateway.config import QueueSection
from gateway.mqtt.packets import Connack, Publish, Subscription, Version, Will
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Client, World


def fill(world: World, topic: str, count: int, size: int = 10, **more: object) -> None:
    publisher = world.accepted(answers=True)
    for _ in range(count):
        publisher.publish(topic, bytes(size), qos=1, **more)
    publisher.drop()


def present(world: World, client_id: str) -> bool:
    """Connect a client. Return Session Present."""
    connack = world.connect(client_id, clean=False, properties=FOREVER).take(Connack)
    return connack.session_present


# -- all queues together


@pytest.mark.timeout(30)
@pytest.mark.parametrize("slow_disk", [False, True])
def test_the_longest_queue_pays_though_all_of_it_is_in_the_store(slow_disk: bool) -> None:
    world = World(queue=[QueueSection(full="drop the oldest")], memory_bytes=100_000)
    world.absent("long", topic="long")
    world.absent("short", topic="short")
    fill(world, "long", 500, 100)
    world.slow_disk = slow_disk
    publisher = world.accepted(answers=True)
    for number in range(300):
        publisher.publish("short", b"%0100d" % number, qos=1)
    world.slow_disk = False
    world.commit()
    assert world.broker.queued <= 100_000
    assert world.broker.to_drop == 0
    assert set(world.broker.sessions) >= {"long", "short"}
    came = len(world.durable("short", answers=True).payloads)
    assert came + world.broker.statistics.refused("publish") == 300
    assert came == 300 or slow_disk
    left = len(world.durable("long", answers=True).payloads)
    assert left + world.broker.statistics.overflowed == 500
    assert world.broker.queued == 0


def test_publishers_are_refused_while_the_longest_queues_cannot_be_read() -> None:
    world = World(queue=[QueueSection(full="drop the oldest")], memory_bytes=100_000)
    world.absent("long")
    fill(world, "t", 600, 100)
    world.slow_disk = True
    publisher = world.accepted(answers=True)
    for _ in range(500):
        publisher.publish("t", bytes(100), qos=1)
    assert world.broker.queued <= 100_000 * 9 / 8
    world.slow_disk = False
    world.commit()
    reasons = {packet.reason for packet in publisher.take_all()}
    assert reasons == {R.SUCCESS, R.QUOTA_EXCEEDED}
    assert world.broker.queued <= 100_000


# -- wills


def test_a_will_that_makes_the_queue_of_its_own_session_overflow_ends_it_for_good() -> None:
    world = World(queue_messages=2)
    client = world.durable("c", will=Will("t", b"gone", 1))
    client.subscribe("t")
    fill(world, "t", 2)
    client.drop()
    assert "c" not in world.broker.sessions
    world.commit()
    world.power_cut()
    assert not present(world, "c")


def test_a_due_will_may_end_a_session_whose_own_will_is_due() -> None:
    world = World(queue_messages=1)
    watching = world.accepted("watching")
    watching.subscribe("wills/#")
    for name in ("a", "b"):
        properties = {P.WILL_DELAY_INTERVAL: 10}
        client = world.durable(name, will=Will(f"wills/{name}", b"", 1, properties=properties))
        client.subscribe("wills/a" if name == "b" else "wills/b")
        client.drop()
    for name in ("a", "b"):
        fill(world, f"wills/{name}", 1)
    watching.take_all()
    world.sleep(20)
    assert not {"a", "b"} & set(world.broker.sessions)
    assert world.broker.wills == {}


def test_a_will_does_not_go_to_its_own_client_where_that_wants_no_local() -> None:
    world = World()
    client = world.durable("c", will=Will("t", b"gone", 1))
    client.subscribe(Subscription("t", 1, no_local=True))
    client.drop()
    assert world.durable("c", answers=True).payloads == []


# -- shared subscriptions


def test_a_member_whose_queue_is_full_is_passed_over() -> None:
    world = World(queue_messages=5)
    for name in ("full", "free"):
        client = world.durable(name)
        client.subscribe("$share/group/t", name)
        client.drop()
    fill(world, "full", 5)
    fill(world, "t", 5)
    assert len(world.durable("free", answers=True).payloads) == 5
    assert len(world.durable("full", answers=True).payloads) == 5


def test_the_message_that_makes_the_queue_of_a_member_overflow_goes_to_another() -> None:
    """After 100 messages, the queues of all members are full. The next message ends the session of
    one member. The other members have no room for its messages.
    """
    world = World(queue_messages=5)
    for number in range(20):
        client = world.durable(f"member {number}")
        client.subscribe("$share/group/t")
        client.drop()
    fill(world, "t", 101)
    assert len(world.broker.sessions) == 19
    assert world.broker.statistics.overflowed >= 6
    assert sum(item.send_flow.messages for item in world.broker.sessions.values()) == 95


def test_undelivered_share_of_a_leaving_member_ends_no_other_session() -> None:
    world = World(queue_messages=10)
    for number in range(20):
        client = world.durable(f"member {number}")
        client.subscribe("$share/group/t")
        client.drop()
    fill(world, "t", 197)
    world.end_session("member 7")
    assert len(world.broker.sessions) == 19
    assert sum(item.send_flow.messages for item in world.broker.sessions.values()) == 190
    assert world.broker.statistics.overflowed == 7


@pytest.mark.parametrize("messages", [395, 600])
def test_the_members_of_a_share_are_not_all_looked_at_for_each_message(
    messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More messages arrive at once than the queue of any member accepts. The cost grows with the
    sum of members and messages, not with their product. Each member gets as many messages as fit
    into its queue.
    """
    asked = 0

    def counted(*arguments: Any) -> bool:
        nonlocal asked
        asked += 1
        return is_full(*arguments)

    monkeypatch.setattr(fan_out, "is_full", counted)
    world = World(queue_messages=10)
    for number in range(40):
        member = world.durable(f"member {number}")
        member.subscribe("$share/group/t", "other" if number else "full")
        member.drop()
    fill(world, "full", 5)
    publisher = world.accepted(version=Version.V3_1_1, answers=True)
    asked = 0
    publisher.send(*(Publish("t", b"%d" % at, 1, at + 1) for at in range(messages)))
    assert asked <= 5 * (40 + messages)
    if messages == 395:
        kept = [item.send_flow.messages for item in world.broker.sessions.values()]
        assert sum(kept) == 5 + 395
        names = list(world.broker.sessions)[:40]
        came = [text for name in names for text in world.durable(name, answers=True).payloads]
        assert sorted(came) == sorted([b"%d" % at for at in range(395)] + [bytes(10)] * 5)


# -- expired messages


@pytest.mark.parametrize("full", ["end the session", "refuse the publisher", "drop the oldest"])
@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("connected", [False, True])
def test_messages_that_have_expired_do_not_fill_a_queue(
    full: str, power_cut: bool, connected: bool
) -> None:
    world = World(
        queue=[QueueSection(clients="slow", full=full)],  # type: ignore[arg-type]
        queue_messages=300,
        inflight=1,
    )

    def slow() -> Client:
        return world.durable("slow")

    client = slow()
    client.subscribe("t")
    if not connected:
        client.drop()
    fill(world, "t", 300, properties={P.MESSAGE_EXPIRY_INTERVAL: 10})
    world.sleep(3600)
    if power_cut:
        world.power_cut()
    publisher = world.accepted(answers=True)
    for number in range(200):
        publisher.publish("t", b"%d" % number, qos=1)
    reasons = {packet.reason for packet in publisher.take_all()}
    assert reasons == {R.SUCCESS}
    assert "slow" in world.broker.sessions
    assert world.broker.statistics.overflowed == 0
    if connected and not power_cut:
        client.drop()
    again = world.durable("slow", answers=True)
    came = [packet.payload for packet in again.take_all(Publish)]
    assert came[-200:] == [b"%d" % number for number in range(200)]
