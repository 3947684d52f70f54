"""Retained messages that cross a bridge while it is connected.

In: what the exchange of one connection sends and receives. Out: notes in the agreement
(`agreement.py`), and the answers to messages that the bridge itself publishes at our broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.bridge.agreement import Agreement, Digest, digest
from gateway.mqtt.packets import Puback, Publish, Pubrec
from gateway.mqtt.reason import ReasonCode

_MOST_REFUSED = 1000
"""Largest number of refused messages that are remembered."""


class Crossings:
    """The crossings of one connection. changed: called after a note."""

    def __init__(
        self, agreement: Agreement, refused: dict[str, Digest], changed: Callable[[], None]
    ) -> None:
        self._agreement = agreement
        self._changed = changed
        self.refused = refused
        """Messages that the other broker can never accept, by topic."""
        self._leaving: dict[int, tuple[str, Digest]] = {}
        self._arriving: dict[int, tuple[str, Digest] | None] = {}
        self.unsure: dict[str, Digest] = {}
        """Messages at QoS 0 that our broker may have accepted, by topic."""
        self._own: dict[int, tuple[str, Digest, asyncio.Future[bool]]] = {}
        self.arrived: set[str] = set()
        """Topics that arrived from the other broker since `arrived` was cleared."""
        self.messages = 0
        """Messages that arrived from the other broker."""

    @property
    def open(self) -> int:
        """Number of messages from the other broker whose flow is not finished."""
        return len(self._arriving)

    def _note(self, topic: str, state: Digest) -> None:
        self._agreement.note(topic, state)
        self._changed()

    # -- to the other broker

    def leaves(self, packet: Publish) -> None:
        """Note that a message of our broker was sent."""
        if not packet.retain:
            self._leaving.pop(packet.packet_id, None)
        elif packet.qos:
            self._leaving[packet.packet_id] = packet.topic, digest(packet.payload)
        else:
            self._note(packet.topic, digest(packet.payload))

    def acknowledged(self, identifier: int, *, taken: bool) -> None:
        """Note the answer of the other broker to a message."""
        found = self._leaving.pop(identifier, None)
        if found is None:
            return
        if taken:
            self.refused.pop(found[0], None)
            self._note(*found)
        else:
            self.never(*found)

    def never(self, topic: str, state: Digest) -> None:
        """Note that the other broker can never accept a message."""
        if len(self.refused) < _MOST_REFUSED:
            self.refused[topic] = state

    # -- to our broker

    def arrives(self, packet: Publish) -> None:
        """Note that a message of the other broker goes to ours."""
        self.messages += 1
        found = (packet.topic, digest(packet.payload)) if packet.retain else None
        if packet.retain:
            self.arrived.add(packet.topic)
        if packet.qos:
            self._arriving[packet.packet_id] = found
        elif found is not None:
            self.unsure[found[0]] = found[1]
            self._changed()

    def answered(self, packet: Puback | Pubrec) -> bool:
        """Note our broker's answer to a message. Return True if the message is the bridge's own."""
        taken = packet.reason < ReasonCode.UNSPECIFIED_ERROR
        own = self._own.pop(packet.packet_id, None) if isinstance(packet, Puback) else None
        if own is not None:
            if taken:
                self._note(own[0], own[1])
            if not own[2].done():
                own[2].set_result(taken)
            return True
        found = self._arriving.get(packet.packet_id)
        if found is not None and taken:
            self._note(*found)
        return False

    def finished(self, identifier: int) -> None:
        """Note the end of the flow of a message from the other broker."""
        self._arriving.pop(identifier, None)

    def publish(self, packet: Publish) -> tuple[Publish, asyncio.Future[bool]]:
        """Return a message of the bridge itself for our broker, and a future for whether our broker
        accepts it. No message of the other broker has its packet identifier.
        """
        number = next(
            number
            for number in range(65_535, 0, -1)
            if number not in self._own and number not in self._arriving
        )
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._own[number] = packet.topic, digest(packet.payload), waiting
        packet.packet_id, packet.qos = number, 1
        return packet, waiting
