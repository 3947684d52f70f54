"""Messages of the other broker that our broker refuses for now.

In: messages of the other broker, the answers of our broker, the time. Out: messages to offer to our
broker now, and expired messages. The other broker gets no answer while a message waits, so it keeps
the message, and a broken connection loses nothing.

A message at QoS 1 or 2 waits until earlier messages of its topic are accepted. So all messages of a
topic stay in order [MQTT-4.6.0-5]. QoS 0 never waits. Messages of other topics are not delayed. All
waiting messages are offered again after FIRST_S, then after twice as long each time, up to
LONGEST_S. At most Receive Maximum messages wait. Beyond MOST_BYTES the connection must end, and
only the other broker keeps the waiting messages.
"""

from collections.abc import Callable
from dataclasses import replace

from gateway.mqtt.packets import Ack, Publish
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode

FIRST_S = 1.0
LONGEST_S = 30.0
MOST_BYTES = 4_000_000


class Held:
    """Messages of one connection that our broker has not accepted yet. passes: returns whether our
    broker's refusal of a message is temporary. now: returns the time in seconds.
    """

    def __init__(self, passes: Callable[[Publish], bool], now: Callable[[], float]) -> None:
        self._passes = passes
        self._now = now
        self._asked: dict[int, tuple[Publish, float]] = {}
        """Messages that our broker has not answered, each with its time of arrival, by packet
        identifier.
        """
        self._waiting: dict[int, tuple[Publish, float]] = {}
        """Messages that our broker has refused for now, and later messages of the same topics. The
        oldest is first.
        """
        self.wait_s = 0.0
        """Seconds from the last refusal to the next attempt."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def size(self) -> int:
        """Total payload of the waiting messages, in bytes."""
        return sum(len(packet.payload) for packet, _ in self._waiting.values())

    def may_go(self, packet: Publish) -> bool:
        """Add a message at QoS 1 or 2. Return whether the message goes to our broker now; otherwise
        it waits. A message at QoS 0 always goes, and is not kept.
        """
        if not packet.qos:
            return True
        waits = any(packet.topic == other.topic for other, _ in self._waiting.values())
        self._asked.pop(packet.packet_id, None)
        (self._waiting if waits else self._asked)[packet.packet_id] = packet, self._now()
        return not waits

    def answered(self, answer: Ack) -> Publish | None:
        """Handle our broker's answer to a message. Return the message if it is refused for good. If
        it is refused for now, it waits (`keeps`).
        """
        packet, arrived = self._asked.pop(answer.packet_id, (None, 0.0))
        if packet is None:
            return None
        if answer.reason < ReasonCode.UNSPECIFIED_ERROR:
            self.wait_s = self.wait_s if self._waiting else 0.0
            return None
        if answer.reason != ReasonCode.QUOTA_EXCEEDED or not self._passes(packet):
            return packet
        self._waiting[packet.packet_id] = packet, arrived
        return None

    def keeps(self, identifier: int) -> bool:
        """Whether the message with this packet identifier waits."""
        return identifier in self._waiting

    def topic(self, identifier: int) -> str:
        return self._waiting[identifier][0].topic

    def next_wait(self) -> float:
        """Double the wait, within its bounds. Return the seconds until the next call of `again`."""
        self.wait_s = min(max(FIRST_S, 2 * self.wait_s), LONGEST_S)
        return self.wait_s

    def again(self) -> tuple[list[Publish], list[Publish]]:
        """Empty the list of waiting messages. Return the messages to offer to our broker again, and
        the messages that have expired.
        """
        now, fresh, expired = self._now(), list[Publish](), list[Publish]()
        for packet, arrived in self._waiting.values():
            aged = _aged(packet, now - arrived)
            if aged is None:
                expired.append(packet)
            else:
                fresh.append(aged)
                self._asked[packet.packet_id] = packet, arrived
        self._waiting.clear()
        return fresh, expired


def _aged(packet: Publish, seconds: float) -> Publish | None:
    """Return a message with its expiry shortened by `seconds`, or None if it has expired
    [MQTT-3.3.2-5].
    """
    properties = packet.properties or {}
    expiry = properties.get(PropertyId.MESSAGE_EXPIRY_INTERVAL)
    if expiry is None:
        return packet
    if seconds >= expiry:
        return None
    changed = properties | {PropertyId.MESSAGE_EXPIRY_INTERVAL: expiry - int(seconds)}
    return replace(packet, properties=changed)
