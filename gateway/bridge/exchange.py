"""The packets of one connection of a bridge, between our broker and the other broker.

In: packets of both sides. Out: each packet on the other side, and reports of messages that cannot
be sent: a message that does not fit, that the other broker refuses for good, or at which the other
broker closes the connection again and again. If our broker refuses a message of the other broker
for now, the message waits (`held.py`).

A message that may end the connection is sent alone (`gateway/bridge/suspects.py`). Meanwhile, no
message at QoS 0 is sent, and PUBRELs are sent one at a time. A PUBREL at which the other broker
closes the connection again and again is held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gateway.bridge.agreement import digest
from gateway.bridge.counts import Counts
from gateway.bridge.crossings import Crossings
from gateway.bridge.far import FarConnection
from gateway.bridge.far_filters import FarFilters
from gateway.bridge.gate import Gate
from gateway.bridge.held import MOST_BYTES, Held
from gateway.bridge.incoming import Unusable
from gateway.bridge.lowered import Lowered
from gateway.bridge.near import NearClient
from gateway.bridge.own_queue import OwnQueue
from gateway.bridge.pauses import Pauses
from gateway.bridge.reasons import blames_message, own_words
from gateway.bridge.suspects import TIMES, Release, Suspects
from gateway.bridge.translate import Translator, Unfit, crosses, refusal
from gateway.broker.refusals import words
from gateway.config import BridgeSection
from gateway.mqtt.packets import (
    Ack,
    Connack,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a bridge that outlive a connection."""

    section: BridgeSection
    queue: OwnQueue
    counts: Counts
    filters: FarFilters
    pauses: Pauses
    suspects: Suspects


