"""Runs: consecutive packets of one stream that differ only in packet identifier and payload, and
are handled in one step.

In: bytes from the receive buffer (`PacketStream.take`). Out: the values that all packets of a run
share, and the identifier and payload of each packet; the packets for a receiver of any version, QoS
and options. Most runs contain one packet.
"""

from collections.abc import Sequence
from struct import pack
from typing import Generic, TypeVar

from gateway.mqtt.message_ids import HIGH, IDENTIFIERS, LOW, packet_id
from gateway.mqtt.packets import Ack, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from gateway.mqtt.wire import encode_varint, pack_u16

MAXIMUM = 1024
"""Largest number of packets in one run."""

PUBLISH = 0x30
DUP = 0x08
RETAIN = 0x01
QOS_BITS = 0x06

LARGE = 16_384
"""Size in bytes from which receivers get a view of a payload in place of a copy."""
Piece = bytes | memoryview

T = TypeVar("T")
_ACKS: dict[int, type[Ack]] = {0x40: Puback, 0x50: Pubrec, 0x62: Pubrel, 0x70: Pubcomp}


class Publishes(Generic[T]):
    """PUBLISH packets that differ only in packet identifier and payload. Each payload has `size`
    bytes; there are no properties.
    """

    __slots__ = (
        "count",
        "dup",
        "id_at",
        "ids",
        "payload_at",
        "qos",
        "raw",
        "retain",
        "size",
        "stride",
        "topic",
    )

    def __init__(
        self,
        topic: T,
        raw: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        ids: tuple[int, ...] = (),
        count: int = 1,
        stride: int = 0,
        id_at: int = 0,
        payload_at: int = 0,
    ) -> None:
        self.topic = topic
        """Topic of all packets: the value that `topics` of the stream has for the Topic Name."""
        self.raw = raw
        """Bytes of all packets: `stride` bytes for each packet, with the payload at its end."""
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.ids = ids
        """Packet identifiers, one for each packet; empty at QoS 0."""
        self.count = count
        self.stride = stride or len(raw)
        self.size = self.stride - payload_at
        self.id_at = id_at
        """Offset in `raw` of the first packet identifier, 0 for none."""
        self.payload_at = payload_at
        """Offset in `raw` of the first payload."""

    def payload(self, index: int) -> bytes:
        at = index * self.stride
        return self.raw[at + self.payload_at : at + self.stride]

    def payloads(self, skip: int = 0, count: int = 0) -> list[bytes]:
        """Return `count` payloads (0 = all that follow) from packet `skip` on."""
        raw, stride, inner = self.raw, self.stride, self.payload_at
        count = count or self.count - skip
        if not self.size:
            return [b""] * count
        stop = (skip + count) * stride
        return [raw[at + inner : at + stride] for at in range(skip * stride, stop, stride)]

    def packets(self, shape: tuple[bytes, bytes], number: int, skip: int, count: int) -> bytes:
        """Return the PUBLISH packets of `count` publications from index `skip` on. number: message
        number of the first publication, which determines the packet identifiers; 0 at QoS 0.
        """
        head, tail = shape
        raw, stride = self.raw, self.stride
        if count == 1:
            payload = raw[skip * stride + self.payload_at : (skip + 1) * stride]
            if number:
                return b"".join((head, pack_u16((number - 1) % IDENTIFIERS + 1), tail, payload))
            return b"".join((head, tail, payload))
        at, id_at = skip * stride, self.id_at
        if number:
            ids = packet_id(number) - 1
            if (
                len(head) == id_at
                and tail == raw[at + id_at + 2 : at + self.payload_at]
                and head[1:] == raw[at + 1 : at + id_at]
            ):
                same = bytearray(raw[at : at + count * stride])
            else:
                gap = head + b"\0\0" + tail
                id_at, stride = len(head), len(gap) + self.size
                same = bytearray(gap + gap.join(self.payloads(skip, count)))
            same[::stride] = head[:1] * count
            same[id_at::stride] = HIGH[ids : ids + count]
            same[id_at + 1 :: stride] = LOW[ids : ids + count]
            return bytes(same)
        head += tail
        if not id_at and len(head) == self.payload_at and head == raw[at : at + len(head)]:
            return raw[at : at + count * stride]
        return head + head.join(self.payloads(skip, count))

    def pieces(
        self, shape: tuple[bytes, bytes], number: int, skip: int, count: int
    ) -> Sequence[Piece]:
        """Return the same as `packets`, in pieces. Large payloads stay views of the run's bytes, of
        which there is one copy, however many receivers there are.
        """
        if self.size < LARGE:
            return (self.packets(shape, number, skip, count),)
        (head, tail), view, found = shape, memoryview(self.raw), list[Piece]()
        for index in range(count):
            middle = pack_u16((number + index - 1) % IDENTIFIERS + 1) if number else b""
            end = (skip + index + 1) * self.stride
            found += b"".join((head, middle, tail)), view[end - self.size : end]
        return found


def publish_shape(
    first: int, version5: bool, topic: bytes, properties: bytes, size: int
) -> tuple[bytes, bytes]:
    """Return the bytes of a PUBLISH before the packet identifier, and from there to the payload.
    topic: encoded, with its length. size: bytes of the payload.
    """
    tail = encode_varint(len(properties)) + properties if version5 else b""
    length = len(topic) + len(tail) + size + (2 if first & QOS_BITS else 0)
    return b"%c%b%b" % (first, encode_varint(length), topic), tail


class Acks:
    """PUBACK, PUBREC, PUBREL or PUBCOMP packets with reason code 0x00 and without properties."""

    __slots__ = ("first", "ids")

    def __init__(self, first: int, ids: tuple[int, ...]) -> None:
        self.first = first
        """First byte of each packet."""
        self.ids = ids
        """Packet identifiers, one for each packet."""


def acknowledgements(kind: int, identifiers: tuple[int, ...] | list[int]) -> bytes:
    """Return the bytes of a successful acknowledgement for each packet identifier. The bytes are
    the same in all protocol versions. kind: first byte of each packet.
    """
    count = len(identifiers)
    if count == 1:
        return pack(">BBH", kind, 2, identifiers[0])
    packets = bytearray((kind, 2, 0, 0)) * count
    joined = pack(f">{count}H", *identifiers)
    packets[2::4], packets[3::4] = joined[0::2], joined[1::2]
    return bytes(packets)


def packets_of(run: Publishes[str] | Acks) -> list[Packet]:
    if isinstance(run, Acks):
        return list(map(_ACKS[run.first], run.ids))
    topic, qos, retain, dup = run.topic, run.qos, run.retain, run.dup
    if run.count == 1:
        return [Publish(topic, run.payload(0), qos, run.ids[0] if qos else 0, retain, dup)]
    return [
        Publish(topic, payload, qos, packet_id, retain, dup)
        for payload, packet_id in zip(run.payloads(), run.ids or (0,) * run.count, strict=True)
    ]


def bytes_of(run: Publishes[str] | Acks, skip: int) -> bytes:
    """Return the bytes of a run's packets from packet `skip` on, as received."""
    if isinstance(run, Acks):
        return acknowledgements(run.first, run.ids[skip:])
    return run.raw[skip * run.stride :]
