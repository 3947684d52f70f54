"""SUBSCRIBE, UNSUBSCRIBE and shared subscriptions (MQTT 5, sections 3.8 to 3.11, 4.7 and 4.8)."""

import pytest

from gateway.access.rules import Policy
from gateway.broker.connection import Connection
from gateway.mqtt.packets import (
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Anonymous, Client, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
VERSIONS = pytest.mark.parametrize("version", [V3, V4, V5])
POWER_CUT = pytest.mark.parametrize("power_cut", [False, True])


class Secretive(Anonymous):
    """Access rules that forbid every client to subscribe to `secret`."""

    def refuses_subscribe(self, connection: Connection, topic_filter: str) -> R | None:
        return R.NOT_AUTHORIZED if "secret" in topic_filter else None


@pytest.mark.mqtt(
    *(
        "MQTT-3.8.4-1",
        "MQTT-3.8.4-2",
        "MQTT-3.8.4-6",
        "MQTT-3.8.4-7",
        "MQTT-3.9.3-1",
        "MQTT-3.9.3-2",
        "MQTT-3.10.4-4",
        "MQTT-3.10.4-5",
    ),
    *(
        "MQTT-3.11.3-1",
        "MQTT-3.11.3-2",
        "MQTT-2.2.1-6",
        "311:MQTT-3.8.4-1",
        "311:MQTT-3.8.4-2",
        "311:MQTT-3.8.4-5",
        "311:MQTT-3.9.3-1",
    ),
    *("311:MQTT-3.9.3-2", "311:MQTT-3.10.4-4", "311:MQTT-3.10.4-5", "311:MQTT-2.3.1-7"),
)
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("packet_id", [1, 256, 65535])
def test_each_request_has_its_answer_byte_by_byte(version: Version, packet_id: int) -> None:
    client = World().accepted("c", version=version, policy=Policy(Secretive()))
    before = len(client.raw)
    wanted = [
        Subscription(name, qos)
        for name, qos in (("a", 1), ("secret", 2), ("b", 2), ("a", 0), ("secret/#", 0))
    ]
    client.send(Subscribe(packet_id, wanted))
    client.send(Unsubscribe(packet_id, ["b", "nothing", "secret", "a"]))
    identifier = packet_id.to_bytes(2, "big")
    if version == V5:
        expected = (
            b"\x90\x08"
            + identifier
            + b"\0\1\x87\2\0\x87"
            + b"\xb0\x07"
            + identifier
            + b"\0\0\x11\x11\0"
        )
    else:
        expected = b"\x90\x07" + identifier + b"\1\x80\2\0\x80" + b"\xb0\x02" + identifier
    assert client.raw[before:] == expected


@pytest.mark.mqtt("MQTT-3.8.4-7", "311:MQTT-3.8.4-5")
@pytest.mark.parametrize("version", [V4, V5])
def test_a_filter_that_is_refused_subscribes_to_nothing_and_harms_no_other(
    version: Version,
) -> None:
    world = World()
    client = world.accepted("c", version=version, policy=Policy(Secretive()))
    client.subscribe("secret", "open")
    publisher = world.accepted()
    publisher.publish("secret", "1")
    publisher.publish("open", "2")
    assert client.payloads == [b"2"]


@pytest.mark.mqtt("MQTT-3.8.4-3", "311:MQTT-3.8.4-3")
@POWER_CUT
def test_all_options_of_a_replaced_subscription_are_the_new_ones(power_cut: bool) -> None:
    world = World()
    client = world.durable("c")
    client.subscribe(Subscription("t", 2, True, True, 2), subscription_identifier=[5])
    client.subscribe(Subscription("t", 1, False, False, 2))
    if power_cut:
        world.power_cut()
        client = world.durable("c")
    client.publish("t", "own", 1, packet_id=9, retain=True)
    assert client.take(Publish) == Publish("t", b"own", 1, 1)
    assert world.broker.router.count == 1


@pytest.mark.mqtt("MQTT-3.8.4-4", "311:MQTT-3.8.4-3")
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("qos", [1, 2])
def test_replacing_a_subscription_interrupts_no_delivery(version: Version, qos: int) -> None:
    world = World(inflight=1)
    client = world.accepted("c", version=version)
    client.subscribe("t")
    publisher = world.accepted(answers=True)
    for payload in ("1", "2"):
        publisher.publish("t", payload, qos)
    client.send(Subscribe(5, [Subscription("t", 2)]))
    assert client.take(Publish).payload == b"1"
    assert client.take(Suback) == Suback(5, [R.GRANTED_QOS_2])
    client.send(Puback(1) if qos == 1 else Pubrec(1))
    if qos == 2:
        client.take(Pubrel)
        client.send_bytes(b"\x70\2\0\1")
    assert client.payloads == [b"2"]


@pytest.mark.mqtt("MQTT-3.10.4-2", "MQTT-3.10.4-3", "311:MQTT-3.10.4-2", "311:MQTT-3.10.4-3")
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("qos", [1, 2])
@POWER_CUT
def test_delivery_begun_before_unsubscribe_is_completed_even_on_another_connection(
    version: Version, qos: int, power_cut: bool
) -> None:
    world = World()

    def connect() -> Client:
        return world.accepted(
            "c", version=version, clean=False, properties=FOREVER if version == V5 else None
        )

    client = connect()
    client.subscribe("t")
    publisher = world.accepted("p", answers=True)
    publisher.publish("t", "1", qos)
    client.take(Publish)
    client.send(Unsubscribe(5, ["t"]))
    client.take(Unsuback)
    publisher.publish("t", "2", qos)
    assert client.received == []
    world.power_cut() if power_cut else client.drop()
    client = connect()
    assert client.take_all() == [Publish("t", b"1", qos, 1, dup=True)]
    world.accepted("p", answers=True).publish("t", "3", qos)
    assert client.received == []


@pytest.mark.mqtt("MQTT-3.10.4-1", "311:MQTT-3.10.4-1", "MQTT-4.7.3-4", "311:MQTT-4.7.3-4")
@VERSIONS
def test_filters_are_compared_character_by_character(version: Version) -> None:
    world = World()
    client = world.accepted("c", version=version)
    filters = [
        "a",
        "A",
        "a/",
        "/a",
        "a/b",
        "a//b",
        "a/+",
        "a/#",
        "ä",
        "a\u0308",
        "\ufeffa",
        "$share/g/a",
        "$SHARE/g/a",
    ]
    client.subscribe(*filters)
    assert world.broker.router.count == len(filters)
    for topic_filter in filters:
        client.send(Unsubscribe(5, [topic_filter]))
    assert world.broker.router.count == 0


@pytest.mark.mqtt("MQTT-3.3.4-2", "MQTT-3.3.4-4", "311:MQTT-3.3.5-1")
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize(
    "order", [("a/#", "a/b", "+/b"), ("+/b", "a/#", "a/b"), ("a/b", "+/b", "a/#")]
)
@POWER_CUT
def test_overlapping_subscriptions_have_the_highest_of_their_qos(
    version: Version, order: tuple[str, ...], power_cut: bool
) -> None:
    world = World()
    options = {"version": version, "clean": False, "properties": FOREVER if version == V5 else None}
    client = world.accepted("c", **options)
    for topic_filter in order:
        client.subscribe(Subscription(topic_filter, {"a/#": 0, "a/b": 1, "+/b": 2}[topic_filter]))
    if power_cut:
        world.power_cut()
        client = world.accepted("c", **options)
    world.accepted(answers=True).publish("a/b", "x", 2)
    assert client.take_all() == [Publish("a/b", b"x", 2, 1)]


@pytest.mark.mqtt("MQTT-3.3.4-3", "MQTT-3.3.4-4", "MQTT-3.3.4-5")
@pytest.mark.parametrize("largest", [127, 128, 16_383, 16_384, 268_435_455])
def test_every_copy_names_the_subscriptions_that_caused_it(largest: int) -> None:
    world = World()
    client = world.accepted("c", answers=True)
    client.subscribe("t", subscription_identifier=[largest])
    client.subscribe("+", subscription_identifier=[2])
    client.subscribe("$share/g/t", subscription_identifier=[3])
    client.subscribe("$share/h/t")
    client.subscribe("other", subscription_identifier=[4])
    world.accepted(answers=True).publish("t", "x", 1)
    copies = [
        sorted((packet.properties or {}).get(P.SUBSCRIPTION_IDENTIFIER, []))
        for packet in client.take_all(Publish)
    ]
    assert sorted(copies) == [[], [2, largest], [3]]


@pytest.mark.mqtt("MQTT-3.8.3-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local_is_about_the_client_identifier_not_the_connection(qos: int) -> None:
    world = World()
    client = world.durable("c")
    client.subscribe(Subscription("t", 2, no_local=True))
    client.publish("t", "own", qos, packet_id=3 if qos else 0)
    client.drop()
    client = world.durable("c")
    client.publish("t", "own", qos, packet_id=4 if qos else 0)
    world.accepted("d", answers=True).publish("t", "foreign", qos)
    assert [packet.payload for packet in client.take_all(Publish)] == [b"foreign"]


@pytest.mark.mqtt(
    "MQTT-4.7.1-1",
    "MQTT-4.7.1-2",
    "MQTT-4.7.2-1",
    "311:MQTT-4.7.1-2",
    "311:MQTT-4.7.1-3",
    "311:MQTT-4.7.2-1",
)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("topic_filter", "matches", "others"),
    [
        (
            "sport/tennis/+",
            ["sport/tennis/a", "sport/tennis/"],
            ["sport/tennis", "sport/tennis/a/b"],
        ),
        ("sport/+", ["sport/"], ["sport", "/sport"]),
        ("sport/#", ["sport", "sport/", "sport/a/b/c"], ["sports", "Sport/a", "/sport"]),
        ("+/+", ["/finance", "a/b", "/"], ["finance", "a/b/c", "$BUS/b"]),
        ("/+", ["/finance", "/"], ["finance", "//"]),
        ("#", ["a", "/", "a/b"], ["$BUS", "$BUS/a"]),
        ("+/monitor/Clients", ["a/monitor/Clients"], ["$BUS/monitor/Clients"]),
        ("$BUS/#", ["$BUS", "$BUS/a"], ["SYS/a", "a/$BUS"]),
        ("$BUS/+/x", ["$BUS/a/x", "$BUS/$b/x"], ["$BUS/x"]),
        ("a/$b/+", ["a/$b/c"], ["a/b/c"]),
    ],
)
def test_wildcards(topic_filter: str, matches: list[str], others: list[str], shared: bool) -> None:
    world = World()
    client = world.accepted("c")
    client.subscribe(f"$share/group/{topic_filter}" if shared else topic_filter)
    publisher = world.accepted()
    for name in matches + others:
        publisher.publish(name)
    assert [packet.topic for packet in client.take_all()] == matches


# -- shared subscriptions


@pytest.mark.mqtt("MQTT-4.8.2-4", "MQTT-4.8.2-5")
@POWER_CUT
@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("end", ["expiry", "clean start", "disconnect"])
def test_begun_shared_qos_2_delivery_stays_with_its_client(
    power_cut: bool, released: bool, end: str
) -> None:
    world = World()
    first = world.accepted("first", clean=False, properties={P.SESSION_EXPIRY_INTERVAL: 100})
    first.subscribe("$share/g/t")
    world.accepted(answers=True).publish("t", "x", 2)
    first.take(Publish)
    if released:
        first.send(Pubrec(1))
        first.take(Pubrel)
    world.power_cut() if power_cut else first.drop()
    second = world.durable("second", answers=True)
    second.subscribe("$share/g/t")
    first = world.accepted("first", clean=False, properties={P.SESSION_EXPIRY_INTERVAL: 100})
    assert first.take_all() == [Pubrel(1) if released else Publish("t", b"x", 2, 1, dup=True)]
    match end:
        case "expiry":
            first.drop()
            world.sleep(101)
        case "clean start":
            world.accepted("first", clean=True)
        case _:
            first.disconnect(R.NORMAL_DISCONNECTION, {P.SESSION_EXPIRY_INTERVAL: 0})
    assert second.received == []
    world.accepted("p", answers=True).publish("t", "y", 2)
    world.clients[world.broker.sessions["second"].connection].drop()


@POWER_CUT
@pytest.mark.parametrize("qos", [1, 2])
def test_undelivered_messages_of_a_member_reach_the_others_once_despite_power_cuts(
    power_cut: bool, qos: int
) -> None:
    """MQTT 5, section 4.8.2: the broker gives other members the unsent messages of a shared
    subscription, and at QoS 1 also the unacknowledged ones.
    """
    world = World()
    first = world.accepted(
        "first", clean=False, properties={P.SESSION_EXPIRY_INTERVAL: 100, P.RECEIVE_MAXIMUM: 2}
    )
    first.subscribe("$share/g/t")
    publisher = world.accepted(answers=True)
    publisher.send(*(Publish("t", b"%d" % number, qos, number) for number in range(1, 8)))
    assert first.payloads == [b"1", b"2"]
    if qos == 1:
        first.send(Puback(1))
    first.drop()
    world.commit()
    if power_cut:
        world.power_cut()
    second = world.durable("second")
    second.subscribe("$share/g/t")
    second.drop()
    world.sleep(101)
    world.commit()
    assert "first" not in world.broker.sessions
    if power_cut:
        world.power_cut()
    second = world.durable("second", answers=True)
    assert sorted(second.payloads) == [b"%d" % number for number in range(2 if qos == 1 else 3, 8)]
    world.commit()
    assert (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM message")
        == [(0,)]
    )


@pytest.mark.mqtt("MQTT-4.8.2-6")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_shared_message_is_gone_even_when_its_member_is(qos: int) -> None:
    world = World()
    first = world.durable("first")
    first.subscribe("$share/g/t")
    world.accepted(answers=True).publish("t", "x", qos)
    first.send(Puback(1, R.UNSPECIFIED_ERROR) if qos == 1 else Pubrec(1, R.UNSPECIFIED_ERROR))
    second = world.durable("second")
    second.subscribe("$share/g/t")
    first.disconnect(R.NORMAL_DISCONNECTION, {P.SESSION_EXPIRY_INTERVAL: 0})
    assert second.received == []


@pytest.mark.mqtt("MQTT-4.8.2-3")
@POWER_CUT
def test_members_may_have_different_qos_and_each_keeps_its_own(power_cut: bool) -> None:
    world = World()
    for qos in (0, 1, 2):
        world.durable(f"m{qos}").subscribe("$share/g/t", qos=qos)
    if power_cut:
        world.power_cut()
    members = [world.durable(f"m{qos}", answers=True) for qos in (0, 1, 2)]
    publisher = world.accepted(answers=True)
    for _ in range(9):
        publisher.publish("t", "x", 2)
    assert [[packet.qos for packet in member.take_all(Publish)] for member in members] == [
        [qos] * 3 for qos in (0, 1, 2)
    ]


def test_groups_and_filters_make_shared_subscriptions_of_their_own() -> None:
    world = World()
    client = world.accepted("c", answers=True)
    client.subscribe("$share/g/t", "$share/h/t", "$share/g/+", "t")
    other = world.accepted("d", answers=True)
    other.subscribe("$share/g/t")
    publisher = world.accepted()
    for _ in range(4):
        publisher.publish("t", "x")
    assert len(client.payloads) == 4 * 3 + 2
    assert len(other.payloads) == 2
