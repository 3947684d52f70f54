"""Whatever is written can be read again, however the bytes are split; whatever comes in, nothing
but MqttError comes out.
"""

import random
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt.decode import decode
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MqttError
from gateway.mqtt.packets import Packet, Side, Version
from gateway.mqtt.stream import PacketStream
from tests.mqtt.fuzz import check_one
from tests.mqtt.strategies import connects, packets, versions

sides = st.sampled_from(Side)


@settings(max_examples=300)
@given(st.data(), versions, sides)
def test_packets_survive_writing_and_reading(
    data: st.DataObject, version: Version, sender: Side
) -> None:
    packet = data.draw(packets(version, sender))
    stream = PacketStream(1 << 20, version, sender)
    for _ in range(2):  # the second time the topic is known
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


@settings(max_examples=100)
@given(st.data(), versions, sides)
def test_splits_do_not_matter(data: st.DataObject, version: Version, sender: Side) -> None:
    wanted = data.draw(st.lists(packets(version, sender), min_size=1, max_size=6))
    raw = b"".join(encode(packet, version) for packet in wanted)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    stream = PacketStream(1 << 20, version, sender)
    found: list[Packet] = []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        stream.feed(raw[start:end])
        if data.draw(st.booleans()):
            found += stream
    assert found + list(stream) == wanted
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
