"""Translation of packets between the two brokers.

In: PUBLISH packets and acknowledgements, as received. Out: the same packets for the other side: the
topic with or without the prefix, and RETAIN only if the other broker has retained messages. Packet
identifiers, QoS, DUP and reasons stay the same here (`lowered.py` may lower the QoS afterwards). So
a message goes from our store to the other broker's store, without a copy in between.

Each message gets the mark of the bridge, a user property. A message that already has the mark has
come back in a loop of bridges, and must not cross again.
"""

from dataclasses import replace

from gateway.config import DEVICES_TOPIC, BridgeSection
from gateway.mqtt.packets import Ack, Puback, Publish, Pubrec
from gateway.mqtt.properties import (
    MOST_OF_ONE,
    SERVER_PUBLISH_PROPERTIES,
    Properties,
    PropertyId,
    decode_properties,
    pass_through,
)
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.wire import MAX_U16, Reader, encode_varint

_LONGEST_CHARACTER = 4
"""Largest number of bytes of a character in UTF-8."""
_OF_THE_LINE = (PropertyId.SUBSCRIPTION_IDENTIFIER, PropertyId.TOPIC_ALIAS)
"""Properties that are valid only on the other broker's connection."""

MARK = "onceway-bridge"
"""Name of the user property that each bridge adds to the messages that cross it. Its value is
GATEWAY/BRIDGE/WORD, where WORD is random and stays the same for the life of the bridge."""
MARK_BYTES = 512
"""Largest number of bytes that the mark adds to a packet."""
NO_MARK = "a bridge that leaves no mark"


def crosses(section: BridgeSection, topic: str) -> bool:
    """Whether a bridge may carry a topic; whether its filters match is not checked here. All topics
    may cross but the list of devices (DEVICES_TOPIC), because each gateway has its own list: it
    crosses only with a prefix, or if `up` or `down` has exactly this topic.
    """
    return topic != DEVICES_TOPIC or bool(section.prefix) or topic in (*section.up, *section.down)


class Unfit(Exception):
    """A packet that the other broker can never accept, with the reason in words. kind: the reason
    without numbers.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Translator:
    """The translator of one bridge. prefix: prefix of topics at the other broker. retain: whether
    the other broker keeps retained messages. mark: value of the user property MARK.
    """

    def __init__(self, prefix: str, retain: bool, mark: str) -> None:
        self._prefix = prefix
        self._retain = retain
        self._mark = mark

    def came_back_from(self, packet: Publish) -> str | None:
        """Return None if a message has never crossed this bridge. Otherwise return the name of the
        last bridge that it crossed.
        """
        properties = packet.properties or {}
        marks = [value for name, value in _user(properties) if name == MARK]
        if self._mark not in marks:
            return None
        return marks[-1].rpartition("/")[0] if marks[-1] != self._mark else NO_MARK

    def _with_mark(self, properties: Properties | None) -> Properties:
        """Return the properties of a message with the mark added. If the message already has the
        largest number of user properties, return the properties without the mark.
        """
        found = properties or {}
        user = _user(found)
        mark = [(MARK, self._mark)] if len(user) < MOST_OF_ONE else []
        return found | {PropertyId.USER_PROPERTY: [*user, *mark]}

    def to_far(self, packet: Publish, with_mark: bool) -> Publish:
        """Return the packet for the other broker. Raises Unfit if its topic is too long with the
        prefix.
        """
        topic = self._prefix + packet.topic
        if len(topic) > MAX_U16 // _LONGEST_CHARACTER and len(topic.encode()) > MAX_U16:
            size = len(topic.encode())
            text = f"its topic has {size:,} bytes with the prefix, but at most {MAX_U16:,} fit"
            raise Unfit("its topic is too long", text)
        retain = packet.retain and self._retain
        properties = self._with_mark(packet.properties) if with_mark else packet.properties
        return replace(packet, topic=topic, retain=retain, properties=properties)

    def to_near(self, packet: Publish) -> Publish | None:
        """Return the packet for our broker, or None if its topic is not below the prefix.
        Properties of the other broker's connection and subscriptions are left out.
        """
        topic = packet.topic.removeprefix(self._prefix)
        if not topic or not packet.topic.startswith(self._prefix):
            return None
        properties = self._with_mark(packet.properties)
        for key in _OF_THE_LINE:
            properties.pop(key, None)
        return replace(packet, topic=topic, properties=properties)


def returned(properties: Properties | None, mark: str) -> bool:
    """Whether a message has crossed the bridge with this mark, and later another bridge."""
    marks = [value for name, value in _user(properties or {}) if name == MARK]
    return mark in marks and marks[-1] != mark


def without_marks(properties: bytes, mark: str | None) -> bytes:
    """Return encoded properties of a message without a bridge's mark, so that the message may cross
    that bridge once more. mark: None for all bridges.
    """
    if MARK.encode() not in properties:
        return properties
    return pass_through(without(decoded(properties), mark))


def decoded(properties: bytes) -> Properties:
    """Return the properties of a message. properties: encoded, without the property length."""
    block = encode_varint(len(properties)) + properties
    return decode_properties(Reader(block, "PUBLISH"), SERVER_PUBLISH_PROPERTIES) or {}


def without(properties: Properties, mark: str | None = None) -> Properties:
    """Return the properties of a message without the mark of a bridge. mark: the mark's value; None
    removes the marks of all bridges.
    """
    user = [item for item in _user(properties) if item != (MARK, mark or item[1])]
    others = {key: item for key, item in properties.items() if key != PropertyId.USER_PROPERTY}
    return others | ({PropertyId.USER_PROPERTY: user} if user else {})


def _user(properties: Properties) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = properties.get(PropertyId.USER_PROPERTY, [])
    return found


def refusal(packet: Publish, reason: ReasonCode) -> Ack | None:
    """Return the answer to a message that cannot be accepted, None at QoS 0."""
    if packet.qos == 2:
        return Pubrec(packet.packet_id, reason)
    return Puback(packet.packet_id, reason) if packet.qos else None
