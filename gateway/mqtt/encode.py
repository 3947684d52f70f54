"""Control packets to bytes, for all versions and both directions.

In: a packet of `gateway.mqtt.packets` and the protocol version of the receiver. Out: all bytes of the packet. Properties are left out for
versions before 5. ValueError for a packet that the version cannot say, above all a failure on a PUBACK or PUBREC before version 5: leaving
the reason out would forge an acknowledgement.
"""

from collections.abc import Callable
from copy import copy
from functools import lru_cache
from struct import Struct
from typing import Any

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
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from gateway.mqtt.properties import Properties, PropertyId, encode_properties
from gateway.mqtt.reason import ReasonCode, connack_return_code
from gateway.mqtt.wire import MAX_U16, encode_binary, encode_string, encode_varint, pack_u16

pack_ack: Callable[[int, int], bytes] = Struct(">HH").pack
"""(head, packet identifier) -> a successful acknowledgement, for hot paths; the heads stand below."""
PUBACK_HEAD, PUBREC_HEAD, PUBREL_HEAD, PUBCOMP_HEAD = 0x4002, 0x5002, 0x6202, 0x7002

_LONGEST_KNOWN_TOPIC = 128
_topic_bytes = lru_cache(4096)(encode_string)
_pack_one, _pack_two = Struct(">B").pack, Struct(">BB").pack

_Answer = Connack | Ack | Suback | Unsuback | Disconnect | Auth
_HEADS: dict[type, int] = {Puback: PUBACK_HEAD, Pubrec: PUBREC_HEAD, Pubrel: PUBREL_HEAD, Pubcomp: PUBCOMP_HEAD}


def encode(packet: Packet, version: int) -> bytes:
    """All bytes of `packet` for a peer that speaks `version`."""
    return _ENCODERS[type(packet)](packet, version)


def encode_within(packet: Packet, version: int, maximum: int) -> bytes | None:
    """As `encode`, for a receiver that takes at most `maximum` bytes; None when the packet is too large for it [MQTT-3.1.2-24].

    What only people read is left out first: the Reason String, then the User Properties (in answers, never in PUBLISH), as a pair of
    statements for each packet demands, from [MQTT-3.2.2-19] to [MQTT-3.15.2-3].
    """
    data = encode(packet, version)
    if len(data) > maximum and isinstance(packet, _Answer) and packet.properties:
        shorter = copy(packet)
        for dropped in (PropertyId.REASON_STRING, PropertyId.USER_PROPERTY):
            shorter.properties = {key: value for key, value in (shorter.properties or {}).items() if key != dropped}
            data = encode(shorter, version)
            if len(data) <= maximum:
                break
    return data if len(data) <= maximum else None


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)


def _frame(kind: PacketType, *parts: bytes, flags: int = 0) -> bytes:
    body = b"".join(parts)
    return _pack_one(kind << 4 | flags) + encode_varint(len(body)) + body


def _properties(properties: Properties | None, version: int) -> bytes:
    return encode_properties(properties) if version >= Version.V5 else b""


def _id(packet_id: int) -> bytes:
    _require(1 <= packet_id <= MAX_U16, f"packet identifier {packet_id} is not in 1…65535")
    return pack_u16(packet_id)


def _publish_parts(packet: Publish, version: int) -> tuple[bytes, bytes]:
    """What stands before the packet identifier and what stands behind it."""
    qos, topic = packet.qos, packet.topic
    if not 0 <= qos <= 2 or (packet.dup and not qos):
        raise ValueError(f"PUBLISH with QoS {qos} and DUP {packet.dup} does not exist")
    head = _topic_bytes(topic) if len(topic) <= _LONGEST_KNOWN_TOPIC else encode_string(topic)
    tail = packet.payload
    if version >= Version.V5:
        tail = (encode_properties(packet.properties) if packet.properties else b"\0") + tail
    length = len(head) + len(tail) + (2 if qos else 0)
    first = 0x30 | packet.dup << 3 | qos << 1 | packet.retain
    if length < 0x80:
        return _pack_two(first, length) + head, tail
    return _pack_one(first) + encode_varint(length) + head, tail


def _publish(packet: Publish, version: int) -> bytes:
    head, tail = _publish_parts(packet, version)
    return head + _id(packet.packet_id) + tail if packet.qos else head + tail


class PublishFrame:
    """A PUBLISH written once for many receivers that share version, QoS, flags and properties: only the packet identifier differs.

    packet: its packet_id is not looked at. size: bytes of the whole packet.
    """

    __slots__ = ("_head", "_tail", "size")

    def __init__(self, packet: Publish, version: int) -> None:
        self._head, self._tail = _publish_parts(packet, version)
        self.size = len(self._head) + len(self._tail) + (2 if packet.qos else 0)

    def with_id(self, packet_id: int) -> bytes:
        """All bytes, for QoS 1 and 2; packet_id in 1…65535."""
        return self._head + pack_u16(packet_id) + self._tail

    def without_id(self) -> bytes:
        """All bytes, for QoS 0."""
        return self._head + self._tail


