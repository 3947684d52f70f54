"""Protocol errors close the connection, with the standard's reason code and without any other
effect (MQTT 5, section 4.13).

In each case, the invalid packet is sent between two valid ones. The first packet is answered, the
last one is not, whether the bytes arrive together or one by one.
"""

import pytest

from gateway.broker import dispatch
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Version
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from gateway.mqtt.wire import encode_string as text
from gateway.mqtt.wire import encode_varint
from tests.broker.harness import FOREVER, Client, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
MALFORMED, PROTOCOL = R.MALFORMED_PACKET, R.PROTOCOL_ERROR
PIECES = pytest.mark.parametrize("byte_by_byte", [False, True])
NONE = b"%"
"""Placeholder for an empty property block: a zero byte in MQTT 5, no byte in older versions."""


def frame(first: int, body: bytes) -> bytes:
    return bytes((first,)) + encode_varint(len(body)) + body


def raw(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def properties(block: bytes) -> bytes:
    return encode_varint(len(block)) + block


def breaks(client: Client, data: bytes, byte_by_byte: bool) -> None:
    """Send a valid PUBLISH, `data`, and another valid PUBLISH. byte_by_byte: the broker receives
    each byte separately.
    """
    good = encode(Publish("good", b"before", 1, 1), client.version)
    data = good + data + encode(Publish("good", b"after", 1, 2), client.version)
    if byte_by_byte:
        for byte in data:
            client.send_bytes(bytes((byte,)))
    else:
        client.send_bytes(data)


def closed_with(world: World, client: Client, code: R) -> None:
    assert client.closed
    assert client.take(Puback) == Puback(1)
    if client.version == V5:
        assert client.take(Disconnect).reason == code
    assert client.received == []
    assert [
        packet.payload
        for packet in world.clients[world.broker.sessions["hearer"].connection].take_all()
    ] == [b"before"]


def stage(version: Version) -> tuple[World, Client]:
    world = World()
    world.accepted("hearer", answers=True).subscribe("#")
    return world, world.accepted("c", version=version)


# For all versions: first byte, body, reason code.
CASES = {
    # the fixed header
    "packet type 0": (0x00, b"", MALFORMED),
    "a remaining length of five bytes": (0x30, None, MALFORMED),
    "a remaining length that is too long for its value": (0xC0, None, MALFORMED),
    "PUBACK with flags": (0x41, b"\0\1", MALFORMED),
    "PUBREC with flags": (0x52, b"\0\1", MALFORMED),
    "PUBREL without flags": (0x60, b"\0\1", MALFORMED),
    "PUBREL with a flag too many": (0x63, b"\0\1", MALFORMED),
    "PUBCOMP with flags": (0x71, b"\0\1", MALFORMED),
    "SUBSCRIBE without flags": (0x80, b"\0\1" + NONE + text("a") + b"\0", MALFORMED),
    "SUBSCRIBE with a flag too many": (0x86, b"\0\1" + NONE + text("a") + b"\0", MALFORMED),
    "UNSUBSCRIBE without flags": (0xA0, b"\0\1" + NONE + text("a"), MALFORMED),
    "PINGREQ with flags": (0xC1, b"", MALFORMED),
    "DISCONNECT with flags": (0xE1, b"", MALFORMED),
    # packets that only a server sends
    "CONNACK": (0x20, b"\0\0" + NONE, PROTOCOL),
    "SUBACK": (0x90, b"\0\1" + NONE + b"\0", PROTOCOL),
    "UNSUBACK": (0xB0, b"\0\1" + NONE, PROTOCOL),
    "PINGRESP": (0xD0, b"", PROTOCOL),
    # strings
    "a topic that is not UTF-8": (0x30, raw(b"a\xff") + NONE, MALFORMED),
    "a topic with a surrogate": (0x30, raw(b"\xed\xa0\x80") + NONE, MALFORMED),
    "an overlong encoding": (0x30, raw(b"\xc0\xaf") + NONE, MALFORMED),
    "a topic with U+0000": (0x30, raw(b"a\0b") + NONE, MALFORMED),
    "a filter that is not UTF-8": (0x82, b"\0\1" + NONE + raw(b"a\xff") + b"\0", MALFORMED),
    "a filter with U+0000": (0x82, b"\0\1" + NONE + raw(b"a\0") + b"\0", MALFORMED),
    "a filter of UNSUBSCRIBE that is not UTF-8": (0xA2, b"\0\1" + NONE + raw(b"\xf5"), MALFORMED),
    # PUBLISH
    "QoS 3": (0x36, text("a") + b"\0\1" + NONE, MALFORMED),
    "DUP at QoS 0": (0x38, text("a") + NONE, MALFORMED),
    "no topic": (0x30, b"", MALFORMED),
    "a topic longer than the packet": (0x30, b"\0\7abc", MALFORMED),
    "a topic with #": (0x30, text("a/#") + NONE, MALFORMED),
    "a topic with +": (0x30, text("a/+/b") + NONE, MALFORMED),
    "no packet identifier at QoS 1": (0x32, text("a"), MALFORMED),
    "packet identifier 0 at QoS 1": (0x32, text("a") + b"\0\0" + NONE, PROTOCOL),
    "packet identifier 0 at QoS 2": (0x34, text("good") + b"\0\0" + NONE, PROTOCOL),
    # acknowledgements
    "PUBACK with packet identifier 0": (0x40, b"\0\0", PROTOCOL),
    "PUBREL with packet identifier 0": (0x62, b"\0\0", PROTOCOL),
    "PUBACK of one byte": (0x40, b"\1", MALFORMED),
    "PUBREC without a packet identifier": (0x50, b"", MALFORMED),
    # SUBSCRIBE and UNSUBSCRIBE
    "SUBSCRIBE with packet identifier 0": (0x82, b"\0\0" + NONE + text("a") + b"\0", PROTOCOL),
    "SUBSCRIBE without a filter": (0x82, b"\0\1" + NONE, PROTOCOL),
    "SUBSCRIBE without options": (0x82, b"\0\1" + NONE + text("a"), MALFORMED),
    "an empty filter": (0x82, b"\0\1" + NONE + text("") + b"\0", MALFORMED),
    "# before the last level": (0x82, b"\0\1" + NONE + text("a/#/b") + b"\0", MALFORMED),
    "# beside other characters": (0x82, b"\0\1" + NONE + text("a#") + b"\0", MALFORMED),
    "+ beside other characters": (0x82, b"\0\1" + NONE + text("a+/b") + b"\0", MALFORMED),
    "reserved bits in the options": (0x82, b"\0\1" + NONE + text("a") + b"\xc0", MALFORMED),
    "UNSUBSCRIBE with packet identifier 0": (0xA2, b"\0\0" + NONE + text("a"), PROTOCOL),
    "UNSUBSCRIBE without a filter": (0xA2, b"\0\1" + NONE, PROTOCOL),
    "UNSUBSCRIBE with a bad filter": (0xA2, b"\0\1" + NONE + text("a/#/b"), MALFORMED),
    "PINGREQ with a body": (0xC0, b"\0", MALFORMED),
}
HEADERS = {
    "a remaining length of five bytes": b"\x30\x80\x80\x80\x80\x01",
    "a remaining length that is too long for its value": b"\xc0\x80\x00",
}

CASES_5 = {
    "AUTH with flags": (0xF1, b"\x19" + properties(b"\x15" + text("x")), MALFORMED),
    "AUTH though no method was agreed on": (
        0xF0,
        b"\x19" + properties(b"\x15" + text("x")),
        PROTOCOL,
    ),
    "AUTH with success": (0xF0, b"\0\0", PROTOCOL),
    "AUTH with success left out": (0xF0, b"", PROTOCOL),
    "AUTH with a reason that does not exist": (0xF0, b"\x7f\0", PROTOCOL),
    "QoS 3 in the options": (0x82, b"\0\1\0" + text("a") + b"\3", PROTOCOL),
    "retain handling 3": (0x82, b"\0\1\0" + text("a") + b"\x30", PROTOCOL),
    "no local on a shared subscription": (0x82, b"\0\1\0" + text("$share/g/a") + b"\4", PROTOCOL),
    "a shared subscription without a name": (
        0x82,
        b"\0\1\0" + text("$share//a") + b"\0",
        MALFORMED,
    ),
    "a shared subscription without a filter": (
        0x82,
        b"\0\1\0" + text("$share/g") + b"\0",
        MALFORMED,
    ),
    "a shared subscription of an empty filter": (
        0x82,
        b"\0\1\0" + text("$share/g/") + b"\0",
        MALFORMED,
    ),
    "a share name with +": (0x82, b"\0\1\0" + text("$share/g+/a") + b"\0", MALFORMED),
    "a share name with #": (0xA2, b"\0\1\0" + text("$share/#/a"), MALFORMED),
    "subscription identifier 0": (
        0x82,
        b"\0\1" + properties(b"\x0b\0") + text("a") + b"\0",
        PROTOCOL,
    ),
    "two subscription identifiers": (
        0x82,
        b"\0\1" + properties(b"\x0b\1\x0b\2") + text("a") + b"\0",
        PROTOCOL,
    ),
    "a subscription identifier on PUBLISH": (0x30, text("a") + properties(b"\x0b\1"), PROTOCOL),
    "topic alias 0": (0x30, text("a") + properties(b"\x23\0\0"), R.TOPIC_ALIAS_INVALID),
    "a topic alias above our maximum": (
        0x30,
        text("a") + properties(b"\x23\0\x41"),
        R.TOPIC_ALIAS_INVALID,
    ),
    "a topic alias that stands for nothing": (0x30, text("") + properties(b"\x23\0\1"), PROTOCOL),
    "neither topic nor alias": (0x30, text("") + b"\0", PROTOCOL),
    "a property given twice": (0x30, text("a") + properties(b"\2\0\0\0\1\2\0\0\0\1"), PROTOCOL),
    "payload format 2": (0x30, text("a") + properties(b"\1\2"), PROTOCOL),
    "a property that does not exist": (0x30, text("a") + properties(b"\4\0"), MALFORMED),
    "a property of another packet": (0x30, text("a") + properties(b"\x11\0\0\0\1"), MALFORMED),
    "properties longer than the packet": (0x30, text("a") + b"\x09\1\1", MALFORMED),
    "a property length that is too long for its value": (0x30, text("a") + b"\x80\0", MALFORMED),
    "a response topic with a wildcard": (
        0x30,
        text("a") + properties(b"\x08" + text("b/#")),
        MALFORMED,
    ),
    "a response topic that is not UTF-8": (
        0x30,
        text("a") + properties(b"\x08" + raw(b"\xff")),
        MALFORMED,
    ),
    "a content type that is not UTF-8": (
        0x30,
        text("a") + properties(b"\x03" + raw(b"\xff")),
        MALFORMED,
    ),
    "a name of a user property with U+0000": (
        0x30,
        text("a") + properties(b"\x26" + raw(b"\0") + text("v")),
        MALFORMED,
    ),
    "a value of a user property that is not UTF-8": (
        0x30,
        text("a") + properties(b"\x26" + text("n") + raw(b"\xff")),
        MALFORMED,
    ),
    "PUBACK with a reason that does not exist": (0x40, b"\0\1\x55", PROTOCOL),
    "PUBREC with a reason of another packet": (0x50, b"\0\1\x8e", PROTOCOL),
    "PUBREL with a reason of another packet": (0x62, b"\0\1\x80", PROTOCOL),
    "PUBCOMP with a reason of another packet": (0x70, b"\0\1\x97", PROTOCOL),
    "DISCONNECT with a reason of a server": (0xE0, b"\x8e", PROTOCOL),
    "DISCONNECT with a server reference": (0xE0, b"\0" + properties(b"\x1c" + text("x")), PROTOCOL),
    "a session expiry at DISCONNECT after none at CONNECT": (
        0xE0,
        b"\0" + properties(b"\x11\0\0\0\1"),
        PROTOCOL,
    ),
}


@pytest.mark.mqtt(
    *(
        "MQTT-4.13.1-1",
        "MQTT-4.13.2-1",
        "MQTT-1.5.4-1",
        "MQTT-1.5.4-2",
        "MQTT-1.5.5-1",
        "MQTT-2.1.3-1",
        "MQTT-3.3.1-2",
        "MQTT-3.3.1-4",
    ),
    *(
        "MQTT-3.3.2-1",
        "MQTT-3.3.2-2",
        "MQTT-3.6.1-1",
        "MQTT-3.8.1-1",
        "MQTT-3.8.3-1",
        "MQTT-3.8.3-2",
        "MQTT-3.8.3-5",
        "MQTT-3.10.1-1",
    ),
    *(
        "MQTT-3.10.3-1",
        "MQTT-3.10.3-2",
        "MQTT-3.14.1-1",
        "MQTT-4.7.0-1",
        "MQTT-4.7.1-1",
        "MQTT-4.7.1-2",
        "MQTT-4.7.3-1",
        "MQTT-4.7.3-2",
    ),
    *(
        "311:MQTT-4.8.0-1",
        "311:MQTT-1.5.3-1",
        "311:MQTT-1.5.3-2",
        "311:MQTT-2.2.2-1",
        "311:MQTT-2.2.2-2",
        "311:MQTT-2.3.1-1",
    ),
    *(
        "311:MQTT-3.3.1-2",
        "311:MQTT-3.3.1-4",
        "311:MQTT-3.3.2-1",
        "311:MQTT-3.3.2-2",
        "311:MQTT-3.6.1-1",
        "311:MQTT-3.8.1-1",
    ),
    *(
        "311:MQTT-3.8.3-1",
        "311:MQTT-3.8.3-3",
        "311:MQTT-3.8.3-4",
        "311:MQTT-3.10.1-1",
        "311:MQTT-3.10.3-1",
        "311:MQTT-3.10.3-2",
    ),
    *(
        "311:MQTT-3.14.1-1",
        "311:MQTT-4.7.1-1",
        "311:MQTT-4.7.1-2",
        "311:MQTT-4.7.1-3",
        "311:MQTT-4.7.3-1",
        "311:MQTT-4.7.3-2",
    ),
)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", [V4, V5])
@PIECES
def test_in_every_version(case: str, version: Version, byte_by_byte: bool) -> None:
    world, client = stage(version)
    first, body, code = CASES[case]
    data = (
        HEADERS[case]
        if body is None
        else frame(first, body.replace(NONE, b"\0" if version == V5 else b""))
    )
    breaks(client, data, byte_by_byte)
    closed_with(world, client, code)


@pytest.mark.mqtt(
    *(
        "MQTT-4.13.1-1",
        "MQTT-1.5.7-1",
        "MQTT-3.3.2-8",
        "MQTT-3.3.2-9",
        "MQTT-3.3.2-13",
        "MQTT-3.3.2-14",
        "MQTT-3.3.2-19",
        "MQTT-3.3.4-6",
    ),
    *(
        "MQTT-3.4.2-1",
        "MQTT-3.5.2-1",
        "MQTT-3.6.2-1",
        "MQTT-3.7.2-1",
        "MQTT-3.8.3-4",
        "MQTT-3.14.2-1",
        "MQTT-3.15.1-1",
        "MQTT-3.15.2-1",
    ),
    *("MQTT-4.8.2-1", "MQTT-4.8.2-2", "MQTT-4.12.0-7"),
)
@pytest.mark.parametrize("case", CASES_5)
@PIECES
def test_in_mqtt_5(case: str, byte_by_byte: bool) -> None:
    world, client = stage(V5)
    first, body, code = CASES_5[case]
    breaks(client, frame(first, body), byte_by_byte)
    closed_with(world, client, code)


@pytest.mark.mqtt("311:MQTT-4.8.0-1", "311:MQTT-2.2.2-2")
@pytest.mark.parametrize(
    "data", ["F000", "E00100", "4003000100", "82060001000161FF", "820600010001610C"]
)
def test_mqtt_5_only_error_closes_an_older_connection(data: str) -> None:
    world, client = stage(V4)
    breaks(client, bytes.fromhex(data), False)
    closed_with(world, client, PROTOCOL)


@pytest.mark.mqtt("MQTT-3.1.0-2", "311:MQTT-3.1.0-2", "MQTT-3.1.2-7", "311:MQTT-3.1.2-8")
@pytest.mark.parametrize("version", [V3, V4, V5])
@pytest.mark.parametrize("second", [V3, V4, V5])
def test_a_second_connect_is_never_a_way_into_another_session(
    version: Version, second: Version
) -> None:
    world = World()
    victim = world.accepted("victim", clean=False, properties=FOREVER)
    client = world.accepted("c", version=version)
    client.send_bytes(encode(Connect("victim", second, False), second))
    assert client.closed
    assert not victim.closed
    assert client.take_all(Connack) == []


# CONNECT: protocol name, level, flags, body after the Keep Alive; reason code of CONNACK in MQTT 5,
# return code in older versions; None: no CONNACK.
OK_5, OK_4, OK_3 = (b"MQTT", 5), (b"MQTT", 4), (b"MQIsdp", 3)
CONNECTS: dict[str, tuple[tuple[bytes, int], int, bytes, int | None]] = {
    "reserved flag, 5": (OK_5, 0x03, b"\0" + text("c"), MALFORMED),
    "reserved flag, 3.1.1": (OK_4, 0x03, text("c"), None),
    "will QoS 3": (OK_5, 0x1E, b"\0" + text("c") + b"\0" + text("w") + text("m"), MALFORMED),
    "will QoS 3, 3.1.1": (OK_4, 0x1E, text("c") + text("w") + text("m"), None),
    "will QoS without a will": (OK_5, 0x0A, b"\0" + text("c"), MALFORMED),
    "will retain without a will, 3.1.1": (OK_4, 0x22, text("c"), None),
    "a will that is announced and missing": (OK_5, 0x06, b"\0" + text("c"), MALFORMED),
    "a will that is announced and missing, 3.1.1": (OK_4, 0x06, text("c"), None),
    "a will topic with a wildcard": (
        OK_5,
        0x06,
        b"\0" + text("c") + b"\0" + text("w/#") + text("m"),
        MALFORMED,
    ),
    "a will topic that is not UTF-8, 3.1.1": (
        OK_4,
        0x06,
        text("c") + raw(b"\xff") + text("m"),
        None,
    ),
    "an empty will topic, 3.1.1": (OK_4, 0x06, text("c") + text("") + text("m"), None),
    "a user name that is announced and missing": (OK_5, 0x82, b"\0" + text("c"), MALFORMED),
    "a user name that is not announced": (OK_4, 0x02, text("c") + text("user"), None),
    "a user name that is not UTF-8": (OK_5, 0x82, b"\0" + text("c") + raw(b"\xff"), MALFORMED),
    "a password that is announced and missing": (
        OK_5,
        0xC2,
        b"\0" + text("c") + text("user"),
        MALFORMED,
    ),
    "a password without a user name, 3.1.1": (OK_4, 0x42, text("c") + text("secret"), None),
    "no client identifier": (OK_5, 0x02, b"\0", MALFORMED),
    "no client identifier, 3.1.1": (OK_4, 0x02, b"", None),
    "a client identifier that is not UTF-8": (OK_4, 0x02, raw(b"\xff"), None),
    "an empty client identifier without clean session": (OK_4, 0x00, text(""), 2),
    "an empty client identifier, 3.1": (OK_3, 0x02, text(""), 2),
    "receive maximum 0": (OK_5, 0x02, properties(b"\x21\0\0") + text("c"), PROTOCOL),
    "maximum packet size 0": (OK_5, 0x02, properties(b"\x27\0\0\0\0") + text("c"), PROTOCOL),
    "receive maximum twice": (OK_5, 0x02, properties(b"\x21\0\1\x21\0\1") + text("c"), PROTOCOL),
    "request problem information 2": (OK_5, 0x02, properties(b"\x17\2") + text("c"), PROTOCOL),
    "authentication data without a method": (
        OK_5,
        0x02,
        properties(b"\x16\0\1x") + text("c"),
        PROTOCOL,
    ),
    "an authentication method": (
        OK_5,
        0x02,
        properties(b"\x15" + text("x")) + text("c"),
        R.BAD_AUTHENTICATION_METHOD,
    ),
    "a topic alias": (OK_5, 0x02, properties(b"\x23\0\1") + text("c"), MALFORMED),
    "a will delay outside the will": (
        OK_5,
        0x02,
        properties(b"\x18\0\0\0\1") + text("c"),
        MALFORMED,
    ),
    "level 6": ((b"MQTT", 6), 0x02, b"\0" + text("c"), R.UNSUPPORTED_PROTOCOL_VERSION),
    "level 2": ((b"MQTT", 2), 0x02, text("c"), 1),
    "level 0": ((b"MQTT", 0), 0x02, text("c"), 1),
    "3.1.1 by its old name": ((b"MQIsdp", 4), 0x02, text("c"), 1),
    "another protocol": ((b"AMQP", 4), 0x02, text("c"), None),
    "another case": ((b"mqtt", 4), 0x02, text("c"), None),
}


@pytest.mark.mqtt(
    *(
        "MQTT-3.1.4-1",
        "MQTT-3.1.4-6",
        "MQTT-3.2.2-6",
        "MQTT-3.2.2-7",
        "MQTT-3.2.2-8",
        "MQTT-3.1.2-1",
        "MQTT-3.1.2-2",
        "MQTT-3.1.2-3",
    ),
    *(
        "MQTT-3.1.2-9",
        "MQTT-3.1.2-11",
        "MQTT-3.1.2-12",
        "MQTT-3.1.2-13",
        "MQTT-3.1.2-17",
        "MQTT-3.1.2-19",
        "MQTT-3.1.3-3",
        "MQTT-3.1.3-4",
    ),
    *(
        "MQTT-3.1.3-8",
        "MQTT-3.1.3-11",
        "MQTT-3.1.3-12",
        "MQTT-4.12.0-1",
        "MQTT-4.12.0-6",
        "MQTT-4.13.2-1",
    ),
    *(
        "311:MQTT-3.1.2-1",
        "311:MQTT-3.1.2-2",
        "311:MQTT-3.1.2-3",
        "311:MQTT-3.1.2-9",
        "311:MQTT-3.1.2-11",
        "311:MQTT-3.1.2-14",
    ),
    *(
        "311:MQTT-3.1.2-15",
        "311:MQTT-3.1.2-18",
        "311:MQTT-3.1.2-22",
        "311:MQTT-3.1.3-3",
        "311:MQTT-3.1.3-4",
        "311:MQTT-3.1.3-8",
    ),
    *(
        "311:MQTT-3.1.3-9",
        "311:MQTT-3.1.3-10",
        "311:MQTT-3.1.4-1",
        "311:MQTT-3.1.4-5",
        "311:MQTT-3.2.2-4",
        "311:MQTT-3.2.2-5",
    ),
    *("311:MQTT-3.2.2-6", "311:MQTT-3.1.3-6"),
)
@pytest.mark.parametrize("case", CONNECTS)
@PIECES
def test_a_connect_that_cannot_be_accepted_is_refused(case: str, byte_by_byte: bool) -> None:
    (name, level), flags, body, code = CONNECTS[case]
    world = World()
    client = world.open()
    data = frame(0x10, raw(name) + bytes((level, flags, 0, 0)) + body) + encode(
        Publish("spool/t", b"x"), V5
    )
    for piece in [bytes((byte,)) for byte in data] if byte_by_byte else [data]:
        dispatch.receive(client.connection, piece)
    sent = client.connection.take()
    assert client.connection.closing is not None
    if code is None:
        assert sent == b""
    else:
        assert sent[0] == 0x20
        assert sent[1] == len(sent) - 2
        assert sent[2:4] == bytes((0, code))
        assert (len(sent) > 4) == (code >= 0x80)
    assert world.broker.sessions == {}
    assert world.broker.spool.size == 0


@pytest.mark.mqtt("MQTT-3.1.2-29")
@pytest.mark.parametrize("wanted", [0, 1])
def test_reason_string_is_sent_only_if_the_client_requested_problem_information(
    wanted: int,
) -> None:
    for data in (b"\x30\x03\0\1#", b"\x60\x02\0\1"):
        client = World().accepted("c", properties={P.REQUEST_PROBLEM_INFORMATION: wanted})
        client.send_bytes(data)
        assert (P.REASON_STRING in (client.take(Disconnect).properties or {})) == bool(wanted)
    refused = World().connect(
        "c", properties={P.REQUEST_PROBLEM_INFORMATION: wanted, P.AUTHENTICATION_METHOD: "x"}
    )
    assert (P.REASON_STRING in (refused.take(Connack).properties or {})) == bool(wanted)
