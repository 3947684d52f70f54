"""The packets of MQTT 5 that a publisher sends and receives, without I/O.

In: values to send, and received bytes in pieces of any size. Out: bytes to send, and received
packets as `Connack`, `Answer`, `Disconnect` and `Pong`. A packet that a server sends only to
subscribers is an error here. Source: MQTT 5.0, sections 2 and 3.

No client library is suitable: aiomqtt 2.5.1 discards the reason code of an acknowledgement, and
paho 2 answers a failed PUBREC with PUBREL.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

LONGEST_TEXT = 65_535
"""Longest text in a packet, in bytes of UTF-8."""
LONGEST_PACKET = 5 + 268_435_455
"""Size of the longest packet of MQTT, in bytes, with its fixed header."""
_LARGEST = 1 << 20
"""Size of the largest packet that is accepted from a server, in bytes."""

Pairs = tuple[tuple[str, str], ...]


class PacketError(Exception):
    """The server sent bytes that no MQTT 5 server sends to a publisher."""


class Kind(IntEnum):
    """The kinds of acknowledgements, by the first byte of the packet."""

    PUBACK = 0x40
    PUBREC = 0x50
    PUBREL = 0x62
    PUBCOMP = 0x70


@dataclass(frozen=True)
class Answer:
    """An acknowledgement. id: packet identifier. reason: reason code; 0x80 and above mean a
    failure. text: Reason String.
    """

    kind: Kind
    id: int
    reason: int = 0
    text: str = ""


@dataclass(frozen=True)
class Connack:
    """The answer to CONNECT. text: Reason String. packet_limit: Maximum Packet Size in bytes.
    keep_alive: Server Keep Alive in seconds; None if the client's Keep Alive applies. user: user
    properties.
    """

    session_present: bool
    reason: int = 0
    text: str = ""
    receive_maximum: int = LONGEST_TEXT
    maximum_qos: int = 2
    packet_limit: int = LONGEST_PACKET
    keep_alive: int | None = None
    user: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Disconnect:
    """A DISCONNECT packet of the server. text: Reason String."""

    reason: int = 0
    text: str = ""


@dataclass(frozen=True)
class Pong:
    """A PINGRESP packet."""


_KINDS = {int(kind): kind for kind in Kind}
Packet = Answer | Connack | Disconnect | Pong

PING = b"\xc0\x00"
_EXPIRY, _RECEIVE_MAXIMUM, _USER, _REASON = 0x11, 0x21, 0x26, 0x1F
_MAXIMUM_QOS, _PACKET_LIMIT, _KEEP_ALIVE = 0x24, 0x27, 0x13
_NUMBERS = {
    **dict.fromkeys((0x24, 0x25, 0x28, 0x29, 0x2A), ">B"),
    **dict.fromkeys((0x13, 0x21, 0x22), ">H"),
    **dict.fromkeys((0x11, 0x27), ">I"),
}
_TEXTS = (0x12, 0x15, 0x1A, 0x1C, 0x1F)
_AUTHENTICATION_DATA = 0x16


def connect(
    client: str, clean: bool, keep_alive: int, expiry: int, pairs: Pairs, login: list[str | bytes]
) -> bytes:
    """Return a CONNECT packet. expiry: Session Expiry Interval in seconds. pairs: user properties.
    login: nothing, a user, or a user and a password.
    """
    flags = clean << 1 | (len(login) > 0) << 7 | (len(login) > 1) << 6
    properties = struct.pack(">BI", _EXPIRY, expiry) + _user(pairs)
    body = _text("MQTT") + struct.pack(">BBH", 5, flags, keep_alive) + _block(properties)
    return _packet(0x10, body + b"".join(map(_text, (client, *login))))


def publish(topic: str, payload: bytes, id: int, dup: bool, retain: bool, pairs: Pairs) -> bytes:
    """Return a PUBLISH packet with QoS 2. id: packet identifier. pairs: user properties."""
    body = _text(topic) + struct.pack(">H", id) + _block(_user(pairs)) + payload
    return _packet(0x34 | dup << 3 | retain, body)


def pubrel(id: int, reason: int = 0) -> bytes:
    return _packet(Kind.PUBREL, struct.pack(">HB", id, reason)[: 3 if reason else 2])


def disconnect(expiry: int) -> bytes:
    """Return a DISCONNECT packet. expiry: Session Expiry Interval in seconds."""
    return _packet(0xE0, b"\x00" + _block(struct.pack(">BI", _EXPIRY, expiry)))


def _packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + _number(len(body)) + body


def _number(value: int) -> bytes:
    """Return a number as a Variable Byte Integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def _block(properties: bytes) -> bytes:
    return _number(len(properties)) + properties


