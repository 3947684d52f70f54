"""Encoding of control packets, for all versions and both directions.

In: a packet of `gateway.mqtt.packets` and the protocol version of the receiver. Out: all bytes of
the packet. Properties are left out for versions before 5. Raises ValueError for a packet that the
version cannot express, above all a failure on a PUBACK or PUBREC before version 5: without its
reason code the packet would acknowledge a refused message.
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

_LONGEST_KNOWN_TOPIC = 128
_topic_bytes = lru_cache(4096)(encode_string)
_pack_one, _pack_two = Struct(">B").pack, Struct(">BB").pack

_Answer = Connack | Ack | Suback | Unsuback | Disconnect | Auth
_FIRST_BYTES: dict[type, int] = {Puback: 0x40, Pubrec: 0x50, Pubrel: 0x62, Pubcomp: 0x70}


def encode(packet: Packet, version: int) -> bytes:
    """Return all bytes of `packet` for a peer of this version."""
    return _ENCODERS[type(packet)](packet, version)


def encode_within(packet: Packet, version: int, maximum: int) -> bytes | None:
    """Encode a packet for a receiver that accepts at most `maximum` bytes. If an acknowledgement, a
    CONNACK, DISCONNECT or AUTH is too large, its Reason String is left out, then its User
    Properties. Two statements for each packet type demand this, from [MQTT-3.2.2-19] to
    [MQTT-3.15.2-3]. Return None if the packet is still too large [MQTT-3.1.2-24].
    """
    data = encode(packet, version)
    if len(data) > maximum and isinstance(packet, _Answer) and packet.properties:
        shorter = copy(packet)
        for dropped in (PropertyId.REASON_STRING, PropertyId.USER_PROPERTY):
            shorter.properties = {
                key: value for key, value in (shorter.properties or {}).items() if key != dropped
            }
            data = encode(shorter, version)
            if len(data) <= maximum:
                break
    return data if len(data) <= maximum else None


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)


def _frame(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return _pack_one(first) + encode_varint(len(body)) + body


def _properties(properties: Properties | None, version: int) -> bytes:
    return encode_properties(properties) if version >= Version.V5 else b""


def _id(packet_id: int) -> bytes:
    _require(1 <= packet_id <= MAX_U16, f"packet identifier {packet_id} is not in 1…65535")
    return pack_u16(packet_id)


def _publish(packet: Publish, version: int) -> bytes:
    qos, topic = packet.qos, packet.topic
    if not 0 <= qos <= 2 or (packet.dup and not qos):
        raise ValueError(f"PUBLISH with QoS {qos} and DUP {packet.dup} does not exist")
    head = _topic_bytes(topic) if len(topic) <= _LONGEST_KNOWN_TOPIC else encode_string(topic)
    if qos:
        head += _id(packet.packet_id)
    tail = packet.payload
    if version >= Version.V5:
        tail = (encode_properties(packet.properties) if packet.properties else b"\0") + tail
    length = len(head) + len(tail)
    first = 0x30 | packet.dup << 3 | qos << 1 | packet.retain
    if length < 0x80:
        return _pack_two(first, length) + head + tail
    return _pack_one(first) + encode_varint(length) + head + tail


def _connect(packet: Connect, _: int) -> bytes:
    version, will = packet.version, packet.will
    _require(
        version >= Version.V5 or packet.username is not None or packet.password is None,
        "CONNECT with a password alone needs MQTT 5",
    )
    flags = (
        packet.clean_start << 1
        | (packet.username is not None) << 7
        | (packet.password is not None) << 6
    )
    parts = [encode_string(packet.client_id)]
    if will is not None:
        _require(0 <= will.qos <= 2, f"CONNECT: will QoS is {will.qos}, not 0…2")
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        parts += [
            _properties(will.properties, version),
            encode_string(will.topic),
            encode_binary(will.payload),
        ]
    if packet.username is not None:
        parts.append(encode_string(packet.username))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    name = encode_string("MQIsdp" if version == Version.V3_1 else "MQTT")
    _require(not packet.bridge or version < Version.V5, "MQTT 5 has no protocol level for bridges")
    head = name + bytes((version | packet.bridge << 7, flags)) + pack_u16(packet.keep_alive)
    return _frame(0x10, head, _properties(packet.properties, version), *parts)


def _connack(packet: Connack, version: int) -> bytes:
    if version >= Version.V5:
        return _frame(
            0x20,
            bytes((packet.session_present, packet.reason)),
            encode_properties(packet.properties),
        )
    code = connack_return_code(packet.reason)
    if code is None:
        raise ValueError(
            f"{packet.reason.name} has no CONNACK return code before MQTT 5: close the connection"
            " instead"
        )
    return bytes((0x20, 2, packet.session_present and version == Version.V3_1_1, code))


def _ack(packet: Ack, version: int) -> bytes:
    first = _FIRST_BYTES[type(packet)]
    if version >= Version.V5 and (packet.reason or packet.properties):
        tail = encode_properties(packet.properties) if packet.properties else b""
        return _frame(first, _id(packet.packet_id), bytes((packet.reason,)), tail)
    if packet.reason >= ReasonCode.UNSPECIFIED_ERROR and type(packet) in (Puback, Pubrec):
        raise ValueError(
            f"{type(packet).__name__} cannot carry {packet.reason.name} before MQTT 5: close the"
            " connection instead"
        )
    return _pack_two(first, 2) + _id(packet.packet_id)


def _options(subscription: Subscription, version: int) -> bytes:
    _require(0 <= subscription.qos <= 2, f"SUBSCRIBE with QoS {subscription.qos} does not exist")
    _require(
        0 <= subscription.retain_handling <= 2,
        f"SUBSCRIBE with retain handling {subscription.retain_handling} does not exist",
    )
    options = subscription.qos
    if version >= Version.V5:
        options |= (
            subscription.no_local << 2
            | subscription.retain_as_published << 3
            | subscription.retain_handling << 4
        )
    return bytes((options,))


def _subscribe(packet: Subscribe, version: int) -> bytes:
    _require(bool(packet.subscriptions), "SUBSCRIBE needs a topic filter")
    parts = [
        encode_string(item.topic_filter) + _options(item, version) for item in packet.subscriptions
    ]
    return _frame(0x82, _id(packet.packet_id), _properties(packet.properties, version), *parts)


def _suback(packet: Suback, version: int) -> bytes:
    reasons = (
        packet.reasons
        if version >= Version.V5
        else [min(code, ReasonCode.UNSPECIFIED_ERROR) for code in packet.reasons]
    )
    return _frame(
        0x90, _id(packet.packet_id), _properties(packet.properties, version), bytes(reasons)
    )


def _unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    _require(bool(packet.topic_filters), "UNSUBSCRIBE needs a topic filter")
    parts = map(encode_string, packet.topic_filters)
    return _frame(0xA2, _id(packet.packet_id), _properties(packet.properties, version), *parts)


def _unsuback(packet: Unsuback, version: int) -> bytes:
    reasons = bytes(packet.reasons) if version >= Version.V5 else b""
    return _frame(0xB0, _id(packet.packet_id), _properties(packet.properties, version), reasons)


def _disconnect(packet: Disconnect, version: int) -> bytes:
    if version < Version.V5 or not (packet.reason or packet.properties):
        return b"\xe0\x00"
    return _frame(0xE0, bytes((packet.reason,)), encode_properties(packet.properties))


def _auth(packet: Auth, version: int) -> bytes:
    _require(version >= Version.V5, "AUTH needs MQTT 5")
    if not (packet.reason or packet.properties):
        return b"\xf0\x00"
    return _frame(0xF0, bytes((packet.reason,)), encode_properties(packet.properties))


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
