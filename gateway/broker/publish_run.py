"""A run: publications of one connection that arrived together and differ only in packet identifier
and payload.

In: a run of PUBLISH packets from the receive buffer, a decoded PUBLISH, or a row of the store. Out:
the PUBLISH packets for a receiver of any version, QoS and options.

Most runs contain one publication. A run of a busy publisher contains dozens. Checks, routing,
storage and encoding take one step per run, not one per publication, which makes Python fast enough.
"""

from collections.abc import Sequence
from typing import Protocol

from gateway.broker.message_ids import HIGH, IDENTIFIERS, LOW, packet_id
from gateway.broker.topic import Topic
from gateway.mqtt.runs import Publishes
from gateway.mqtt.wire import encode_varint, pack_u16
from gateway.system.usage import Account, Origin

PUBLISH = 0x30
DUP = 0x08
RETAIN = 0x01
QOS_BITS = 0x06

OVERHEAD = 64
"""Bytes that are counted for a queued message in addition to its payload. Properties, and the part
of a topic name beyond this length, are counted as well."""

LARGE = 16_384
"""Size in bytes from which receivers get a view of a payload in place of a copy."""
Piece = bytes | memoryview

_KNOWN_SHAPES = 4
"""Largest number of cached PUBLISH headers (the bytes before the payload) for one topic."""


class Publisher(Protocol):
    """The session that a run comes from."""

    @property
    def account(self) -> Account | None:
        """Account of the session; None for the session of a board."""

    @property
    def origin(self) -> Origin | None:
        """User or address for which the session's use of resources is counted. None for the session
        of a board or of the gateway itself.
        """

    @property
    def foreign(self) -> bool:
        """Whether the publisher is the session of a peer gateway."""


class PublishRun(Publishes[Topic]):
    """A run of publications on its way through the broker."""

    __slots__ = ("expires", "message", "properties", "publisher", "weight", "written")

    def __init__(
        self,
        topic: Topic,
        raw: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        ids: tuple[int, ...] = (),
        count: int = 1,
        stride: int = 0,
        id_at: int = 0,
        payload_at: int = 0,
        properties: bytes = b"",
        expires: float | None = None,
        publisher: Publisher | None = None,
    ) -> None:
        # super() is not called, because a run is created for nearly every message
        self.topic = topic
        self.raw = raw
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.ids = ids
        self.count = count
        self.stride = stride or len(raw)
        self.size = self.stride - payload_at
        self.id_at = id_at
        self.payload_at = payload_at
        self.weight = self.size
        """Size of one publication as counted against bounds, in bytes: payload, properties, and the
        part of the topic name that OVERHEAD does not include."""
        if properties or len(topic.wire) > OVERHEAD:
            self.weight += len(properties) + max(0, len(topic.wire) - OVERHEAD)
        self.properties = properties
        """Encoded properties that MQTT 5 passes on unchanged, without the property length."""
        self.expires = expires
        """Time of expiry on the broker's time axis, or None."""
        self.publisher = publisher
        """Session of the publisher; None if the gateway publishes, or a will without a session."""
        self.message = 0
        """Id of the run's row in the store, 0 if no queue row needs one."""
        self.written = False
        """Whether the run's row is in the store or in a sealed commit."""

    def body(self) -> bytes:
        """Return all payloads joined, as the store keeps them."""
        if self.count == 1:
            return self.raw[self.payload_at :]
        return b"".join(self.payloads()) if self.payload_at else self.raw

    def part(self, skip: int, count: int) -> "PublishRun":
        """Return `count` publications from index `skip` on as a new run."""
        return PublishRun(
            self.topic,
            self.raw[skip * self.stride : (skip + count) * self.stride],
            self.qos,
            self.retain,
            self.dup,
            self.ids[skip : skip + count],
            count,
            self.stride,
            self.id_at,
            self.payload_at,
            self.properties,
            self.expires,
            self.publisher,
        )

    def shape(
        self, first: int, version5: bool, extra: bytes, name: bytes | None = None
    ) -> tuple[bytes, bytes]:
        """Return the bytes that this run's PUBLISH packets share: before the packet identifier, and
        from there to the payload. first: the packet's first byte. extra: encoded properties for
        this receiver only. name: bytes in place of the topic name, if an alias is used.
        """
        topic = self.topic
        if self.properties or extra:
            return _shape(
                first,
                version5,
                topic.wire if name is None else name,
                self.properties + extra,
                self.size,
            )
        key = (first, version5, self.size)
        shape = topic.shapes.get(key)
        if shape is None:
            if len(topic.shapes) >= _KNOWN_SHAPES:
                topic.shapes.clear()
            shape = topic.shapes[key] = _shape(first, version5, topic.wire, b"", self.size)
        return shape

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


def _shape(
    first: int, version5: bool, topic: bytes, properties: bytes, size: int
) -> tuple[bytes, bytes]:
    tail = encode_varint(len(properties)) + properties if version5 else b""
    length = len(topic) + len(tail) + size + (2 if first & QOS_BITS else 0)
    return b"%c%b%b" % (first, encode_varint(length), topic), tail
