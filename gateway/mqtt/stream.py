"""Parsing of a byte stream into control packets. The bytes may arrive in pieces of any size.

In: `feed(bytes)`, as they arrive from a link. Out: complete packets: one by one by iterating over
the stream, or similar packets as a run from `take()`. MalformedPacket or ProtocolError is raised at
the packet at fault, after all packets before it. The stream cannot be used afterwards.

    stream = PacketStream(maximum=65536)
    stream.feed(data)
    for packet in stream:
        ...

A packet whose announced length is beyond `maximum` is rejected by its fixed header alone (at most 5
bytes), and none of its bytes are kept. A plain PUBLISH (known topic, no properties) and plain
acknowledgements (2-byte body) are decoded in this file, with as few operations as possible. All
other packets go to `decode`, which knows all rules.
"""

from collections.abc import Callable, Iterator, Mapping
from struct import unpack
from typing import Any

from gateway.mqtt.decode import decode
from gateway.mqtt.errors import MalformedPacket, ProtocolError
from gateway.mqtt.packets import Connect, Packet, PacketType, Publish, Side, Version
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.runs import MAXIMUM, Acks, Publishes, bytes_of, packets_of
from gateway.mqtt.wire import MAX_PACKET, encode_string

_PLAIN_ACKS = frozenset((0x40, 0x50, 0x62, 0x70))
_REQUESTS = frozenset((0x82, 0xA2))
PINGREQ = b"\xc0\0"
"""A whole PINGREQ packet."""
_PLAIN_PUBLISHES = {
    0x30 | dup << 3 | qos << 1 | retain: (qos, bool(retain), bool(dup))
    for dup in (0, 1)
    for qos in (0, 1, 2)
    for retain in (0, 1)
    if qos or not dup
}
_KNOWN_TOPICS = 4096
_LONGEST_KNOWN_TOPIC = 128
_topics: dict[bytes, str] = {}
"""Topic Names that passed all checks, by their encoded bytes, length included. Emptied when full.
"""


