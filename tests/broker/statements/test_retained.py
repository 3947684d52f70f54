"""Retained messages (MQTT 5, section 3.3.1.3; options of section 3.8.3.1)."""

import pytest

from gateway.mqtt.packets import Publish, Suback, Subscribe, Subscription, Unsubscribe, Version
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Client, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
VERSIONS = pytest.mark.parametrize("version", [V3, V4, V5])
POWER_CUT = pytest.mark.parametrize("power_cut", [False, True])


def retained(world: World, topic_filter: str = "#", version: Version = V5) -> list[Publish]:
    """Return the messages that a new subscription gets."""
    client = (
        world.accepted(version=version) if version > V3 else world.accepted("new", version=version)
    )
    client.subscribe(topic_filter)
    packets = client.take_all(Publish)
    client.disconnect()
    return packets


@pytest.mark.mqtt(
    "MQTT-3.3.1-5", "311:MQTT-3.3.1-5", "311:MQTT-3.3.1-6", "311:MQTT-3.3.1-7", "311:MQTT-3.3.1-8"
)
@VERSIONS
@POWER_CUT
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_last_retained_message_of_each_topic_awaits_new_subscriptions(
    version: Version, power_cut: bool, qos: int
) -> None:
    world = World()
    publisher = world.accepted("p", version=version, answers=True)
    for topic, payload in (("a", "old"), ("b", "b"), ("a", "new")):
        publisher.publish(topic, payload, qos=2 if payload == "old" else qos, retain=True)
    if power_cut:
        world.sleep(1)
        world.power_cut()
    assert sorted(
        (packet.topic, packet.payload, packet.qos, packet.retain, packet.dup)
        for packet in retained(world, version=version)
    ) == [
        ("a", b"new", qos, True, False),
        ("b", b"b", qos, True, False),
    ]


@pytest.mark.mqtt("MQTT-3.3.1-6", "MQTT-3.3.1-7", "311:MQTT-3.3.1-10", "311:MQTT-3.3.1-11")
@VERSIONS
@POWER_CUT
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_retained_message_removes_the_old_one_and_is_passed_on(
    version: Version, power_cut: bool, qos: int
) -> None:
    world = World()
    hearer = world.accepted("hearer", answers=True)
    hearer.subscribe("t")
    publisher = world.accepted("p", version=version, answers=True)
    publisher.publish("t", "old", qos=2, retain=True)
    publisher.publish("t", "", qos=qos, retain=True)
    publisher.publish("new", "", qos=qos, retain=True)
    if power_cut:
        world.sleep(1)
        world.power_cut()
    assert retained(world, version=version) == []
    assert hearer.payloads == [b"old", b""]
    assert world.broker.retained.count == 0
    assert world.rows("SELECT * FROM retained") == []


@pytest.mark.mqtt("MQTT-3.3.1-8", "311:MQTT-3.3.1-12")
@VERSIONS
def test_a_message_that_is_not_retained_leaves_the_retained_one_alone(version: Version) -> None:
    world = World()
    publisher = world.accepted("p", version=version, answers=True)
    for qos in (0, 1, 2):
        publisher.publish("empty", "x", qos)
    publisher.publish("t", "kept", 1, retain=True)
    for payload in ("other", ""):
        for qos in (0, 1, 2):
            publisher.publish("t", payload, qos)
    assert [(packet.topic, packet.payload) for packet in retained(world)] == [("t", b"kept")]


@pytest.mark.mqtt("MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11")
@pytest.mark.parametrize(
    ("handling", "first", "again", "after_end"), [(0, 1, 1, 1), (1, 1, 0, 1), (2, 0, 0, 0)]
)
@POWER_CUT
def test_retain_handling(
    handling: int, first: int, again: int, after_end: int, power_cut: bool
) -> None:
    """first, again, after_end: number of retained messages that the client receives for its first
    SUBSCRIBE, for a second one with the same filter, and for one after UNSUBSCRIBE.
    """
    world = World()
    world.accepted(answers=True).publish("t", "kept", 1, retain=True)
    client = world.durable("c")

    def subscribe() -> int:
        client.subscribe(Subscription("t", 1, retain_handling=handling))
        return len(client.take_all(Publish))

    counts = [subscribe()]
    if power_cut:
        world.power_cut()
        client = world.durable("c")
        client.take_all()
    counts.append(subscribe())
    client.send(Unsubscribe(2, ["t"]))
    client.take_all()
    counts.append(subscribe())
    assert counts == [first, again, after_end]


