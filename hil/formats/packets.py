"""Packets of MQTT 5, read and written as MQTT Version 5.0, chapters 2 and 3, describes them. In:
bytes of a Network Connection, cut anywhere. Out: packets (`Cutter`, `read`). `write` returns the
bytes of a packet. Packets that the rig judges or sends have a class each. All others are `Other`,
with an unread body.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

VERSION = 5
LONGEST = 1 << 20  # longest packet to read, in bytes
FAILURE = 0x80
"""Lowest reason code of a refusal (MQTT 5.0, 2.4)."""


class PacketError(ValueError):
    """Bytes that form no valid packet of MQTT 5."""


class Kind(IntEnum):
    """MQTT Control Packet type (MQTT 5.0, 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


ANSWERS = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)


class Property(IntEnum):
    """Identifier of a property (2.2.2.2)."""

    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


_P = Property
_BYTES = {
    1: (
        _P.PAYLOAD_FORMAT_INDICATOR,
        _P.REQUEST_PROBLEM_INFORMATION,
        _P.REQUEST_RESPONSE_INFORMATION,
        _P.MAXIMUM_QOS,
        _P.RETAIN_AVAILABLE,
        _P.WILDCARD_SUBSCRIPTION_AVAILABLE,
        _P.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
        _P.SHARED_SUBSCRIPTION_AVAILABLE,
    ),
    2: (_P.SERVER_KEEP_ALIVE, _P.RECEIVE_MAXIMUM, _P.TOPIC_ALIAS_MAXIMUM, _P.TOPIC_ALIAS),
    4: (
        _P.MESSAGE_EXPIRY_INTERVAL,
        _P.SESSION_EXPIRY_INTERVAL,
        _P.WILL_DELAY_INTERVAL,
        _P.MAXIMUM_PACKET_SIZE,
    ),
}
_WIDTH = {name: width for width, names in _BYTES.items() for name in names}
_BINARY = (_P.CORRELATION_DATA, _P.AUTHENTICATION_DATA)

Properties = tuple[tuple[Property, Any], ...]
"""Properties in the order of the packet. A value is an int, a str, bytes (binary data), or a pair
of str (user property)."""


@dataclass(frozen=True, slots=True)
class Connect:
    """A CONNECT. keep_alive: seconds. will: a will is written, but not read."""

    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    properties: Properties = ()
    will: "Publish | None" = None


@dataclass(frozen=True, slots=True)
class Connack:
    session_present: bool
    reason: int
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """A PUBLISH. id: 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int = 0
    id: int = 0
    dup: bool = False
    retain: bool = False
    properties: Properties = ()

    @property
    def user(self) -> dict[str, str]:
        """Return the user properties, the last one of each name."""
        return dict(value for name, value in self.properties if name is Property.USER_PROPERTY)


@dataclass(frozen=True, slots=True)
class Answer:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: Kind
    id: int
    reason: int = 0
    properties: Properties = ()

    @property
    def refused(self) -> bool:
        return self.reason >= FAILURE


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A SUBSCRIBE. filters: each with its options (3.8.3.1), whose lowest two bits are the QoS."""

    id: int
    filters: tuple[tuple[str, int], ...]
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Suback:
    """A SUBACK. reasons: for each filter, the QoS granted, or the reason of a refusal."""

    id: int
    reasons: tuple[int, ...]
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Disconnect:
    reason: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Other:
    """A packet that the rig does not read, for example PINGREQ and PINGRESP."""

    kind: Kind
    flags: int = 0
    body: bytes = b""


Packet = Connect | Connack | Publish | Answer | Subscribe | Suback | Disconnect | Other


def first(properties: Properties, name: Property, default: Any = None) -> Any:
    """Return the value of the first property with this name, or `default`."""
    return next((value for found, value in properties if found is name), default)


