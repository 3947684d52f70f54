"""Bytes that must be refused: the type of the error, its reason code, and words in its text about
the fault and its place.
"""

import pytest

from gateway.mqtt.decode import decode
from gateway.mqtt.errors import MalformedPacket, MqttError, ProtocolError
from gateway.mqtt.packets import Side, Version
from gateway.mqtt.reason import ReasonCode as R
from gateway.mqtt.stream import PacketStream
from tests.mqtt.examples import from_hex, shows

CLIENT, SERVER = Side.CLIENT, Side.SERVER
V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
CONNECT_5 = "00 04 'MQTT' 05"
CONNECT_4 = "00 04 'MQTT' 04"


def error_for(version: Version | None, sender: Side, text: str) -> MqttError:
    """Return the error for a packet. text: its bytes without the remaining length."""
    data = from_hex(text)
    stream = PacketStream(1 << 20, version, sender)
    stream.feed(data[:1] + bytes((len(data) - 1,)) + data[1:])
    with pytest.raises(MqttError) as caught:
        list(stream)
    return caught.value


def check_malformed(version: Version | None, sender: Side, text: str, words: str) -> None:
    error = error_for(version, sender, text)
    assert type(error) is MalformedPacket
    assert error.code is R.MALFORMED_PACKET
    assert words in str(error)


def check_protocol_error(
    version: Version | None, sender: Side, text: str, words: str, code: R = R.PROTOCOL_ERROR
) -> None:
    error = error_for(version, sender, text)
    assert type(error) is ProtocolError
    assert error.code is code
    assert words in str(error)


@pytest.mark.mqtt("MQTT-2.1.3-1", "311:MQTT-2.2.2-1", "311:MQTT-2.2.2-2")
@pytest.mark.parametrize(
    ("version", "sender", "text", "words"),
    [
        (V5, CLIENT, "00", "packet type 0"),
        (V5, CLIENT, "41 00 07", "PUBACK: flags"),
        (V4, CLIENT, "58 00 07", "PUBREC: flags"),
        shows("MQTT-3.6.1-1")(V5, CLIENT, "60 00 07", "PUBREL: flags of the fixed header are 0000"),
        pytest.param(
            V4, CLIENT, "6A 00 07", "PUBREL: flags", marks=pytest.mark.mqtt("311:MQTT-3.6.1-1")
        ),
        (V3, CLIENT, "68 00 07", "PUBREL: flags"),
        (V5, CLIENT, "72 00 07", "PUBCOMP: flags"),
        shows("MQTT-3.8.1-1")(V5, CLIENT, "80 00 07 00 00 01 'a' 00", "SUBSCRIBE: flags"),
        shows("311:MQTT-3.8.1-1")(V4, CLIENT, "8A 00 07 00 01 'a' 00", "SUBSCRIBE: flags"),
        shows("MQTT-3.10.1-1")(V5, CLIENT, "A0 00 07 00 00 01 'a'", "UNSUBSCRIBE: flags"),
        shows("311:MQTT-3.10.1-1")(V4, CLIENT, "AA 00 07 00 01 'a'", "UNSUBSCRIBE: flags"),
        (V5, CLIENT, "C1", "PINGREQ: flags"),
        pytest.param(
            V5, CLIENT, "E1", "DISCONNECT: flags", marks=pytest.mark.mqtt("MQTT-3.14.1-1")
        ),
        pytest.param(
            V4, CLIENT, "E8", "DISCONNECT: flags", marks=pytest.mark.mqtt("311:MQTT-3.14.1-1")
        ),
        shows("MQTT-3.15.1-1")(V5, CLIENT, "F2 18 04 15 00 01 'm'", "AUTH: flags"),
        (V5, SERVER, "21 00 00 00", "CONNACK: flags"),
        (V5, SERVER, "9F 00 07 00 00", "SUBACK: flags"),
        (V4, SERVER, "B2 00 07", "UNSUBACK: flags"),
        (V4, SERVER, "D4", "PINGRESP: flags"),
    ],
)
def test_reserved_flags_of_the_fixed_header(
    version: Version, sender: Side, text: str, words: str
) -> None:
    check_malformed(version, sender, text, words)


