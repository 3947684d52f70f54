"""The retained messages of the other broker, read on a separate short connection.

In: filters. Out: the other broker's retained messages that match, the bridge's mark among them
(`agreement.py`). The connection has no session and reads at QoS 0, so a retained message costs one
packet and no answer.

MQTT does not define when the last retained message has arrived. A broker that sends retained
messages with the SUBACK has sent all of them before its next PINGRESP. For other brokers, the end
is reached when two round trips of PINGREQ in a row, 0.2 s apart, bring no message. A broker may
drop messages at the bound of a client's output (mosquitto: `max_queued_messages`). So a missing
topic is asked for once more by its name before it counts as missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from gateway.bridge.far import FarConnection
from gateway.bridge.incoming import Unusable
from gateway.config import BridgeSection, LimitsSection
from gateway.errors import OncewayError
from gateway.mqtt.packets import (
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from gateway.mqtt.reason import ReasonCode

_ANSWER_S = 30.0
"""Timeout of each answer, in seconds."""
_QUIET_S = 0.2
"""`_silent` ends after two round trips in a row without a message. This is the pause between the
two, in seconds.
"""
_OVERHEAD = 5
"""Smallest number of bytes of a PUBLISH in addition to topic, payload and properties."""
_NAMES_BYTES = 4_000
"""Largest number of bytes of topic names in one SUBSCRIBE that asks for single topics."""


class Survey:
    """One pass over the other broker's retained messages. limits: bounds of our retained messages,
    which also apply to the other broker's messages.
    """

    def __init__(self, section: BridgeSection, limits: LimitsSection) -> None:
        self._section = section
        self._limits = limits
        self.size = 0
        """Bytes of topics, payloads and properties that were read."""
        self.found: dict[str, Publish] = {}
        """Retained messages, by topic at the other broker."""
        self.unreadable: set[str] = set()
        """Filters that the other broker has refused, or does not support (`FarConnection.offers`).
        """
        self._numbers = count(1)
        self._far = FarConnection(
            self._on_packets, lambda reason, blamed: None, lambda: None, limits.packet_bytes
        )

    async def begin(self, client: str, address: str) -> None:
        """Connect to the IP address that the bridge is connected to. client: client identifier of
        this connection. Raises OncewayError if it cannot connect.
        """
        await self._far.open(self._section, client, 0, address=address)
        self._far.listen()

    def end(self) -> None:
        self._far.close()

    def _on_packets(self, packets: list[Packet]) -> None:
        for packet in packets:
            if isinstance(packet, Pubrel):
                self._far.send(Pubcomp(packet.packet_id))
            if not isinstance(packet, Publish):
                continue
            if packet.qos:
                self._far.send((Puback if packet.qos == 1 else Pubrec)(packet.packet_id))
            if packet.retain and packet.payload and not isinstance(packet, Unusable):
                self.size += len(packet.payload) + len(packet.topic) + _OVERHEAD
                self.size += len(repr(packet.properties)) if packet.properties else 0
                self.found[packet.topic] = packet

    async def read(self, filters: Iterable[str]) -> None:
        """Read the retained messages that match filters, one filter after the other."""
        for item in filters:
            if not self._far.offers(item):
                self.unreadable.add(item)
                continue
            await self._subscribe([item])
            await self._silent()
            await self._ask(Unsubscribe(next(self._numbers), [item]))

    async def read_names(self, topics: Iterable[str], qos: int = 0) -> None:
        """Read retained messages by topic names, several in one SUBSCRIBE. qos: QoS of the
        subscription.
        """
        for names in _groups(topics, min(_NAMES_BYTES, self._far.most // 2)):
            await self._subscribe(names, qos)
            await self._silent()
            await self._ask(Unsubscribe(next(self._numbers), names))

    async def write(self, topic: str, payload: bytes) -> bool:
        """Write a retained message. Return False if the other broker refuses it, or does not answer
        within 5 s. A broker with a Maximum QoS of 0 gives no answer: then return True.
        """
        if not self._far.qos:
            self._far.send(Publish(topic, payload, retain=True))
            return True
        answer = await self._far.ask(Publish(topic, payload, 1, next(self._numbers), True), 5)
        return isinstance(answer, Puback) and answer.reason < ReasonCode.UNSPECIFIED_ERROR

    async def _subscribe(self, filters: Sequence[str], qos: int = 0) -> None:
        wanted = [Subscription(item, qos, False, True, 0) for item in filters]
        answer = await self._ask(Subscribe(next(self._numbers), wanted))
        if isinstance(answer, Suback):
            for item, reason in zip(filters, answer.reasons, strict=False):
                if reason >= ReasonCode.UNSPECIFIED_ERROR:
                    self.unreadable.add(item)

    async def _silent(self) -> None:
        """Wait until no message arrives in two consecutive round trips. Raises OncewayError if
        there are too many retained messages.
        """
        quiet = 0
        while quiet < 2:
            before = self.size
            await self._ask(Pingreq())
            quiet = quiet + 1 if self.size == before else 0
            too_many = len(self.found) > self._limits.retained
            if too_many or self.size > self._limits.retained_bytes + _OVERHEAD * len(self.found):
                raise OncewayError(
                    "the other broker has more retained messages than this gateway may have"
                    " (limits.retained, limits.retained_bytes)",
                    self._section.server,
                    "Give the bridge narrower filters, or retained = false",
                )
            await asyncio.sleep(_QUIET_S if quiet == 1 else 0)

    async def _ask(self, packet: Subscribe | Unsubscribe | Pingreq) -> Packet:
        answer = await self._far.ask(packet, _ANSWER_S)
        if answer is None:
            raise OncewayError(
                "the other broker does not answer while its retained messages are read"
            )
        return answer


def _groups(topics: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield topics in groups of at most `most` bytes. A longer topic is a group of its own."""
    group, size = list[str](), 0
    for topic in topics:
        weight = len(topic.encode()) + 3
        if group and size + weight > most:
            yield group
            group, size = [], 0
        group.append(topic)
        size += weight
    if group:
        yield group
