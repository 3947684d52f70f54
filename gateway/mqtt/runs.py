"""Runs: consecutive packets of one stream that differ only in packet identifier and payload, and
are handled in one step.

In: bytes from the receive buffer (`PacketStream.take`). Out: the values that all packets of a run
share, and the identifier and payload of each packet. Most runs contain one packet.
"""

from struct import pack
from typing import Generic, TypeVar

from gateway.mqtt.packets import Ack, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel

MAXIMUM = 1024
"""Largest number of packets in one run."""

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