@pytest.mark.mqtt("MQTT-3.3.1-12", "MQTT-3.3.1-13", "311:MQTT-3.3.1-9")
@POWER_CUT
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_an_existing_subscription_sees_retain_only_if_it_asked_for_it(
    retain: bool, qos: int, power_cut: bool
) -> None:
    world = World()
    plain, published = world.durable("plain"), world.durable("as published")
    plain.subscribe(Subscription("t", 2), "$share/g/t")
    published.subscribe(Subscription("t", 2, retain_as_published=True))
    old = world.accepted("old", version=V4, clean=False)
    old.subscribe("t")
    if power_cut:
        world.power_cut()
        plain, published = world.durable("plain"), world.durable("as published")
        old = world.accepted("old", version=V4, clean=False)
    world.accepted().publish("t", "x", qos, retain=retain)
    assert {packet.retain for packet in plain.take_all(Publish)} == {False}
    assert published.take(Publish).retain == retain
    assert not old.take(Publish).retain


@pytest.mark.mqtt("MQTT-3.3.1-12", "MQTT-3.3.1-13")
@pytest.mark.parametrize("as_published", [False, True])
def test_members_of_a_shared_subscription_see_retain_as_published_too(as_published: bool) -> None:
    world = World()
    client = world.accepted()
    client.subscribe(Subscription("$share/g/t", 1, retain_as_published=as_published))
    world.accepted(answers=True).publish("t", "x", 1, retain=True)
    assert client.take(Publish).retain == as_published


@pytest.mark.mqtt("311:MQTT-3.1.2-7", "MQTT-3.3.1-5")
@VERSIONS
def test_retained_messages_outlive_the_session_of_their_publisher(version: Version) -> None:
    world = World()
    publisher = world.accepted("p", version=version)
    publisher.publish("t", "kept", retain=True)
    publisher.disconnect()
    world.accepted("p", version=version).disconnect()
    assert "p" not in world.broker.sessions
    assert [packet.payload for packet in retained(world)] == [b"kept"]


@pytest.mark.mqtt("MQTT-3.8.4-8", "311:MQTT-3.8.4-6")
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_retained_message_goes_out_at_the_lower_of_both_qos(
    version: Version, granted: int, published: int
) -> None:
    world = World()
    world.accepted(answers=True).publish("t", "x", published, retain=True)
    client = world.accepted("c", version=version)
    client.subscribe("t", qos=granted)
    assert client.take(Publish).qos == min(granted, published)


@pytest.mark.mqtt("MQTT-3.8.4-4", "311:MQTT-3.8.4-3")
@pytest.mark.parametrize("version", [V4, V5])
def test_a_refused_filter_gets_no_retained_messages(version: Version) -> None:
    world = World(subscriptions=1)
    world.accepted().publish("t", "kept", retain=True)
    client = world.accepted("c", version=version)
    client.subscribe("other")
    client.subscribe("t")
    assert client.received == []


@pytest.mark.mqtt("MQTT-3.3.4-3", "MQTT-3.3.2-17", "MQTT-3.3.2-20")
@POWER_CUT
def test_a_retained_message_has_its_properties_and_the_identifier_of_the_subscription(
    power_cut: bool,
) -> None:
    world = World()
    passed = {P.CONTENT_TYPE: "text/plain", P.USER_PROPERTY: [("b", "1"), ("a", "2")]}
    world.accepted(answers=True).publish("t", "x", 1, retain=True, properties=passed)
    if power_cut:
        world.power_cut()
    client = world.accepted()
    client.subscribe("t", subscription_identifier=[300])
    assert client.take(Publish).properties == passed | {P.SUBSCRIPTION_IDENTIFIER: [300]}


