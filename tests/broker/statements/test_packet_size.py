"""Maximum Packet Size (MQTT 5, section 3.1.2.11.4): the broker sends no larger packet, and leaves
out no packet that fits.
"""

import pytest

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Disconnect,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import World

V5 = Version.V5
ENOUGH = 60


def limited(maximum: int, **more: int) -> dict[str, dict[P, int]]:
    return {
        "properties": {P.MAXIMUM_PACKET_SIZE: maximum}
        | {P[name.upper()]: value for name, value in more.items()}
    }


@pytest.mark.mqtt("MQTT-3.1.2-24", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("alias", [0, 9])
@pytest.mark.parametrize("identifier", [0, 5])
def test_a_publish_that_just_fits_is_sent_and_one_byte_more_is_not(
    qos: int, alias: int, identifier: int
) -> None:
    world = World()
    client = world.accepted("c", **limited(ENOUGH, topic_alias_maximum=alias), answers=True)
    if identifier:
        client.subscribe("topic", subscription_identifier=[identifier])
    else:
        client.subscribe("topic")
    expected = {P.SUBSCRIPTION_IDENTIFIER: [identifier]} if identifier else None
    largest = ENOUGH - len(
        encode(Publish("topic", b"", qos, 1 if qos else 0, properties=expected), V5)
    )
    publisher = world.accepted(answers=True)
    for size in (largest + 1, largest, 1000, 0):
        publisher.publish("topic", bytes(size), qos)
    assert [len(payload) for payload in client.payloads] == [largest, 0]
    assert [packet.topic for packet in client.take_all(Publish)] == ["topic", "topic"], (
        "the first is too large to bring an alias along"
    )
    if alias:
        publisher.publish("topic", b"", qos)
        assert [packet.topic for packet in client.take_all(Publish)] == [""]
    assert world.broker.queued == 0


@pytest.mark.mqtt("MQTT-3.1.2-25")
def test_a_message_too_large_for_one_member_is_not_kept_for_it_nor_does_it_block_the_others() -> (
    None
):
    world = World()
    small = world.durable("small", answers=True, **limited(ENOUGH, receive_maximum=1))
    large = world.durable("large", answers=True)
    for client in (small, large):
        client.subscribe("t")
    publisher = world.accepted(answers=True)
    publisher.send(
        *(
            Publish("t", b"%03d" % number * (1 + 99 * (number % 2)), 2, number + 1)
            for number in range(10)
        )
    )
    assert small.payloads == [b"%03d" % number for number in range(0, 10, 2)]
    assert len(large.payloads) == 10
    world.commit()
    assert (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM message")
        == [(0,)]
    )


@pytest.mark.mqtt("MQTT-3.1.2-24", "MQTT-3.14.2-3")
@pytest.mark.parametrize("maximum", range(16, 120, 4))
def test_disconnect_leaves_out_its_reason_string_rather_than_be_too_large(maximum: int) -> None:
    client = World().accepted("c", **limited(maximum))
    client.send_bytes(b"\xf0\0")
    packet = client.take(Disconnect)
    assert packet.reason == R.PROTOCOL_ERROR
    assert client.raw.endswith(encode(packet, V5))
    assert len(encode(packet, V5)) <= maximum
    full = encode(Disconnect(R.PROTOCOL_ERROR, {P.REASON_STRING: client.connection.closing}), V5)
    assert (P.REASON_STRING in (packet.properties or {})) == (len(full) <= maximum)


@pytest.mark.mqtt("MQTT-3.2.2-19", "MQTT-3.1.2-24")
@pytest.mark.parametrize("maximum", range(1, 100, 3))
def test_a_refusing_connack_leaves_out_its_reason_string_rather_than_be_too_large(
    maximum: int,
) -> None:
    client = World().connect(
        "c", properties={P.MAXIMUM_PACKET_SIZE: maximum, P.AUTHENTICATION_METHOD: "none"}
    )
    assert client.closed
    assert len(client.raw) <= maximum
    assert [packet.reason for packet in client.take_all(Connack)] == [
        R.BAD_AUTHENTICATION_METHOD
    ] * (maximum >= 5)


@pytest.mark.mqtt("MQTT-3.1.2-24", "MQTT-3.14.0-1", "MQTT-3.2.0-1")
@pytest.mark.parametrize("maximum", range(1, 30))
def test_a_client_that_has_no_room_for_connack_hears_nothing(maximum: int) -> None:
    world = World()
    session = world.durable("c")
    session.subscribe("t")
    world.accepted(answers=True).publish("t", "x", 2)
    session.send(Pubrec(1))
    session.drop()
    client = world.connect("c", clean=False, **limited(maximum, session_expiry_interval=100))
    if client.closed:
        assert client.raw == b""
        assert maximum < 16
    else:
        assert len(encode(client.take(Connack), V5)) <= maximum


@pytest.mark.mqtt("MQTT-3.1.2-24", "MQTT-3.9.2-1", "MQTT-3.11.2-1")
@pytest.mark.parametrize("count", [1, 20, 100])
def test_an_answer_that_cannot_be_made_smaller_ends_the_connection(count: int) -> None:
    for packet in (
        Subscribe(1, [Subscription(f"t/{number}", 1) for number in range(count)]),
        Unsubscribe(1, [f"t/{number}" for number in range(count)]),
    ):
        world = World()
        world.accepted().publish("t/0", "retained", retain=True)
        client = world.accepted("c", **limited(ENOUGH))
        client.send(packet)
        assert client.closed == (count == 100)
        if client.closed:
            assert client.take(Disconnect).reason == R.PACKET_TOO_LARGE
            assert client.received == [], "nothing comes behind DISCONNECT"
            assert world.broker.queued == 0
        elif isinstance(packet, Subscribe):
            assert len(client.take(Suback).reasons) == count


@pytest.mark.mqtt(
    *(
        "MQTT-3.4.2-2",
        "MQTT-3.5.2-2",
        "MQTT-3.6.2-2",
        "MQTT-3.7.2-2",
        "MQTT-3.4.2-3",
        "MQTT-3.5.2-3",
        "MQTT-3.6.2-3",
        "MQTT-3.7.2-3",
    ),
    *("MQTT-3.9.2-2", "MQTT-3.11.2-2", "MQTT-3.1.2-29"),
)
def test_acknowledgements_are_bare() -> None:
    """Acknowledgements have neither a Reason String nor a User Property, so they are never too
    large.
    """
    world = World(spool_bytes=1, subscriptions=1)
    client = world.accepted("c")
    client.subscribe("t", "too/many")
    for qos in (1, 2):
        client.publish("spool/t", "refused", qos, packet_id=10 + qos)
        client.publish("t", "taken", qos, packet_id=20 + qos)
    client.send_bytes(bytes.fromhex("62020009 50020009 A206000300000178"))
    client.take_all(Publish)
    assert len(client.received) == 7
    for packet in client.received:
        assert packet.properties is None
        assert len(encode(packet, V5)) <= 6
    assert [packet.reason for packet in client.received if isinstance(packet, Puback | Pubrec)] == [
        R.QUOTA_EXCEEDED,
        R.SUCCESS,
        R.QUOTA_EXCEEDED,
        R.SUCCESS,
    ]


def test_packet_too_large_for_us_gets_0x95() -> None:
    """MQTT 5, section 3.2.2.3.6: CONNACK states the broker's Maximum Packet Size. A larger packet
    gets 0x95.
    """
    world = World(packet_bytes=200)
    client = world.connect("c")
    assert client.take(Connack).properties[P.MAXIMUM_PACKET_SIZE] == 200
    overhead = len(encode(Publish("t", bytes(150), 1, 1), V5)) - 150
    client.publish("t", bytes(200 - overhead), 1)
    client.take(Puback)
    client.publish("t", bytes(201 - overhead), 1)
    assert client.take(Disconnect).reason == R.PACKET_TOO_LARGE
    assert client.closed
