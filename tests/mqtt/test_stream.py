"""The stream: limits that are checked before memory is used, the order of packets and errors, and
the fast path for plain packets.
"""

import time
import tracemalloc

import pytest

from gateway.mqtt import stream as stream_module
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MalformedPacket, MqttError, ProtocolError
from gateway.mqtt.packets import (
    Packet,
    Pingreq,
    Puback,
    Publish,
    Pubrel,
    Side,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.reason import ReasonCode as R
from gateway.mqtt.runs import MAXIMUM, Acks, Publishes
from gateway.mqtt.stream import PacketStream
from tests.mqtt.examples import from_hex

V4, V5 = Version.V3_1_1, Version.V5


def fed(data: bytes, maximum: int = 1 << 20, version: Version = V5) -> PacketStream:
    stream = PacketStream(maximum, version)
    stream.feed(data)
    return stream


@pytest.mark.parametrize("header", ["30 FF FF FF FF 01", "30 80 80 80 80 01", "C0 FF FF FF 80"])
def test_a_remaining_length_of_5_bytes_is_refused(header: str) -> None:
    """The decoder refuses the fourth length byte and does not wait for the fifth (MQTT 5.0, table
    1-1).
    """
    with pytest.raises(MalformedPacket, match="longer than 4 bytes"):
        list(fed(from_hex(header)[:5]))


@pytest.mark.mqtt("MQTT-1.5.5-1")
@pytest.mark.parametrize("header", ["C0 80 00", "30 85 80 00", "30 FF FF FF 00"])
def test_a_remaining_length_is_in_its_shortest_form(header: str) -> None:
    with pytest.raises(MalformedPacket, match="shortest form"):
        list(fed(from_hex(header)))


@pytest.mark.parametrize("maximum", [5, 40, 127, 128, 129, 131, 132, 300, 16_386, 16_388, 20_000])
def test_the_maximum_counts_the_whole_packet(maximum: int) -> None:
    """No packet has 130 or 16387 bytes: a packet of more than 129 or 16386 bytes needs one more
    byte for its length field.
    """
    packets = [
        encode(Publish("a", bytes(size)), V4) for size in range(max(0, maximum - 10), maximum + 1)
    ]
    fitting = max((data for data in packets if len(data) <= maximum), key=len)
    too_large = min((data for data in packets if len(data) > maximum), key=len)
    assert len(fitting) == maximum
    assert len(too_large) in (maximum + 1, maximum + 2)
    assert len(list(fed(fitting, maximum, V4))) == 1
    with pytest.raises(
        ProtocolError, match=f"PUBLISH: {len(too_large)} bytes, at most {maximum} are accepted"
    ) as caught:
        list(fed(too_large, maximum, V4))
    assert caught.value.code is R.PACKET_TOO_LARGE


@pytest.mark.parametrize("length", ["FF FF FF 7F", "80 80 80 01", "81 80 01"])
def test_a_packet_that_is_too_large_is_refused_by_its_header(length: str) -> None:
    """The decoder neither reserves memory for the packet nor waits for its bytes."""
    stream = PacketStream(16_384, V5)
    tracemalloc.start()
    try:
        stream.feed(from_hex(f"30 {length}"))
        with pytest.raises(ProtocolError, match="at most 16384"):
            list(stream)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_large_connect_is_refused_before_it_is_complete() -> None:
    stream = PacketStream(1000)
    stream.feed(from_hex("10 FF 7F"))
    with pytest.raises(ProtocolError, match="CONNECT: 16386 bytes, at most 1000"):
        list(stream)


def test_the_maximum_may_change_between_packets() -> None:
    stream = fed(encode(Publish("a", bytes(50)), V4) + encode(Publish("b", bytes(50)), V4), 100, V4)
    packets = iter(stream)
    next(packets)
    stream.maximum = 40
    with pytest.raises(ProtocolError, match="at most 40"):
        next(packets)


def test_kept_packets_are_the_received_ones() -> None:
    """A large packet arrives in small pieces. If the stream copied all earlier bytes at each piece,
    the test would take minutes.
    """
    packet = Publish("a", bytes(4_000_000))
    data = encode(packet, V5)
    stream = PacketStream(1 << 23, V5)
    started = time.monotonic()
    for at in range(0, len(data) - 40, 40):
        stream.feed(data[at : at + 40])
        assert list(stream) == []
    assert time.monotonic() - started < 10
    assert stream.pending == at + 40
    stream.feed(data[stream.pending :])
    assert list(stream) == [packet]
    assert stream.pending == 0


def test_packets_before_an_error_come_first() -> None:
    found: list[Packet] = []
    stream = fed(from_hex("C0 00 40 02 00 07 30 03 00 01 'a' C1 00"), version=V4)
    with pytest.raises(MalformedPacket, match="PINGREQ: flags"):
        found.extend(stream)
    assert found == [Pingreq(), Puback(7), Publish("a")]


def test_leaving_the_loop_keeps_the_rest() -> None:
    stream = fed(encode(Puback(1), V5) + encode(Puback(2), V5) + encode(Puback(3), V5)[:3])
    for packet in stream:
        assert packet == Puback(1)
        break
    assert stream.pending == 7
    stream.feed(b"\x03")
    assert list(stream) == [Puback(2), Puback(3)]


def test_empty_input_yields_no_packet() -> None:
    stream = PacketStream(100)
    stream.feed(b"")
    assert list(stream) == []
    assert stream.version is None


@pytest.mark.parametrize(
    ("version", "text", "words"),
    [
        (V5, "32 08 00 06 'known/' 00 07", "packet identifier needs 2 bytes, 0 are left"),
        (V5, "32 09 00 06 'known/' 00 07 00", "packet identifier needs 2 bytes, 1 are left"),
        (V5, "32 0A 00 06 'known/' 00 07 00", "property length needs 1 bytes, 0 are left"),
        (V5, "32 0B 00 06 'known/' 00 00 00", "packet identifier is 0"),
        (V5, "30 08 00 06 'known/' 00", "property length needs 1 bytes, 0 are left"),
        (V5, "30 09 00 06 'known/' 80 80 80", "property length needs 1 bytes, 0 are left"),
        (V5, "30 05 00 06 'known/' 00", "topic name needs 6 bytes, 3 are left"),
        (V5, "30 00 00 06 'known/' 00", "topic name needs 2 bytes, 0 are left"),
        (V5, "30 01 00 06 'known/' 00", "topic name needs 2 bytes, 1 are left"),
        (V4, "30 07 00 06 'known/'", "topic name needs 6 bytes, 5 are left"),
        (V4, "34 09 00 06 'known/' 00 07", "packet identifier needs 2 bytes, 1 are left"),
        (V4, "34 0A 00 06 'known/' 00 00", "packet identifier is 0"),
    ],
)
def test_a_known_topic_does_not_reach_beyond_its_packet(
    version: Version, text: str, words: str
) -> None:
    """The bytes after the packet belong to the next packet. The decoder must not read them as the
    topic.
    """
    known = encode(Publish("known/"), version)
    stream = fed(known + from_hex(text) + known, version=version)
    packets = iter(stream)
    assert next(packets) == Publish("known/")
    with pytest.raises(MqttError, match=words):
        next(packets)


def test_known_topics_are_bounded() -> None:
    stream = PacketStream(1 << 20, V4)
    for number in range(stream_module._KNOWN_TOPICS + 10):
        stream.feed(encode(Publish(f"t/{number}"), V4))
        assert [packet.topic for packet in stream if isinstance(packet, Publish)] == [f"t/{number}"]
    assert len(stream_module._topics) <= stream_module._KNOWN_TOPICS
    stream.feed(encode(Publish("long/" * 100), V4))
    assert len(list(stream)) == 1
    assert all(
        len(topic) <= stream_module._LONGEST_KNOWN_TOPIC for topic in stream_module._topics.values()
    )


def test_a_known_topic_is_the_same_object_each_time() -> None:
    """The broker then compares and hashes the topic quickly."""
    stream = fed(encode(Publish("known/"), V5) * 3)
    topics = {id(packet.topic) for packet in stream if isinstance(packet, Publish)}
    assert len(topics) == 1


@pytest.mark.mqtt("MQTT-1.5.4-3", "311:MQTT-1.5.3-3")
def test_a_byte_order_mark_is_text() -> None:
    """A complete byte order mark stays in the text. An incomplete one is not valid UTF-8."""
    with pytest.raises(MalformedPacket, match="not UTF-8 at byte 4"):
        list(fed(from_hex("30 09 00 06 EF BB BF 'a' EF BB 00")))
    (packet,) = fed(from_hex("30 0A 00 07 EF BB BF 'a' EF BB BF 00"))
    assert packet == Publish("\ufeffa\ufeff")


def test_client_side_reads_what_a_server_sends() -> None:
    stream = PacketStream(100, V4, Side.SERVER)
    stream.feed(from_hex("20 02 01 00 90 03 00 07 01 D0 00"))
    assert [type(packet).__name__ for packet in stream] == ["Connack", "Suback", "Pingresp"]


def test_many_packets_in_one_chunk_and_in_tiny_chunks() -> None:
    wanted: list[Packet] = []
    for number in range(1, 400):
        wanted.append(
            Publish(
                f"s/{number % 7}",
                bytes(number),
                number % 3,
                number if number % 3 else 0,
                bool(number % 2),
            )
        )
        wanted.append(Subscribe(number, [Subscription("a/+", 1)]))
    data = b"".join(encode(packet, V5) for packet in wanted)
    assert list(fed(data)) == wanted
    stream = PacketStream(1 << 20, V5)
    found: list[Packet] = []
    for at in range(0, len(data), 7):
        stream.feed(data[at : at + 7])
        found += stream
    assert found == wanted


def test_alike_packets_are_one_run() -> None:
    """The stream returns a run as one item, so the broker handles it in one step. A packet with the
    packet identifier 0 ends the run, and is then refused.
    """
    messages = [Publish("run/", bytes([number]) * 3, 1, number) for number in range(1, 9)]
    data = b"".join(encode(packet, V5) for packet in messages)
    acks = b"".join(encode(Pubrel(number), V5) for number in range(1, 2000))
    stream = fed(encode(Publish("run/"), V5) + data + acks)
    first, run, *rest = iter(stream.take, None)
    assert first == Publish("run/")
    assert isinstance(run, Publishes)
    assert (run.topic, run.qos, run.count, run.ids) == ("run/", 1, 8, tuple(range(1, 9)))
    assert run.payloads(6) == [b"\7\7\7", b"\x08\x08\x08"]
    assert [len(item.ids) for item in rest if isinstance(item, Acks)] == [MAXIMUM, 1999 - MAXIMUM]

    at = len(data) // 8 * 5 + data.index(b"run/") + 4
    damaged = data[:at] + b"\0\0" + data[at + 2 :]
    stream = fed(damaged)
    assert getattr(stream.take(), "ids", None) == (1, 2, 3, 4, 5)
    with pytest.raises(MqttError, match="packet identifier is 0"):
        stream.take()
    stream = fed(acks[:8] + b"\x62\2\0\0" + acks)
    assert getattr(stream.take(), "ids", None) == (1, 2)
    with pytest.raises(MqttError, match="packet identifier is 0"):
        stream.take()


def test_a_run_may_be_left_early() -> None:
    messages = [Publish("left/", b"x", 1, number) for number in range(1, 6)]
    acks = b"".join(encode(Puback(number), V4) for number in range(1, 6))
    stream = fed(b"".join(encode(packet, V4) for packet in messages) + acks, version=V4)
    assert stream.take() == messages[0], "the stream learns the topic by it"
    run = stream.take(2)
    assert isinstance(run, Publishes)
    assert run.ids == (2, 3)
    assert stream.pending == 2 * len(encode(messages[0], V4)) + len(acks)
    assert getattr(stream.take(), "ids", None) == (4, 5)
    assert getattr(stream.take(1), "ids", None) == (1, 2, 3, 4, 5), "acknowledgements are one run"
