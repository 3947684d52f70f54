"""Packets that the encoder refuses to write, and properties that it omits to make a packet small
enough.
"""

import pytest

from gateway.mqtt.encode import encode, encode_within
from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from gateway.mqtt.reason import connack_reason, connack_return_code
from gateway.mqtt.wire import encode_varint

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
OLD = pytest.mark.parametrize("version", [V3, V4])


@OLD
@pytest.mark.parametrize(
    "packet",
    [Puback(7, R.QUOTA_EXCEEDED), Pubrec(7, R.QUOTA_EXCEEDED), Pubrec(7, R.NOT_AUTHORIZED)],
)
def test_an_old_client_never_gets_a_failure_as_a_success(version: Version, packet: Packet) -> None:
    """In MQTT 3.1.1, PUBACK and PUBREC have no reason code, so the client would take each of them
    for a success.
    """
    with pytest.raises(ValueError, match="close the connection instead"):
        encode(packet, version)


@OLD
def test_an_old_client_gets_its_pubcomp(version: Version) -> None:
    """MQTT 3.1.1 has no reason codes, so packets with these two are sent without them: each PUBREL
    must get its PUBCOMP, and a message without a subscriber is accepted.
    """
    assert encode(Pubcomp(7, R.PACKET_IDENTIFIER_NOT_FOUND), version) == b"\x70\x02\x00\x07"
    assert encode(Pubrec(7, R.NO_MATCHING_SUBSCRIBERS), version) == b"\x50\x02\x00\x07"


@pytest.mark.parametrize(
    "reason", [R.MALFORMED_PACKET, R.PROTOCOL_ERROR, R.PACKET_TOO_LARGE, R.RETAIN_NOT_SUPPORTED]
)
def test_a_refusal_without_a_return_code_is_not_written(reason: R) -> None:
    assert connack_return_code(reason) is None
    with pytest.raises(ValueError, match="close the connection instead"):
        encode(Connack(False, reason), V4)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (R.SUCCESS, 0),
        (R.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (R.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (R.SERVER_UNAVAILABLE, 3),
        (R.BAD_USER_NAME_OR_PASSWORD, 4),
        (R.NOT_AUTHORIZED, 5),
    ],
)
def test_connack_return_codes_go_both_ways(reason: R, code: int) -> None:
    assert encode(Connack(False, reason), V4) == bytes((0x20, 2, 0, code))
    assert connack_reason(code) is reason


def test_session_present_is_a_word_of_3_1_1() -> None:
    assert encode(Connack(True), V4) == b"\x20\x02\x01\x00"
    assert encode(Connack(True), V3) == b"\x20\x02\x00\x00"


@OLD
@pytest.mark.mqtt("311:MQTT-3.9.3-2")
def test_every_failure_in_an_old_suback_is_0x80(version: Version) -> None:
    assert (
        encode(Suback(7, [R.GRANTED_QOS_1, R.NOT_AUTHORIZED, R.TOPIC_FILTER_INVALID]), version)
        == b"\x90\x05\x00\x07\x01\x80\x80"
    )


@OLD
def test_properties_are_left_out_for_old_clients(version: Version) -> None:
    properties = {P.USER_PROPERTY: [("k", "v")], P.MESSAGE_EXPIRY_INTERVAL: 5}
    assert encode(Publish("a", b"x", 1, 7, properties=properties), version) == encode(
        Publish("a", b"x", 1, 7), version
    )
    assert encode(Unsuback(7, [R.SUCCESS]), version) == b"\xb0\x02\x00\x07"


