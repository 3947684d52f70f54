"""MQTT packets in the frames of the turn link (FORMAT.md, Content).

In: the content of a TURN, and the broker's packets for a board. Out: complete MQTT packets, and the
content of an ANSWER. No state is kept between frames: a packed answer refers to the packets of
exactly the TURN that it answers.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gateway.links.frames import FrameError

PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"

_PLAIN = 0x10
"""Lowest first byte of an MQTT packet [MQTT-2.1.2-1]."""

_ASK_TIME = 0x01
_PACKED, _WITH_PUBREL, _ALIAS = 0x08, 0x04, 0x03
_ALIASES = _ALIAS + 1
_DONE, _TIME, _MORE = 0x01, 0x02, 0x03

_PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 0x30, 0x40, 0x50, 0x62, 0x70
_QOS, _QOS_1, _QOS_2 = 0x06, 0x02, 0x04
_ACK = struct.Struct(">BBH")
_PACKED_HEAD = struct.Struct(">BH")
_ALIAS_ONLY = struct.Struct(">HHBBH")
"""Start of a PUBLISH without a topic: topic length 0, packet identifier, length of the properties,
property identifier, topic alias.
"""

_TIME_FIELDS = struct.Struct(">BIB")
_U16 = struct.Struct(">H")
_LAST_SECOND = 0xFFFF_FFFF
_LONGEST_LENGTH = 4
"""Largest number of bytes of a Remaining Length [MQTT 5, 1.5.5]."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The contents of a board's frame. packets: complete MQTT packets. asks_time: whether the board
    asks for the time.
    """

    packets: tuple[bytes, ...]
    asks_time: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The contents of an answer. packets: complete MQTT packets. utc: time at the end of the frame,
    in seconds since 1970; None if the board has not asked for it, or if this gateway does not know
    it. more: whether the gateway has further packets for the board.
    """

    packets: tuple[bytes, ...]
    utc: float | None = None
    more: bool = False


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Split a stream into complete packets and the remaining bytes. Raises FrameError if the stream
    is not MQTT.
    """
    packets, at = [], 0
    while (size := _size(data, at)) and at + size <= len(data):
        packets.append(data[at : at + size])
        at += size
    return packets, data[at:]


def _size(data: bytes, at: int) -> int:
    """Return the length in bytes of the packet at an offset; 0 if its length field is incomplete.
    Raises FrameError if the bytes are not MQTT.
    """
    if at < len(data) and data[at] < _PLAIN:
        raise FrameError(f"a packet begins with {data[at]:#04x}, not with an MQTT packet type")
    length = 0
    for index, byte in enumerate(data[at + 1 : at + 1 + _LONGEST_LENGTH]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return 2 + index + length
    if len(data) > at + _LONGEST_LENGTH:
        raise FrameError("a Remaining Length of more than four bytes")
    return 0


def _before(identifier: int) -> int:
    return identifier - 1 or 0xFFFF


def _body(packet: bytes) -> bytes:
    """Return the packet without its fixed header."""
    at = 1
    while packet[at] & 0x80:
        at += 1
    return packet[at + 1 :]


def _packet(first: int, body: bytes) -> bytes:
    length, size = bytearray(), len(body)
    while True:
        size, byte = size >> 7, size & 0x7F
        length.append(byte | (0x80 if size else 0))
        if not size:
            return bytes((first, *length)) + body


def read_turn(content: bytes) -> Turn:
    """Return the contents of a board's frame. Raises FrameError if its form is unknown or a packet
    is incomplete.
    """
    asks_time = content[:1] == bytes((_ASK_TIME,))
    rest = content[1:] if asks_time else content
    packets: list[bytes] = []
    while rest and rest[0] >= _PLAIN:
        size = _size(rest, 0)
        if not size or size > len(rest):
            raise FrameError("an incomplete packet")
        packets.append(rest[:size])
        rest = rest[size:]
    if rest:
        packets += _unpacked(rest)
    elif not packets:
        packets.append(PINGREQ)
    return Turn(tuple(packets), asks_time)


def _unpacked(data: bytes) -> Iterator[bytes]:
    if not data[0] & _PACKED or len(data) < _PACKED_HEAD.size:
        raise FrameError(f"packed form {data[0]:#04x}")
    form, identifier = _PACKED_HEAD.unpack_from(data)
    if not identifier:
        raise FrameError("packet identifier 0")
    if form & _WITH_PUBREL:
        yield _ACK.pack(_PUBREL, 2, _before(identifier))
    head = _ALIAS_ONLY.pack(0, identifier, 3, 0x23, (form & _ALIAS) + 1)
    yield _packet(_PUBLISH | _QOS_2, head + data[_PACKED_HEAD.size :])


def pack_turn(turn: Turn) -> bytes:
    """Return the content of a board's frame, in the same form as the firmware builds it."""
    packets = list(turn.packets)
    if packets == [PINGREQ]:
        packets.clear()
    packed = _packed(packets[-1]) if packets else None
    if packed is not None:
        form, identifier = _PACKED_HEAD.unpack_from(packed)
        packets.pop()
        if packets[-1:] == [_ACK.pack(_PUBREL, 2, _before(identifier))]:
            packets.pop()
            packed = bytes((form | _WITH_PUBREL,)) + packed[1:]
        packets.append(packed)
    return (bytes((_ASK_TIME,)) if turn.asks_time else b"") + b"".join(packets)


