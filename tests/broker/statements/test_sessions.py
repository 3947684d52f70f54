"""Sessions: their content, how long they last, and clients of different MQTT versions (MQTT 5,
sections 3.1.2, 4.1 and 4.5).
"""

import pytest

from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Client, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
VERSIONS = pytest.mark.parametrize("version", [V3, V4, V5])
POWER_CUT = pytest.mark.parametrize("power_cut", [False, True])


def kept(world: World, name: str, version: Version) -> Client:
    return world.accepted(
        name, version=version, clean=False, properties=FOREVER if version == V5 else None
    )


def leave(world: World, client: Client, power_cut: bool) -> None:
    world.commit()
    world.power_cut() if power_cut else client.drop()


@pytest.mark.mqtt(
    *(
        "MQTT-4.1.0-1",
        "MQTT-3.1.2-5",
        "MQTT-3.1.2-23",
        "MQTT-4.5.0-1",
        "MQTT-4.4.0-1",
        "MQTT-4.3.3-5",
        "MQTT-4.3.3-10",
    ),
    *(
        "311:MQTT-4.1.0-1",
        "311:MQTT-3.1.2-4",
        "311:MQTT-3.1.2-5",
        "311:MQTT-4.5.0-1",
        "311:MQTT-4.4.0-1",
    ),
)
@pytest.mark.parametrize("before", [V4, V5])
@pytest.mark.parametrize("after", [V4, V5])
@POWER_CUT
def test_a_session_keeps_all_that_belongs_to_it_even_for_another_version(
    before: Version, after: Version, power_cut: bool
) -> None:
    """The session has a subscription, outbound messages at QoS 1 and 2 (sent, released by PUBREL,
    and not yet sent), and an inbound message at QoS 2. After a power cut, DUP is also set on
    messages that may not have been sent.
    """
    world = World(inflight=3)
    client = kept(world, "c", before)
    client.subscribe("t")
    publisher = world.accepted("p", answers=True)
    for number, qos in ((1, 1), (2, 2), (3, 2), (4, 1)):
        publisher.publish("t", str(number), qos)
    client.take_all()
    client.send(Pubrec(2))
    client.take_all()
    client.publish("elsewhere", "x", 2, packet_id=77)
    client.take_all()
    leave(world, client, power_cut)
    publisher = world.accepted("p", answers=True)
    publisher.publish("t", "5", 2)
    client = kept(world, "c", after)
    assert client.take_all() == [
        Pubrel(2),
        Publish("t", b"1", 1, 1, dup=True),
        Publish("t", b"3", 2, 3, dup=True),
    ]
    client.send(Puback(1), Pubcomp(2))
    assert client.take_all() == [Publish("t", b"4", 1, 4, dup=power_cut), Publish("t", b"5", 2, 5)]
    client.publish("elsewhere", "x", 2, packet_id=77, dup=True)
    assert client.take(Pubrec) == Pubrec(77)
    assert world.broker.statistics.repeated == 1


@pytest.mark.mqtt("MQTT-4.1.0-2", "311:MQTT-3.1.2-6", "311:MQTT-4.1.0-2")
@VERSIONS
@pytest.mark.parametrize("end", ["disconnect", "drop", "power cut"])
def test_a_session_that_is_not_to_be_kept_ends_with_its_connection(
    version: Version, end: str
) -> None:
    world = World()
    client = world.accepted("c", version=version)
    client.subscribe("t")
    client.publish("u", "x", 2, packet_id=5)
    world.sleep(1000)
    world.accepted("p").publish("t", "here")
    assert b"here" in client.payloads
    match end:
        case "disconnect":
            client.disconnect()
        case "drop":
            client.drop()
        case _:
            world.power_cut()
    assert "c" not in world.broker.sessions
    assert not kept(world, "c", version).received
    world.commit()
    assert world.rows("SELECT count(*) FROM subscription") == [(0,)]


@pytest.mark.mqtt("MQTT-4.1.0-2", "MQTT-3.1.2-23")
@pytest.mark.parametrize(
    ("expiry", "away", "present"),
    [(1, 0.5, True), (1, 1, False), (100, 99, True), (100, 100, False)],
)
@POWER_CUT
def test_the_session_lasts_exactly_as_long_as_was_asked_for(
    expiry: int, away: float, present: bool, power_cut: bool
) -> None:
    world = World()
    client = world.accepted("c", clean=False, properties={P.SESSION_EXPIRY_INTERVAL: expiry})
    world.sleep(10 * expiry)
    client.drop()
    world.commit()
    if power_cut:
        world.power_cut()
    world.loop.now += away
    assert world.connect("c", clean=False).take(Connack).session_present == present


def test_the_expiry_interval_of_disconnect_counts() -> None:
    """MQTT 5, section 3.14.2.2.2."""
    world = World()
    client = world.accepted("c", clean=False, properties={P.SESSION_EXPIRY_INTERVAL: 10})
    client.disconnect(R.NORMAL_DISCONNECTION, {P.SESSION_EXPIRY_INTERVAL: 100})
    world.sleep(50)
    assert world.connect("c", clean=False).take(Connack).session_present


