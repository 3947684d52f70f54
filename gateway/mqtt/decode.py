"""Decoding of one control packet, for all versions and both directions.

In: the first byte and the body (all bytes after the fixed header) of a packet. Out: a packet of
`gateway.mqtt.packets`, checked against every rule that needs no session. Raises MalformedPacket or
ProtocolError with field, cause and the reason code to answer. `PacketStream` cuts a byte stream
into packets and decodes the common ones in a faster way.

CONNECT states the protocol version, and its form differs most between the three versions. An error
in it has the protocol level, if it could be read, so that the server can answer with a CONNACK that
the client understands. The text of an error never contains a password.
"""

from collections.abc import Callable

from gateway.mqtt import properties as props
from gateway.mqtt import reason as codes
from gateway.mqtt.errors import MalformedPacket, MqttError, ProtocolError, quote
from gateway.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt.properties import (
    PropertyId,
)
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import (
    SHARE_PREFIX,
    shared_filter_problem,
    topic_filter_problem,
    topic_name_problem,
)
from gateway.mqtt.wire import Reader

_BOTH = {
    PacketType.PUBLISH,
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
    PacketType.DISCONNECT,
    PacketType.AUTH,
}
_SENT_BY = {
    Side.CLIENT: (
        _BOTH
        | {PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ}
    ),
    Side.SERVER: (
        _BOTH | {PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP}
    ),
}
_FLAGS = {PacketType.PUBREL: 0b0010, PacketType.SUBSCRIBE: 0b0010, PacketType.UNSUBSCRIBE: 0b0010}
_DUP = 0b1000
_NEW_IN_5 = {
    (PacketType.AUTH, Side.CLIENT),
    (PacketType.AUTH, Side.SERVER),
    (PacketType.DISCONNECT, Side.SERVER),
}


def decode(
    first: int, body: bytes, version: int, sender: Side = Side.CLIENT, lenient: bool = False
) -> Packet:
    """Return a packet that `sender` has sent. first: its first byte. body: all bytes after the
    fixed header. version: ignored for CONNECT. lenient: accept a reason code that this packet must
    not have, and replace an unknown one (`nearest`).
    """
    if first < 0x10:
        raise MalformedPacket("packet type 0 is reserved")
    kind = PacketType(first >> 4)
    if kind not in _SENT_BY[sender] or (version < Version.V5 and (kind, sender) in _NEW_IN_5):
        raise ProtocolError(f"{kind.name}: a {sender.value} must not send it")
    flags = first & 0x0F
    if kind is PacketType.PUBLISH:
        return _publish(Reader(body, "PUBLISH"), flags, version, sender)
    reader = Reader(body, kind.name, lenient=lenient)
    if version == Version.V3_1 and kind in _FLAGS:
        flags &= ~_DUP  # 3.1 marks repeated PUBREL, SUBSCRIBE and UNSUBSCRIBE packets
    if flags != _FLAGS.get(kind, 0):
        raise MalformedPacket(
            f"{kind.name}: flags of the fixed header are {flags:04b}, not {_FLAGS.get(kind, 0):04b}"
        )
    packet = _DECODERS[kind](reader, version, sender)
    reader.finish()
    return packet


def _packet_id(reader: Reader) -> int:
    packet_id = reader.u16("packet identifier")
    if not packet_id:
        raise ProtocolError(f"{reader.name}: packet identifier is 0")
    return packet_id


def _reason(reader: Reader, allowed: frozenset[ReasonCode]) -> ReasonCode:
    value = reader.u8("reason code")
    if value not in allowed:
        if reader.lenient:
            return codes.nearest(value)
        raise ProtocolError(f"{reader.name}: reason code 0x{value:02X} is not allowed here")
    return ReasonCode(value)


def _publish(reader: Reader, flags: int, version: int, sender: Side) -> Publish:
    qos, dup = flags >> 1 & 3, bool(flags & _DUP)
    if qos == 3:
        raise MalformedPacket("PUBLISH: QoS is 3")
    if dup and not qos:
        raise MalformedPacket("PUBLISH: DUP is set at QoS 0")
    topic = reader.string("topic name")
    packet_id = _packet_id(reader) if qos else 0
    properties = None
    if version >= Version.V5:
        ours, theirs = props.CLIENT_PUBLISH_PROPERTIES, props.SERVER_PUBLISH_PROPERTIES
        properties = (
            props.decode_properties(reader, ours, theirs)
            if sender is Side.CLIENT
            else props.decode_properties(reader, theirs)
        )
        props.check_response_topic(properties, "PUBLISH")
    if topic or version < Version.V5:
        if problem := topic_name_problem(topic):
            raise MalformedPacket(f"PUBLISH: topic name {problem}")
    elif properties is None or PropertyId.TOPIC_ALIAS not in properties:
        raise ProtocolError("PUBLISH: topic name is empty and there is no topic alias")
    return Publish(topic, reader.rest(), qos, packet_id, bool(flags & 1), dup, properties)