@pytest.mark.parametrize(
    ("packet", "version", "words"),
    [
        (Publish("a", b"", 3, 1), V5, "QoS 3"),
        (Publish("a", b"", 0, 0, dup=True), V5, "QoS 0 and DUP True"),
        (Publish("a", b"", 1), V5, "packet identifier 0 is not in"),
        (Puback(0), V5, "packet identifier 0"),
        (Pubrel(65536), V4, "packet identifier 65536"),
        (Publish("a\0"), V4, "U+0000"),
        (Publish("\ud800"), V4, "surrogates not allowed"),
        (Publish("x" * 65536), V4, "65536 bytes do not fit"),
        (Publish("a", properties={P.TOPIC_ALIAS: 0}), V5, "topic alias must not be 0"),
        (
            Publish("a", properties={P.SUBSCRIPTION_IDENTIFIER: [0]}),
            V5,
            "subscription identifier must not be 0",
        ),
        (Connack(properties={P.RECEIVE_MAXIMUM: 70_000}), V5, "receive maximum must not be 70000"),
        (Connect("a", V4, password=b"p"), V4, "password alone"),
        (Connect("a", will=Will("t", qos=3)), V5, "will QoS is 3"),
        (Subscribe(7, []), V5, "needs a topic filter"),
        (Subscribe(7, [Subscription("a", 3)]), V4, "QoS 3"),
        (Subscribe(7, [Subscription("a", retain_handling=3)]), V5, "retain handling 3"),
        (Unsubscribe(7, []), V5, "needs a topic filter"),
        (Auth(), V4, "AUTH needs MQTT 5"),
    ],
)
@pytest.mark.mqtt(
    "MQTT-3.3.1-2", "MQTT-3.3.1-4", "MQTT-3.3.2-8", "MQTT-4.7.3-3", "311:MQTT-4.7.3-3"
)
def test_packets_that_do_not_exist_are_not_written(
    packet: Packet, version: Version, words: str
) -> None:
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        encode(packet, version)


@pytest.mark.mqtt("MQTT-1.5.5-1")
@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_variable_byte_integers(value: int, data: str) -> None:
    assert encode_varint(value).hex() == data


def test_a_variable_byte_integer_has_an_end() -> None:
    with pytest.raises(ValueError, match="268435456 does not fit"):
        encode_varint(268_435_456)


SHRINKING: list[Packet] = [
    Connack(),
    Puback(7, R.QUOTA_EXCEEDED),
    Pubrec(7, R.QUOTA_EXCEEDED),
    Pubrel(7, R.PACKET_IDENTIFIER_NOT_FOUND),
    Pubcomp(7, R.PACKET_IDENTIFIER_NOT_FOUND),
    Suback(7, [R.GRANTED_QOS_0]),
    Unsuback(7, [R.SUCCESS]),
    Disconnect(R.SERVER_BUSY),
    Auth(R.CONTINUE_AUTHENTICATION),
]


@pytest.mark.mqtt(
    "MQTT-3.2.2-19", "MQTT-3.2.2-20", "MQTT-3.4.2-2", "MQTT-3.4.2-3", "MQTT-3.5.2-2", "MQTT-3.5.2-3"
)
@pytest.mark.mqtt(
    "MQTT-3.6.2-2", "MQTT-3.6.2-3", "MQTT-3.7.2-2", "MQTT-3.7.2-3", "MQTT-3.9.2-1", "MQTT-3.9.2-2"
)
@pytest.mark.mqtt(
    "MQTT-3.11.2-1",
    "MQTT-3.11.2-2",
    "MQTT-3.14.2-3",
    "MQTT-3.14.2-4",
    "MQTT-3.15.2-2",
    "MQTT-3.15.2-3",
)
@pytest.mark.mqtt("MQTT-3.1.2-24")
@pytest.mark.parametrize("bare", SHRINKING, ids=lambda packet: type(packet).__name__)
def test_answers_leave_out_what_only_people_read(bare: Packet) -> None:
    """If the packet is too large, the encoder leaves out the Reason String, then the User
    Properties. If that is not enough, it writes nothing. The test tries each of these limits
    exactly.
    """
    reason_string, user_property = (
        {P.REASON_STRING: "because"},
        {P.USER_PROPERTY: [("key", "value")]},
    )
    full = encode(with_properties(bare, reason_string | user_property), V5)
    shorter = encode(with_properties(bare, user_property), V5)
    shortest = encode(bare, V5)
    packet = with_properties(bare, reason_string | user_property)
    assert encode_within(packet, V5, len(full)) == full
    assert encode_within(packet, V5, len(full) - 1) == shorter
    assert encode_within(packet, V5, len(shorter) - 1) in (
        shortest,
        encode(with_properties(bare, {}), V5),
    )
    assert encode_within(packet, V5, len(shortest) - 1) is None


def with_properties(packet: Packet, properties: dict[P, object]) -> Packet:
    values = {name: getattr(packet, name) for name in packet.__slots__} | {"properties": properties}
    return type(packet)(**values)


@pytest.mark.mqtt("MQTT-3.1.2-24")
def test_a_publish_is_whole_or_not_sent() -> None:
    packet = Publish("a", bytes(10), properties={P.USER_PROPERTY: [("key", "value")]})
    data = encode(packet, V5)
    assert encode_within(packet, V5, len(data)) == data
    assert encode_within(packet, V5, len(data) - 1) is None