class Exchange:
    """Packets between the two brokers during one connection. ended: called with the reason if the
    connection must end.
    """

    def __init__(
        self,
        parts: Parts,
        now: Callable[[], float],
        ended: Callable[[str], None],
    ) -> None:
        self._section = parts.section
        self._queue, self._counts = parts.queue, parts.counts
        self._filters, self._pauses = parts.filters, parts.pauses
        self._suspects = parts.suspects
        self._now = now
        self._ended = ended
        self._far: FarConnection | None = None
        self._near: NearClient | None = None
        self._crossings = Crossings(lambda topic, state: None, lambda topics, sent: None, {})
        self._translator = Translator(parts.section.prefix, True, "")
        self._to_release: list[Pubrel] = []
        """PUBRELs of our broker that have not been sent yet."""
        self._releasing: set[int] = set()
        """Packet identifiers whose PUBREL was sent, and whose PUBCOMP has not arrived."""
        self._inward: Gate | None = None
        self._lowered = Lowered(2)
        self._round_trips: set[asyncio.Task[None]] = set()
        self.refused_for_now = Held(parts.queue.is_for_now, now)
        self._again: asyncio.TimerHandle | None = None

    def begin(
        self,
        far: FarConnection,
        answer: Connack,
        near: NearClient,
        mark: str,
        crossings: Crossings,
    ) -> None:
        """Begin to forward packets. answer: CONNACK of the other broker. mark: the mark that the
        bridge adds to messages (`translate.py`).
        """
        self._crossings = crossings
        properties = answer.properties or {}
        retain = properties.get(PropertyId.RETAIN_AVAILABLE, 1)
        self._lowered = Lowered(properties.get(PropertyId.MAXIMUM_QOS, 2))
        self._translator = Translator(self._section.prefix, bool(retain), mark)
        self._far, self._near = far, near
        prefix = self._section.prefix
        self._inward = Gate(crossings, self._from_far, prefix, self._ended)
        near.gate = Gate(crossings, self._from_near, None, self._ended)
        near.on_packets = near.gate.take
        near.ended = lambda: self._ended("this gateway ended the bridge's connection")
        far.listen()

    def end(self) -> None:
        if self._again is not None:
            self._again.cancel()
        for task in self._round_trips:
            task.cancel()
        if self._inward is not None:
            self._inward.close()
        if self._near is not None:
            if self._near.gate is not None:
                self._near.gate.close()
            self._near.leave()
            self._near = None

    def drained(self) -> None:
        if self._near is not None:
            self._near.drained()

    # -- from the other broker

    def from_far(self, packets: list[Packet]) -> None:
        if self._inward is not None:
            self._inward.take(packets)

    def _from_far(self, packets: list[Packet]) -> None:
        near, far = self._near, self._far
        if near is None or far is None:
            return
        inward: list[Packet] = []
        for packet in map(self._lowered.answer, packets):
            if isinstance(packet, Puback | Pubrec | Pubcomp) and not self._queue.expects(packet):
                if isinstance(packet, Pubrec):
                    inward.append(Pubrec(packet.packet_id))  # our broker answers with 0x92
            elif isinstance(packet, Publish):
                inward += self._incoming(far, packet)
            elif isinstance(packet, Puback | Pubrec):
                if not self._acknowledged(packet, inward):
                    break
            elif isinstance(packet, Pubcomp):
                self._completed(packet)
                inward.append(Pubcomp(packet.packet_id))
            elif isinstance(packet, Ack):
                inward.append(packet)
            elif isinstance(packet, Suback | Unsuback):
                self._filters.subscribed(packet)
        near.take(inward)
        self._go_on(far)

    def _incoming(self, far: FarConnection, packet: Publish) -> list[Packet]:
        """Return the packets for our broker that a PUBLISH of the other broker causes: the
        translated PUBLISH, or none if the message is not forwarded, is refused, or has to wait.
        """
        self._counts.received += 1
        if not packet.dup:
            self._pauses.progress()
        reason, why = ReasonCode.TOPIC_NAME_INVALID, "its topic is not below the prefix"
        if isinstance(packet, Unusable):
            reason, why = packet.reason, packet.why
        elif not crosses(self._section, packet.topic):
            return self._done_with(far, packet)
        elif (other := self._translator.came_back_from(packet)) is not None:
            self._counts.came_back(packet, other)
            self._crossings.returns(packet.topic.removeprefix(self._section.prefix), packet)
            return self._done_with(far, packet)
        elif (found := self._translator.to_near(packet)) is not None:
            self._counts.crosses(packet)
            self._crossings.arrives(found)
            return [found] if self.refused_for_now.may_go(found) else []
        self._refuse(far, packet, reason, why)
        return []

    def _done_with(self, far: FarConnection, packet: Publish) -> list[Packet]:
        """Acknowledge a message of the other broker that is not forwarded, and return an empty
        list. At QoS 2, our broker answers the PUBREL that follows.
        """
        if packet.qos:
            answer = Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id)
            far.write(b"".join(self._acknowledgement(far, answer)))
        return []

    def _refuse(self, far: FarConnection, packet: Publish, reason: ReasonCode, why: str) -> None:
        """Refuse a message of the other broker for good. why: text for the log."""
        self._counts.cannot_take(packet.topic, why)
        self._crossings.finished(packet.packet_id)
        if (answer := refusal(packet, reason)) is not None:
            far.write(b"".join(self._acknowledgement(far, answer)))

    def _is_held(self, answer: Ack) -> bool:
        """Handle our broker's answer to a message of the other broker. Return True if our broker
        has refused the message for now: the message then waits, and is offered again.
        """
        refused = self.refused_for_now.answered(answer)
        if refused is not None:
            why = f"this gateway refuses the message: {words(answer.reason)}"
            self._counts.cannot_take(refused.topic, why)
        if not self.refused_for_now.keeps(answer.packet_id):
            return False
        if self._again is None:
            self._counts.waits(self.refused_for_now.topic(answer.packet_id))
            wait_s = self.refused_for_now.next_wait()
            self._again = asyncio.get_running_loop().call_later(wait_s, self._try_again)
        if self.refused_for_now.size > MOST_BYTES:
            self._ended("this gateway has no room for what the other broker sends")
        return True

    def _try_again(self) -> None:
        """Offer the waiting messages to our broker again. Refuse those that have expired."""
        near, far, self._again = self._near, self._far, None
        if near is None or far is None:
            return
        fresh, expired = self.refused_for_now.again()
        for packet in expired:
            why = "the message expired while this gateway had no room"
            self._refuse(far, packet, ReasonCode.QUOTA_EXCEEDED, why)
        for packet in fresh:
            self._crossings.arrives(packet)
        near.take(list(fresh))

    def _completed(self, packet: Pubcomp) -> None:
        """Handle the answer to a PUBREL: the other broker has fully acknowledged the message."""
        tries_suspects = self._suspects.tries_suspects
        self._releasing.discard(packet.packet_id)
        self._suspects.answered(Release(packet.packet_id))
        self._suspects.message_taken()
        self._pauses.progress()
        self._queue.finished(packet)
        if tries_suspects and not self._suspects.tries_suspects:
            self._queue.suspect_answered()

    def _acknowledged(self, packet: Puback | Pubrec, inward: list[Packet]) -> bool:
        """Handle the other broker's answer to a PUBLISH. If the answer is a failure of which the
        message is not the cause (`blames_message`), end the connection and return False. inward:
        list to which the packet for our broker is added.
        """
        identifier, reason = packet.packet_id, packet.reason
        tries_suspects = self._suspects.tries_suspects
        failed = reason >= ReasonCode.UNSPECIFIED_ERROR
        if failed and not blames_message(reason):
            self._pauses.note_reason()
            text = f"the other broker has no room for more ({reason.name})"
            self._ended(f"{text}{own_words(packet)}")
            return False
        self._suspects.answered(identifier)
        self._pauses.progress()
        self._crossings.acknowledged(identifier, accepted=not failed)
        if failed:
            self._queue.refused(packet)
        else:
            if isinstance(packet, Puback):
                self._suspects.message_taken()
                self._queue.finished(packet)
            inward.append(type(packet)(identifier))
        if tries_suspects and not self._suspects.tries_suspects:
            self._queue.suspect_answered()
        return True

    # -- from our broker

    def _from_near(self, packets: list[Packet]) -> None:
        far = self._far
        if far is None:
            return
        outward: list[bytes] = []
        for packet in packets:
            if isinstance(packet, Publish):
                data = self._publication(far, packet)
                if data is not None:
                    outward.append(data)
            elif isinstance(packet, Pubrel):
                self._to_release.append(packet)
            elif isinstance(packet, Ack):
                outward += self._answered(far, packet)
            elif isinstance(packet, Connack) and packet.reason:
                self._ended(f"this gateway does not accept the session ({packet.reason.name})")
        if outward:
            far.write(b"".join(outward))
        if answers := self._lowered.take_unanswered():
            task = asyncio.create_task(self._after_round_trip(far, answers))
            self._round_trips.add(task)
            task.add_done_callback(self._round_trips.discard)
        self._go_on(far)

    def _answered(self, far: FarConnection, packet: Ack) -> list[bytes]:
        """Return a list with the bytes that forward our broker's acknowledgement to the other
        broker. The list is empty if the message waits, because our broker refuses it for now. It is
        also empty if the bytes are too many for the other broker; the connection then ends.
        """
        if isinstance(packet, Puback | Pubrec):
            self._crossings.answered(packet)
            if self._is_held(packet):
                return []
        if not isinstance(packet, Pubrec) or packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._crossings.finished(packet.packet_id)
        return self._acknowledgement(far, packet)

    async def _after_round_trip(self, far: FarConnection, answers: Sequence[Packet]) -> None:
        """Wait for a round trip to the other broker. Then hand `answers`, which are for messages
        sent at QoS 0, to our broker (`lowered.py`).
        """
        await far.settled()
        self.from_far(list(answers))

    def _acknowledgement(self, far: FarConnection, packet: Ack) -> list[bytes]:
        """Return the bytes of an acknowledgement for the other broker, in a list. If it is too
        large, end the connection and return an empty list.
        """
        try:
            return [far.encoded(packet)]
        except Unfit as error:
            self._ended(f"cannot send an acknowledgement to the other broker: {error}")
            return []

    def _go_on(self, far: FarConnection) -> None:
        """Send the PUBRELs that wait, except guilty ones (`suspects.py`). While suspects are sent
        alone, send one PUBREL, and only if no other waits for its PUBCOMP.
        """
        if not self._to_release:
            return
        guilty = [item for item in self._to_release if self._is_guilty(item)]
        ready = [item for item in self._to_release if not self._is_guilty(item)]
        if self._suspects.tries_suspects:
            ready = [] if self._releasing else ready[:1]
        self._to_release = [item for item in self._to_release if item not in ready]
        if self._lowered.most < 2:
            answers: list[Packet] = [Pubcomp(packet.packet_id) for packet in ready]
            asyncio.get_running_loop().call_soon(self.from_far, answers)
            return
        outward: list[bytes] = []
        for packet in ready:
            outward += self._acknowledgement(far, packet)
            self._releasing.add(packet.packet_id)
            self._suspects.sent(Release(packet.packet_id), 0, self._now())
        far.write(b"".join(outward))
        if guilty:
            self._queue.held_back()

    def _is_guilty(self, packet: Pubrel) -> bool:
        return self._suspects.guilty(Release(packet.packet_id))

    def _encoded(self, far: FarConnection, packet: Publish) -> bytes:
        """Return the bytes of a PUBLISH for the other broker. The bridge's mark is left out if the
        packet is too large with it. Raises Unfit if the packet does not fit without the mark
        either.
        """
        lower = self._lowered.lower
        with suppress(Unfit):
            return far.encoded(lower(self._translator.to_far(packet, with_mark=True)))
        return far.encoded(lower(self._translator.to_far(packet, with_mark=False)))

    def _publication(self, far: FarConnection, packet: Publish) -> bytes | None:
        """Return the bytes of a PUBLISH for the other broker, or None if it is not sent."""
        suspects, identifier = self._suspects, packet.packet_id
        if (other := self._translator.came_back_from(packet)) is not None:
            self._counts.came_back(packet, other)
            self._crossings.returns(packet.topic, packet)
            self._queue.take_out(packet)
            return None
        if not crosses(self._section, packet.topic):
            self._queue.take_out(packet)
            return None
        if packet.qos and suspects.guilty(identifier):
            suspects.forget_guilty(identifier)
            kind = "the other broker closes the connection when it gets the message"
            reason = f"{kind}, {TIMES} times; without the message the connection stays open"
            if packet.retain:
                self._crossings.never(packet.topic, digest(packet.payload, packet.properties))
            self._queue.put_aside(packet, kind, reason, received=True)
            if not suspects.tries_suspects:
                self._queue.suspect_answered()
            return None
        try:
            data = self._encoded(far, packet)
        except Unfit as error:
            if packet.retain:
                self._crossings.never(packet.topic, digest(packet.payload, packet.properties))
            self._queue.put_aside(packet, error.kind, str(error), received=packet.dup)
            return None
        self._counts.crosses(packet)
        if packet.qos:
            suspects.sent(identifier, len(data), self._now())
        elif suspects.tries_suspects:
            self._counts.dropped += 1
            return None
        else:
            self._counts.sent += 1
        self._crossings.leaves(packet)
        self._lowered.sent(packet)
        return data
