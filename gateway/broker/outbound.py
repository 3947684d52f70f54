"""The send flow of one session: its queue, and what is in flight.

    queued, QoS 0            → sent         when everything queued before it has been sent
    queued    → sent         while fewer than the receiver's Receive Maximum are in flight [MQTT-3.3.4-9]; in order of arrival
    sent, QoS 1, PUBACK      → done
    sent, QoS 2, PUBREC      → released; commit; then PUBREL
    sent, QoS 2, PUBREC≥0x80 → done
    released, PUBCOMP        → done
    PUBREC, unknown          → PUBREL with 0x92; a released one gets its PUBREL again
    connection lost          → what was sent is sent again, first and in order, with DUP, when the session is resumed [MQTT-4.4.0-1],
                               and the released get PUBREL; nothing is ever sent again for another reason

A QoS 2 PUBLISH leaves after the commit that holds it. Done is told to the disk with the next commit and nobody waits for it: after a
power cut the receiver sees a repeated PUBREL at worst, or a repeated PUBLISH at QoS 1. A message's packet identifier follows from its
number (`numbers.py`), so it is the same after a power cut.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

from gateway.broker.burst import DUP, PUBLISH, QOS_BITS, Burst
from gateway.broker.numbers import IDENTIFIERS, number_of, pack_ids, packet_id, packet_ids, unpack_ids

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.changes import QueueRow
    from gateway.broker.session import Session

OVERHEAD = 64
"""Bytes that a queued message takes beside its payload, for the bounds."""


class Delivery:
    """A burst, or part of one, in one session's queue.

    first, count: its numbers. skip: index in the burst of its first publication. flags: QoS << 1 | RETAIN. extra: properties for this
    receiver. sent: how many have been sent. left: how many are not done. commit: the commit that a QoS 2 PUBLISH waits for, 0 for none.
    share: filter of the shared subscription that it comes from. kept: it belongs into the store. stored: it has a row there, or the
    sealed commit holds one.
    """

    __slots__ = ("burst", "commit", "count", "extra", "first", "flags", "kept", "left", "sent", "session", "share", "skip", "stored")

    def __init__(
        self,
        session: Session,
        burst: Burst,
        first: int,
        count: int,
        skip: int,
        flags: int,
        extra: bytes,
        commit: int = 0,
        share: str = "",
    ) -> None:
        self.session = session
        self.burst = burst
        self.first = first
        self.count = count
        self.skip = skip
        self.flags = flags
        self.extra = extra
        self.commit = commit
        self.share = share
        self.sent = 0
        self.left = count
        self.kept = False
        self.stored = False

    def row(self) -> QueueRow:
        message = self.burst.message
        return self.session.id, self.first, self.count, message, self.skip, self.flags, self.extra, self.share


class Outbound:
    """next: number of the next message to queue. messages, size: what is queued or in flight, and its bytes. maximum: the receiver's
    Receive Maximum or our own bound."""

    __slots__ = (
        "acknowledging",
        "broker",
        "maximum",
        "messages",
        "next",
        "pending",
        "receiving",
        "released",
        "resend",
        "sent",
        "session",
        "size",
    )

    def __init__(self, broker: Broker, session: Session) -> None:
        self.broker = broker
        self.session = session
        self.next = 1
        self.sent = 1
        self.maximum = 1
        self.messages = 0
        self.size = 0
        self.acknowledging: dict[int, Delivery] = {}
        self.receiving: dict[int, Delivery] = {}
        self.released: dict[int, None] = {}
        self.resend: deque[tuple[int, Delivery]] = deque()
        self.pending: deque[Delivery] = deque()

    # -- queue and send

    def queue(self, burst: Burst, flags: int, extra: bytes, skip: int, count: int, commit: int, share: str) -> None:
        """Take messages; send what may be sent. The caller has made room (`overflow.py`)."""
        session, broker = self.session, self.broker
        delivery = Delivery(session, burst, self.next, count, skip, flags, extra, commit, share)
        size = count * (burst.size + OVERHEAD)
        self.messages += count
        self.size += size
        broker.queued += size
        if flags & QOS_BITS:
            self.next += count
            if session.durable:
                delivery.kept = True
                burst.references += 1
                broker.changes.deliveries.append(delivery)
                broker.changes.bytes += size
        self.pending.append(delivery)
        if session.connection is not None:
            self.pump()

    def pump(self) -> None:
        """Send as much as the receiver takes."""
        connection = self.session.connection
        if connection is None or connection.full:
            return
        pending = self.pending
        if not (pending or self.resend):
            return
        free = self.maximum - len(self.acknowledging) - len(self.receiving) - len(self.released)
        while self.resend and free > 0:
            number, delivery = self.resend.popleft()
            free -= self._send(delivery, number - delivery.first, 1, DUP)
        now = self.broker.now
        while pending:
            delivery = pending[0]
            if delivery.burst.expires is not None and delivery.burst.expires <= now:
                self.broker.statistics.expired += self.discard(pending.popleft())
                continue
            if not delivery.flags & QOS_BITS:
                connection.send_qos_0(delivery.burst, delivery.flags, delivery.extra, delivery.skip, delivery.count)
                self._done(pending.popleft(), delivery.left)
                continue
            if free <= 0 or self.resend:
                break
            number = delivery.first + delivery.sent
            count = self._usable(number, min(free, delivery.count - delivery.sent))
            if not count:
                break
            free -= self._send(delivery, delivery.sent, count, 0)
            delivery.sent += count
            self.sent = number + count
            if delivery.sent == delivery.count:
                pending.popleft()
        if self.session.durable:
            self.broker.changes.flows[self.session] = None

    def _send(self, delivery: Delivery, offset: int, count: int, dup: int) -> int:
        """Returns how many are in flight by this."""
        connection = self.session.connection
        assert connection is not None  # noqa: S101 - callers looked
        burst, number = delivery.burst, delivery.first + offset
        flights = self.receiving if delivery.flags & 4 else self.acknowledging
        if count == 1:
            flights[packet_id(number)] = delivery
        else:
            flights.update(dict.fromkeys(packet_ids(number, count), delivery))
        shape = connection.shape(burst, PUBLISH | delivery.flags | dup, delivery.extra)
        if shape is None:
            self._skip(flights, delivery, number, count)
            return 0
        self.broker.statistics.sent[2 if delivery.flags & 4 else 1] += count
        connection.send(burst.packets(shape, number, delivery.skip + offset, count), delivery.commit if delivery.flags & 4 else 0)
        return count

    def _usable(self, number: int, count: int) -> int:
        """How many of the identifiers of these numbers can be used up to the first that is in use. One is in use when its message stayed
        in flight while 65534 others passed it."""
        first = next(chain(self.acknowledging, self.receiving, self.released), 0)
        if not first or (packet_id(number) - first - 1) % IDENTIFIERS + count < IDENTIFIERS // 2:
            return count
        flights = self.acknowledging.keys() | self.receiving.keys() | self.released.keys()
        return next((index for index, identifier in enumerate(packet_ids(number, count)) if identifier in flights), count)

    def _skip(self, flights: dict[int, Delivery], delivery: Delivery, number: int, count: int) -> None:
        """Too large for this receiver: as if it had been sent and acknowledged [MQTT-3.1.2-25]."""
        for identifier in packet_ids(number, count):
            del flights[identifier]
        self.broker.statistics.too_large += count
        self._done(delivery, count)

    def discard(self, delivery: Delivery) -> int:
        """Give up what has not been sent of a delivery that was taken off the front of the queue. Returns how many messages that is."""
        count = delivery.count - delivery.sent
        if delivery.flags & QOS_BITS:
            self.sent = delivery.first + delivery.count
        delivery.sent = delivery.count
        self._done(delivery, count)
        if delivery.kept:
            self.broker.changes.flows[self.session] = None
        return count

    def _done(self, delivery: Delivery, count: int) -> None:
        """`count` messages of a delivery need no PUBLISH any more."""
        burst = delivery.burst
        size = count * (burst.size + OVERHEAD)
        self.messages -= count
        self.size -= size
        self.broker.queued -= size
        delivery.left -= count
        if not delivery.left and delivery.kept:
            self._forget(delivery)

    def _forget(self, delivery: Delivery) -> None:
        burst, broker = delivery.burst, self.broker
        if delivery.stored:
            broker.finished.append((self.session.id, delivery.first))
        burst.references -= 1
        if not burst.references and burst.message:
            broker.dead.append(burst.message)
            burst.message = 0

    # -- acknowledgements

    def puback(self, identifiers: tuple[int, ...]) -> None:
        self._finish(self.acknowledging, identifiers)

    def _finish(self, flights: dict[int, Delivery], identifiers: tuple[int, ...]) -> list[int]:
        """These need no PUBLISH any more; returns those that were in flight."""
        known = []
        delivery, count = None, 0
        for identifier in identifiers:
            found = flights.pop(identifier, None)
            if found is None:
                continue
            known.append(identifier)
            if found is not delivery:
                if delivery is not None:
                    self._done(delivery, count)
                delivery, count = found, 0
            count += 1
        if delivery is not None:
            self._done(delivery, count)
            if self.session.durable:
                self.broker.changes.flows[self.session] = None
        return known

    def pubrec(self, identifiers: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Release; returns the identifiers that get PUBREL, and those that are unknown."""
        known = self._finish(self.receiving, identifiers)
        self.released.update(dict.fromkeys(known))
        if len(known) == len(identifiers):
            return known, []
        return [item for item in identifiers if item in self.released], [item for item in identifiers if item not in self.released]

    def refused(self, identifier: int) -> None:
        """PUBREC with a failure: the receiver does not want it [MQTT-4.4.0-2]."""
        self._finish(self.receiving, (identifier,))

    def pubcomp(self, identifiers: tuple[int, ...]) -> None:
        released = self.released
        for identifier in identifiers:
            released.pop(identifier, None)
        if self.session.durable:
            self.broker.changes.flows[self.session] = None

    # -- connection lost, session resumed, session read from the store

    def suspend(self) -> None:
        """The connection is gone: what was in flight has to be sent again."""
        flights = [
            (number_of(identifier, delivery.first), delivery)
            for flight in (self.acknowledging, self.receiving)
            for identifier, delivery in flight.items()
        ]
        self.resend = deque(sorted([*flights, *self.resend], key=lambda item: item[0]))
        self.acknowledging.clear()
        self.receiving.clear()

    def orphans(self) -> list[tuple[Burst, int, str, int, int]]:
        """What came from shared subscriptions and may go to another member when this session ends: what was not sent, and what was sent at
        QoS 1; never QoS 2 that was sent [MQTT-4.8.2-5]. As burst, QoS, filter, index in the burst, count."""
        sent = [
            (delivery.burst, 1, delivery.share, delivery.skip + number - delivery.first, 1)
            for number, delivery in self.resend
            if delivery.share and delivery.flags & 2
        ]
        unsent = [
            (item.burst, item.flags >> 1, item.share, item.skip + item.sent, item.count - item.sent) for item in self.pending if item.share
        ]
        return sent + unsent

    def drop(self) -> None:
        """The session ends: forget everything, in the store too."""
        for delivery in {delivery for _, delivery in self.resend} | set(self.pending):
            self._done(delivery, delivery.left)
        self.resend.clear()
        self.pending.clear()
        self.released.clear()

    def unstore(self) -> None:
        """The session will not outlive its connection any more: nothing of its queue needs the store."""
        for delivery in {*(delivery for _, delivery in self.resend), *self.pending, *self.acknowledging.values(), *self.receiving.values()}:
            if delivery.kept:
                self._forget(delivery)
                delivery.kept = False

    def row(self) -> tuple[int, bytes, bytes]:
        """What the store keeps: next number to send, identifiers sent and not acknowledged, identifiers released."""
        unacknowledged = [*self.acknowledging, *self.receiving, *(packet_id(number) for number, _ in self.resend)]
        return self.sent, pack_ids(unacknowledged), pack_ids(self.released)

    def restore(self, sent: int, unacknowledged: bytes, released: bytes, deliveries: list[Delivery], unsure: bool) -> None:
        """The state after a restart. deliveries: in order of number. unsure: the session was connected when the gateway died, so the first
        messages that the store calls unsent may have left."""
        flying = set(unpack_ids(unacknowledged))
        self.released = dict.fromkeys(unpack_ids(released))
        self.sent = self.next = sent
        doubtful = self.broker.limits.inflight if unsure else 0
        for delivery in deliveries:
            delivery.stored = delivery.kept = True
            delivery.burst.references += 1
            delivery.left = 0
            for number in range(delivery.first, min(sent, delivery.first + delivery.count)):
                delivery.sent += 1
                if packet_id(number) in flying:
                    self.resend.append((number, delivery))
                    delivery.left += 1
            rest = delivery.count - delivery.sent
            doubt = min(rest, doubtful)
            for number in range(delivery.first + delivery.sent, delivery.first + delivery.sent + doubt):
                self.resend.append((number, delivery))
            delivery.sent += doubt
            doubtful -= doubt
            delivery.left += rest
            self.next = max(self.next, delivery.first + delivery.count)
            if doubt:
                self.sent = delivery.first + delivery.sent
            if delivery.left:
                self.messages += delivery.left
                self.size += delivery.left * (delivery.burst.size + OVERHEAD)
                self.broker.queued += delivery.left * (delivery.burst.size + OVERHEAD)
            else:
                self._forget(delivery)
            if delivery.sent < delivery.count:
                self.pending.append(delivery)
