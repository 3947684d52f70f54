"""Properties of MQTT 5 (section 2.2.2): which there are, what they hold and where they may stand.

In: the bytes of a property block. Out: `Properties`, a dict from PropertyId to a Python value, or None when the block is empty.
A value is int, str or bytes; USER_PROPERTY is a list of (name, value) pairs in order, SUBSCRIPTION_IDENTIFIER a list of int.
"""

from collections.abc import Callable
from enum import Enum, IntEnum, auto
from typing import Any, NamedTuple

from gateway.mqtt.errors import MalformedPacket, ProtocolError
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import topic_name_problem
from gateway.mqtt.wire import MAX_U16, MAX_U32, MAX_VARINT, Reader, encode_binary, encode_string, encode_varint


class PropertyId(IntEnum):
    """Property identifiers, MQTT 5.0 table 2-4."""

    PAYLOAD_FORMAT_INDICATOR = 1
    MESSAGE_EXPIRY_INTERVAL = 2
    CONTENT_TYPE = 3
    RESPONSE_TOPIC = 8
    CORRELATION_DATA = 9
    SUBSCRIPTION_IDENTIFIER = 11
    SESSION_EXPIRY_INTERVAL = 17
    ASSIGNED_CLIENT_IDENTIFIER = 18
    SERVER_KEEP_ALIVE = 19
    AUTHENTICATION_METHOD = 21
    AUTHENTICATION_DATA = 22
    REQUEST_PROBLEM_INFORMATION = 23
    WILL_DELAY_INTERVAL = 24
    REQUEST_RESPONSE_INFORMATION = 25
    RESPONSE_INFORMATION = 26
    SERVER_REFERENCE = 28
    REASON_STRING = 31
    RECEIVE_MAXIMUM = 33
    TOPIC_ALIAS_MAXIMUM = 34
    TOPIC_ALIAS = 35
    MAXIMUM_QOS = 36
    RETAIN_AVAILABLE = 37
    USER_PROPERTY = 38
    MAXIMUM_PACKET_SIZE = 39
    WILDCARD_SUBSCRIPTION_AVAILABLE = 40
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 41
    SHARED_SUBSCRIPTION_AVAILABLE = 42


Properties = dict[PropertyId, Any]


class _Type(Enum):
    BYTE = auto()
    TWO_BYTES = auto()
    FOUR_BYTES = auto()
    VARINT = auto()
    STRING = auto()
    BINARY = auto()
    PAIR = auto()


class _Rule(NamedTuple):
    """How a property is written, and the integers it may hold. code: the reason to answer when the value is out of range."""

    type: _Type
    low: int = 0
    high: int = 0
    code: ReasonCode = ReasonCode.PROTOCOL_ERROR


_FLAG = _Rule(_Type.BYTE, 0, 1)
_U16 = _Rule(_Type.TWO_BYTES, 0, MAX_U16)
_U32 = _Rule(_Type.FOUR_BYTES, 0, MAX_U32)
_STRING = _Rule(_Type.STRING)
_BINARY = _Rule(_Type.BINARY)