def _user(pairs: Pairs) -> bytes:
    return b"".join(bytes([_USER]) + _text(name) + _text(value) for name, value in pairs)


class Reader:
    """Splits a stream of bytes into packets."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Yield the packets that are complete once `data` has arrived. Raises PacketError for an
        invalid packet.
        """
        self._rest += data
        while (head := self._head()) is not None:
            start, end = head
            first, body = self._rest[0], bytes(self._rest[start:end])
            del self._rest[:end]
            try:
                yield _parse(first, body)
            except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
                raise PacketError(f"a packet 0x{first:02x} cannot be read: {error}") from error

    def _head(self) -> tuple[int, int] | None:
        """Return the offsets at which the body of the first packet begins and ends. None if the
        packet is incomplete.
        """
        length = 0
        for index in range(1, min(len(self._rest), 5)):
            length |= (self._rest[index] & 0x7F) << 7 * (index - 1)
            if self._rest[index] & 0x80:
                continue
            if length > _LARGEST:
                raise PacketError(f"a packet of {length} bytes, more than {_LARGEST}")
            end = index + 1 + length
            return (index + 1, end) if len(self._rest) >= end else None
        if len(self._rest) > 4:
            raise PacketError("the length of a packet has more than four bytes")
        return None


def _parse(first: int, body: bytes) -> Packet:
    if first == 0x20:
        return _connack(body)
    if first in _KINDS:
        (id,) = struct.unpack_from(">H", body)
        return Answer(_KINDS[first], id, body[2] if len(body) > 2 else 0, _reason(body, 3))
    if first == 0xE0:
        return Disconnect(body[0] if body else 0, _reason(body, 1))
    if first == 0xD0 and not body:
        return Pong()
    raise ValueError("not a packet for a publisher")


def _connack(body: bytes) -> Connack:
    numbers: dict[int, int] = {}
    texts: dict[int, str] = {}
    user: dict[str, str] = {}
    for key, value in _properties(body, 2):
        if isinstance(value, int):
            numbers[key] = value
        elif isinstance(value, tuple):
            user[value[0]] = value[1]
        else:
            texts[key] = value
    return Connack(
        bool(body[0] & 1),
        body[1],
        texts.get(_REASON, ""),
        numbers.get(_RECEIVE_MAXIMUM, LONGEST_TEXT),
        numbers.get(_MAXIMUM_QOS, 2),
        min(numbers.get(_PACKET_LIMIT, LONGEST_PACKET), LONGEST_PACKET),
        numbers.get(_KEEP_ALIVE),
        user,
    )


def _reason(body: bytes, at: int) -> str:
    """Return the Reason String among the properties that begin at the offset `at`; "" if there is
    none.
    """
    texts = dict(_properties(body, at)) if len(body) > at else {}
    return str(texts.get(_REASON, ""))


def _properties(body: bytes, at: int) -> Iterable[tuple[int, int | str | tuple[str, str]]]:
    """Yield (identifier, value) of each property in the block that begins at the offset `at`."""
    length = shift = 0
    more = True
    while more:
        more = bool(body[at] & 0x80)
        length |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    end = at + length
    if end > len(body):
        raise ValueError("the properties are longer than the packet")
    while at < end:
        key, at = body[at], at + 1
        if key in _NUMBERS:
            yield key, struct.unpack_from(_NUMBERS[key], body, at)[0]
            at += struct.calcsize(_NUMBERS[key])
            continue
        if key not in (*_TEXTS, _USER, _AUTHENTICATION_DATA):
            raise ValueError(f"the property 0x{key:02x} is not known in packets for a publisher")
        value, at = _read(body, at, end)
        if key == _USER:
            second, at = _read(body, at, end)
            yield key, (value.decode(), second.decode())
        elif key in _TEXTS:
            yield key, value.decode()


def _read(body: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Return the text or binary value at the offset `at`, and the offset after it."""
    (length,) = struct.unpack_from(">H", body, at)
    if at + 2 + length > end:
        raise ValueError("a text is longer than the packet")
    return body[at + 2 : at + 2 + length], at + 2 + length
