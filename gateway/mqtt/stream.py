"""A byte stream cut into control packets, however it is split.

In: `feed(bytes)`, as they come from a link. Out: iterate over the stream to get the packets that
are complete. MalformedPacket or ProtocolError is raised at the packet at fault, after all packets
before it; the stream is of no use afterwards.

    stream = PacketStream(maximum=65536)
    stream.feed(data)
    for packet in stream:
        ...

Nothing is kept of a packet whose announced length is beyond `maximum`: the fixed header alone (at
most 5 bytes) decides. The loop below reads a plain PUBLISH (known topic, no properties) and plain
acknowledgements (2-byte body) itself, with as few operations as possible; everything else, and
everything odd, goes to `decode`, which knows all rules.
"""

from collections.abc import Iterator

from gateway.mqtt.decode import decode
from gateway.mqtt.errors import MalformedPacket, ProtocolError
from gateway.mqtt.packets import (
    Ack,
    Connect,
    Packet,
    PacketType,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
    Version,
)
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.wire import encode_string

_PLAIN_ACKS: dict[int, type[Ack]] = {0x40: Puback, 0x50: Pubrec, 0x62: Pubrel, 0x70: Pubcomp}
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
"""Topic Names that passed all checks, by their bytes with the length in front. Emptied when full.
"""


class PacketStream:
    """Packets sent by `sender`. version: None until the CONNECT has come by, which must be the
    first packet of a client; a stream of server packets needs it. maximum: largest packet taken,
    fixed header included; may be changed between packets.
    """

    __slots__ = ("_buffer", "_need", "_partial", "maximum", "sender", "version")

    def __init__(
        self, maximum: int, version: Version | None = None, sender: Side = Side.CLIENT
    ) -> None:
        if version is None and sender is Side.SERVER:
            raise ValueError("a server's packets cannot be read without the version")
        self.maximum = maximum
        self.version = version
        self.sender = sender
        self._buffer = b""
        self._partial: bytearray | None = None
        self._need = 0

    def feed(self, data: bytes) -> None:
        """Take bytes; they are looked at when the stream is iterated over. Not to be called inside
        that loop.
        """
        if self._partial is not None:
            self._partial += data
        elif self._buffer:
            self._partial = bytearray(self._buffer)
            self._partial += data
            self._buffer = b""
        else:
            self._buffer = data

    @property
    def pending(self) -> int:
        """Bytes held and not yet handed out as packets."""
        return len(self._buffer) + len(self._partial or b"")

    def __iter__(self) -> Iterator[Packet]:
        """The packets that are complete. Leaving the loop early keeps what follows the packet at
        hand.
        """
        if self._partial is not None:
            if len(self._partial) < self._need:
                return
            self._buffer, self._partial = bytes(self._partial), None
        buffer = self._buffer
        if not buffer:
            return
        size = len(buffer)
        start = self._need = 0
        try:
            if self.version is None:
                if buffer[0] >> 4 != PacketType.CONNECT:
                    raise ProtocolError(
                        f"the first packet is not CONNECT, its first byte is 0x{buffer[0]:02X}"
                    )
                body, end = packet_bounds(buffer, 0, self.maximum)
                if not body or end > size:
                    self._need = end
                    return
                packet = decode(buffer[0], buffer[body:end], 0, self.sender)
                assert isinstance(packet, Connect)  # noqa: S101 - its type stands in the first byte
                self.version = packet.version
                start = end
                yield packet
            version5 = self.version == Version.V5
            while start < size:
                first = buffer[start]
                if (
                    start + 1 < size
                    and (length := buffer[start + 1]) < 0x80
                    and length + 2 <= self.maximum
                ):
                    body = start + 2
                    end = body + length
                else:
                    body, end = packet_bounds(buffer, start, self.maximum)
                if not body or end > size:
                    self._need = end - start if body else 0
                    return
                found: Packet | None = None
                if first in _PLAIN_PUBLISHES:
                    found = _plain_publish(buffer, first, body, end, version5)
                elif (
                    end - body == 2
                    and first in _PLAIN_ACKS
                    and (packet_id := buffer[body] << 8 | buffer[body + 1])
                ):
                    found = _PLAIN_ACKS[first](packet_id)
                if found is None:
                    found = self._decode(first, buffer[body:end])
                start = end
                yield found
        finally:
            self._buffer = buffer[start:]

    def _decode(self, first: int, body: bytes) -> Packet:
        if first >> 4 == PacketType.CONNECT and self.sender is Side.CLIENT:
            raise ProtocolError("CONNECT: sent a second time")
        packet = decode(first, body, self.version or Version.V5, self.sender)
        if type(packet) is Publish and 0 < len(packet.topic) <= _LONGEST_KNOWN_TOPIC:
            if len(_topics) >= _KNOWN_TOPICS:
                _topics.clear()
            _topics[encode_string(packet.topic)] = packet.topic
        return packet


def packet_bounds(buffer: bytes, start: int, maximum: int) -> tuple[int, int]:
    """Where the body of the packet at `start` begins, and where it ends, maybe beyond the buffer.
    (0, 0) while its length is incomplete.

    MalformedPacket for a length of more than 4 bytes or with needless ones, ProtocolError for a
    packet of more than `maximum` bytes.
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
            f"{name}: {size} bytes, at most {maximum} are taken", ReasonCode.PACKET_TOO_LARGE
        )
    return at, start + size


def _plain_publish(
    buffer: bytes, first: int, body: int, end: int, version5: bool
) -> Publish | None:
    """The PUBLISH in `buffer[body:end]` if its topic is known, it has no properties and nothing is
    wrong; else None.
    """
    if end - body < 2:
        return None
    at = body + 2 + (buffer[body] << 8 | buffer[body + 1])
    topic = _topics.get(buffer[body:at])
    if topic is None:
        return None
    qos, retain, dup = _PLAIN_PUBLISHES[first]
    packet_id = 0
    if qos:
        if at + 2 > end:
            return None
        packet_id = buffer[at] << 8 | buffer[at + 1]
        if not packet_id:
            return None
        at += 2
    if version5:
        if at >= end or buffer[at]:
            return None
        at += 1
    if at > end:
        return None
    return Publish(topic, buffer[at:end], qos, packet_id, retain, dup)