@pytest.mark.parametrize("text", ["6A 00 07", "8A 00 07 00 01 'a' 00", "AA 00 07 00 01 'a'"])
def test_mqtt_3_1_marks_these_as_duplicates(text: str) -> None:
    """MQTT 3.1, sections 2.1, 3.6, 3.8 and 3.10: PUBREL, SUBSCRIBE and UNSUBSCRIBE may have the DUP
    flag.
    """
    data = from_hex(text)
    stream = PacketStream(100, V3)
    stream.feed(data[:1] + bytes((len(data) - 1,)) + data[1:])
    assert len(list(stream)) == 1


@pytest.mark.parametrize(
    ("version", "text", "words"),
    [
        pytest.param(
            V5, "36 00 01 'a' 00 07 00", "QoS is 3", marks=pytest.mark.mqtt("MQTT-3.3.1-4")
        ),
        pytest.param(
            V4, "37 00 01 'a' 00 07", "QoS is 3", marks=pytest.mark.mqtt("311:MQTT-3.3.1-4")
        ),
        pytest.param(
            V5, "38 00 01 'a' 00", "DUP is set at QoS 0", marks=pytest.mark.mqtt("MQTT-3.3.1-2")
        ),
        pytest.param(
            V4, "39 00 01 'a'", "DUP is set at QoS 0", marks=pytest.mark.mqtt("311:MQTT-3.3.1-2")
        ),
        shows("MQTT-3.3.2-2", "MQTT-4.7.0-1")(
            V5, "30 00 03 'a/+' 00", "topic name contains a wildcard"
        ),
        shows("311:MQTT-3.3.2-2", "311:MQTT-4.7.1-1")(
            V4, "30 00 01 '#'", "topic name contains a wildcard"
        ),
        shows("311:MQTT-4.7.3-1", "311:MQTT-3.3.2-1")(V4, "30 00 00", "topic name is empty"),
        shows("MQTT-3.3.2-1", "MQTT-1.5.4-1")(
            V5, "30 00 02 C3 28 00", "topic name is not UTF-8 at byte 0"
        ),
        shows("311:MQTT-1.5.3-1", "311:MQTT-3.3.2-1")(
            V4, "30 00 03 ED A0 80", "topic name is not UTF-8"
        ),
        shows("MQTT-1.5.4-1")(V5, "30 00 03 ED BF BF 00", "topic name is not UTF-8"),
        shows("MQTT-1.5.4-2", "MQTT-4.7.3-2")(
            V5, "30 00 03 'a' 00 'b' 00", "topic name contains U+0000"
        ),
        shows("311:MQTT-1.5.3-2", "311:MQTT-4.7.3-2")(
            V4, "30 00 01 00", "topic name contains U+0000"
        ),
        (V5, "30 00 02 C0 80 00", "topic name is not UTF-8"),
        (V5, "30 00 05 'a' 00", "topic name needs 5 bytes, 2 are left"),
        (V5, "32 00 01 'a' 07", "packet identifier needs 2 bytes, 1 are left"),
        (V5, "30 00 01 'a'", "property length needs 1 bytes"),
        (V5, "30 00 01 'a' 05 01", "property length is 5, 1 bytes are left"),
        shows("MQTT-1.5.5-1")(V5, "30 00 01 'a' 80 00", "not in its shortest form"),
        shows("MQTT-3.3.2-14")(
            V5, "30 00 01 'a' 05 08 00 02 'a+'", "response topic contains a wildcard"
        ),
        shows("MQTT-3.3.2-13")(V5, "30 00 01 'a' 05 08 00 02 C3 28", "response topic is not UTF-8"),
        (V5, "30 00 01 'a' 03 08 00 00", "response topic is empty"),
        shows("MQTT-3.3.2-19")(V5, "30 00 01 'a' 04 03 00 01 FF", "content type is not UTF-8"),
        shows("MQTT-1.5.7-1")(
            V5, "30 00 01 'a' 06 26 00 01 FF 00 00", "user property is not UTF-8"
        ),
        shows("MQTT-1.5.7-1")(
            V5, "30 00 01 'a' 06 26 00 00 00 01 00", "user property contains U+0000"
        ),
        (V5, "30 00 01 'a' 02 11 01", "property session expiry interval is not allowed here"),
        (V5, "30 00 01 'a' 02 7F 01", "there is no property 0x7F"),
        (V5, "30 00 01 'a' 01 02", "message expiry interval needs 4 bytes"),
    ],
)
def test_malformed_publish(version: Version, text: str, words: str) -> None:
    check_malformed(version, CLIENT, text, words)


