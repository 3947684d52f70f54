"""The publisher's encoder and decoder, compared with those of the gateway. Both were written
independently, from the standard.
"""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
    Suback,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.stream import PacketStream
from onceway_publisher import packets
from onceway_publisher.packets import Answer, Kind, PacketError, Pong, Reader

P = PropertyId
TEXTS = some.text(some.characters(codec="utf-8", exclude_categories=["Cc", "Cn", "Cs"]))
IDS = some.integers(1, 0xFFFF)


def read(data: bytes) -> list[object]:
    """Return the packets that the gateway's decoder reads."""
    stream = PacketStream(1 << 28, Version.V5, Side.CLIENT)
    stream.feed(data)
    return list(stream)


@given(TEXTS, some.booleans(), IDS, some.integers(0, 1 << 31), TEXTS, TEXTS)
def test_connect_is_what_the_gateway_reads(
    client: str, clean: bool, keep_alive: int, expiry: int, user: str, password: str
) -> None:
    data = packets.connect(client, clean, keep_alive, expiry, (("a", "b"),), [user, password])
    stream = PacketStream(1 << 28, None, Side.CLIENT)
    stream.feed(data)
    properties = {P.SESSION_EXPIRY_INTERVAL: expiry, P.USER_PROPERTY: [("a", "b")]}
    assert list(stream) == [
        Connect(
            client,
            Version.V5,
            clean,
            keep_alive,
            None,
            user,
            password.encode(),
            properties,
        )
    ]


@given(TEXTS.filter(bool), some.binary(max_size=300), IDS, some.booleans(), some.booleans())
def test_publish_is_what_the_gateway_reads(
    topic: str, payload: bytes, id: int, dup: bool, retain: bool
) -> None:
    topic = topic.replace("+", "").replace("#", "") or "t"
    data = packets.publish(topic, payload, id, dup, retain, (("seq", "1"),))
    properties = {P.USER_PROPERTY: [("seq", "1")]}
    assert read(data) == [Publish(topic, payload, 2, id, retain, dup, properties)]


def test_other_packets_are_what_the_gateway_reads() -> None:
    data = packets.pubrel(7) + packets.pubrel(8, 0x92) + packets.PING + packets.disconnect(0)
    assert read(data) == [
        Pubrel(7),
        Pubrel(8, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND),
        Pingreq(),
        Disconnect(properties={P.SESSION_EXPIRY_INTERVAL: 0}),
    ]


GRANTED = {
    P.RECEIVE_MAXIMUM: 5,
    P.MAXIMUM_QOS: 1,
    P.MAXIMUM_PACKET_SIZE: 900,
    P.SERVER_KEEP_ALIVE: 9,
    P.SESSION_EXPIRY_INTERVAL: 3,
    P.TOPIC_ALIAS_MAXIMUM: 4,
    P.RETAIN_AVAILABLE: 0,
    P.ASSIGNED_CLIENT_IDENTIFIER: "x",
    P.REASON_STRING: "why",
    P.USER_PROPERTY: [("onceway-identity", "counts")],
}
ANSWERS = (
    Connack(True, ReasonCode.SUCCESS, GRANTED),
    Connack(False, ReasonCode.NOT_AUTHORIZED, {P.REASON_STRING: "no"}),
    Puback(1),
    Pubrec(2, ReasonCode.QUOTA_EXCEEDED, {P.REASON_STRING: "full", P.USER_PROPERTY: [("a", "b")]}),
    Pubrec(2, ReasonCode.NO_MATCHING_SUBSCRIBERS),
    Pubcomp(3, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND),
    Pingresp(),
    Disconnect(ReasonCode.QUOTA_EXCEEDED, {P.REASON_STRING: "full"}),
    Disconnect(),
)
READ = [
    packets.Connack(True, 0, "why", 5, 1, 900, 9, {"onceway-identity": "counts"}),
    packets.Connack(False, 0x87, "no"),
    Answer(Kind.PUBACK, 1),
    Answer(Kind.PUBREC, 2, 0x97, "full"),
    Answer(Kind.PUBREC, 2, 0x10),
    Answer(Kind.PUBCOMP, 3, 0x92),
    Pong(),
    packets.Disconnect(0x97, "full"),
    packets.Disconnect(),
]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_answers_are_read_in_pieces_of_any_size(size: int) -> None:
    data = b"".join(encode(packet, Version.V5) for packet in ANSWERS)
    reader = Reader()
    found = [it for at in range(0, len(data), size) for it in reader.feed(data[at : at + size])]
    assert found == READ


@pytest.mark.parametrize(
    "data",
    [
        encode(Suback(1, [ReasonCode.SUCCESS]), Version.V5),
        b"\xff\xff\xff\xff\xff",
        b"\x20\x00",
        b"\x50\x01\x00",
        b"\x20\x05\x00\x00\x7f\x00\x00",
        b"\x20\x05\x00\x00\x02\x99\x00",
        b"\x20\xff\xff\xff\x7f",
    ],
    ids=["SUBACK", "length", "empty", "short", "properties", "property", "too large"],
)
def test_packet_that_no_server_sends_is_an_error(data: bytes) -> None:
    with pytest.raises(PacketError):
        list(Reader().feed(data))


@given(some.binary(max_size=60))
def test_any_bytes_are_packets_or_one_error(data: bytes) -> None:
    with suppress(PacketError):
        list(Reader().feed(data))
