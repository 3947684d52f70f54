"""The retained messages of the other broker, read on a separate short connection.

In: filters. Out: the retained messages that match, and the number in the bridge's mark there
(`agreement.py`). The connection has no session and reads at QoS 0, so a retained message costs one
packet and no answer.

MQTT does not define when the last retained message has arrived. A broker that sends them with the
SUBACK has sent all of them before its next PINGRESP. For others, the end is reached when two round
trips of PINGREQ in a row, 0.2 s apart, bring nothing. A broker may drop messages at the bound of a
client's output (mosquitto: `max_queued_messages`). So a missing topic is asked for again by its
name before anything is concluded from that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import count

from gateway.bridge.far import FarConnection
from gateway.bridge.incoming import Unusable
from gateway.config import BridgeSection
from gateway.errors import OncewayError
from gateway.mqtt.packets import (
    Packet,
    Pingreq,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from gateway.mqtt.reason import ReasonCode

_ANSWER_S = 30.0
"""Timeout of each answer, in seconds."""
_QUIET_S = 0.2
"""Seconds between two round trips in which no message may arrive."""
_NAMES = 50
"""Number of topics that one SUBSCRIBE asks for by name."""


class Survey:
    """One reading of the other broker. most_bytes: size limit of all payloads together."""

    def __init__(self, section: BridgeSection, packet_bytes: int, most_bytes: int) -> None:
        self._section = section
        self._most_bytes = most_bytes
        self._size = 0
        self.found: dict[str, Publish] = {}
        """Retained messages, by topic at the other broker."""
        self.unreadable: set[str] = set()
        """Filters that the other broker refuses."""
        self._numbers = count(1)
        self._far = FarConnection(
            self._came, lambda reason, blamed: None, lambda: None, packet_bytes
        )

    async def begin(self, client: str) -> None:
        """Connect. Raises OncewayError."""
        await self._far.open(self._section, client, 0)
        self._far.listen()

    def end(self) -> None:
        self._far.close()

    def _came(self, packets: list[Packet]) -> None:
        for packet in packets:
            if not isinstance(packet, Publish) or not packet.retain or isinstance(packet, Unusable):
                continue
            if packet.payload:
                self._size += len(packet.payload)
                self.found[packet.topic] = packet

    async def read(self, filters: Iterable[str]) -> None:
        """Read the retained messages that match filters, one filter after the other."""
        for item in filters:
            await self._subscribe([item])
            await self._silent()
            await self._ask(Unsubscribe(next(self._numbers), [item]))

    async def read_names(self, topics: Iterable[str]) -> None:
        """Ask for topics by their names."""
        rest = list(topics)
        while rest:
            names, rest = rest[:_NAMES], rest[_NAMES:]
            await self._subscribe(names)
            await self._silent()
            await self._ask(Unsubscribe(next(self._numbers), names))

    async def write(self, topic: str, payload: bytes) -> bool:
        """Write a retained message. Return False if the other broker does not accept it."""
        answer = await self._far.ask(Publish(topic, payload, 1, next(self._numbers), True), 5)
        return isinstance(answer, Puback) and answer.reason < ReasonCode.UNSPECIFIED_ERROR

    async def _subscribe(self, filters: Sequence[str]) -> None:
        wanted = [Subscription(item, 0, False, True, 0) for item in filters]
        answer = await self._ask(Subscribe(next(self._numbers), wanted))
        if isinstance(answer, Suback):
            for item, reason in zip(filters, answer.reasons, strict=False):
                if reason >= ReasonCode.UNSPECIFIED_ERROR:
                    self.unreadable.add(item)

    async def _silent(self) -> None:
        """Wait until no message arrives in two consecutive round trips."""
        quiet = 0
        while quiet < 2:
            before = self._size
            await self._ask(Pingreq())
            quiet = quiet + 1 if self._size == before else 0
            if self._size > self._most_bytes:
                raise OncewayError(
                    "its retained messages are larger than limits.retained_bytes",
                    self._section.server,
                    "Give the bridge narrower filters, or retained = false",
                )
            await asyncio.sleep(_QUIET_S if quiet == 1 else 0)

    async def _ask(self, packet: Subscribe | Unsubscribe | Pingreq) -> Packet:
        answer = await self._far.ask(packet, _ANSWER_S)
        if answer is None:
            raise OncewayError("it does not answer while its retained messages are read")
        return answer