def _connect(packet: Connect, _: int) -> bytes:
    version, will = packet.version, packet.will
    _require(version >= Version.V5 or packet.username is not None or packet.password is None, "CONNECT with a password alone needs MQTT 5")
    flags = packet.clean_start << 1 | (packet.username is not None) << 7 | (packet.password is not None) << 6
    parts = [encode_string(packet.client_id)]
    if will is not None:
        _require(0 <= will.qos <= 2, f"CONNECT with will QoS {will.qos} does not exist")
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        parts += [_properties(will.properties, version), encode_string(will.topic), encode_binary(will.payload)]
    if packet.username is not None:
        parts.append(encode_string(packet.username))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    name = encode_string("MQIsdp" if version == Version.V3_1 else "MQTT")
    head = name + bytes((version, flags)) + pack_u16(packet.keep_alive)
    return _frame(PacketType.CONNECT, head, _properties(packet.properties, version), *parts)


def _connack(packet: Connack, version: int) -> bytes:
    if version >= Version.V5:
        return _frame(PacketType.CONNACK, bytes((packet.session_present, packet.reason)), encode_properties(packet.properties))
    code = connack_return_code(packet.reason)
    if code is None:
        raise ValueError(f"{packet.reason.name} has no CONNACK return code before MQTT 5: close the connection instead")
    return bytes((0x20, 2, packet.session_present and version == Version.V3_1_1, code))


def _ack(packet: Ack, version: int) -> bytes:
    head = _HEADS[type(packet)]
    if version >= Version.V5 and (packet.reason or packet.properties):
        tail = encode_properties(packet.properties) if packet.properties else b""
        return _frame(PacketType(head >> 12), _id(packet.packet_id), bytes((packet.reason,)), tail, flags=head >> 8 & 0x0F)
    if packet.reason >= ReasonCode.UNSPECIFIED_ERROR and type(packet) in (Puback, Pubrec):
        raise ValueError(f"{type(packet).__name__} cannot say {packet.reason.name} before MQTT 5: close the connection instead")
    return pack_u16(head) + _id(packet.packet_id)


def _options(subscription: Subscription, version: int) -> bytes:
    _require(0 <= subscription.qos <= 2, f"SUBSCRIBE with QoS {subscription.qos} does not exist")
    _require(0 <= subscription.retain_handling <= 2, f"SUBSCRIBE with retain handling {subscription.retain_handling} does not exist")
    options = subscription.qos
    if version >= Version.V5:
        options |= subscription.no_local << 2 | subscription.retain_as_published << 3 | subscription.retain_handling << 4
    return bytes((options,))


def _subscribe(packet: Subscribe, version: int) -> bytes:
    _require(bool(packet.subscriptions), "SUBSCRIBE without a topic filter does not exist")
    parts = [encode_string(item.topic_filter) + _options(item, version) for item in packet.subscriptions]
    return _frame(PacketType.SUBSCRIBE, _id(packet.packet_id), _properties(packet.properties, version), *parts, flags=2)


def _suback(packet: Suback, version: int) -> bytes:
    reasons = packet.reasons if version >= Version.V5 else [min(code, ReasonCode.UNSPECIFIED_ERROR) for code in packet.reasons]
    return _frame(PacketType.SUBACK, _id(packet.packet_id), _properties(packet.properties, version), bytes(reasons))


def _unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    _require(bool(packet.topic_filters), "UNSUBSCRIBE without a topic filter does not exist")
    parts = map(encode_string, packet.topic_filters)
    return _frame(PacketType.UNSUBSCRIBE, _id(packet.packet_id), _properties(packet.properties, version), *parts, flags=2)


def _unsuback(packet: Unsuback, version: int) -> bytes:
    reasons = bytes(packet.reasons) if version >= Version.V5 else b""
    return _frame(PacketType.UNSUBACK, _id(packet.packet_id), _properties(packet.properties, version), reasons)


def _disconnect(packet: Disconnect, version: int) -> bytes:
    if version < Version.V5 or not (packet.reason or packet.properties):
        return b"\xe0\x00"
    return _frame(PacketType.DISCONNECT, bytes((packet.reason,)), encode_properties(packet.properties))


def _auth(packet: Auth, version: int) -> bytes:
    _require(version >= Version.V5, "AUTH needs MQTT 5")
    if not (packet.reason or packet.properties):
        return b"\xf0\x00"
    return _frame(PacketType.AUTH, bytes((packet.reason,)), encode_properties(packet.properties))


_ENCODERS: dict[type, Callable[[Any, int], bytes]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Puback: _ack,
    Pubrec: _ack,
    Pubrel: _ack,
    Pubcomp: _ack,
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: lambda *_: b"\xc0\x00",
    Pingresp: lambda *_: b"\xd0\x00",
    Disconnect: _disconnect,
    Auth: _auth,
}