def _connack(reader: Reader, version: int, _: Side) -> Connack:
    flags = reader.u8("acknowledge flags")
    if version == Version.V3_1:
        flags = 0  # reserved in 3.1
    if flags > 1:
        raise MalformedPacket(f"CONNACK: acknowledge flags are 0x{flags:02X}")
    properties = None
    if version >= Version.V5:
        reason = _reason(reader, codes.CONNACK_CODES)
        properties = props.decode_properties(reader, props.CONNACK_PROPERTIES)
    else:
        value = reader.u8("return code")
        known = codes.connack_reason(value)
        if known is None:
            raise ProtocolError(f"CONNACK: return code {value} is reserved")
        reason = known
    if flags and reason:
        raise ProtocolError("CONNACK: session present is set, although the reason is a failure")
    return Connack(bool(flags), reason, properties)


def _ack(
    make: Callable[..., Ack], allowed: frozenset[ReasonCode]
) -> Callable[[Reader, int, Side], Ack]:
    def decode_ack(reader: Reader, version: int, _: Side) -> Ack:
        packet_id = _packet_id(reader)
        if version < Version.V5 or not reader.remaining:
            return make(packet_id)
        reason = _reason(reader, allowed)
        return make(
            packet_id,
            reason,
            props.decode_properties(reader, props.ACK_PROPERTIES) if reader.remaining else None,
        )

    return decode_ack


def _subscribe(reader: Reader, version: int, _: Side) -> Subscribe:
    packet_id = _packet_id(reader)
    properties = None
    if version >= Version.V5:
        properties = props.decode_properties(reader, props.SUBSCRIBE_PROPERTIES)
        if properties and len(properties.get(PropertyId.SUBSCRIPTION_IDENTIFIER, ())) > 1:
            raise ProtocolError("SUBSCRIBE: property subscription identifier is given twice")
    subscriptions = []
    while reader.remaining:
        subscriptions.append(_subscription(reader, version))
    if not subscriptions:
        raise ProtocolError("SUBSCRIBE: no topic filter")
    return Subscribe(packet_id, subscriptions, properties)


def _subscription(reader: Reader, version: int) -> Subscription:
    topic_filter = _topic_filter(reader, version)
    options = reader.u8("subscription options")
    if version == Version.V3_1:
        options &= 0x03  # 3.1 uses no other bits
    if options & (0xC0 if version >= Version.V5 else 0xFC):
        raise MalformedPacket(
            f"SUBSCRIBE: reserved bits are set in the options 0x{options:02X} of"
            f" {quote(topic_filter)}"
        )
    qos, handling, no_local = options & 3, options >> 4 & 3, bool(options & 4)
    if qos == 3:
        raise (ProtocolError if version >= Version.V5 else MalformedPacket)(
            f"SUBSCRIBE: QoS of {quote(topic_filter)} is 3"
        )
    if handling == 3:
        raise ProtocolError(f"SUBSCRIBE: retain handling of {quote(topic_filter)} is 3")
    if no_local and topic_filter.startswith(SHARE_PREFIX):
        raise ProtocolError(
            f"SUBSCRIBE: the option No Local is set, but {quote(topic_filter)} is a shared"
            " subscription"
        )
    return Subscription(topic_filter, qos, no_local, bool(options & 8), handling)


def _topic_filter(reader: Reader, version: int) -> str:
    topic_filter = reader.string("topic filter")
    if topic_filter.startswith(SHARE_PREFIX) and version >= Version.V5:
        problem = shared_filter_problem(topic_filter)
    else:
        problem = topic_filter_problem(topic_filter)
    if problem:
        raise MalformedPacket(f"{reader.name}: topic filter {quote(topic_filter)} {problem}")
    return topic_filter