@pytest.mark.mqtt("MQTT-3.3.2-5", "MQTT-3.3.2-6")
@POWER_CUT
def test_a_retained_message_says_how_long_it_still_lives_and_then_is_gone(power_cut: bool) -> None:
    world = World()
    publisher = world.accepted(answers=True)
    publisher.publish("t", "x", 1, retain=True, properties={P.MESSAGE_EXPIRY_INTERVAL: 100})
    world.sleep(30)
    if power_cut:
        world.power_cut()
    assert [packet.properties for packet in retained(world)] == [{P.MESSAGE_EXPIRY_INTERVAL: 70}]
    world.sleep(69)
    assert len(retained(world)) == 1
    world.sleep(1)
    assert retained(world) == []
    assert world.rows("SELECT * FROM retained") == []


def test_a_wildcard_in_first_place_gets_no_retained_message_of_a_dollar_topic() -> None:
    """[MQTT-4.7.2-1] [311:MQTT-4.7.2-1]"""
    world = World()
    publisher = world.accepted()
    for topic in ("$x/a", "y/a"):
        publisher.publish(topic, topic, retain=True)
    for topic_filter, expected in (
        ("#", [b"y/a"]),
        ("+/a", [b"y/a"]),
        ("$x/#", [b"$x/a"]),
        ("$x/+", [b"$x/a"]),
    ):
        assert [packet.payload for packet in retained(world, topic_filter)] == expected


@pytest.mark.mqtt("MQTT-3.8.4-3", "MQTT-3.8.4-5", "311:MQTT-3.8.4-4")
def test_filters_of_one_packet_act_like_packets_of_their_own() -> None:
    world = World()
    world.accepted().publish("a/b", "kept", retain=True)
    together, alone = world.accepted(), world.accepted()
    wanted = [
        Subscription("a/#", 1),
        Subscription("a/b", 0),
        Subscription("a/#", 0, retain_handling=1),
        Subscription("a/#", 2),
    ]
    together.send(Subscribe(5, wanted))
    assert together.take(Suback) == Suback(
        5, [R.GRANTED_QOS_1, R.GRANTED_QOS_0, R.GRANTED_QOS_0, R.GRANTED_QOS_2]
    )
    alone.send(*(Subscribe(5, [item]) for item in wanted))
    assert together.take_all() == alone.take_all(Publish)


@pytest.mark.mqtt("MQTT-3.8.3-3")
@POWER_CUT
def test_no_local_keeps_a_clients_own_retained_messages_away_too(power_cut: bool) -> None:
    """No Local depends on the client identifier of the publisher, even if the publisher's
    connection has ended.
    """
    world = World()
    publisher = world.durable("c", answers=True)
    publisher.publish("own", "x", 1, retain=True)
    world.accepted("other", answers=True).publish("foreign", "x", 1, retain=True)
    if power_cut:
        world.power_cut()
    client = world.connect("c", clean=False, properties=FOREVER)
    client.take_all()
    client.subscribe(Subscription("#", 1, no_local=True))
    assert [packet.topic for packet in client.take_all(Publish)] == ["foreign"]
    client.subscribe("own")
    assert [packet.topic for packet in client.take_all(Publish)] == ["own"]


@pytest.mark.mqtt("MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_too_large_for_a_client_is_left_out(qos: int) -> None:
    world = World()
    publisher = world.accepted(answers=True)
    publisher.publish("t/large", bytes(200), qos, retain=True)
    publisher.publish("t/small", "x", qos, retain=True)
    client: Client = world.accepted(properties={P.MAXIMUM_PACKET_SIZE: 100}, answers=True)
    client.subscribe("t/#")
    assert client.payloads == [b"x"]
    assert not client.closed
