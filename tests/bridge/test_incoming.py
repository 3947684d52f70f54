"""If this gateway can never accept a message of the other broker, it refuses that message and
accepts the next one.
"""

from pathlib import Path

import pytest

from gateway.bridge.incoming import IncomingStream, Unusable
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MqttError
from gateway.mqtt.packets import (
    Connect,
    Puback,
    Pubrec,
    Suback,
    Version,
)
from gateway.mqtt.properties import Properties, PropertyId, encode_properties
from gateway.mqtt.reason import PUBLISH_ACK_CODES, ReasonCode
from gateway.mqtt.wire import encode_string, encode_varint, pack_u16
from tests.bridge.picky import picky
from tests.bridge.test_aside import status
from tests.bridge.test_bridge import READING, UP, bridged, publish, subscribe, take
from tests.service.wire import wire

LIMIT = 8_000
POISON, GOOD = 7, 8
"""Packet identifiers of a message that the gateway refuses, and of one that it accepts."""
_P = PropertyId


def raw(
    qos: int,
    identifier: int,
    topic: bytes,
    properties: bytes = b"\0",
    payload: bytes = b"x",
    flags: int = 0,
) -> bytes:
    """Return the bytes of a PUBLISH, which may be malformed. topic: without its length field.
    properties: with their length field. flags: RETAIN and DUP bits.
    """
    body = len(topic).to_bytes(2, "big") + topic
    body += pack_u16(identifier) if qos else b""
    body += properties + payload
    return bytes([0x30 | qos << 1 | flags]) + encode_varint(len(body)) + body


def block(*parts: bytes) -> bytes:
    """Return a block of properties with its length field."""
    joined = b"".join(parts)
    return encode_varint(len(joined)) + joined


def proper(properties: Properties) -> bytes:
    return encode_properties(properties)


A = b"commands/a"
EXPIRY = b"\x02\0\0\0\x09"
BAD: dict[str, tuple[bytes, bytes, bytes]] = {
    "a + in the topic": (b"commands/+", b"\0", b"x"),
    "a # in the topic": (b"commands/#", b"\0", b"x"),
    "U+0000 in the topic": (b"commands/\0", b"\0", b"x"),
    "a topic that is not UTF-8": (b"commands/\xff", b"\0", b"x"),
    "a surrogate in the topic": (b"commands/\xed\xa0\x80", b"\0", b"x"),
    "no topic": (b"", b"\0", b"x"),
    "no topic and an unknown alias": (b"", block(b"\x23\0\x05"), b"x"),
    "a topic alias of 0": (A, block(b"\x23\0\0"), b"x"),
    "a topic outside the filters' prefix": (b"x", b"\0", b"x"),
    "a wildcard in the response topic": (A, block(b"\x08" + encode_string("a/+")), b"x"),
    "an empty response topic": (A, block(b"\x08\0\0"), b"x"),
    "a response topic that is not UTF-8": (A, block(b"\x08\0\x01\xff"), b"x"),
    "a content type that is not UTF-8": (A, block(b"\x03\0\x01\xff"), b"x"),
    "U+0000 in the content type": (A, block(b"\x03\0\x01\0"), b"x"),
    "a user property that is not UTF-8": (A, block(b"\x26\0\x01\xff\0\0"), b"x"),
    "too many user properties": (A, block(b"\x26\0\0\0\0" * 1_001), b""),
    "a payload format indicator of 2": (A, block(b"\x01\x02"), b"x"),
    "an expiry interval twice": (A, block(EXPIRY, EXPIRY), b"x"),
    "a subscription identifier of 0": (A, block(b"\x0b\0"), b"x"),
    "a property of CONNECT": (A, block(b"\x21\0\x05"), b"x"),
    "a property that does not exist": (A, block(b"\x7f\0"), b"x"),
    "a property that is cut off": (A, block(b"\x08\0\x09ab"), b""),
    "properties longer than the packet": (A, b"\x7fab", b""),
    "a packet above our limit": (A, b"\0", bytes(LIMIT)),
    "a packet far above our limit": (A, b"\0", bytes(300_000)),
    "a bad topic above our limit": (b"commands/\xff", b"\0", bytes(LIMIT)),
    "a topic of 65,535 bytes": (b"commands/" + b"a" * 65_526, b"\0", b"x"),
}
"""Messages that the gateway refuses: topic, properties and payload."""
FINE: dict[str, tuple[bytes, bytes]] = {
    "a subscription identifier": (proper({_P.SUBSCRIPTION_IDENTIFIER: [5]}), b"x"),
    "several subscription identifiers": (proper({_P.SUBSCRIPTION_IDENTIFIER: [5, 6]}), b"x"),
    "a topic alias": (proper({_P.TOPIC_ALIAS: 9}), b"x"),
    "a topic alias above every limit": (proper({_P.TOPIC_ALIAS: 65_535}), b"x"),
    "text that is not UTF-8": (proper({_P.PAYLOAD_FORMAT_INDICATOR: 1}), b"\xff"),
    "a long expiry interval": (proper({_P.MESSAGE_EXPIRY_INTERVAL: 4_000_000_000}), b"x"),
    "user properties": (proper({_P.USER_PROPERTY: [("a", "b"), ("a", "")]}), b"x"),
    "words of an identity": (proper({_P.USER_PROPERTY: [("incarnation", "1"), ("seq", "2")]}), b""),
    "an empty payload": (b"\0", b""),
}
"""Messages that the gateway accepts: properties and payload."""


