"""Each written packet can be read again, however its bytes are split. For any other input, only
MqttError is raised.
"""

import random
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt.decode import decode
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MqttError
from gateway.mqtt.packets import (
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
    Version,
)
from gateway.mqtt.stream import PacketStream
from tests.mqtt.fuzz import check_one, one_by_one
from tests.mqtt.strategies import connects, packet_ids, packets, versions

sides = st.sampled_from(Side)


@settings(max_examples=300)
@given(st.data(), versions, sides)
def test_packets_survive_writing_and_reading(
    data: st.DataObject, version: Version, sender: Side
) -> None:
    packet = data.draw(packets(version, sender))
    stream = PacketStream(1 << 20, version, sender)
    for _ in range(2):  # at the second packet, the stream knows the topic
        stream.feed(encode(packet, version))
        assert list(stream) == [packet]


@settings(max_examples=150)
@given(st.data(), versions)
def test_connect_survives_writing_and_reading(data: st.DataObject, version: Version) -> None:
    packet = data.draw(connects(version))
    stream = PacketStream(1 << 20)
    stream.feed(encode(packet, version))
    assert list(stream) == [packet]
    assert stream.version is version


@st.composite
def conversations(draw: st.DrawFn, version: Version, sender: Side) -> list[Packet]:
    """Draw a series of packets. Many of its packets are PUBLISH packets or acknowledgements that
    differ only in packet identifier and payload.
    """
    topics = st.sampled_from(["a", "a/b"])
    plain = st.one_of(
        st.builds(Publish, topics, st.binary(min_size=3, max_size=3)),
        st.builds(Publish, topics, st.binary(max_size=2), st.just(1), packet_ids),
        st.builds(Publish, topics, st.just(b""), st.just(2), packet_ids, st.booleans()),
        *(st.builds(kind, packet_ids) for kind in (Puback, Pubrec, Pubrel, Pubcomp)),
    )
    return draw(st.lists(st.one_of(plain, plain, packets(version, sender)), max_size=12))


@settings(max_examples=200)
@given(st.data(), versions, sides, st.booleans())
def test_splits_and_runs_do_not_matter(
    data: st.DataObject, version: Version, sender: Side, by_runs: bool
) -> None:
    wanted = data.draw(conversations(version, sender))
    raw = b"".join(encode(packet, version) for packet in wanted)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    stream = PacketStream(1 << 20, version, sender)
    found: list[Packet] = []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        stream.feed(raw[start:end])
        if end == len(raw) or data.draw(st.booleans()):
            for item in iter(stream.take, None) if by_runs else stream:
                found += one_by_one(item)
    assert found == wanted
    assert stream.pending == 0


@settings(max_examples=500)
@given(st.integers(0, 255), st.binary(max_size=60), versions, sides)
def test_any_body_is_a_packet_or_an_error(
    first: int, body: bytes, version: Version, sender: Side
) -> None:
    with suppress(MqttError):
        packet = decode(first, body, version, sender)
        assert decode(first, body, version, sender) == packet


def test_damaged_packets_are_packets_or_errors() -> None:
    chance = random.Random(7)
    for _ in range(10_000):
        check_one(chance)