class PacketStream:
    __slots__ = (
        "_ahead",
        "_at",
        "_begun",
        "_make",
        "_need",
        "_topics",
        "fresh",
        "lenient",
        "longest_request",
        "maximum",
        "sender",
        "version",
    )

    def __init__(
        self,
        maximum: int,
        version: Version | None = None,
        sender: Side = Side.CLIENT,
        topics: Mapping[bytes, Any] = _topics,
        make: Callable[..., Publishes[Any]] = Publishes,
        longest_request: int = MAX_PACKET,
        lenient: bool = False,
    ) -> None:
        """topics: the topic object for each encoded Topic Name that is known to be valid, length
        included; by default the names that any stream has decoded. make: the class of runs of
        PUBLISH packets.
        """
        if version is None and sender is Side.SERVER:
            raise ValueError("a server's packets cannot be read without the MQTT version")
        self.maximum = maximum
        """Largest packet accepted, in bytes, fixed header included. May be changed between runs."""
        self.version = version
        """Protocol version. None until the CONNECT, which must be a client's first packet."""
        self.longest_request = longest_request
        """Largest SUBSCRIBE or UNSUBSCRIBE accepted, in bytes, fixed header included; at least 129.
        """
        self.lenient = lenient
        """Whether any reason code is accepted in any packet."""
        self.sender = sender
        self._topics = topics
        self._make = make
        self.fresh = b""
        """Input with bytes that are not yet parsed; empty when all bytes are parsed."""
        self._at = 0
        """Offset of the first unparsed byte in `fresh`."""
        self._ahead = 0
        """Bytes after `_at` in which `pings_ahead` has counted all PINGREQ packets."""
        self._begun = bytearray()
        """Beginning of an incomplete packet, received before the bytes in `fresh`."""
        self._need = 0
        """Size of the incomplete packet in bytes; 0 while unknown."""

    def feed(self, data: bytes) -> None:
        """Add bytes; `take` parses them."""
        self.fresh = self.fresh[self._at :] + data if self.fresh else data
        self._at = 0

    @property
    def pending(self) -> int:
        """Number of bytes that were not yet returned as packets."""
        if self._at:
            self.fresh = self.fresh[self._at :]
            self._at = 0
        return len(self.fresh) + len(self._begun)

    def pings_ahead(self) -> int:
        """Return the number of complete PINGREQ packets that are not parsed yet, and that no
        earlier call has counted. So the caller can answer them while the client's other packets
        have to wait.
        """
        buffer, count = self.fresh, 0
        at = self._at + self._ahead
        while not self._begun and at < len(buffer):
            try:
                body, end = packet_bounds(buffer, at, MAX_PACKET)
            except (MalformedPacket, ProtocolError):  # `take` raises it later
                break
            if not body or end > len(buffer):
                break
            count += buffer[at:end] == PINGREQ
            at = end
        self._ahead = at - self._at
        return count

    def __iter__(self) -> Iterator[Packet]:
        """Yield the complete packets of a stream that was not given `topics`. If the loop is left
        early, the packets after the current one stay in the stream.
        """
        while (found := self.take()) is not None:
            if not isinstance(found, Publishes | Acks):
                yield found
                continue
            packets = packets_of(found)
            yielded = 0
            try:
                for packet in packets:
                    yielded += 1
                    yield packet
            finally:
                if yielded < len(packets):
                    self.fresh = bytes_of(found, yielded) + self.fresh[self._at :]
                    self._at = 0

    def take(self, most: int = MAXIMUM) -> Packet | Publishes[Any] | Acks | None:
        """Return the next complete packet, or a run of similar plain packets. None if no packet is
        complete. most: largest number of PUBLISH packets in a run.
        """
        buffer, start = self.fresh, self._at
        if self._begun:
            start = self._complete(buffer, start)
            self._go_on_from(start)
            if len(self._begun) != self._need:
                return None
            whole = bytes(self._begun)
            self._begun.clear()
            return self._cut(whole, 0, *self._bounds(whole, 0), most)[0]
        size = len(buffer)
        if start == size:
            return None
        if self.version is None and buffer[start] >> 4 != PacketType.CONNECT:
            raise ProtocolError(
                f"the first packet is not CONNECT, its first byte is 0x{buffer[start]:02X}"
            )
        body = start + 2
        if body <= size and (length := buffer[start + 1]) < 0x80 and length + 2 <= self.maximum:
            end = body + length
        else:
            body, end = self._bounds(buffer, start)
        if not body or end > size:
            self._begun += buffer[start:]
            self._need = end - start if body else 0
            self._go_on_from(size)
            return None
        found, after = self._cut(buffer, start, body, end, most)
        self._go_on_from(after)
        return found

    def _go_on_from(self, at: int) -> None:
        if self._ahead:
            self._ahead = max(0, self._ahead - (at - self._at))
        if at < len(self.fresh):
            self._at = at
        else:
            self.fresh, self._at = b"", 0

    def _bounds(self, buffer: bytes | bytearray, start: int) -> tuple[int, int]:
        most = self.maximum
        if buffer[start] in _REQUESTS:
            most = min(most, self.longest_request)
        return packet_bounds(buffer, start, most)

    def _complete(self, data: bytes, at: int) -> int:
        """Complete the incomplete packet with bytes of `data`, from `at` on. Return the offset
        after them.
        """
        begun = self._begun
        while not self._need and at < len(data):
            begun.append(data[at])
            at += 1
            _, self._need = self._bounds(begun, 0)
        more = data[at : at + self._need - len(begun)] if self._need else b""
        begun += more
        return at + len(more)

    def _cut(
        self, buffer: bytes, start: int, body: int, end: int, most: int
    ) -> tuple[Packet | Publishes[Any] | Acks, int]:
        """Return the packet or run in `buffer` from `start` on, and its end. body, end: offsets of
        the body and the end of the first packet.
        """
        first = buffer[start]
        plain = _PLAIN_PUBLISHES.get(first)
        if plain is not None and end - body > 2:
            named = body + 2 + (buffer[body] << 8 | buffer[body + 1])
            topic = self._topics.get(buffer[body:named])
            if topic is not None:
                qos, retain, dup = plain
                inner = named + 2 if qos else named
                version5 = self.version == Version.V5
                if version5:  # plus the length of its properties
                    inner += 1
                if inner <= end and not (version5 and buffer[inner - 1]):
                    stride, after = end - start, end
                    if end + stride <= len(buffer) and buffer[end] == first:
                        after = _alike(buffer, start, named, inner if version5 else 0, end, most)
                    ids: tuple[int, ...] = ()
                    if qos:
                        one = (buffer[named] << 8 | buffer[named + 1],)
                        ids = one if after == end else _ids(buffer, named, stride, after)
                        if 0 in ids:
                            ids = ids[: ids.index(0)]
                            after = start + len(ids) * stride
                    if after > start:
                        return self._make(
                            topic,
                            buffer[start:after] if after - start < len(buffer) else buffer,
                            qos,
                            retain,
                            dup,
                            ids,
                            (after - start) // stride,
                            stride,
                            named - start if qos else 0,
                            inner - start,
                        ), after
        elif end - body == 2 and first in _PLAIN_ACKS:
            acks, after = _acks(buffer, start)
            if acks is not None:
                return acks, after
        return self._decode(first, buffer[body:end]), end

    def _decode(self, first: int, body: bytes) -> Packet:
        if first >> 4 == PacketType.CONNECT and self.sender is Side.CLIENT and self.version:
            raise ProtocolError("CONNECT: sent a second time")
        packet = decode(first, body, self.version or Version.V5, self.sender, self.lenient)
        if type(packet) is Connect:
            self.version = packet.version
        if (
            self._topics is _topics
            and type(packet) is Publish
            and 0 < len(packet.topic) <= _LONGEST_KNOWN_TOPIC
        ):
            if len(_topics) >= _KNOWN_TOPICS:
                _topics.clear()
            _topics[encode_string(packet.topic)] = packet.topic
        return packet