@pytest.mark.parametrize(
    ("version", "text", "words", "code"),
    [
        shows("MQTT-4.7.3-1")(
            V5, "30 00 00 00", "empty and there is no topic alias", R.PROTOCOL_ERROR
        ),
        shows("MQTT-2.2.1-3")(
            V5, "32 00 01 'a' 00 00 00", "packet identifier is 0", R.PROTOCOL_ERROR
        ),
        shows("311:MQTT-2.3.1-1")(
            V4, "34 00 01 'a' 00 00", "packet identifier is 0", R.PROTOCOL_ERROR
        ),
        shows("MQTT-3.3.2-8")(
            V5, "30 00 00 03 23 00 00", "topic alias must not be 0", R.TOPIC_ALIAS_INVALID
        ),
        (V5, "30 00 01 'a' 02 01 02", "payload format indicator must not be 2", R.PROTOCOL_ERROR),
        (
            V5,
            "30 00 01 'a' 04 01 00 01 00",
            "payload format indicator is given twice",
            R.PROTOCOL_ERROR,
        ),
        (V5, "30 00 01 'a' 06 23 00 01 23 00 01", "topic alias is given twice", R.PROTOCOL_ERROR),
    ],
)
def test_publish_that_breaks_the_protocol(version: Version, text: str, words: str, code: R) -> None:
    check_protocol_error(version, CLIENT, text, words, code)


@pytest.mark.mqtt("MQTT-3.3.4-6")
def test_a_client_sends_no_subscription_identifier() -> None:
    check_protocol_error(
        V5,
        CLIENT,
        "30 00 01 'a' 02 0B 05",
        "only the other side may send property subscription identifier",
    )


def test_a_subscription_identifier_is_not_0() -> None:
    check_protocol_error(
        V5, SERVER, "30 00 01 'a' 02 0B 00", "subscription identifier must not be 0"
    )


@pytest.mark.parametrize(
    ("version", "sender", "text", "words"),
    [
        (V5, CLIENT, "40 00 00", "PUBACK: packet identifier is 0"),
        (V4, CLIENT, "50 00 00", "PUBREC: packet identifier is 0"),
        (V3, CLIENT, "62 00 00", "PUBREL: packet identifier is 0"),
        (V5, CLIENT, "70 00 00 00", "PUBCOMP: packet identifier is 0"),
        shows("311:MQTT-2.3.1-1")(
            V4, CLIENT, "82 00 00 00 01 'a' 00", "SUBSCRIBE: packet identifier is 0"
        ),
        shows("MQTT-2.2.1-3")(
            V5, CLIENT, "82 00 00 00 00 01 'a' 00", "SUBSCRIBE: packet identifier is 0"
        ),
        shows("MQTT-2.2.1-3")(
            V5, CLIENT, "A2 00 00 00 00 01 'a'", "UNSUBSCRIBE: packet identifier is 0"
        ),
        (V5, SERVER, "90 00 00 00 00", "SUBACK: packet identifier is 0"),
        (V4, SERVER, "B0 00 00", "UNSUBACK: packet identifier is 0"),
        shows("MQTT-3.4.2-1")(V5, CLIENT, "40 00 07 92", "PUBACK: reason code 0x92"),
        shows("MQTT-3.5.2-1")(V5, CLIENT, "50 00 07 01", "PUBREC: reason code 0x01"),
        shows("MQTT-3.6.2-1")(V5, CLIENT, "62 00 07 91", "PUBREL: reason code 0x91"),
        shows("MQTT-3.7.2-1")(V5, CLIENT, "70 00 07 10", "PUBCOMP: reason code 0x10"),
        shows("MQTT-3.9.3-2")(V5, SERVER, "90 00 07 00 03", "SUBACK: reason code 0x03"),
        shows("311:MQTT-3.9.3-2")(V4, SERVER, "90 00 07 87", "SUBACK: reason code 0x87"),
        shows("MQTT-3.11.3-2")(V5, SERVER, "B0 00 07 00 01", "UNSUBACK: reason code 0x01"),
        shows("MQTT-3.14.2-1")(V5, CLIENT, "E0 8E 00", "DISCONNECT: reason code 0x8E"),
        shows("MQTT-3.14.2-1")(V5, SERVER, "E0 04 00", "DISCONNECT: reason code 0x04"),
        shows("MQTT-3.15.2-1")(V5, CLIENT, "F0 00 00", "AUTH: reason code 0x00"),
        shows("MQTT-3.15.2-1")(V5, SERVER, "F0 19 04 15 00 01 'm'", "AUTH: reason code 0x19"),
        shows("MQTT-3.14.2-2")(
            V5, SERVER, "E0 00 05 11 00 00 00 00", "may send property session expiry interval"
        ),
        (
            V5,
            CLIENT,
            "E0 00 04 1C 00 01 'x'",
            "DISCONNECT: only the other side may send property server reference",
        ),
        (V5, CLIENT, "F0", "AUTH: reason code 0x00 is not allowed here"),
        (V5, CLIENT, "F0 18 00", "AUTH: no authentication method"),
        (V5, CLIENT, "F0 19 04 16 00 01 'd'", "AUTH: no authentication method"),
        (V5, SERVER, "90 00 07 00", "SUBACK: no reason code"),
        (V5, SERVER, "B0 00 07 00", "UNSUBACK: no reason code"),
        shows("MQTT-3.2.2-8")(V5, SERVER, "20 00 03 00", "CONNACK: reason code 0x03"),
        shows("MQTT-3.2.2-6")(V5, SERVER, "20 01 87 00", "session present is set, although"),
        shows("311:MQTT-3.2.2-4")(
            V4, SERVER, "20 01 05", "session present is set, although the reason is a failure"
        ),
        (V4, SERVER, "20 00 06", "return code 6 is reserved"),
    ],
)
def test_answers_that_break_the_protocol(
    version: Version, sender: Side, text: str, words: str
) -> None:
    check_protocol_error(version, sender, text, words)