@pytest.mark.mqtt("MQTT-3.14.2-2")
@pytest.mark.parametrize(
    "reason", [R.SESSION_TAKEN_OVER, R.SERVER_SHUTTING_DOWN, R.KEEP_ALIVE_TIMEOUT, R.PROTOCOL_ERROR]
)
def test_our_disconnect_has_no_expiry_interval(reason: R) -> None:
    world = World()
    client = world.durable("c", keep_alive=10)
    match reason:
        case R.SESSION_TAKEN_OVER:
            world.durable("c")
        case R.SERVER_SHUTTING_DOWN:
            world.dismiss(client, reason)
        case R.KEEP_ALIVE_TIMEOUT:
            world.sleep(16)
        case _:
            client.send(Connect("c"))
    packet = client.take(Disconnect)
    assert packet.reason == reason
    assert set(packet.properties) == {P.REASON_STRING}
    assert client.closed
    assert client.received == []


@pytest.mark.mqtt("MQTT-3.1.4-3", "311:MQTT-3.1.4-2")
@pytest.mark.parametrize("before", [V3, V4, V5])
@pytest.mark.parametrize("after", [V3, V4, V5])
def test_session_is_taken_over_between_any_versions(before: Version, after: Version) -> None:
    world = World()
    old = kept(world, "c", before)
    old.subscribe("t")
    world.accepted("p", answers=True).publish("t", "x", 1)
    assert old.take(Publish) == Publish("t", b"x", 1, 1)
    new = kept(world, "c", after)
    assert old.closed
    assert [packet.reason for packet in old.take_all()] == (
        [R.SESSION_TAKEN_OVER] if before == V5 else []
    )
    assert new.take_all() == [Publish("t", b"x", 1, 1, dup=True)]
    old.bring(b"\xc0\0")
    world.turn()
    assert old.received == []


@pytest.mark.mqtt(
    "MQTT-3.2.2-2", "MQTT-3.2.2-3", "311:MQTT-3.2.2-1", "311:MQTT-3.2.2-2", "311:MQTT-3.2.2-3"
)
@pytest.mark.parametrize("version", [V4, V5])
@POWER_CUT
def test_session_present_for_every_way_to_come_back(version: Version, power_cut: bool) -> None:
    world = World()
    present = []
    for keep, clean in (
        (True, False),
        (True, False),
        (True, True),
        (True, False),
        (False, False),
        (True, False),
        (False, True),
    ):
        if version == V5:
            client = world.connect("c", clean=clean, properties=FOREVER if keep else None)
        else:
            client = world.connect("c", version=V4, clean=clean)
        present.append(client.take(Connack).session_present)
        leave(world, client, power_cut)
    expected = (
        [False, True, False, True, True, False, False]
        if version == V5
        else [False, True, False, False, True, True, False]
    )
    assert present == expected


@pytest.mark.mqtt(
    "MQTT-4.6.0-5",
    "MQTT-4.6.0-6",
    "311:MQTT-4.6.0-5",
    "311:MQTT-4.6.0-6",
    "MQTT-4.6.0-1",
    "311:MQTT-4.6.0-1",
)
@pytest.mark.parametrize("version", [V4, V5])
@POWER_CUT
def test_order_is_kept_across_absence_and_repetition(version: Version, power_cut: bool) -> None:
    world = World(inflight=4)
    client = kept(world, "c", version)
    client.subscribe("t")
    numbers = iter(range(100))
    seen: dict[bytes, int] = {}
    for round_ in range(4):
        publisher = world.accepted("p", answers=True)
        for qos in (1, 2, 2, 1, 1):
            publisher.publish("t", b"%02d" % next(numbers), qos)
        client = kept(world, "c", version)
        for packet in client.take_all(Publish)[: 1 + round_]:
            seen.setdefault(packet.payload, len(seen))
            client.send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
        leave(world, client, power_cut)
    client = world.connect(
        "c",
        version=version,
        clean=False,
        properties=FOREVER if version == V5 else None,
        answers=True,
    )
    for payload in client.payloads:
        seen.setdefault(payload, len(seen))
    assert list(seen) == sorted(seen) == [b"%02d" % number for number in range(20)]


def test_properties_of_mqtt_5_stay_behind_for_older_clients_and_come_from_them_empty() -> None:
    world = World()
    old, new = world.accepted("old", version=V4, answers=True), world.accepted("new", answers=True)
    for client in (old, new):
        client.subscribe("t")
    new.publish(
        "t",
        "1",
        1,
        properties={
            P.CONTENT_TYPE: "x",
            P.MESSAGE_EXPIRY_INTERVAL: 10,
            P.USER_PROPERTY: [("a", "b")],
        },
    )
    old.publish("t", "2", 1)
    assert [packet.properties for packet in old.take_all(Publish)] == [None, None]
    assert [packet.properties for packet in new.take_all(Publish)][1] is None