@pytest.mark.parametrize("flags", [0, 1], ids=["", "retained"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_impossible_message_is_refused_and_the_next_is_taken(
    tmp_path: Path, qos: int, flags: int
) -> None:
    """All messages of `BAD` come on one connection, each followed by a valid message."""
    text = f'{UP}\ndown = ["#"]\nqos = 2\nprefix = "commands/"\n[limits]\npacket_bytes = {LIMIT}'
    async with (
        picky() as far,
        bridged(tmp_path, far.port, text) as near,
        wire(near.port, Connect("here")) as here,
    ):
        await near.logged("bridge cloud: connected")
        await subscribe(here, "good")
        for count, (name, (topic, properties, payload)) in enumerate(BAD.items()):
            far.answers.clear()
            far.send_bytes(raw(qos, POISON, topic, properties, payload, flags))
            far.send_bytes(raw(qos, 100 + count, b"commands/good", payload=name.encode()))
            assert (await take(here)).payload == name.encode()
            if qos:
                (answer,) = [item for item in far.answers if item.packet_id == POISON]
                assert isinstance(answer, Puback if qos == 1 else Pubrec)
                assert answer.reason >= 0x80
                assert answer.reason in PUBLISH_ACK_CODES, name
            assert status(tmp_path)["not_taken"] == count + 1, name
        assert far.connections == 1
        assert status(tmp_path)["received"] == 2 * len(BAD)
        await near.logged("cannot accept a message from the other broker and refuses it")
        assert (
            sum("cannot accept a message from the other broker" in line for line in near.log) == 1
        )
        await publish(here, READING, b"up", 1, 9)
        await far.until(1)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_properties_of_the_connection_are_left_out(tmp_path: Path, qos: int) -> None:
    async with (
        picky() as far,
        bridged(tmp_path, far.port, f'{UP}\ndown = ["commands/#"]\nqos = 2') as near,
        wire(near.port, Connect("here")) as here,
    ):
        await near.logged("bridge cloud: connected")
        await subscribe(here, "commands/#")
        for number, (name, (properties, payload)) in enumerate(FINE.items()):
            far.send_bytes(raw(qos, number + 1, A, properties, payload))
            found = await take(here)
            assert (found.topic, found.payload) == ("commands/a", payload), name
            assert not {_P.SUBSCRIPTION_IDENTIFIER, _P.TOPIC_ALIAS} & set(found.properties or ())
        assert (far.connections, status(tmp_path)["not_taken"]) == (1, 0)


@pytest.mark.parametrize("chunk", [1, 7, 4_096])
def test_a_large_message_is_skipped_however_it_is_split(chunk: int) -> None:
    """The bytes of the large packet are not kept in memory. The packets before and after it are
    intact.
    """
    stream, found = IncomingStream(LIMIT), []
    large = raw(1, POISON, A, payload=bytes(3 * LIMIT))
    data = raw(0, 0, A, payload=b"before") + large + large + raw(1, GOOD, A, payload=b"behind")
    for at in range(0, len(data), chunk):
        stream.feed(data[at : at + chunk])
        found += list(stream)
        assert stream.pending < LIMIT + chunk
    before, first, second, behind = found
    assert (before.payload, behind.payload) == (b"before", b"behind")
    for packet in (first, second):
        assert isinstance(packet, Unusable)
        assert (packet.topic, packet.qos, packet.packet_id) == ("commands/a", 1, POISON)
        assert str(LIMIT) in packet.why


@pytest.mark.parametrize("flags", [0b0110, 0b1000, 0b0010], ids=["QoS 3", "DUP at 0", "no number"])
def test_a_message_that_cannot_be_answered_is_dropped(flags: int) -> None:
    stream = IncomingStream(LIMIT)
    body = encode_string("a") + pack_u16(0) + b"\0"
    stream.feed(bytes([0x30 | flags]) + encode_varint(len(body)) + body)
    (packet,) = list(stream)
    assert isinstance(packet, Unusable)
    assert (packet.qos, packet.packet_id) == (0, 0)


def test_other_packets_that_are_wrong_end_the_connection() -> None:
    for data in (
        encode(Suback(1, [ReasonCode.SUCCESS] * LIMIT), Version.V5),
        b"\x00\x00",
        b"\x30\xff\xff\xff\xff\x01",
        b"\x40\x02\x00\x00",
    ):
        stream = IncomingStream(LIMIT)
        stream.feed(data)
        with pytest.raises(MqttError):
            list(stream)