def _suback(reader: Reader, version: int, _: Side) -> Suback:
    packet_id = _packet_id(reader)
    properties = (
        props.decode_properties(reader, props.ACK_PROPERTIES) if version >= Version.V5 else None
    )
    allowed = codes.SUBACK_CODES if version >= Version.V5 else codes.SUBACK_RETURN_CODES
    reasons = [_reason(reader, allowed) for _ in range(reader.remaining)]
    if not reasons:
        raise ProtocolError("SUBACK: no reason code")
    return Suback(packet_id, reasons, properties)


def _unsubscribe(reader: Reader, version: int, _: Side) -> Unsubscribe:
    packet_id = _packet_id(reader)
    properties = (
        props.decode_properties(reader, props.UNSUBSCRIBE_PROPERTIES)
        if version >= Version.V5
        else None
    )
    filters = []
    while reader.remaining:
        filters.append(_topic_filter(reader, version))
    if not filters:
        raise ProtocolError("UNSUBSCRIBE: no topic filter")
    return Unsubscribe(packet_id, filters, properties)


def _unsuback(reader: Reader, version: int, _: Side) -> Unsuback:
    packet_id = _packet_id(reader)
    if version < Version.V5:
        return Unsuback(packet_id)
    properties = props.decode_properties(reader, props.ACK_PROPERTIES)
    reasons = [_reason(reader, codes.UNSUBACK_CODES) for _ in range(reader.remaining)]
    if not reasons:
        raise ProtocolError("UNSUBACK: no reason code")
    return Unsuback(packet_id, reasons, properties)


def _disconnect(reader: Reader, version: int, sender: Side) -> Disconnect:
    if version < Version.V5 or not reader.remaining:
        return Disconnect()
    client = sender is Side.CLIENT
    reason = _reason(
        reader, codes.CLIENT_DISCONNECT_CODES if client else codes.SERVER_DISCONNECT_CODES
    )
    if not reader.remaining:
        return Disconnect(reason)
    ours, theirs = props.CLIENT_DISCONNECT_PROPERTIES, props.SERVER_DISCONNECT_PROPERTIES
    if not client:
        ours, theirs = theirs, ours
    return Disconnect(reason, props.decode_properties(reader, ours, theirs))


def _auth(reader: Reader, _: int, sender: Side) -> Auth:
    allowed = codes.CLIENT_AUTH_CODES if sender is Side.CLIENT else codes.SERVER_AUTH_CODES
    if not reader.remaining:  # success, which only a server sends
        if ReasonCode.SUCCESS not in allowed:
            raise ProtocolError("AUTH: reason code 0x00 is not allowed here")
        return Auth()
    reason = _reason(reader, allowed)
    properties = props.decode_properties(reader, props.AUTH_PROPERTIES)
    if reason and PropertyId.AUTHENTICATION_METHOD not in (properties or ()):
        raise ProtocolError("AUTH: no authentication method")
    return Auth(reason, properties)


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


def _connect(reader: Reader, _: int, __: Side) -> Connect:
    version, bridge = _version(reader)
    try:
        return _connect_of(reader, version, bridge)
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


def _connect_of(reader: Reader, version: Version, bridge: bool) -> Connect:
    flags = reader.u8("connect flags")
    _check_flags(flags, version)
    keep_alive = reader.u16("keep alive")
    properties = (
        props.decode_properties(reader, props.CONNECT_PROPERTIES) if version == Version.V5 else None
    )
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
    properties = (
        props.decode_properties(reader, props.WILL_PROPERTIES) if version == Version.V5 else None
    )
    props.check_response_topic(properties, "CONNECT: will")
    topic = reader.string("will topic")
    if problem := topic_name_problem(topic):
        raise MalformedPacket(f"CONNECT: will topic {problem}")
    payload = reader.binary("will payload")
    return Will(topic, payload, flags >> 3 & 3, bool(flags & _WILL_RETAIN), properties)


_DECODERS: dict[PacketType, Callable[[Reader, int, Side], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBACK: _ack(Puback, codes.PUBLISH_ACK_CODES),
    PacketType.PUBREC: _ack(Pubrec, codes.PUBLISH_ACK_CODES),
    PacketType.PUBREL: _ack(Pubrel, codes.RELEASE_CODES),
    PacketType.PUBCOMP: _ack(Pubcomp, codes.RELEASE_CODES),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda *_: Pingreq(),
    PacketType.PINGRESP: lambda *_: Pingresp(),
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
