"""Every form of every packet, byte by byte: read, written, split into pieces, and cut short."""

from contextlib import suppress
from dataclasses import replace

import pytest

from gateway.mqtt.decode import decode
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MqttError
from gateway.mqtt.packets import Connect, Packet, Publish
from gateway.mqtt.stream import PacketStream
from tests.mqtt.examples import EXAMPLES, Example

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def stream_for(example: Example) -> PacketStream:
    first = type(example.packet) is Connect
    return PacketStream(1 << 20, None if first else example.version, example.sender)


def read(stream: PacketStream, *chunks: bytes) -> list[Packet]:
    found: list[Packet] = []
    for chunk in chunks:
        stream.feed(chunk)
        found += stream
    return found


@every_example
def test_bytes_become_the_packet(example: Example) -> None:
    assert read(stream_for(example), example.data) == [example.packet]


@every_example
@pytest.mark.mqtt("MQTT-2.2.2-1", "MQTT-3.1.3-1", "311:MQTT-3.1.3-1", "MQTT-3.2.2-1")
def test_the_packet_becomes_the_bytes(example: Example) -> None:
    assert encode(example.packet, example.version) == example.data


@every_example
@pytest.mark.mqtt("MQTT-6.0.0-2", "311:MQTT-6.0.0-2")
def test_any_split_gives_the_same_packet(example: Example) -> None:
    data = example.data
    for at in range(1, len(data)):
        assert read(stream_for(example), data[:at], data[at:]) == [example.packet]
    assert read(stream_for(example), *(data[at : at + 1] for at in range(len(data)))) == [
        example.packet
    ]


@every_example
def test_a_packet_that_ends_too_early_is_waited_for(example: Example) -> None:
    data = example.data
    for end in range(len(data)):
        stream = stream_for(example)
        assert read(stream, data[:end]) == []
        assert stream.pending == end


@every_example
def test_a_body_cut_short_is_refused_or_says_less(example: Example) -> None:
    """The remaining length is that of the shorter body. Only a payload, or optional parts at the
    end, can be cut without an error.
    """
    first, body = example.data[0], example.data[2:]
    for end in range(len(body)):
        packet = decoded(first, body[:end], example)
        empty_property_block_left_out = body[end:] == b"\0"
        assert packet != example.packet or empty_property_block_left_out


def decoded(first: int, body: bytes, example: Example) -> Packet | None:
    with suppress(MqttError):
        return decode(first, body, example.version, example.sender)
    return None


@every_example
@pytest.mark.mqtt(
    "MQTT-2.2.1-2", "MQTT-3.1.2-16", "MQTT-3.1.2-18", "311:MQTT-3.1.2-18", "311:MQTT-3.1.2-20"
)
def test_a_byte_beyond_the_end_is_refused(example: Example) -> None:
    """A PUBLISH accepts the additional byte as a part of its payload."""
    first, body = example.data[0], example.data[2:] + b"\xff"
    if isinstance(example.packet, Publish):
        packet = decode(first, body, example.version, example.sender)
        assert packet == replace(example.packet, payload=example.packet.payload + b"\xff")
    else:
        with pytest.raises(MqttError, match=type(example.packet).__name__.upper()):
            decode(first, body, example.version, example.sender)


def test_all_examples_in_one_stream_and_in_single_bytes() -> None:
    for whole in (True, False):
        for version in (3, 4, 5):
            for sender in {example.sender for example in EXAMPLES}:
                chosen = [
                    e
                    for e in EXAMPLES
                    if e.version == version and e.sender is sender and type(e.packet) is not Connect
                ]
                if not chosen:
                    continue
                data = b"".join(e.data for e in chosen)
                chunks = [data] if whole else [data[at : at + 1] for at in range(len(data))]
                assert read(PacketStream(1 << 20, chosen[0].version, sender), *chunks) == [
                    e.packet for e in chosen
                ]
