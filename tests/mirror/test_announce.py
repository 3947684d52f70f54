"""The gateway's own messages are retained, but neither stored on disk nor put into the spool."""

import pytest

from gateway.config import SpoolSection, parse
from gateway.mirror.announce import announce
from gateway.mqtt.packets import Puback, Publish, Subscription
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import World


def world(**limits: int) -> World:
    made = World(**limits)
    made.config = made.config.model_copy(update={"spool": SpoolSection(topics=["#"])})
    made.broker.reconfigure(made.config)
    return made


def say(world: World, topic: str, payload: bytes) -> None:
    world.engine.begin()
    announce(world.broker, topic, payload)
    world.turn()


def test_present_and_later_subscribers_get_it() -> None:
    there = world()
    early = there.accepted()
    early.subscribe("readings/#")
    say(there, "readings/roof-1/adc0", b"1")
    say(there, "readings/roof-1/adc0", b"2")
    assert [(p.payload, p.retain, p.qos) for p in early.take_all(Publish)] == [
        (b"1", False, 0),
        (b"2", False, 0),
    ]
    late = there.accepted()
    late.subscribe(Subscription("#", 1))
    (packet,) = late.take_all(Publish)
    assert (packet.topic, packet.payload, packet.retain) == ("readings/roof-1/adc0", b"2", True)


def test_announcements_reach_neither_disk_nor_spool() -> None:
    there = world()
    there.commits.clear()
    say(there, "readings/roof-1/adc0", b"1")
    there.sleep(5)
    assert there.broker.spool.count == 0
    assert there.broker.retained.count == 1
    assert there.database.execute("SELECT count(*) FROM retained").fetchone() == (0,)
    assert there.database.execute("SELECT count(*) FROM spool").fetchone() == (0,)


def test_empty_payload_removes_the_mirrored_and_any_foreign_message() -> None:
    there = world()
    client = there.accepted()
    client.publish("readings/roof-1/adc0", "old", qos=1, retain=True)
    client.take(Puback)
    assert there.database.execute("SELECT count(*) FROM retained").fetchone() == (1,)
    say(there, "readings/roof-1/adc0", b"1")
    say(there, "readings/roof-1/adc0", b"")
    there.sleep(1)
    assert there.broker.retained.count == 0
    assert there.database.execute("SELECT count(*) FROM retained").fetchone() == (0,)


def test_the_bounds_of_retained_messages_hold() -> None:
    there = world(retained=1)
    for name in ("a", "b"):
        say(there, f"readings/{name}", b"1")
    assert there.broker.retained.count == 1


def test_mirrored_topics_are_written_by_the_gateway_alone() -> None:
    there = World()
    there.broker.reconfigure(parse({"mirror": {"topic": "r/x"}}, "here"))
    client = there.accepted()
    for number, (topic, reason) in enumerate(
        [("r/x/roof-1/adc0", R.NOT_AUTHORIZED), ("r/x", R.NOT_AUTHORIZED), ("r/y", R.SUCCESS)], 1
    ):
        client.publish(topic, "1", qos=1, packet_id=number)
        assert client.take(Puback).reason == reason
    client.subscribe("r/x/#")


@pytest.mark.parametrize("topic", ["readings/#", "$SYS", "a/", ""])
def test_invalid_prefix_is_refused(topic: str) -> None:
    with pytest.raises(Exception, match=r"mirror\.topic"):
        parse({"mirror": {"topic": topic}}, "here")