def _packed(packet: bytes) -> bytes | None:
    if packet[0] != _PUBLISH | _QOS_2:
        return None
    body = _body(packet)
    if len(body) < _ALIAS_ONLY.size:
        return None
    topic, identifier, properties, kind, alias = _ALIAS_ONLY.unpack_from(body)
    if topic or not identifier or (properties, kind) != (3, 0x23) or not 1 <= alias <= _ALIASES:
        return None
    return _PACKED_HEAD.pack(_PACKED | (alias - 1), identifier) + body[_ALIAS_ONLY.size :]


def expected(turn: Turn) -> list[bytes]:
    """Return the answers that the packets of a turn get if all of them succeed, in the order of the
    packets. Packets other than PUBLISH, PUBREL and a single PINGREQ are left out.
    """
    found = []
    for packet in turn.packets:
        body = _body(packet)
        if packet[0] == _PUBREL and len(body) >= _U16.size:
            found.append(_ACK.pack(_PUBCOMP, 2, _U16.unpack_from(body)[0]))
        elif packet[0] & 0xF0 == _PUBLISH and packet[0] & _QOS and len(body) >= _U16.size:
            at = _U16.size + _U16.unpack_from(body)[0]
            if len(body) >= at + _U16.size:
                kind = _PUBACK if packet[0] & _QOS == _QOS_1 else _PUBREC
                found.append(_ACK.pack(kind, 2, _U16.unpack_from(body, at)[0]))
    return [PINGRESP] if turn.packets == (PINGREQ,) else found


def pack_answer(answer: Answer, turn: Turn) -> bytes:
    """Return the content of the frame that answers this turn. If the answer has all packets of
    `expected`, one byte is sent in their place.
    """
    packets, head = list(answer.packets), bytearray()
    owed = expected(turn)
    if owed and all(packets.count(packet) >= owed.count(packet) for packet in owed):
        for packet in owed:
            packets.remove(packet)
        head.append(_DONE)
    if answer.utc is not None:
        seconds = min(int(answer.utc), _LAST_SECOND)
        head += _TIME_FIELDS.pack(_TIME, seconds, int(answer.utc % 1 * 256))
    if answer.more:
        head.append(_MORE)
    return bytes(head) + b"".join(packets)


def read_answer(content: bytes, turn: Turn) -> Answer:
    """Return the contents of an answer to this turn, as the firmware reads them. Raises FrameError
    if the form is unknown or a packet is incomplete.
    """
    packets: list[bytes] = []
    utc, more = None, False
    while content and content[0] < _PLAIN:
        if content[0] == _DONE:
            packets += expected(turn)
            content = content[1:]
        elif content[0] == _TIME and len(content) >= _TIME_FIELDS.size:
            _, seconds, part = _TIME_FIELDS.unpack_from(content)
            utc, content = seconds + part / 256, content[_TIME_FIELDS.size :]
        elif content[0] == _MORE:
            more, content = True, content[1:]
        else:
            raise FrameError(f"packed form {content[0]:#04x}")
    plain, rest = split(content)
    if rest:
        raise FrameError("an incomplete packet")
    return Answer((*packets, *plain), utc, more)


_CONNECT, _CONNACK, _SUBSCRIBE, _SUBACK, _UNSUBSCRIBE, _UNSUBACK = 1, 2, 8, 9, 10, 11
_ANSWERED_BY = {_SUBSCRIBE: _SUBACK, _UNSUBSCRIBE: _UNSUBACK, 5: 6, 6: 7, 12: 13}
"""Type of the answer, by the type of a packet. The answer to PINGREQ (12) has no packet identifier.
Each other answer has the packet identifier of its packet. 5, 6: PUBREC, PUBREL.
"""


class ExpectedAnswers:
    """The answers that the broker must give to a turn, whether they report success or an error.
    keys: packet type and packet identifier of each answer.
    """

    def __init__(self, keys: list[tuple[int, bytes]]) -> None:
        self._keys = Counter(keys)

    def answered_by(self, packet: bytes) -> bool:
        """Whether a packet is one of the expected answers."""
        return _key(packet) in self._keys

    def by(self, packets: Iterable[bytes]) -> bool:
        """Whether these packets include all expected answers."""
        return not self._keys - Counter(map(_key, packets))


def _key(packet: bytes) -> tuple[int, bytes]:
    kind = packet[0] >> 4
    return kind, b"" if kind in (2, 13) else _body(packet)[:2]


def outstanding(turn: Turn) -> ExpectedAnswers:
    """Return the answers that the broker must give to the packets of a turn."""
    keys = []
    for packet in turn.packets:
        kind = packet[0] >> 4
        if kind == _CONNECT:
            keys.append((_CONNACK, b""))
        elif kind in _ANSWERED_BY:
            keys.append((_ANSWERED_BY[kind], _body(packet)[:2]))
    publishes = [answer for answer in expected(turn) if answer[0] in (_PUBACK, _PUBREC)]
    return ExpectedAnswers(keys + [_key(answer) for answer in publishes])
