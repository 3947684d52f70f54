"""Retained messages: when they are stored, replaced and removed, and which clients get them."""

import pytest

from gateway.mqtt.packets import Puback, Publish, Subscription, Version
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import World

V4, V5 = Version.V3_1_1, Version.V5
VERSIONS = pytest.mark.parametrize("version", [V4, V5])
POWER_CUT = pytest.mark.parametrize("power_cut", [False, True])


@pytest.mark.mqtt(
    "MQTT-3.3.1-5",
    "MQTT-3.3.1-9",
    "311:MQTT-3.3.1-5",
    "311:MQTT-3.3.1-6",
    "311:MQTT-3.3.1-8",
    "311:MQTT-3.1.2-7",
)
@VERSIONS
@POWER_CUT
def test_a_new_subscription_gets_the_last_retained_message_of_each_topic(
    version: Version, power_cut: bool
) -> None:
    world = World()
    publisher = world.accepted("p", answers=True, version=version)
    for topic, payload, qos in (
        ("a/1", "old", 2),
        ("a/1", "new", 1),
        ("a/2", "x", 0),
        ("b", "y", 2),
        ("$c", "z", 0),
    ):
        publisher.publish(topic, payload, qos, retain=True)
    publisher.disconnect()
    if power_cut:
        world.power_cut()
    client = world.accepted("c", version=version)
    client.subscribe("a/+", qos=2)
    received = client.take_all(Publish)
    assert [(packet.topic, packet.payload, packet.qos, packet.retain) for packet in received] == [
        ("a/1", b"new", 1, True),
        ("a/2", b"x", 0, True),
    ]
    client.subscribe("#", qos=0)
    assert [packet.payload for packet in client.take_all(Publish)] == [b"new", b"x", b"y"]


@pytest.mark.mqtt("311:MQTT-3.3.1-7")
def test_a_retained_message_at_qos_0_replaces_the_old_one_as_well() -> None:
    world = World()
    publisher = world.accepted(answers=True)
    publisher.publish("t", "old", qos=2, retain=True)
    publisher.publish("t", "new", qos=0, retain=True)
    client = world.accepted()
    client.subscribe("t")
    assert client.payloads == [b"new"]


@pytest.mark.mqtt("MQTT-3.3.1-6", "MQTT-3.3.1-7", "311:MQTT-3.3.1-10", "311:MQTT-3.3.1-11")
@VERSIONS
@POWER_CUT
def test_an_empty_message_is_forwarded_and_removes_the_old_one(
    version: Version, power_cut: bool
) -> None:
    world = World()
    publisher = world.accepted("p", version=version, answers=True)
    publisher.publish("t", "x", qos=1, retain=True)
    watcher = world.accepted(version=version)
    watcher.subscribe("t")
    watcher.take_all()
    publisher.publish("t", "", qos=1, retain=True)
    assert watcher.take(Publish) == Publish("t", b"", 1, 2)
    if power_cut:
        world.power_cut()
    client = world.accepted(version=version)
    client.subscribe("t")
    assert client.received == []
    assert world.rows("SELECT * FROM retained") == []


@pytest.mark.mqtt("MQTT-3.3.1-8", "311:MQTT-3.3.1-12")
def test_a_message_without_retain_changes_nothing_that_is_retained() -> None:
    world = World()
    publisher = world.accepted(answers=True)
    for payload, retain in (("kept", True), ("passing", False), ("", False)):
        publisher.publish("t", payload, qos=1, retain=retain)
    client = world.accepted()
    client.subscribe("t")
    assert client.payloads == [b"kept"]


@pytest.mark.mqtt("MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11")
@pytest.mark.parametrize(("handling", "times"), [(0, 2), (1, 1), (2, 0)])
def test_retain_handling_says_when_they_are_sent(handling: int, times: int) -> None:
    world = World()
    world.accepted().publish("t", "x", retain=True)
    client = world.accepted()
    for _ in range(2):
        client.subscribe(Subscription("t", 1, retain_handling=handling))
    assert client.payloads == [b"x"] * times


@pytest.mark.parametrize("version", [Version.V3_1_1, Version.V5])
def test_a_shared_subscription_gets_no_retained_messages(version: Version) -> None:
    """MQTT 3.1.1 does not specify shared subscriptions. The broker accepts them from clients of
    MQTT 3.1.1 all the same, as other brokers do.
    """
    world = World()
    world.accepted().publish("t", "x", retain=True)
    client = world.accepted(version=version)
    client.subscribe("$share/g/t")
    assert client.payloads == []


@pytest.mark.mqtt("MQTT-3.3.1-12", "MQTT-3.3.1-13", "311:MQTT-3.3.1-9")
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("qos", [0, 2])
def test_retain_flag_is_forwarded_to_subscriptions_that_ask_for_it(
    as_published: bool, qos: int
) -> None:
    world = World()
    client = world.durable("c")
    client.subscribe(Subscription("t", 2, retain_as_published=as_published))
    world.power_cut()
    client = world.durable("c")
    publisher = world.accepted(answers=True)
    for retain in (True, False):
        publisher.publish("t", "x", qos=qos, retain=retain)
    assert [packet.retain for packet in client.take_all(Publish)] == [as_published, False]


def test_an_answer_for_a_retained_message_waits_for_the_disk() -> None:
    world = World()
    publisher = world.accepted()
    world.slow_disk = True
    publisher.publish("t", "x", qos=1, retain=True)
    assert publisher.received == []
    world.commit()
    publisher.take(Puback)


@POWER_CUT
def test_a_retained_message_expires(power_cut: bool) -> None:
    world = World()
    publisher = world.accepted()
    publisher.publish(
        "a", "x", retain=True, properties={P.MESSAGE_EXPIRY_INTERVAL: 10, P.CONTENT_TYPE: "c"}
    )
    publisher.publish(
        "b", "y", retain=True, properties={P.MESSAGE_EXPIRY_INTERVAL: 100, P.CONTENT_TYPE: "c"}
    )
    world.sleep(30)
    if power_cut:
        world.power_cut()
    client = world.accepted()
    client.subscribe("+")
    packet = client.take(Publish)
    assert (packet.payload, packet.properties) == (
        b"y",
        {P.MESSAGE_EXPIRY_INTERVAL: 70, P.CONTENT_TYPE: "c"},
    )
    assert world.rows("SELECT topic FROM retained") == [("b",)]


def test_the_number_of_retained_messages_has_a_bound() -> None:
    world = World(retained=2)
    publisher = world.accepted()
    for topic, reason in (
        ("a", R.SUCCESS),
        ("b", R.SUCCESS),
        ("c", R.QUOTA_EXCEEDED),
        ("a", R.SUCCESS),
    ):
        publisher.publish(topic, "x", qos=1, retain=True)
        assert publisher.take(Puback).reason == reason
    publisher.publish("a", "", qos=1, retain=True)
    publisher.publish("c", "x", qos=1, retain=True)
    assert [packet.reason for packet in publisher.take_all()] == [R.SUCCESS, R.SUCCESS]


def test_the_last_message_of_a_run_is_retained() -> None:
    world = World()
    publisher = world.accepted()
    publisher.publish("t", "0")
    publisher.send(*(Publish("t", b"%d" % number, retain=True) for number in range(1, 6)))
    client = world.accepted()
    client.subscribe("t")
    assert client.payloads == [b"5"]