_P = PropertyId
_RULES: dict[int, _Rule] = {
    _P.PAYLOAD_FORMAT_INDICATOR: _FLAG,
    _P.MESSAGE_EXPIRY_INTERVAL: _U32,
    _P.CONTENT_TYPE: _STRING,
    _P.RESPONSE_TOPIC: _STRING,
    _P.CORRELATION_DATA: _BINARY,
    _P.SUBSCRIPTION_IDENTIFIER: _Rule(_Type.VARINT, 1, MAX_VARINT),
    _P.SESSION_EXPIRY_INTERVAL: _U32,
    _P.ASSIGNED_CLIENT_IDENTIFIER: _STRING,
    _P.SERVER_KEEP_ALIVE: _U16,
    _P.AUTHENTICATION_METHOD: _STRING,
    _P.AUTHENTICATION_DATA: _BINARY,
    _P.REQUEST_PROBLEM_INFORMATION: _FLAG,
    _P.WILL_DELAY_INTERVAL: _U32,
    _P.REQUEST_RESPONSE_INFORMATION: _FLAG,
    _P.RESPONSE_INFORMATION: _STRING,
    _P.SERVER_REFERENCE: _STRING,
    _P.REASON_STRING: _STRING,
    _P.RECEIVE_MAXIMUM: _Rule(_Type.TWO_BYTES, 1, MAX_U16),
    _P.TOPIC_ALIAS_MAXIMUM: _U16,
    _P.TOPIC_ALIAS: _Rule(_Type.TWO_BYTES, 1, MAX_U16, ReasonCode.TOPIC_ALIAS_INVALID),
    _P.MAXIMUM_QOS: _FLAG,
    _P.RETAIN_AVAILABLE: _FLAG,
    _P.USER_PROPERTY: _Rule(_Type.PAIR),
    _P.MAXIMUM_PACKET_SIZE: _Rule(_Type.FOUR_BYTES, 1, MAX_U32),
    _P.WILDCARD_SUBSCRIPTION_AVAILABLE: _FLAG,
    _P.SUBSCRIPTION_IDENTIFIER_AVAILABLE: _FLAG,
    _P.SHARED_SUBSCRIPTION_AVAILABLE: _FLAG,
}

# Where properties may stand, MQTT 5.0 table 2-4, split by sender where the text of the packet's section is narrower than the table.
Allowed = frozenset[PropertyId]
_ACK = {_P.REASON_STRING, _P.USER_PROPERTY}
_AUTHENTICATION = {_P.AUTHENTICATION_METHOD, _P.AUTHENTICATION_DATA}
_MESSAGE = {
    _P.PAYLOAD_FORMAT_INDICATOR,
    _P.MESSAGE_EXPIRY_INTERVAL,
    _P.CONTENT_TYPE,
    _P.RESPONSE_TOPIC,
    _P.CORRELATION_DATA,
    _P.USER_PROPERTY,
}
_LIMITS = {_P.SESSION_EXPIRY_INTERVAL, _P.RECEIVE_MAXIMUM, _P.MAXIMUM_PACKET_SIZE, _P.TOPIC_ALIAS_MAXIMUM, _P.USER_PROPERTY}

CONNECT_PROPERTIES: Allowed = frozenset(_LIMITS | _AUTHENTICATION | {_P.REQUEST_PROBLEM_INFORMATION, _P.REQUEST_RESPONSE_INFORMATION})
WILL_PROPERTIES: Allowed = frozenset(_MESSAGE | {_P.WILL_DELAY_INTERVAL})
CONNACK_PROPERTIES: Allowed = frozenset(
    _LIMITS
    | _AUTHENTICATION
    | {
        _P.MAXIMUM_QOS,
        _P.RETAIN_AVAILABLE,
        _P.ASSIGNED_CLIENT_IDENTIFIER,
        _P.REASON_STRING,
        _P.WILDCARD_SUBSCRIPTION_AVAILABLE,
        _P.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
        _P.SHARED_SUBSCRIPTION_AVAILABLE,
        _P.SERVER_KEEP_ALIVE,
        _P.RESPONSE_INFORMATION,
        _P.SERVER_REFERENCE,
    }
)
CLIENT_PUBLISH_PROPERTIES: Allowed = frozenset(_MESSAGE | {_P.TOPIC_ALIAS})
SERVER_PUBLISH_PROPERTIES: Allowed = frozenset(_MESSAGE | {_P.TOPIC_ALIAS, _P.SUBSCRIPTION_IDENTIFIER})
ACK_PROPERTIES: Allowed = frozenset(_ACK)
"""PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK."""
SUBSCRIBE_PROPERTIES: Allowed = frozenset({_P.SUBSCRIPTION_IDENTIFIER, _P.USER_PROPERTY})
UNSUBSCRIBE_PROPERTIES: Allowed = frozenset({_P.USER_PROPERTY})
CLIENT_DISCONNECT_PROPERTIES: Allowed = frozenset(_ACK | {_P.SESSION_EXPIRY_INTERVAL})
SERVER_DISCONNECT_PROPERTIES: Allowed = frozenset(_ACK | {_P.SERVER_REFERENCE})
AUTH_PROPERTIES: Allowed = frozenset(_ACK | _AUTHENTICATION)

