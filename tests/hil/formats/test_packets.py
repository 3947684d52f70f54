"""The readers of the rig and of the gateway agree about every MQTT packet, in both directions."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt import packets as gateway_packets
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Side, Version
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.stream import PacketStream
from hil.formats.packets import (
    Answer,
    Connack,
    Connect,
    Cutter,
    Disconnect,
    Kind,
    Other,
    Packet,
    PacketError,
    Property,
    Publish,
    Suback,
    Subscribe,
    first,
    write,
)
from tests.mqtt.strategies import client_packets, connects, server_packets

LISTS = (PropertyId.USER_PROPERTY, PropertyId.SUBSCRIPTION_IDENTIFIER)


def properties(theirs: dict[PropertyId, Any] | None) -> list[tuple[int, Any]]:
    """Convert properties to the rig's form, in which a property that is repeated has one item for
    each value.
    """
    return sorted(
        (int(name), one)
        for name, value in (theirs or {}).items()
        for one in (value if name in LISTS else [value])
    )


def same(own: Packet, theirs: Any) -> None:
    """Assert that a packet of the rig and one of the gateway have the same content."""
    if isinstance(own, Other):
        assert own.kind.name == type(theirs).__name__.upper()
        return
    assert sorted((int(name), value) for name, value in own.properties) == properties(
        theirs.properties
    )
    match own:
        case Connect():
            assert (own.client_id, own.clean_start, own.keep_alive) == (
                theirs.client_id,
                theirs.clean_start,
                theirs.keep_alive,
            )
        case Connack():
            assert (own.session_present, own.reason) == (theirs.session_present, theirs.reason)
        case Publish():
            assert (own.topic, own.payload, own.qos, own.id, own.dup, own.retain) == (
                theirs.topic,
                theirs.payload,
                theirs.qos,
                theirs.packet_id,
                theirs.dup,
                theirs.retain,
            )
        case Answer():
            assert own.kind.name == type(theirs).__name__.upper()
            assert (own.id, own.reason) == (theirs.packet_id, theirs.reason)
        case Subscribe():
            assert own.id == theirs.packet_id
            assert [(name, options & 3) for name, options in own.filters] == [
                (one.topic_filter, one.qos) for one in theirs.subscriptions
            ]
        case Suback():
            assert (own.id, list(own.reasons)) == (theirs.packet_id, theirs.reasons)
        case Disconnect():
            assert own.reason == theirs.reason


@given(
    packet=st.one_of(connects(Version.V5), client_packets(Version.V5), server_packets(Version.V5)),
    cuts=st.lists(st.integers(0, 300), max_size=4),
)
def test_the_rig_reads_what_the_gateway_writes(packet: Any, cuts: list[int]) -> None:
    if isinstance(packet, gateway_packets.Connect):
        packet.will = packet.username = packet.password = None
    written = encode(packet, Version.V5)
    cutter = Cutter()
    edges = [0, *sorted(min(cut, len(written)) for cut in cuts), len(written)]
    read = [
        one for start, end in itertools.pairwise(edges) for one in cutter.feed(written[start:end])
    ]
    assert len(read) == 1
    same(read[0], packet)


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
topics = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="+#"),
    min_size=1,
    max_size=12,
)
ids = st.integers(1, 0xFFFF)
user = st.lists(st.tuples(st.just(Property.USER_PROPERTY), st.tuples(texts, texts)), max_size=3)
own_properties = user.map(tuple)
publishes = st.integers(0, 2).flatmap(
    lambda qos: st.builds(
        Publish,
        topics,
        st.binary(max_size=400),
        st.just(qos),
        ids if qos else st.just(0),
        st.booleans() if qos else st.just(False),
        st.booleans(),
        own_properties,
    )
)
sent_by_clients = st.one_of(
    publishes,
    st.builds(
        Answer, st.sampled_from([Kind.PUBREL, Kind.PUBCOMP]), ids, st.sampled_from([0, 0x92])
    ),
    st.builds(
        Answer,
        st.sampled_from([Kind.PUBACK, Kind.PUBREC]),
        ids,
        st.sampled_from([0, 0x10, 0x83, 0x97]),
        own_properties,
    ),
    st.builds(
        Subscribe,
        ids,
        st.lists(st.tuples(topics, st.integers(0, 2)), min_size=1, max_size=3).map(tuple),
        own_properties,
    ),
    st.builds(Disconnect, st.sampled_from([0, 4, 0x81]), own_properties),
    st.just(Other(Kind.PINGREQ)),
)
connect = st.builds(
    Connect,
    texts,
    st.booleans(),
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFF_FFFF).map(lambda s: ((Property.SESSION_EXPIRY_INTERVAL, s),)),
)


@given(connect=connect, packets=st.lists(sent_by_clients, max_size=5))
def test_the_gateway_reads_what_the_rig_writes(connect: Connect, packets: list[Packet]) -> None:
    stream = PacketStream(1 << 20)
    stream.feed(b"".join(map(write, [connect, *packets])))
    theirs = list(stream)
    assert len(theirs) == 1 + len(packets)
    for own, their in zip([connect, *packets], theirs, strict=True):
        same(own, their)


@given(
    packet=st.builds(Connack, st.booleans(), st.just(0), own_properties)
    | st.builds(Suback, ids, st.lists(st.sampled_from([0, 1, 2, 0x87]), min_size=1).map(tuple))
)
def test_also_what_a_server_would_send(packet: Packet) -> None:
    stream = PacketStream(1 << 20, Version.V5, Side.SERVER)
    stream.feed(write(packet))
    [theirs] = stream
    same(packet, theirs)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        packets = list(Cutter().feed(data))
    except PacketError:
        return
    assert len(packets) <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00",
        b"\x30\xff\xff\xff\xff\x01",
        b"\x30\xff\xff\xff\x7f",
        b"\x32\x03\x00\x01a",
        b"\x30\x04\x00\x01\xff\x00",
        b"\x30\x05\x00\x01a\x01\x7f",
        b"\x10\x0a\x00\x04MQTT\x04\x02\x00\x00",
    ],
)
def test_invalid_packet_is_refused(data: bytes) -> None:
    with pytest.raises(PacketError):
        list(Cutter().feed(data))


def test_packets_before_a_mistake_are_read() -> None:
    feed = Cutter().feed(write(Publish("t", b"x")) + b"\x00\x00")
    assert next(feed) == Publish("t", b"x")
    with pytest.raises(PacketError):
        next(feed)


def test_the_first_property_of_a_name() -> None:
    found = ((Property.RECEIVE_MAXIMUM, 7), (Property.USER_PROPERTY, ("a", "b")))
    assert first(found, Property.RECEIVE_MAXIMUM, 65535) == 7
    assert first(found, Property.TOPIC_ALIAS) is None
    assert Publish("t", b"", properties=found).user == {"a": "b"}