class Cutter:
    """Cuts the bytes of a Network Connection into packets."""

    def __init__(self) -> None:
        self._partial = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Yield the packets that `data` completes. At invalid bytes, raise PacketError after the
        packets before them. No further packet can be read then.
        """
        self._partial += data
        while (end := _end(self._partial)) is not None:
            whole = bytes(self._partial[: end[1]])
            del self._partial[: end[1]]
            yield _read(whole[0] >> 4, whole[0] & 0x0F, whole[end[0] :])


def read(data: bytes) -> tuple[Packet, int]:
    """Return the first packet of `data`, and its length. Raises PacketError, also if incomplete."""
    if (end := _end(data)) is None:
        raise PacketError("an incomplete packet")
    return _read(data[0] >> 4, data[0] & 0x0F, data[end[0] : end[1]]), end[1]


def _end(data: bytes | bytearray) -> tuple[int, int] | None:
    """Return start and end of the first packet's body, or None if it is incomplete."""
    length = 0
    for index, byte in enumerate(data[1:5]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if length > LONGEST:
                raise PacketError(f"a packet of {length} bytes, more than {LONGEST}")
            end = 2 + index + length
            return (2 + index, end) if len(data) >= end else None
    if len(data) >= 5:
        raise PacketError("a remaining length of more than four bytes")
    return None


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int = 0
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = len(self.data)

    @property
    def more(self) -> bool:
        return self.at < self.end

    def take(self, length: int) -> bytes:
        if self.at + length > self.end:
            raise PacketError("a packet that ends too soon")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def varying(self) -> int:
        """Return a Variable Byte Integer (1.5.5)."""
        value = 0
        for index in range(4):
            byte = self.number(1)
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise PacketError("a variable byte integer of more than four bytes")

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def text(self) -> str:
        try:
            return self.binary().decode()
        except UnicodeDecodeError as error:
            raise PacketError("text that is not UTF-8") from error

    def rest(self) -> bytes:
        return self.take(self.end - self.at)

    def properties(self) -> Properties:
        part = _Reader(self.take(self.varying()))
        found: list[tuple[Property, Any]] = []
        while part.more:
            number = part.varying()
            try:
                name = Property(number)
            except ValueError as error:
                raise PacketError(f"a property {number:#04x}, which does not exist") from error
            found.append((name, part.value(name)))
        return tuple(found)

    def value(self, name: Property) -> Any:
        if name in _WIDTH:
            return self.number(_WIDTH[name])
        if name is Property.SUBSCRIPTION_IDENTIFIER:
            return self.varying()
        if name is Property.USER_PROPERTY:
            return self.text(), self.text()
        return self.binary() if name in _BINARY else self.text()


def _read(kind: int, flags: int, body: bytes) -> Packet:
    if kind == 0:
        raise PacketError("a packet of kind 0, which does not exist")
    reader = _Reader(body)
    match Kind(kind):
        case Kind.CONNECT:
            return _read_connect(reader)
        case Kind.CONNACK:
            return Connack(bool(reader.number(1) & 1), reader.number(1), reader.properties())
        case Kind.PUBLISH:
            qos = flags >> 1 & 3
            topic = reader.text()
            identifier = reader.number(2) if qos else 0
            properties = reader.properties()
            return Publish(
                topic, reader.rest(), qos, identifier, bool(flags & 8), bool(flags & 1), properties
            )
        case (Kind.PUBACK | Kind.PUBREC | Kind.PUBREL | Kind.PUBCOMP) as answer:
            identifier = reader.number(2)
            reason = reader.number(1) if reader.more else 0
            return Answer(answer, identifier, reason, reader.properties() if reader.more else ())
        case Kind.SUBSCRIBE:
            identifier, properties = reader.number(2), reader.properties()
            filters = []
            while reader.more:
                filters.append((reader.text(), reader.number(1)))
            return Subscribe(identifier, tuple(filters), properties)
        case Kind.SUBACK:
            identifier, properties = reader.number(2), reader.properties()
            return Suback(identifier, tuple(reader.rest()), properties)
        case Kind.DISCONNECT:
            reason = reader.number(1) if reader.more else 0
            return Disconnect(reason, reader.properties() if reader.more else ())
        case other:
            return Other(other, flags, body)


def _read_connect(reader: _Reader) -> Connect:
    name, version = reader.text(), reader.number(1)
    if (name, version) != ("MQTT", VERSION):
        raise PacketError(f"a CONNECT of {name} {version}, not MQTT {VERSION}")
    flags, keep_alive = reader.number(1), reader.number(2)
    properties = reader.properties()
    return Connect(reader.text(), bool(flags & 2), keep_alive, properties)


def write(packet: Packet) -> bytes:
    kind, flags, body = _parts(packet)
    return bytes((kind << 4 | flags,)) + _varying(len(body)) + body


def _parts(packet: Packet) -> tuple[Kind, int, bytes]:
    match packet:
        case Connect():
            flags, end = packet.clean_start << 1, b""
            if will := packet.will:
                flags |= 4 | will.qos << 3 | will.retain << 5
                end = _written(will.properties) + _text(will.topic) + _binary(will.payload)
            head = _text("MQTT") + struct.pack(">BBH", VERSION, flags, packet.keep_alive)
            head += _written(packet.properties) + _text(packet.client_id)
            return Kind.CONNECT, 0, head + end
        case Connack():
            head = bytes((packet.session_present, packet.reason))
            return Kind.CONNACK, 0, head + _written(packet.properties)
        case Publish():
            flags = packet.dup << 3 | packet.qos << 1 | packet.retain
            identifier = packet.id.to_bytes(2) if packet.qos else b""
            head = _text(packet.topic) + identifier + _written(packet.properties)
            return Kind.PUBLISH, flags, head + packet.payload
        case Answer():
            body = packet.id.to_bytes(2) + _ending(packet.reason, packet.properties)
            return packet.kind, 2 if packet.kind is Kind.PUBREL else 0, body
        case Subscribe():
            filters = b"".join(_text(one) + bytes((options,)) for one, options in packet.filters)
            return Kind.SUBSCRIBE, 2, packet.id.to_bytes(2) + _written(packet.properties) + filters
        case Suback():
            head = packet.id.to_bytes(2) + _written(packet.properties)
            return Kind.SUBACK, 0, head + bytes(packet.reasons)
        case Disconnect():
            return Kind.DISCONNECT, 0, _ending(packet.reason, packet.properties)
        case Other():
            return packet.kind, packet.flags, packet.body


def _ending(reason: int, properties: Properties) -> bytes:
    """Return reason and properties, without trailing defaults (3.4.2.1, 3.14.2.1)."""
    if properties:
        return bytes((reason,)) + _written(properties)
    return bytes((reason,)) if reason else b""


def _varying(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _binary(data: bytes) -> bytes:
    return len(data).to_bytes(2) + data


def _text(text: str) -> bytes:
    return _binary(text.encode())


def _written(properties: Properties) -> bytes:
    body = b"".join(_varying(name) + _value(name, value) for name, value in properties)
    return _varying(len(body)) + body


def _value(name: Property, value: Any) -> bytes:
    if name in _WIDTH:
        return int(value).to_bytes(_WIDTH[name])
    if name is Property.SUBSCRIPTION_IDENTIFIER:
        return _varying(value)
    if name is Property.USER_PROPERTY:
        return _text(value[0]) + _text(value[1])
    return _binary(value) if name in _BINARY else _text(value)
