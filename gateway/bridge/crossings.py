"""Retained messages that cross a bridge while it is connected.

In: messages that one connection sends and receives (`exchange.py`). Out: notes in the agreements
(`agreement.py`), collisions (`collisions.py`), and topics. Each topic must be noted as in doubt
before its message crosses.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

from gateway.bridge.agreement import Digest, digest
from gateway.bridge.collisions import Collisions
from gateway.mqtt.packets import Puback, Publish, Pubrec
from gateway.mqtt.reason import ReasonCode

_MOST_REFUSED = 1000
"""Largest number of refused messages that are remembered."""


class Crossings:
    """The retained messages that cross on one connection. note: called with a topic, and the digest
    of the message that both brokers have now. doubt: called before messages cross, with their
    topics, and with True if they go to the other broker. It returns None, or an object to await
    before the messages are forwarded.
    """

    def __init__(
        self,
        note: Callable[[str, Digest], None],
        doubt: Callable[[Iterable[str], bool], Awaitable[object] | None],
        refused: dict[str, Digest],
        collisions: Collisions | None = None,
    ) -> None:
        self._note = note
        self.collisions = collisions or Collisions(time.monotonic)
        self.doubted: list[str] = []
        """Topics that may differ at the two brokers, and that are being read at the other broker.
        """
        self.doubt = doubt
        self.refused = refused
        """Digests of messages that the other broker can never accept, by topic."""
        self._leaving: dict[int, tuple[str, Digest]] = {}
        self._arriving: dict[int, tuple[str, Digest] | None] = {}
        self.sent: dict[str, Digest] = {}
        """Digests of retained messages at QoS 0 that the other broker may have accepted, by topic.
        """
        self.received: dict[str, Digest] = {}
        """Digests of retained messages at QoS 0 that our broker may have accepted, by topic."""
        self.arrived: set[str] = set()
        """Topics of the retained messages that arrived from the other broker since `begin_reading`.
        """
        self.messages = 0
        """Number of messages from the other broker that were handed to our broker on this
        connection.
        """
        self.held_back = 0
        """Number of packets whose topics must first be noted on disk as in doubt."""

    @property
    def open(self) -> int:
        """Number of messages from the other broker whose acknowledgement is not complete, plus
        `held_back`.
        """
        return len(self._arriving) + self.held_back

    def begin_reading(self) -> None:
        """Note that the retained messages of the other broker are about to be read: all, or only
        those of topics that may differ.
        """
        self.arrived.clear()
        self.doubted = self.collisions.take()

    def returns(self, topic: str, packet: Publish) -> None:
        """Note that a retained message came back in a loop, and is not forwarded. Ignore others."""
        if packet.retain:
            self.collisions.returns(topic, digest(packet.payload, packet.properties))

    # -- to the other broker

    def leaves(self, packet: Publish) -> None:
        """Note that a message of our broker was sent to the other broker."""
        if not packet.retain:
            self._leaving.pop(packet.packet_id, None)
            return
        state = digest(packet.payload, packet.properties)
        self.collisions.crosses(packet.topic, (True, packet.qos), state)
        if packet.qos:
            self._leaving[packet.packet_id] = packet.topic, state
        else:
            self.sent[packet.topic] = state

    def acknowledged(self, identifier: int, *, accepted: bool) -> None:
        """Note the other broker's answer to a message. accepted: False if refused for good."""
        found = self._leaving.pop(identifier, None)
        if found is None:
            return
        if accepted:
            self.refused.pop(found[0], None)
            self._note(*found)
        else:
            self.never(*found)

    def never(self, topic: str, state: Digest) -> None:
        """Note that the other broker can never accept a topic's message. state: digest of the
        message.
        """
        if len(self.refused) < _MOST_REFUSED:
            self.refused[topic] = state

    # -- to our broker

    def arrives(self, packet: Publish) -> None:
        """Note that a message of the other broker is now handed to our broker."""
        self.messages += 1
        found = None
        if packet.retain:
            found = packet.topic, digest(packet.payload, packet.properties)
            self.arrived.add(packet.topic)
            self.collisions.crosses(packet.topic, (False, packet.qos), found[1])
        if packet.qos:
            self._arriving[packet.packet_id] = found
        elif found is not None:
            self.received[found[0]] = found[1]

    def answered(self, packet: Puback | Pubrec) -> None:
        """Note our broker's answer to a message of the other broker."""
        found = self._arriving.get(packet.packet_id)
        if found is not None and packet.reason < ReasonCode.UNSPECIFIED_ERROR:
            self._note(*found)

    def finished(self, identifier: int) -> None:
        """Note that the exchange of a message from the other broker is over."""
        self._arriving.pop(identifier, None)