def _alike(buffer: bytes, start: int, named: int, inner: int, end: int, most: int) -> int:
    """Return the end of the run that begins with the PUBLISH at `start`: packets of one size that
    differ only in packet identifier and payload. named: end of the topic. inner: offset of the
    payload in MQTT 5, where the property block is empty; 0 in older versions. end: end of the first
    packet. most: largest number of packets in the run.
    """
    alike, stride, after, size = buffer[start:named], end - start, end, len(buffer)
    marker, wanted = (inner - 1 - start, 0) if inner else (0, buffer[start])
    last = min(size - stride, start + (most - 1) * stride)
    while after <= last and buffer.startswith(alike, after) and buffer[after + marker] == wanted:
        after += stride
    return after


def _ids(buffer: bytes, at: int, stride: int, after: int) -> tuple[int, ...]:
    """Return the packet identifiers at `at`, at `at + stride`, and so on, up to `after`."""
    high, low = buffer[at:after:stride], buffer[at + 1 : after : stride]
    joined = bytearray(2 * len(low))
    joined[0::2], joined[1::2] = high[: len(low)], low
    return unpack(f">{len(low)}H", joined)


def _acks(buffer: bytes, start: int) -> tuple[Acks | None, int]:
    """Return the run of plain acknowledgements that begins at `start`, and its end. The run is None
    if its first packet has the packet identifier 0.
    """
    first, count = buffer[start], 1
    if buffer.startswith(buffer[start : start + 2], start + 4):
        end = min(len(buffer), start + 4 * MAXIMUM)
        heads, lengths = buffer[start:end:4], buffer[start + 1 : end : 4]
        count = min(
            len(heads) - len(heads.lstrip(heads[:1])),
            len(lengths) - len(lengths.lstrip(b"\2")),
            (end - start) // 4,
        )
    after = start + 4 * count
    ids = (
        unpack(">" + "2xH" * count, buffer[start:after])
        if count <= 64
        else unpack(f">{2 * count}H", buffer[start:after])[1::2]
    )
    if 0 in ids:
        ids = ids[: ids.index(0)]
        after = start + 4 * len(ids)
    return (Acks(first, ids) if ids else None), after


def packet_bounds(buffer: bytes | bytearray, start: int, maximum: int) -> tuple[int, int]:
    """Return where the body of the packet at `start` begins, and where the packet ends, as offsets
    in `buffer`. The end may be beyond the buffer. Return (0, 0) while the length in the fixed
    header is incomplete. Raises MalformedPacket for a length that takes more than 4 bytes or more
    bytes than needed, and ProtocolError for a packet of more than `maximum` bytes.
    """
    length, at, end = 0, start, len(buffer)
    for shift in (0, 7, 14, 21):
        at += 1
        if at >= end:
            return 0, 0
        byte = buffer[at]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise MalformedPacket("remaining length is longer than 4 bytes")
    if not byte and shift:
        raise MalformedPacket("remaining length is not in its shortest form")
    at += 1
    size = at - start + length
    if size > maximum:
        name = PacketType(buffer[start] >> 4).name if buffer[start] >> 4 else "packet"
        raise ProtocolError(
            f"{name}: {size} bytes, at most {maximum} are accepted", ReasonCode.PACKET_TOO_LARGE
        )
    return at, start + size
