"""Decoding of CONNECT. CONNECT states the protocol version, and its form differs most between the
three versions.

An error has the protocol level, if it could be read, so that the server can answer with a CONNACK
that the client understands. The text of an error never contains a password.
"""

from gateway.mqtt.errors import MalformedPacket, MqttError, ProtocolError, quote
from gateway.mqtt.packets import Connect, Version, Will
from gateway.mqtt.properties import (
    CONNECT_PROPERTIES,
    WILL_PROPERTIES,
    PropertyId,
    check_response_topic,
    decode_properties,
)
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import topic_name_problem
from gateway.mqtt.wire import Reader

_VERSIONS = {("MQTT", 5): Version.V5, ("MQTT", 4): Version.V3_1_1, ("MQIsdp", 3): Version.V3_1}
_BRIDGE = 0x80
"""Flag in the protocol level of a bridge before MQTT 5: a convention of mosquitto and other
brokers."""

# Connect Flags, MQTT 5.0 figure 3-4.
_RESERVED, _CLEAN_START, _WILL, _WILL_RETAIN, _PASSWORD, _USERNAME = (
    0x01,
    0x02,
    0x04,
    0x20,
    0x40,
    0x80,
)


def decode_connect(reader: Reader) -> Connect:
    """Decode a CONNECT from its body."""
    version, bridge = _version(reader)
    try:
        return _body(reader, version, bridge)
    except MqttError as error:
        error.version = version
        raise


def _version(reader: Reader) -> tuple[Version, bool]:
    name = reader.string("protocol name")
    level = reader.u8("protocol level")
    version, bridge = _VERSIONS.get((name, level)), False
    if version is None and level & _BRIDGE:
        version = _VERSIONS.get((name, level & ~_BRIDGE))
        version, bridge = (None, False) if version == Version.V5 else (version, True)
    if version is None:
        text = f"CONNECT: protocol {quote(name)} level {level} is not supported"
        known = {
            "MQTT": Version.V5 if level > Version.V5 else Version.V3_1_1,
            "MQIsdp": Version.V3_1,
        }
        raise ProtocolError(text, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, known.get(name))
    return version, bridge


def _body(reader: Reader, version: Version, bridge: bool) -> Connect:
    flags = reader.u8("connect flags")
    _check_flags(flags, version)
    keep_alive = reader.u16("keep alive")
    properties = decode_properties(reader, CONNECT_PROPERTIES) if version == Version.V5 else None
    if (
        properties
        and PropertyId.AUTHENTICATION_DATA in properties
        and PropertyId.AUTHENTICATION_METHOD not in properties
    ):
        raise ProtocolError("CONNECT: authentication data without an authentication method")
    client_id = reader.string("client identifier")
    clean_start = bool(flags & _CLEAN_START)
    _check_client_id(client_id, clean_start, version)
    will = _will(reader, flags, version) if flags & _WILL else None
    # Section 3.1 of MQTT 3.1: the remaining length takes precedence over the flags of user name and
    # password.
    optional = version == Version.V3_1
    username = (
        reader.string("user name")
        if flags & _USERNAME and (reader.remaining or not optional)
        else None
    )
    password = (
        reader.binary("password")
        if flags & _PASSWORD and (reader.remaining or not optional)
        else None
    )
    reader.finish()
    return Connect(
        client_id, version, clean_start, keep_alive, will, username, password, properties, bridge
    )


def _check_flags(flags: int, version: Version) -> None:
    if flags & _RESERVED and version > Version.V3_1:
        raise MalformedPacket("CONNECT: the reserved flag is set")
    qos = flags >> 3 & 3
    if flags & _WILL:
        if qos == 3:
            raise MalformedPacket("CONNECT: will QoS is 3")
    elif (qos or flags & _WILL_RETAIN) and version > Version.V3_1:
        raise MalformedPacket("CONNECT: will QoS or will retain is set without a will")
    if flags & _PASSWORD and not flags & _USERNAME and version < Version.V5:
        raise MalformedPacket("CONNECT: a password without a user name")


def _check_client_id(client_id: str, clean_start: bool, version: Version) -> None:
    if version == Version.V3_1 and not client_id:
        raise ProtocolError(
            "CONNECT: a client identifier of MQTT 3.1 has at least one character",
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        )
    if version == Version.V3_1_1 and not client_id and not clean_start:
        raise ProtocolError(
            "CONNECT: an empty client identifier needs clean session",
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        )


def _will(reader: Reader, flags: int, version: Version) -> Will:
    properties = decode_properties(reader, WILL_PROPERTIES) if version == Version.V5 else None
    check_response_topic(properties, "CONNECT: will")
    topic = reader.string("will topic")
    if problem := topic_name_problem(topic):
        raise MalformedPacket(f"CONNECT: will topic {problem}")
    payload = reader.binary("will payload")
    return Will(topic, payload, flags >> 3 & 3, bool(flags & _WILL_RETAIN), properties)