@pytest.mark.parametrize(
    ("version", "sender", "text", "words"),
    [
        shows("MQTT-3.2.2-1")(V5, SERVER, "20 02 00 00", "CONNACK: acknowledge flags are 0x02"),
        (V5, CLIENT, "40 00 07 00 02 23 00", "PUBACK: property topic alias is not allowed here"),
        (V4, CLIENT, "40 00 07 00", "PUBACK: 1 bytes too many"),
        (V4, CLIENT, "40 07", "PUBACK: packet identifier needs 2 bytes"),
        (V4, CLIENT, "C0 00", "PINGREQ: 1 bytes too many"),
        (V4, CLIENT, "E0 00", "DISCONNECT: 1 bytes too many"),
        (V4, SERVER, "B0 00 07 00", "UNSUBACK: 1 bytes too many"),
    ],
)
def test_malformed_answers(version: Version, sender: Side, text: str, words: str) -> None:
    check_malformed(version, sender, text, words)


@pytest.mark.parametrize(
    ("version", "text", "words"),
    [
        shows("MQTT-4.7.1-1")(
            V5, "82 00 07 00 00 02 'a#' 00", "'a#' has a # that is not alone in its level"
        ),
        shows("MQTT-4.7.1-1")(V5, "82 00 07 00 00 03 '#/a' 00", "# that is not its last level"),
        shows("311:MQTT-4.7.1-2")(V4, "82 00 07 00 03 '#/a' 00", "# that is not its last level"),
        shows("MQTT-4.7.1-2")(
            V5, "A2 00 07 00 00 02 '+a'", "UNSUBSCRIBE: topic filter '+a' has a +"
        ),
        shows("311:MQTT-4.7.1-3")(V4, "82 00 07 00 02 'a+' 00", "+ that is not alone in its level"),
        shows("MQTT-4.7.3-1")(V5, "82 00 07 00 00 00 00", "topic filter '' is empty"),
        shows("311:MQTT-4.7.3-1")(V4, "A2 00 07 00 00", "topic filter '' is empty"),
        shows("MQTT-3.8.3-1")(
            V5, "82 00 07 00 00 01 FF 00", "SUBSCRIBE: topic filter is not UTF-8"
        ),
        shows("311:MQTT-3.8.3-1")(
            V4, "82 00 07 00 01 FF 00", "SUBSCRIBE: topic filter is not UTF-8"
        ),
        shows("MQTT-3.10.3-1")(
            V5, "A2 00 07 00 00 01 FF", "UNSUBSCRIBE: topic filter is not UTF-8"
        ),
        shows("311:MQTT-3.10.3-1")(
            V4, "A2 00 07 00 01 00", "UNSUBSCRIBE: topic filter contains U+0000"
        ),
        shows("MQTT-3.8.3-5")(
            V5, "82 00 07 00 00 01 'a' 40", "reserved bits are set in the options 0x40 of 'a'"
        ),
        shows("311:MQTT-3.8.3-4")(V4, "82 00 07 00 01 'a' 04", "reserved bits are set"),
        shows("311:MQTT-3.8.3-4")(V4, "82 00 07 00 01 'a' 03", "QoS of 'a' is 3"),
        shows("MQTT-4.8.2-1")(V5, "82 00 07 00 00 09 '$share//a' 00", "has no share name"),
        shows("MQTT-4.8.2-2")(
            V5, "82 00 07 00 00 08 '$share/g' 00", "no topic filter after its share name"
        ),
        shows("MQTT-4.8.2-2")(V5, "82 00 07 00 00 09 '$share/g/' 00", "is empty"),
        shows("MQTT-4.8.2-2")(
            V5, "82 00 07 00 00 0B '$share/g+/a' 00", "wildcard in its share name"
        ),
        shows("MQTT-4.8.2-2")(V5, "A2 00 07 00 00 0B '$share/#g/a'", "wildcard in its share name"),
        (V5, "82 00 07 00 00 01 'a'", "subscription options needs 1 bytes"),
        (V5, "82 00 07 03 21 00 01 00 01 'a' 00", "property receive maximum is not allowed here"),
        (V5, "A2 00 07 02 0B 05 00 01 'a'", "property subscription identifier is not allowed here"),
    ],
)
def test_malformed_subscriptions(version: Version, text: str, words: str) -> None:
    check_malformed(version, CLIENT, text, words)


