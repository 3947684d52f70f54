"""The send flow of one session: its queue, and the messages in flight.

  queued, QoS 0            → sent   when everything queued before it has been sent
  queued                   → sent   while fewer than the receiver's Receive Maximum are in flight
                                    [MQTT-3.3.4-9]; in order of arrival
  sent, QoS 1, PUBACK      → done
  sent, QoS 2, PUBREC      → released; commit; then PUBREL
  sent, QoS 2, PUBREC≥0x80 → done
  released, PUBCOMP        → done
  PUBREC, released         → PUBREL again
  PUBREC, unknown          → PUBREL with 0x92
  connection lost          → when the session is resumed, messages in flight are sent again first,
                             in order, with DUP [MQTT-4.4.0-1]; released messages get PUBREL;
                             there is no other reason to send again
  the gateway dies         → up to `limits.inflight` messages may have been sent that are unsent in
                             the store; they get DUP if the client was connected [MQTT-3.3.1-1]

A QoS 2 PUBLISH is sent after the commit that contains it, and so is every message for a peer
gateway: the number belongs to this message forever. The end of a delivery goes to disk with the
next commit, and nothing waits for it. After a power cut the receiver sees at worst a repeated
PUBREL, or a repeated PUBLISH at QoS 1. A message's packet identifier follows from its number
(`gateway/mqtt/message_ids.py`), so it is the same after a power cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Protocol, cast

from gateway.broker.changes import PersistentSession
from gateway.broker.delivery import (
    MOST_PENDING,
    PAGE_BYTES,
    PAGE_LOW,
    Collect,
    Delivery,
    Load,
    Outgoing,
    Receiver,
    Undelivered,
)
from gateway.broker.in_flight import InFlight
from gateway.broker.ledger import Ledger
from gateway.broker.publish_run import OVERHEAD, PublishRun
from gateway.config import QueueSection
from gateway.mqtt.message_ids import IDENTIFIERS, packet_id, packet_ids
from gateway.mqtt.runs import DUP, PUBLISH, QOS_BITS
from gateway.mqtt.wire import pack_u16


class Owner(PersistentSession, Protocol):
    """The session of a `SendFlow`, as far as the flow needs it."""

    @property
    def connection(self) -> Receiver | None: ...

    @property
    def queueing(self) -> QueueSection: ...

    @property
    def foreign(self) -> bool:
        """Whether the receiver is a peer gateway."""


class _Ended:
    """The stand-in for `SendFlow.session` after `SendFlow.leave`."""

    id = 0
    connection = None
    durable = False
    foreign = False


_ENDED = _Ended()
_BEYOND = 1 << 62
"""A number higher than the number of any message."""


class SendFlow:
    __slots__ = (
        "_awaited",
        "_free",
        "_stored",
        "_written_with",
        "asked",
        "behind",
        "flights",
        "ledger",
        "maximum",
        "messages",
        "next",
        "overflowed",
        "pending",
        "sealed",
        "sent",
        "session",
        "size",
        "tail",
        "tail_expires",
        "to_drop",
        "waits",
    )

    def __init__(self, ledger: Ledger, session: Owner) -> None:
        self.ledger = ledger
        self.session = session
        self.next = 1
        """Number of the next message to queue."""
        self.sent = 1
        """Number of the next message to send."""
        self.maximum = 1
        """Limit of messages in flight: the broker's bound, or Receive Maximum if that is lower."""
        self.messages = 0
        """Number of messages that are queued or in flight."""
        self.size = 0
        """Bytes of the messages queued or in flight."""
        self.tail = 0
        """Number of the first message that is only in the store, 0 for none."""
        self.tail_expires = 0.0
        """Time at which the first message of the tail expires, on the time axis; 0 if unknown."""
        self.to_drop = 0
        """Bytes of messages that the queue drops as soon as they are read from the store."""
        self.overflowed = 0
        """Number of messages that were dropped at the queue's bound, since the gateway's start."""
        self.asked = False
        """Whether a page of the tail was ordered from the store and has not arrived yet."""
        self._written_with = 0
        """Number of the commit that contains the last row of the queue."""
        self._free = 0
        """Message number below which messages may be sent without another check (`_usable`)."""
        self._stored = 1
        """Last value of `sent` that is known to be on disk."""
        self.sealed = (0, 1)
        """The last commit that got a value of `sent`: the commit's number, and the value."""
        self._awaited = 0
        """Number of the last commit that sending has waited for; 0 before the first."""
        self.waits = False
        """Whether the flow is in `Ledger.to_send`."""
        self.flights = InFlight()
        self.pending: deque[Delivery] = deque()
        """Deliveries in memory that are to be sent."""
        self.behind: deque[tuple[int, Delivery]] = deque()
        """QoS 0 deliveries in memory that wait for earlier messages in the store. Each has the
        number of the message before which it must be sent."""

    @property
    def holds_messages(self) -> bool:
        """Whether the flow has a message, or an identifier that waits for PUBCOMP."""
        return bool(self.messages or self.pending or self.behind or self.flights.released)

    # -- queue and send

    def queue(
        self,
        run: PublishRun,
        flags: int,
        extra: bytes,
        skip: int,
        count: int,
        commit: int,
        share: str,
    ) -> None:
        """Queue messages, and send what can be sent. `queue_limits.py` has made room."""
        session, ledger = self.session, self.ledger
        delivery = Delivery(session.id, run, self.next, count, skip, flags, extra, commit, share)
        size = count * (run.weight + OVERHEAD)
        self.messages += count
        self.size += size
        ledger.queued += size
        if flags & QOS_BITS:
            self.next += count
            if session.durable:
                delivery.kept = True
                ledger.changes.bytes += (
                    OVERHEAD if run.message else OVERHEAD + run.count * run.weight
                )
                ledger.needed_rows.refer(run)
                ledger.changes.deliveries.append(delivery)
                self._written_with = ledger.changes.number
                if not self.tail and (
                    (session.connection is None and not session.queueing.qos_0)
                    or len(self.pending) >= MOST_PENDING
                    or self.size >= PAGE_BYTES
                ):  # new messages have to wait in the store
                    self._begin_tail(delivery)
                if self.tail:
                    return
        elif self.tail:
            self.behind.append((self.next, delivery))
            return
        self.pending.append(delivery)
        if session.connection is None:
            return
        if len(self.pending) >= PAGE_LOW:
            self.pump()
        elif not self.waits:
            self.waits = True
            ledger.to_send.append(self)

    def pump(self) -> None:
        """Send as much as the receiver accepts."""
        self.waits = False
        connection = self.session.connection
        if connection is None or connection.full:
            return
        pending, ledger, flights = self.pending, self.ledger, self.flights
        ledger.step.unfinished += 1
        if not (pending or flights.resend):
            self.refill()
            ledger.step.unfinished -= 1
            return
        flying = len(flights.acknowledging) + len(flights.receiving) + len(flights.released)
        free = self.maximum - flying
        out = Outgoing(connection, ledger.limits.outgoing_bytes)
        if flights.resend:
            free = self._send_again(out, free)
        while pending:
            delivery = pending[0]
            expires = delivery.run.expires
            if expires is not None and expires <= ledger.now:
                ledger.statistics.expired += self.discard(delivery.count)
                continue
            if not delivery.flags & QOS_BITS:
                self._send_qos_0(out, pending.popleft())
                continue
            if free <= 0 or flights.resend or connection.full:
                break
            number = delivery.first + delivery.sent
            count = min(free, delivery.count - delivery.sent)
            if number + count > self._free and not (count := self._usable(number, count)):
                break
            free -= self._send(out, delivery, delivery.sent, count, 0)
            delivery.sent += count
            self.sent = number + count
            if delivery.sent == delivery.count:
                pending.popleft()
        out.flush()
        if self.session.durable:
            ledger.changes.flows[self.session] = None
            if self.tail:
                self.refill()
        ledger.step.unfinished -= 1

    def _send_again(self, out: Outgoing, free: int) -> int:
        """Resend what an earlier connection had in flight. Return how many more may be sent."""
        resend = self.flights.resend
        while resend and free > 0 and not out.connection.full:
            number, delivery = resend.popleft()
            free -= self._send(out, delivery, number - delivery.first, 1, DUP)
            out.flush()
        return free

    def _send_qos_0(self, out: Outgoing, delivery: Delivery) -> None:
        out.flush()
        try:
            out.connection.send_qos_0(
                delivery.run,
                delivery.flags,
                delivery.extra,
                delivery.skip + delivery.sent,  # a full queue has dropped the earlier ones
                delivery.count - delivery.sent,
            )
        except Exception as error:
            out.connection.fail(error, "sending a message")
        self._done(delivery, delivery.open)

    def _send(self, out: Outgoing, delivery: Delivery, offset: int, count: int, dup: int) -> int:
        """Send `count` messages of a delivery. Return how many are now in flight. Messages
        that cannot be encoded count as in flight: the connection ends, and all messages in flight
        are sent again later.
        """
        run, number, flags = delivery.run, delivery.first + offset, delivery.flags
        qos_2 = flags & 4
        flights = self.flights.receiving if qos_2 else self.flights.acknowledging
        if count == 1:
            flights[(number - 1) % IDENTIFIERS + 1] = delivery
        else:
            flights.update(dict.fromkeys(packet_ids(number, count), delivery))
        try:
            shape = out.connection.shape(run, PUBLISH | flags | dup, delivery.extra)
            skip = delivery.skip + offset
            pieces = None if shape is None else run.pieces(shape, number, skip, count)
        except Exception as error:
            out.connection.fail(error, "encoding a message")
            return count
        if pieces is None:  # too large for this receiver: as if acknowledged [MQTT-3.1.2-25]
            for identifier in packet_ids(number, count):
                del flights[identifier]
            self.ledger.statistics.too_large += count
            self._done(delivery, count)
            return 0
        self.ledger.statistics.sent[2 if qos_2 else 1] += count
        for piece in pieces:
            out.add(piece, delivery.commit if qos_2 or self.session.foreign else 0)
        return count

    def _usable(self, number: int, count: int) -> int:
        """Return how many of `count` messages, beginning with `number`, can be sent now: those
        before the first one whose packet identifier is in use, and below the limit of `_within`. An
        identifier is in use if the message 65,535 numbers before is still in flight.
        """
        self.sent = number  # earlier messages may have been dropped
        if self._awaited > self.ledger.committed:  # `pump` is called after the commit
            return max(0, min(count, self._free - number))
        self._free = number - self.flights.distance(number) + IDENTIFIERS
        if self.session.foreign and (ends := self.flights.ends()):
            self._free = min(self._free, ends[0] + IDENTIFIERS)
        if self.session.durable:
            self._free = min(self._free, self._within(number + count))
        return max(0, min(count, self._free - number))

    def _within(self, wanted: int) -> int:
        """Return the number below which messages may be sent: after a power cut, the next start
        assumes that no other message was sent. If `wanted` is higher, request a commit to raise it.
        """
        ledger = self.ledger
        commit, stored = self.sealed
        if commit <= ledger.committed:
            self._stored = stored
        bound = self._stored + ledger.limits.inflight
        if wanted > bound and self._awaited <= ledger.committed:
            self._awaited = ledger.keep_flow(self.session)
            ledger.when_on_disk(self._awaited, partial(ledger.serve, self, self.pump))
        return bound

    def fail(self, error: Exception, doing: str) -> bool:
        """End the receiver's connection after an error. Return False if it is not connected."""
        connection = self.session.connection
        if connection is not None:
            connection.fail(error, doing)
        return connection is not None

    def discard(self, most: int, at: int = 0) -> int:
        """Drop at most `most` unsent messages of a delivery in memory. Return their number. at:
        index of the delivery. All deliveries before it must be notices; they stay.
        """
        delivery = self.pending[at]
        count = min(most, delivery.count - delivery.sent)
        delivery.sent += count
        if delivery.flags & QOS_BITS and not at:
            self.sent = delivery.first + delivery.sent
        if delivery.sent == delivery.count:
            del self.pending[at]
        self._done(delivery, count)
        if delivery.kept:
            self.ledger.changes.flows[self.session] = None
        return count

    def _done(self, delivery: Delivery, count: int, released: int = 0) -> None:
        """Finish `count` messages of a delivery: their PUBLISH is not sent again. released: packet
        identifier of the last message if its PUBCOMP has not come. Then the delivery's row is
        deleted only after PUBCOMP, so that one page less is written.
        """
        run = delivery.run
        size = count * (run.weight + OVERHEAD)
        self.messages -= count
        self.size -= size
        self.ledger.queued -= size
        if self.to_drop:
            self._pay(size)
        delivery.open -= count
        if not delivery.open and delivery.kept:
            if released:
                self.flights.released[released] = delivery
            else:
                self.forget(delivery)

    def _pay(self, size: int) -> None:
        paid = min(size, self.to_drop)
        self.to_drop -= paid
        self.ledger.to_drop -= paid

    def forget(self, delivery: Delivery) -> None:
        rows = self.ledger.needed_rows
        if delivery.stored:
            rows.finished.append((self.session.id, delivery.first))
        rows.forget(delivery.run)

    def _forget_released(self) -> None:
        released = self.flights.released
        for identifier, delivery in released.items():
            if delivery is not None:
                self.forget(delivery)
                released[identifier] = None

    # -- acknowledgements

    def finish(
        self, flights: dict[int, Delivery], identifiers: tuple[int, ...], released: bool = False
    ) -> list[int]:
        """Finish messages whose PUBACK or PUBREC has arrived: they are not sent again
        [MQTT-4.4.0-2]. flights: messages that wait for this answer. released: whether the answer is
        PUBREC, so that PUBCOMP follows. Return the identifiers that were in flight.
        """
        known: list[int] = []
        found = [*map(flights.pop, identifiers, repeat(None))]
        groups: Iterable[tuple[Delivery | None, tuple[int, ...]]]
        if found.count(found[0]) == len(found):  # one delivery: usual for a busy topic
            groups = ((found[0], identifiers),)
        else:
            groups = zip(found, zip(identifiers), strict=True)
        for delivery, answered in groups:
            if delivery is not None:
                known += answered
                if released:
                    self.flights.released.update(dict.fromkeys(answered))
                self._done(delivery, len(answered), answered[-1] if released else 0)
        if known and self.session.durable:
            self.ledger.changes.flows[self.session] = None
        return known

    def pubrec(self, identifiers: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Handle PUBREC. Return the identifiers that get PUBREL, and unknown identifiers."""
        known = self.finish(self.flights.receiving, identifiers, released=True)
        if len(known) == len(identifiers):
            return known, []
        released = self.flights.released
        return [item for item in identifiers if item in released], [
            item for item in identifiers if item not in released
        ]

    def pubcomp(self, identifiers: tuple[int, ...]) -> None:
        released = self.flights.released
        for delivery in filter(None, map(released.pop, identifiers, repeat(None))):
            self.forget(delivery)
        if self.session.durable:
            self.ledger.changes.flows[self.session] = None

    # -- connection lost, session resumed, session read from the store

    def suspend(self) -> None:
        """Prepare for the next connection. Messages in flight have to be sent again. Messages that
        wait for a commit were not sent, and return to the queue.
        """
        least, deliveries = self.flights.suspend(self.ledger.committed)
        self._forget_released()
        if least is not None:
            self._take_back(least, deliveries)
        if self.session.durable and not self.session.queueing.qos_0:
            self.leave_to_store()

    def _take_back(self, number: int, deliveries: list[Delivery]) -> None:
        """Return the messages with this number or a higher one to the queue, because they were not
        sent. deliveries: all deliveries that counted as in flight, in order.
        """
        for delivery in reversed(dict.fromkeys(deliveries)):
            if delivery.first + delivery.sent > number:
                if delivery.sent == delivery.count:
                    self.pending.appendleft(delivery)
                delivery.sent = max(0, number - delivery.first)
        self.sent = number
        if self.session.durable:
            self.ledger.changes.flows[self.session] = None

    def orphans(self) -> list[Undelivered]:
        """Return messages from shared subscriptions that may go to another subscriber when this
        session ends: all but QoS 2 messages that were sent [MQTT-4.8.2-5].
        """
        sent = [
            Undelivered(delivery.run, 1, delivery.share, delivery.skip + number - delivery.first, 1)
            for number, delivery in self.flights.resend
            if delivery.share and delivery.flags & 2
        ]
        unsent = [
            Undelivered(
                item.run,
                item.flags >> 1,
                item.share,
                item.skip + item.sent,
                item.count - item.sent,
            )
            for item in self._waiting()
            if item.share
        ]
        return sent + unsent

    def drop(self) -> None:
        """Delete the queue, in memory and in the store, because the session ends."""
        for delivery in {delivery for _, delivery in self.flights.resend} | set(self._waiting()):
            self._done(delivery, delivery.open)
        self._forget_released()
        if self.session.durable:
            self.ledger.changes.trimmed[self.session.id] = (self.tail or _BEYOND) - 1
        if self.tail:
            self.ledger.orders.append(Collect(self.session.id, self.tail, others=True))
        self.leave()

    def leave(self) -> None:
        """Delete the queue in memory, because its rows are deleted or are at a peer gateway."""
        self.ledger.queued -= self.size
        self._pay(self.to_drop)
        self.messages = self.size = self.tail = 0
        self.flights.resend.clear()
        self.flights.released.clear()
        self.pending.clear()
        self.behind.clear()
        self.session = cast(Owner, _ENDED)  # so session and flow form no reference cycle

    def _waiting(self) -> list[Delivery]:
        """Return the deliveries that were not sent and are in memory. If later messages are only in
        the store, include new deliveries on their way there.
        """
        waiting = [*self.pending, *(item for _, item in self.behind)]
        if self.tail:
            number = self.session.id
            new = self.ledger.changes.deliveries
            waiting += [item for item in new if item.session == number and item.open]
        return waiting

    # -- the tail, which waits in the store

    def leave_to_store(self) -> None:
        """Remove unsent messages from memory. Those that the store does not have are dropped. A
        delivery sent in part, and notices, stay if they come before the first stored message.
        """
        kept: deque[Delivery] = deque()
        stored = False
        for delivery in self.pending:
            begun = delivery.sent and delivery.sent < delivery.count
            if not stored and (begun or delivery.notice):
                kept.append(delivery)
            elif delivery.kept:
                if not stored:
                    self._begin_tail(delivery)
                stored = True
            else:
                self._done(delivery, delivery.open)
        self.pending = kept

    def _begin_tail(self, delivery: Delivery) -> None:
        """Begin the tail with this delivery: from here on, the queue is only in the store."""
        expires = delivery.run.expires
        self.tail = delivery.first
        self.tail_expires = float("inf") if expires is None else expires

    def refill(self) -> None:
        """Order a page of the tail if few messages are in memory, and the client is connected or
        the queue has bytes to drop.
        """
        if (
            self.tail
            and not self.asked
            and len(self.pending) < PAGE_LOW
            and (self.session.connection is not None or self.to_drop)
        ):
            self.ask()

    def ask(self) -> None:
        """Order a page of the tail from the store, unless a page is being read."""
        if self.tail and not self.asked:
            self.asked = True
            whole = self._written_with < self.ledger.changes.number
            self.ledger.orders.append(Load(self.session.id, self.tail, whole))

    def row(self) -> tuple[int, bytes, bytes]:
        """Return the columns that the next commit writes: next number to send, identifiers sent and
        not acknowledged, identifiers released."""
        self.sealed, flights = (self.ledger.changes.number, self.sent), self.flights
        again = [packet_id(number) for number, _ in flights.resend] if flights.resend else []
        sent = [*flights.acknowledging, *flights.receiving, *again]
        released = b"".join(map(pack_u16, flights.released))
        return self.sent, b"".join(map(pack_u16, sent)), released

    def count(self, messages: int, size: int) -> None:
        self.messages += messages
        self.size += size
        self.ledger.queued += size