_READ: dict[_Type, Callable[[Reader, str], Any]] = {
    _Type.BYTE: Reader.u8,
    _Type.TWO_BYTES: Reader.u16,
    _Type.FOUR_BYTES: Reader.u32,
    _Type.VARINT: Reader.varint,
    _Type.STRING: Reader.string,
    _Type.BINARY: Reader.binary,
    _Type.PAIR: lambda reader, field: (reader.string(field), reader.string(field)),
}
_WRITE: dict[_Type, Callable[[Any], bytes]] = {
    _Type.BYTE: lambda value: value.to_bytes(1, "big"),
    _Type.TWO_BYTES: lambda value: value.to_bytes(2, "big"),
    _Type.FOUR_BYTES: lambda value: value.to_bytes(4, "big"),
    _Type.VARINT: encode_varint,
    _Type.STRING: encode_string,
    _Type.BINARY: encode_binary,
    _Type.PAIR: lambda pair: encode_string(pair[0]) + encode_string(pair[1]),
}
_NUMBERS = frozenset({_Type.BYTE, _Type.TWO_BYTES, _Type.FOUR_BYTES, _Type.VARINT})
_LISTS = frozenset({_P.USER_PROPERTY, _P.SUBSCRIPTION_IDENTIFIER})


def property_name(identifier: int) -> str:
    """E.g. `receive maximum`, for texts that a person reads."""
    return PropertyId(identifier).name.replace("_", " ").lower()


def decode_properties(reader: Reader, allowed: Allowed) -> Properties | None:
    """Read a property block, its length first. MalformedPacket for a property that may not stand here, ProtocolError for a repeated one or
    a value out of range."""
    length = reader.varint("property length")
    if not length:
        return None
    if length > reader.left:
        raise MalformedPacket(f"{reader.name}: property length is {length}, {reader.left} bytes are left")
    block = Reader(reader.data, reader.name, reader.at, reader.at + length)
    reader.at = block.end
    found: Properties = {}
    while block.left:
        number = block.varint("property identifier")
        if number not in _RULES:
            raise MalformedPacket(f"{block.name}: there is no property 0x{number:02X}")
        identifier, name = PropertyId(number), property_name(number)
        if identifier not in allowed:
            raise MalformedPacket(f"{block.name}: property {name} is not allowed here")
        rule = _RULES[number]
        value = _READ[rule.type](block, name)
        if rule.type in _NUMBERS and not rule.low <= value <= rule.high:
            raise ProtocolError(f"{block.name}: property {name} must not be {value}", rule.code)
        if identifier in _LISTS:
            found.setdefault(identifier, []).append(value)
        elif identifier in found:
            raise ProtocolError(f"{block.name}: property {name} is given twice")
        else:
            found[identifier] = value
    return found


def check_response_topic(properties: Properties | None, name: str) -> None:
    """MalformedPacket when the Response Topic is no Topic Name [MQTT-3.3.2-14]. name: the packet, for the error text."""
    topic = properties.get(PropertyId.RESPONSE_TOPIC) if properties else None
    if topic is not None and (problem := topic_name_problem(topic)):
        raise MalformedPacket(f"{name}: property response topic {problem}")


def encode_properties(properties: Properties | None) -> bytes:
    """A property block with its length in front. ValueError for a value that its type or range does not allow."""
    if not properties:
        return b"\0"
    parts = []
    for identifier, value in properties.items():
        rule = _RULES[identifier]
        write, head = _WRITE[rule.type], bytes((identifier,))
        for item in value if identifier in _LISTS else (value,):
            if rule.type in _NUMBERS and not rule.low <= item <= rule.high:
                raise ValueError(f"property {property_name(identifier)} must not be {item}")
            parts.append(head + write(item))
    block = b"".join(parts)
    return encode_varint(len(block)) + block