def converse(client: Client, *exchanges: tuple[str, str]) -> None:
    """Send packets and check the answers. exchanges: packets from the client, and the expected
    answers, in hexadecimal.
    """
    for sent, answered in exchanges:
        before = len(client.raw)
        client.send_bytes(bytes.fromhex(sent))
        assert client.raw[before:] == bytes.fromhex(answered), sent


@pytest.mark.mqtt("311:MQTT-7.0.0-2", "311:MQTT-3.1.4-4", "311:MQTT-3.2.2-3", "311:MQTT-3.12.4-1")
def test_a_plain_conversation_in_3_1_1_byte_by_byte() -> None:
    """The conversation has only what the standard requires: no extension, no property, no option of
    Onceway.
    """
    client = World().open(V4)
    converse(
        client,
        ("10 0D 0004 4D515454 04 02 003C 0001 61", "20 02 00 00"),
        ("82 06 000A 0001 74 02", "90 03 000A 02"),
        ("30 05 0001 74 6869", "30 05 0001 74 6869"),
        ("32 07 0001 74 0001 6869", "32 07 0001 74 0001 6869 40 02 0001"),
        ("40 02 0001", ""),
        ("34 07 0001 74 0002 6869", "34 07 0001 74 0002 6869 50 02 0002"),
        ("50 02 0002", "62 02 0002"),
        ("62 02 0002", "70 02 0002"),
        ("70 02 0002", ""),
        ("A2 05 000B 0001 74", "B0 02 000B"),
        ("C0 00", "D0 00"),
        ("E0 00", ""),
    )
    assert client.closed


def test_a_plain_conversation_in_mqtt_5_byte_by_byte() -> None:
    """The same conversation as in MQTT 3.1.1. CONNACK also states the broker's limits."""
    world = World(receive_maximum=65535, topic_aliases=0, packet_bytes=1000)
    client = world.open(V5)
    connack = (
        f"20 23 00 00 20 26 0010 {b'onceway-identity'.hex()} 0006 {b'counts'.hex()} 27000003E8"
    )
    converse(
        client,
        ("10 0E 0004 4D515454 05 02 003C 00 0001 61", connack),
        ("82 07 000A 00 0001 74 02", "90 04 000A 00 02"),
        ("30 06 0001 74 00 6869", "30 06 0001 74 00 6869"),
        ("32 08 0001 74 0001 00 6869", "32 08 0001 74 0001 00 6869 40 02 0001"),
        ("40 03 0001 00", ""),
        ("34 08 0001 74 0002 00 6869", "34 08 0001 74 0002 00 6869 50 02 0002"),
        ("50 04 0002 00 00", "62 02 0002"),
        ("62 03 0002 00", "70 02 0002"),
        ("70 02 0002", ""),
        ("A2 06 000B 00 0001 74", "B0 04 000B 00 00"),
        ("C0 00", "D0 00"),
        ("E0 02 00 00", ""),
    )
    assert client.closed


@pytest.mark.mqtt("MQTT-3.3.2-7", "MQTT-3.1.2-26", "MQTT-3.1.2-27", "MQTT-3.3.2-11")
@POWER_CUT
def test_topic_aliases_of_ours_end_with_the_connection_too(power_cut: bool) -> None:
    world = World()
    names = [f"topic/{number}" for number in range(4)]
    for maximum in (2, 0, 3):
        client = world.durable("c", properties={P.TOPIC_ALIAS_MAXIMUM: maximum})
        client.send(Subscribe(1, [Subscription("#", 0)]))
        client.take_all()
        publisher = world.accepted("p")
        for name in names * 2:
            publisher.publish(name)
        packets = client.take_all()
        aliases = [(packet.properties or {}).get(P.TOPIC_ALIAS) for packet in packets]
        told = [*range(1, maximum + 1), *[None] * (4 - maximum)]
        assert aliases == told * 2
        assert [packet.topic for packet in packets] == names + [""] * maximum + names[maximum:]
        leave(world, client, power_cut)


@pytest.mark.mqtt("MQTT-3.3.2-12", "MQTT-3.3.2-7", "MQTT-3.3.2-8")
def test_alias_has_its_last_topic_even_in_repeated_and_refused_messages() -> None:
    world = World(topic_aliases=65535, spool_bytes=1)
    hearer = world.accepted(answers=True)
    hearer.subscribe("#")
    client = world.durable("c")

    def publish(topic: str, alias: int, qos: int = 0, packet_id: int = 0) -> None:
        client.publish(topic, "x", qos, packet_id=packet_id, properties={P.TOPIC_ALIAS: alias})

    publish("a", 65535)
    publish("b", 1, 2, 9)
    publish("", 65535)
    publish("c", 1, 2, 9)
    publish("", 1)
    publish("spool/full", 1, 1, 10)
    publish("ab", 2)
    publish("", 1, 1, 11)
    assert [packet.topic for packet in hearer.take_all(Publish)] == ["a", "b", "a", "c", "ab"]
    assert [packet.reason for packet in client.take_all(Puback)] == [R.QUOTA_EXCEEDED] * 2
    assert not client.closed