@pytest.mark.parametrize(
    ("version", "text", "words"),
    [
        pytest.param(
            V5, "82 00 07 00", "SUBSCRIBE: no topic filter", marks=pytest.mark.mqtt("MQTT-3.8.3-2")
        ),
        pytest.param(
            V4, "82 00 07", "SUBSCRIBE: no topic filter", marks=pytest.mark.mqtt("311:MQTT-3.8.3-3")
        ),
        shows("MQTT-3.10.3-2")(V5, "A2 00 07 00", "UNSUBSCRIBE: no topic filter"),
        shows("311:MQTT-3.10.3-2")(V4, "A2 00 07", "UNSUBSCRIBE: no topic filter"),
        (V5, "82 00 07 00 00 01 'a' 03", "QoS of 'a' is 3"),
        (V5, "82 00 07 00 00 01 'a' 30", "retain handling of 'a' is 3"),
        shows("MQTT-3.8.3-4")(
            V5, "82 00 07 00 00 0A '$share/g/a' 04", "the option No Local is set"
        ),
        (V5, "82 00 07 04 0B 01 0B 02 00 01 'a' 00", "subscription identifier is given twice"),
        (V5, "82 00 07 02 0B 00 00 01 'a' 00", "subscription identifier must not be 0"),
    ],
)
def test_subscriptions_that_break_the_protocol(version: Version, text: str, words: str) -> None:
    check_protocol_error(version, CLIENT, text, words)


@pytest.mark.parametrize(
    ("version", "sender", "text"),
    [
        (V5, CLIENT, "20 00 00 00"),
        (V5, CLIENT, "90 00 07 00 00"),
        (V4, CLIENT, "B0 00 07"),
        (V4, CLIENT, "D0"),
        (V5, SERVER, "82 00 07 00 00 01 'a' 00"),
        (V5, SERVER, "A2 00 07 00 00 01 'a'"),
        (V5, SERVER, "C0"),
        (V5, SERVER, "10 00 04 'MQTT' 05 02 00 00 00 00 00"),
        (V4, SERVER, "E0"),
        (V4, CLIENT, "F0"),
        (V3, SERVER, "F0"),
    ],
)
def test_packets_that_the_other_side_sends(version: Version, sender: Side, text: str) -> None:
    check_protocol_error(version, sender, text, f"a {sender.value} must not send it")


def test_an_error_text_stays_short_and_on_one_line() -> None:
    """The text quotes bytes of the peer, and the gateway logs it."""
    name = "a\n+" + "x" * 60_000
    body = b"\0\x07" + len(name).to_bytes(2, "big") + name.encode() + b"\0"
    with pytest.raises(MalformedPacket) as caught:
        decode(0x82, body, V4)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)
