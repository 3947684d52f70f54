"""Translation of packets between the two brokers.

In: PUBLISH and acknowledgements, as received. Out: the same for the other side: the topic with or
without the prefix, and RETAIN only if the other broker has retained messages. Packet identifiers,
QoS, DUP and reasons stay the same. So a message has one flow from our store to the other broker's,
without a copy in between.
"""

from dataclasses import replace

from gateway.mqtt.packets import Ack, Puback, Publish, Pubrec
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.wire import MAX_U16

_LONGEST_CHARACTER = 4
"""Most bytes of a character in UTF-8."""
_OF_THE_LINE = (PropertyId.SUBSCRIPTION_IDENTIFIER, PropertyId.TOPIC_ALIAS)
"""Properties that are valid only on the other broker's connection."""


class Unfit(Exception):
    """A packet that the other broker can never take, with the reason in words. kind: the reason
    without figures.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Translator:
    """The translator of one bridge. prefix: of topics there. retain: whether the other broker keeps
    retained messages.
    """

    def __init__(self, prefix: str, retain: bool) -> None:
        self._prefix = prefix
        self._retain = retain

    def to_far(self, packet: Publish | Ack) -> Publish | Ack:
        """Return the packet for the other broker. Raises Unfit if its topic is too long there."""
        if not isinstance(packet, Publish):
            return packet
        topic = self._prefix + packet.topic
        if len(topic) > MAX_U16 // _LONGEST_CHARACTER and len(topic.encode()) > MAX_U16:
            size = len(topic.encode())
            text = f"its topic has {size:,} bytes with the prefix, and at most {MAX_U16:,} fit"
            raise Unfit("its topic is too long", text)
        return replace(packet, topic=topic, retain=packet.retain and self._retain)

    def to_near(self, packet: Publish) -> Publish | None:
        """Return the packet for our broker, or None if its topic is not below the prefix.
        Properties of the other broker's connection and subscriptions are left out.
        """
        topic = packet.topic.removeprefix(self._prefix)
        if not topic or not packet.topic.startswith(self._prefix):
            return None
        properties = dict(packet.properties or {})
        for key in _OF_THE_LINE:
            properties.pop(key, None)
        return replace(packet, topic=topic, properties=properties or None)


def refusal(packet: Publish, reason: ReasonCode) -> Ack | None:
    """Return the answer to a message that cannot be taken, None at QoS 0."""
    if packet.qos == 2:
        return Pubrec(packet.packet_id, reason)
    return Puback(packet.packet_id, reason) if packet.qos else None
