"""Properties of MQTT 5 (section 2.2.2): identifiers, types, ranges, and the packets that may carry
them.

In: the bytes of a property block. Out: `Properties`, a dict from PropertyId to a Python value, or
None if the block is empty. A value is int, str or bytes; USER_PROPERTY is a list of (name, value)
pairs in order, SUBSCRIPTION_IDENTIFIER a list of int.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from gateway.mqtt.errors import MalformedPacket, ProtocolError
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import topic_name_problem
from gateway.mqtt.wire import (
    MAX_U16,
    MAX_U32,
    MAX_VARINT,
    Reader,
    encode_binary,
    encode_string,
    encode_varint,
)


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


class _Type(NamedTuple):
    """Decoder and encoder of a property type. number: whether the values are integers."""

    read: Callable[[Reader, str], Any]
    write: Callable[[Any], bytes]
    number: bool = False


def _read_pair(reader: Reader, field: str) -> tuple[str, str]:
    return reader.string(field), reader.string(field)


def _write_pair(pair: tuple[str, str]) -> bytes:
    return encode_string(pair[0]) + encode_string(pair[1])


_BYTE = _Type(Reader.u8, Struct(">B").pack, number=True)
_TWO_BYTES = _Type(Reader.u16, Struct(">H").pack, number=True)
_FOUR_BYTES = _Type(Reader.u32, Struct(">I").pack, number=True)
_VARINT = _Type(Reader.varint, encode_varint, number=True)
_STRING = _Type(Reader.string, encode_string)
_BINARY = _Type(Reader.binary, encode_binary)
_PAIR = _Type(_read_pair, _write_pair)


class _Rule:
    """A property's type and range. code: reason code for a value out of range. many: whether the
    property may be repeated.
    """

    __slots__ = ("code", "high", "identifier", "low", "many", "name", "number", "read", "write")

    def __init__(
        self, identifier: PropertyId, kind: _Type, low: int, high: int, code: ReasonCode
    ) -> None:
        self.identifier = identifier
        self.name = identifier.name.replace("_", " ").lower()
        self.read, self.write, self.number = kind
        self.low, self.high, self.code = low, high, code
        self.many = identifier in (PropertyId.USER_PROPERTY, PropertyId.SUBSCRIPTION_IDENTIFIER)


_P = PropertyId
_RULES: dict[int, _Rule] = {}


def _rule(
    kind: _Type,
    *identifiers: PropertyId,
    low: int = 0,
    high: int = 0,
    code: ReasonCode = ReasonCode.PROTOCOL_ERROR,
) -> None:
    for identifier in identifiers:
        _RULES[identifier] = _Rule(identifier, kind, low, high, code)


_rule(
    _BYTE,
    _P.PAYLOAD_FORMAT_INDICATOR,
    _P.REQUEST_PROBLEM_INFORMATION,
    _P.REQUEST_RESPONSE_INFORMATION,
    high=1,
)
_rule(_BYTE, _P.MAXIMUM_QOS, _P.RETAIN_AVAILABLE, _P.WILDCARD_SUBSCRIPTION_AVAILABLE, high=1)
_rule(_BYTE, _P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, _P.SHARED_SUBSCRIPTION_AVAILABLE, high=1)
_rule(_TWO_BYTES, _P.SERVER_KEEP_ALIVE, _P.TOPIC_ALIAS_MAXIMUM, high=MAX_U16)
_rule(_TWO_BYTES, _P.RECEIVE_MAXIMUM, low=1, high=MAX_U16)
_rule(_TWO_BYTES, _P.TOPIC_ALIAS, low=1, high=MAX_U16, code=ReasonCode.TOPIC_ALIAS_INVALID)
_rule(
    _FOUR_BYTES,
    _P.MESSAGE_EXPIRY_INTERVAL,
    _P.SESSION_EXPIRY_INTERVAL,
    _P.WILL_DELAY_INTERVAL,
    high=MAX_U32,
)
_rule(_FOUR_BYTES, _P.MAXIMUM_PACKET_SIZE, low=1, high=MAX_U32)
_rule(_VARINT, _P.SUBSCRIPTION_IDENTIFIER, low=1, high=MAX_VARINT)
_rule(
    _STRING,
    _P.CONTENT_TYPE,
    _P.RESPONSE_TOPIC,
    _P.ASSIGNED_CLIENT_IDENTIFIER,
    _P.AUTHENTICATION_METHOD,
    _P.RESPONSE_INFORMATION,
)
_rule(_STRING, _P.SERVER_REFERENCE, _P.REASON_STRING)
_rule(_BINARY, _P.CORRELATION_DATA, _P.AUTHENTICATION_DATA)
_rule(_PAIR, _P.USER_PROPERTY)

# Packets in which properties may stand: MQTT 5.0 table 2-4, split by sender where the packet's
# section is narrower than the table.
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
_LIMITS = {
    _P.SESSION_EXPIRY_INTERVAL,
    _P.RECEIVE_MAXIMUM,
    _P.MAXIMUM_PACKET_SIZE,
    _P.TOPIC_ALIAS_MAXIMUM,
    _P.USER_PROPERTY,
}

CONNECT_PROPERTIES: Allowed = frozenset(
    _LIMITS | _AUTHENTICATION | {_P.REQUEST_PROBLEM_INFORMATION, _P.REQUEST_RESPONSE_INFORMATION}
)
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
SERVER_PUBLISH_PROPERTIES: Allowed = frozenset(
    _MESSAGE | {_P.TOPIC_ALIAS, _P.SUBSCRIPTION_IDENTIFIER}
)
ACK_PROPERTIES: Allowed = frozenset(_ACK)
"""Properties of PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK."""
SUBSCRIBE_PROPERTIES: Allowed = frozenset({_P.SUBSCRIPTION_IDENTIFIER, _P.USER_PROPERTY})
UNSUBSCRIBE_PROPERTIES: Allowed = frozenset({_P.USER_PROPERTY})
CLIENT_DISCONNECT_PROPERTIES: Allowed = frozenset(_ACK | {_P.SESSION_EXPIRY_INTERVAL})
SERVER_DISCONNECT_PROPERTIES: Allowed = frozenset(_ACK | {_P.SERVER_REFERENCE})
AUTH_PROPERTIES: Allowed = frozenset(_ACK | _AUTHENTICATION)


MOST_OF_ONE = 1000
"""Largest number of User Properties, or of Subscription Identifiers, in one packet: decoding and
encoding 200,000 User Properties would take a fifth of a second.
"""


def decode_properties(
    reader: Reader, allowed: Allowed, theirs: Allowed = frozenset()
) -> Properties | None:
    """Decode a property block, which begins with its length. Return None if it is empty. theirs:
    properties that only the other side may send in this packet. Raises MalformedPacket for a
    property that this packet may not carry. Raises ProtocolError for a property that only the other
    side may send, for a repeated property, or for a value out of range.
    """
    length = reader.varint("property length")
    if not length:
        return None
    if length > reader.remaining:
        raise MalformedPacket(
            f"{reader.name}: property length is {length}, {reader.remaining} bytes are left"
        )
    block = Reader(reader.data, reader.name, reader.at, reader.at + length)
    reader.at = block.end
    found: Properties = {}
    while block.at < block.end:
        number = block.u8("property identifier")
        rule = _RULES.get(number)
        if rule is None:
            raise MalformedPacket(f"{block.name}: there is no property 0x{number:02X}")
        identifier, name = rule.identifier, rule.name
        if identifier not in allowed:
            if identifier in theirs:
                raise ProtocolError(f"{block.name}: only the other side may send property {name}")
            raise MalformedPacket(f"{block.name}: property {name} is not allowed here")
        value = rule.read(block, name)
        if rule.number and not rule.low <= value <= rule.high:
            raise ProtocolError(f"{block.name}: property {name} must not be {value}", rule.code)
        if rule.many:
            values = found.setdefault(identifier, [])
            if len(values) == MOST_OF_ONE:
                text = f"{block.name}: property {name} is given more than {MOST_OF_ONE} times"
                raise ProtocolError(text, ReasonCode.QUOTA_EXCEEDED)
            values.append(value)
        elif identifier in found:
            raise ProtocolError(f"{block.name}: property {name} is given twice")
        else:
            found[identifier] = value
    return found


def check_response_topic(properties: Properties | None, name: str) -> None:
    """Raise MalformedPacket if the Response Topic is not a Topic Name [MQTT-3.3.2-14]. name: the
    packet, for the error text.
    """
    topic = properties.get(PropertyId.RESPONSE_TOPIC) if properties else None
    if topic is not None and (problem := topic_name_problem(topic)):
        raise MalformedPacket(f"{name}: property response topic {problem}")


def encode_properties(properties: Properties | None) -> bytes:
    """Return a property block with its length in front. Raises ValueError for a value that the
    property's type or range does not allow.
    """
    if not properties:
        return b"\0"
    block = _block(properties)
    return encode_varint(len(block)) + block


def _block(properties: Properties) -> bytes:
    parts: list[bytes] = []
    for identifier, value in properties.items():
        rule, head = _RULES[identifier], identifier.to_bytes(1, "big")
        for item in value if rule.many else (value,):
            if rule.number and not rule.low <= item <= rule.high:
                raise ValueError(f"property {rule.name} must not be {item}")
            parts += head, rule.write(item)
    return b"".join(parts)


_NOT_PASSED_THROUGH = (PropertyId.TOPIC_ALIAS, PropertyId.MESSAGE_EXPIRY_INTERVAL)


def pass_through(properties: Properties) -> bytes:
    """Return the properties that subscribers get unchanged [MQTT-3.3.2-4, -15, -16, -17, -20],
    encoded, without the property length.
    """
    return _block({key: item for key, item in properties.items() if key not in _NOT_PASSED_THROUGH})
