"""The send flow of one session: its queue, and what is in flight.

    queued, QoS 0            → sent         when everything queued before it has been sent
    queued    → sent         while fewer than the receiver's Receive Maximum are in flight
              [MQTT-3.3.4-9]; in order of arrival
    sent, QoS 1, PUBACK      → done
    sent, QoS 2, PUBREC      → released; commit; then PUBREL
    sent, QoS 2, PUBREC≥0x80 → done
    released, PUBCOMP        → done
    PUBREC, unknown          → PUBREL with 0x92; a released one gets its PUBREL again
    connection lost          → what was sent is sent again, first and in order, with DUP, when the
                             session is resumed [MQTT-4.4.0-1],
                               and the released get PUBREL; nothing is ever sent again for another
                               reason
    the gateway dies         → the store may know less than was sent, by `limits.inflight` messages
                               at most: no more leave before a commit tells how far it is. Those
                               get DUP, too, when the client was connected [MQTT-3.3.1-1]

A QoS 2 PUBLISH leaves after the commit that holds it, and so does all that goes to another gateway:
its number stands for this message for ever. Done is told to the disk
with the next commit and nobody waits for it: after a power cut the receiver sees a repeated PUBREL
at worst, or a repeated PUBLISH at QoS 1. A message's packet identifier follows from its number
(`message_ids.py`), so it is the same after a power cut.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Protocol, cast

from gateway.broker.changes import Kept
from gateway.broker.delivery import (
    MOST_PENDING,
    PAGE_BYTES,
    PAGE_LOW,
    Collect,
    Delivery,
    LeftBehind,
    Load,
    Outgoing,
    Receiver,
)
from gateway.broker.ledger import Ledger
from gateway.broker.message_ids import (
    IDENTIFIERS,
    number_of,
    pack_ids,
    packet_id,
    packet_ids,
    unpack_ids,
)
from gateway.broker.publish_run import DUP, OVERHEAD, PUBLISH, QOS_BITS, PublishRun
from gateway.config import QueueSection


class Owner(Kept, Protocol):
    """The session that a queue belongs to."""

    @property
    def connection(self) -> Receiver | None: ...

    @property
    def queueing(self) -> QueueSection: ...

    @property
    def foreign(self) -> bool:
        """The receiver is another gateway."""


class _Ended:
    """The session of a flow that has nothing to do any more."""

    id = 0
    connection = None
    durable = False
    foreign = False


_ENDED = _Ended()
_BEYOND = 1 << 62
"""No message has this number."""


class SendFlow:
    __slots__ = (
        "_asked",
        "_awaited",
        "_free",
        "_sealed",
        "_stored",
        "_written_with",
        "acknowledging",
        "behind",
        "ledger",
        "maximum",
        "messages",
        "next",
        "overflowed",
        "owes",
        "pending",
        "receiving",
        "released",
        "resend",
        "sent",
        "session",
        "size",
        "tail",
        "tail_expires",
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
        """The receiver's Receive Maximum, or our own bound."""
        self.messages = 0
        """Queued or in flight."""
        self.size = 0
        """Their bytes."""
        self.tail = 0
        """First number that waits in the store alone, 0 when nothing does."""
        self.tail_expires = 0.0
        """When the first message of the tail expires, on the time axis; 0 when that is not
        known."""
        self.owes = 0
        """Bytes that it gives up when they have been read."""
        self.overflowed = 0
        """Messages that were dropped at its bound, since the start."""
        self._asked = False
        """A page of the tail is being read."""
        self._written_with = 0
        """The commit that holds the last row of the queue."""
        self._free = 0
        """Messages below this number may be sent without another look (`_usable`)."""
        self._stored = 1
        """The number of the next message to send, as it is on disk for sure."""
        self._sealed = (0, 1)
        """The last commit that holds that number, and the number that it holds."""
        self._awaited = 0
        """The commit that it waits for before it sends more, 0 for none."""
        self.waits = False
        """It stands in `Ledger.to_send`."""
        self.acknowledging: dict[int, Delivery] = {}
        """QoS 1 that waits for PUBACK, by packet identifier."""
        self.receiving: dict[int, Delivery] = {}
        """QoS 2 that waits for PUBREC."""
        self.released: dict[int, Delivery | None] = {}
        """Identifiers that wait for PUBCOMP, in order; each with a delivery whose row goes then."""
        self.resend: deque[tuple[int, Delivery]] = deque()
        """What an earlier connection left in flight, each with its number."""
        self.pending: deque[Delivery] = deque()
        """To be sent, in memory."""
        self.behind: deque[tuple[int, Delivery]] = deque()
        """QoS 0 that comes after messages of the tail, each with the number that it comes before;
        in memory only, and only for sessions that want it kept."""

    @property
    def inflight(self) -> int:
        """Messages that were sent and not yet acknowledged to the end."""
        return len(self.acknowledging) + len(self.receiving) + len(self.released) + len(self.resend)

    def in_flight(self, identifier: int) -> tuple[Delivery, int] | None:
        """Return the delivery of a message that waits for PUBACK or PUBREC, and the message's index
        in the run.
        """
        delivery = self.acknowledging.get(identifier) or self.receiving.get(identifier)
        if delivery is None:
            return None
        number = number_of(identifier, delivery.first)
        return delivery, delivery.skip + number - delivery.first

    @property
    def to_resend(self) -> set[int]:
        """Packet identifiers of the messages that are sent again on the next connection."""
        return {packet_id(number) for number, _ in self.resend}

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
        """Take messages; send what may be sent. The caller has made room (`queue_limits.py`)."""
        session, ledger = self.session, self.ledger
        delivery = Delivery(session.id, run, self.next, count, skip, flags, extra, commit, share)
        size = count * (run.weight + OVERHEAD)
        self._count(count, size)
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
                if self.tail or self._page_is_full():
                    if not self.tail:
                        self._begin_tail(delivery)
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

    def _page_is_full(self) -> bool:
        """Whether what comes now has to wait in the store."""
        if self.session.connection is None and not self.session.queueing.qos_0:
            return True
        return len(self.pending) >= MOST_PENDING or self.size >= PAGE_BYTES

    def pump(self) -> None:
        """Send as much as the receiver takes."""
        self.waits = False
        connection = self.session.connection
        if connection is None or connection.full:
            return
        step = self.ledger.step
        step.unfinished += 1
        self._pump(connection)
        step.unfinished -= 1

    def _pump(self, connection: Receiver) -> None:
        pending, ledger = self.pending, self.ledger
        if not (pending or self.resend):
            self.refill()
            return
        free = self.maximum - len(self.acknowledging) - len(self.receiving) - len(self.released)
        out = Outgoing(connection)
        if self.resend:
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
            if free <= 0 or self.resend or connection.full:
                break
            number = delivery.first + delivery.sent
            count = min(free, delivery.count - delivery.sent)
            if number + count > self._free:
                self.sent = number  # what was before it may have been dropped
                count = self._usable(number, count)
                if not count:
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

    def _send_again(self, out: Outgoing, free: int) -> int:
        """Send what an earlier connection left in flight; returns how many more may be."""
        while self.resend and free > 0 and not out.connection.full:
            number, delivery = self.resend.popleft()
            free -= self._send(out, delivery, number - delivery.first, 1, DUP)
            out.flush()
        return free

    def _send_qos_0(self, out: Outgoing, delivery: Delivery) -> None:
        out.flush()
        try:
            out.connection.send_qos_0(
                delivery.run, delivery.flags, delivery.extra, delivery.skip, delivery.count
            )
        except Exception as error:
            out.connection.fail(error, "a message is sent")
        self._done(delivery, delivery.left)

    def _send(self, out: Outgoing, delivery: Delivery, offset: int, count: int, dup: int) -> int:
        """Returns how many are in flight by this. What cannot be encoded is in flight, too: it is
        lost with the connection, which ends, and comes again as all that was in flight.
        """
        run, number, flags = delivery.run, delivery.first + offset, delivery.flags
        qos_2 = flags & 4
        flights = self.receiving if qos_2 else self.acknowledging
        if count == 1:
            flights[(number - 1) % IDENTIFIERS + 1] = delivery
        else:
            flights.update(dict.fromkeys(packet_ids(number, count), delivery))
        try:
            shape = out.connection.shape(run, PUBLISH | flags | dup, delivery.extra)
            skip = delivery.skip + offset
            packets = None if shape is None else run.packets(shape, number, skip, count)
        except Exception as error:
            out.connection.fail(error, "a message is encoded")
            return count
        if packets is None:
            self._skip(flights, delivery, number, count)
            return 0
        self.ledger.statistics.sent[2 if qos_2 else 1] += count
        out.add(
            packets,
            delivery.commit if qos_2 or self.session.foreign else 0,
        )
        return count

    def _usable(self, number: int, count: int) -> int:
        """How many of these messages can be sent now: up to the first identifier that is in use,
        and not too far from what is on disk. An identifier is in use when its message stayed in
        flight while 65534 others passed it. It is seldom that all must be looked at.
        """
        if self._awaited > self.ledger.committed:  # then `pump` comes by
            return max(0, min(count, self._free - number))
        last = packet_id(number) - 1
        flights = self.acknowledging.keys() | self.receiving.keys() | self.released.keys()
        passed = max(((last - identifier) % IDENTIFIERS + 1 for identifier in flights), default=0)
        self._free = number - passed + IDENTIFIERS
        if self.session.foreign and (under_way := self._under_way()):
            self._free = min(self._free, under_way[0] + IDENTIFIERS)
        if self.session.durable:
            self._free = min(self._free, self._within(number + count))
        return max(0, min(count, self._free - number))

    def _under_way(self) -> list[int]:
        """The numbers of the first and the last message in flight of each QoS, in order."""
        return sorted(
            number_of(identifier, delivery.first)
            for flights in (self.acknowledging, self.receiving)
            if flights
            for identifier, delivery in (
                next(iter(flights.items())),
                next(reversed(flights.items())),
            )
        )

    @property
    def latest(self) -> int:
        """The number of the latest message in flight, 0 for none."""
        return max(self._under_way(), default=0)

    def _within(self, wanted: int) -> int:
        """Before which number messages may leave, so that a start after a power cut knows all that
        may have left. Asks for a commit when `wanted` is behind it.
        """
        ledger = self.ledger
        commit, stored = self._sealed
        if commit <= ledger.committed:
            self._stored = stored
        bound = self._stored + ledger.limits.inflight
        if wanted > bound and self._awaited <= ledger.committed:
            self._awaited = ledger.keep_flow(self.session)
            ledger.waits.call(self._awaited, partial(ledger.serve, self, self.pump))
        return bound

    def fail(self, error: Exception, doing: str) -> bool:
        """End the receiver's connection because of an error. False: there is no connection."""
        connection = self.session.connection
        if connection is not None:
            connection.fail(error, doing)
        return connection is not None

    def _skip(
        self, flights: dict[int, Delivery], delivery: Delivery, number: int, count: int
    ) -> None:
        """Too large for this receiver: as if it had been sent and acknowledged [MQTT-3.1.2-25]."""
        for identifier in packet_ids(number, count):
            del flights[identifier]
        self.ledger.statistics.too_large += count
        self._done(delivery, count)

    def discard(self, most: int, at: int = 0) -> int:
        """Give up messages of a delivery in memory that have not been sent, at most so many.
        Returns how many that is. at: its place; only notices come before it, which stay in memory.
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
        """`count` messages of a delivery need no PUBLISH any more. released: the identifier of the
        last one, if it waits for PUBCOMP: to delete the row before would write a page more.
        """
        run = delivery.run
        size = count * (run.weight + OVERHEAD)
        self.messages -= count
        self.size -= size
        self.ledger.queued -= size
        if self.owes:
            self._pay(size)
        delivery.left -= count
        if not delivery.left and delivery.kept:
            if released:
                self.released[released] = delivery
            else:
                self._forget(delivery)

    def owe(self, size: int) -> None:
        """Give up `size` bytes of the tail as soon as they have been read."""
        self.owes += size
        self.ledger.owed += size
        self.ask()

    def _pay(self, size: int) -> None:
        paid = min(size, self.owes)
        self.owes -= paid
        self.ledger.owed -= paid

    def _forget(self, delivery: Delivery) -> None:
        rows = self.ledger.needed_rows
        if delivery.stored:
            rows.finished.append((self.session.id, delivery.first))
        rows.forget(delivery.run)

    def _forget_released(self) -> None:
        for identifier, delivery in self.released.items():
            if delivery is not None:
                self._forget(delivery)
                self.released[identifier] = None

    # -- acknowledgements

    def puback(self, identifiers: tuple[int, ...]) -> None:
        self._finish(self.acknowledging, identifiers)

    def _finish(
        self, flights: dict[int, Delivery], identifiers: tuple[int, ...], released: bool = False
    ) -> list[int]:
        """These need no PUBLISH any more; returns those that were in flight. released: they wait
        for PUBCOMP now.
        """
        known: list[int] = []
        delivery, count = None, 0
        for identifier in identifiers:
            found = flights.pop(identifier, None)
            if found is None:
                continue
            if found is not delivery:
                if delivery is not None:
                    self._done(delivery, count, known[-1] if released else 0)
                delivery, count = found, 0
            known.append(identifier)
            count += 1
            if released:
                self.released[identifier] = None
        if delivery is not None:
            self._done(delivery, count, known[-1] if released else 0)
            if self.session.durable:
                self.ledger.changes.flows[self.session] = None
        return known

    def pubrec(self, identifiers: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Release; returns the identifiers that get PUBREL, and those that are unknown."""
        known = self._finish(self.receiving, identifiers, released=True)
        if len(known) == len(identifiers):
            return known, []
        return [item for item in identifiers if item in self.released], [
            item for item in identifiers if item not in self.released
        ]

    def refused(self, identifier: int) -> None:
        """PUBREC with a failure: the receiver does not want it [MQTT-4.4.0-2]."""
        self._finish(self.receiving, (identifier,))

    def pubcomp(self, identifiers: tuple[int, ...]) -> None:
        released = self.released
        for identifier in identifiers:
            if (delivery := released.pop(identifier, None)) is not None:
                self._forget(delivery)
        if self.session.durable:
            self.ledger.changes.flows[self.session] = None

    # -- connection lost, session resumed, session read from the store

    def suspend(self) -> None:
        """The connection is gone: what was in flight has to be sent again. What waited for a
        commit, and all behind it, has not left.
        """
        flights = [
            (number_of(identifier, delivery.first), delivery)
            for flight in (self.acknowledging, self.receiving)
            for identifier, delivery in flight.items()
        ]
        committed = self.ledger.committed
        held = min(
            (
                number
                for number, delivery in flights
                if delivery.flags & 4 and delivery.commit > committed
            ),
            default=None,
        )
        flights = sorted([*flights, *self.resend], key=lambda item: item[0])
        self.resend = deque(item for item in flights if held is None or item[0] < held)
        self.acknowledging.clear()
        self.receiving.clear()
        self._forget_released()
        if held is not None:
            self._take_back(held, [item for _, item in flights])
        if self.session.durable and not self.session.queueing.qos_0:
            self._leave_to_store()

    def _take_back(self, number: int, deliveries: list[Delivery]) -> None:
        """Nothing from this number on has been sent. deliveries: what seemed to be, in order."""
        for delivery in reversed(dict.fromkeys(deliveries)):
            if delivery.first + delivery.sent > number:
                if delivery.sent == delivery.count:
                    self.pending.appendleft(delivery)
                delivery.sent = max(0, number - delivery.first)
        self.sent = number
        if self.session.durable:
            self.ledger.changes.flows[self.session] = None

    def orphans(self) -> list[LeftBehind]:
        """What came from shared subscriptions and may go to another member when this session ends:
        what was not sent, and what was sent at QoS 1; never QoS 2 that was sent [MQTT-4.8.2-5].
        """
        sent = [
            LeftBehind(delivery.run, 1, delivery.share, delivery.skip + number - delivery.first, 1)
            for number, delivery in self.resend
            if delivery.share and delivery.flags & 2
        ]
        unsent = [
            LeftBehind(
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
        """The session ends: forget everything, in the store too."""
        for delivery in {delivery for _, delivery in self.resend} | set(self._waiting()):
            self._done(delivery, delivery.left)
        self._forget_released()
        if self.session.durable:
            self.ledger.changes.left[self.session.id] = (self.tail or _BEYOND) - 1
        if self.tail:
            self.ledger.orders.append(Collect(self.session.id, self.tail, others=True))
        self.leave()

    def leave(self) -> None:
        """The session has left for another gateway, with its rows: forget everything here."""
        self.ledger.queued -= self.size
        self._pay(self.owes)
        self.messages = self.size = self.tail = 0
        self.resend.clear()
        self.pending.clear()
        self.behind.clear()
        self.released.clear()
        self.session = cast(Owner, _ENDED)  # which knows its flow: nothing is left to collect

    def _waiting(self) -> list[Delivery]:
        """What is in memory and was not sent."""
        return [*self.pending, *(item for _, item in self.behind), *self._unsealed()]

    def _unsealed(self) -> list[Delivery]:
        """Of the tail, what is not in the store yet."""
        session = self.session
        return (
            [
                item
                for item in self.ledger.changes.deliveries
                if item.session == session.id and item.left
            ]
            if self.tail
            else []
        )

    # -- the tail, which waits in the store

    def _leave_to_store(self) -> None:
        """The client is away: hold nothing in memory of what was not sent."""
        held: deque[Delivery] = deque()
        stored = False
        for delivery in self.pending:
            begun = delivery.sent and delivery.sent < delivery.count
            if not stored and (begun or delivery.notice):
                held.append(delivery)
            elif delivery.kept:
                if not stored:
                    self._begin_tail(delivery)
                stored = True
            else:
                self._done(delivery, delivery.left)
        self.pending = held

    def _begin_tail(self, delivery: Delivery) -> None:
        """From this one on the queue waits in the store alone."""
        expires = delivery.run.expires
        self.tail = delivery.first
        self.tail_expires = float("inf") if expires is None else expires

    def refill(self) -> None:
        """Ask for a page of the tail when there is room for it, or something of it is owed."""
        if (
            self.tail
            and not self._asked
            and len(self.pending) < PAGE_LOW
            and (self.session.connection is not None or self.owes)
        ):
            self.ask()

    def ask(self) -> None:
        """Ask for a page of the tail."""
        if self.tail and not self._asked:
            self._asked = True
            whole = self._written_with < self.ledger.changes.number
            self.ledger.orders.append(Load(self.session.id, self.tail, whole))

    def unread(self) -> None:
        """The page that was asked for cannot be read."""
        self._asked = False

    def take_page(self, first: int, deliveries: list[Delivery], after: int) -> bool:
        """A page that was asked for, from number `first` on and up to before `after`; empty when
        the tail is not committed yet. What is missing in between is gone for good. False: there is
        nothing new at hand. `go_on` comes next.
        """
        self._asked = False
        if first != self.tail:
            self.refill()
            return False
        if after == first:
            ledger = self.ledger
            ledger.waits.call(ledger.committed + 1, partial(ledger.serve, self, self.ask))
            return False
        for delivery in deliveries:
            self._take_behind(delivery.first)
            self.pending.append(delivery)
        self.tail = after if after < self.next else 0
        self.tail_expires = 0.0
        self._take_behind(after)
        return True

    def lose(self, count: int) -> None:
        """So many messages of the tail are gone from the store."""
        self._count(-count, -count * OVERHEAD)

    def go_on(self) -> None:
        """Send what has been read, or leave it in the store."""
        if self.session.connection is None and not self.session.queueing.qos_0:
            self._leave_to_store()
        self.pump()

    def _take_behind(self, number: int) -> None:
        """QoS 0 that comes before this number has its turn."""
        while self.behind and self.behind[0][0] <= number:
            self.pending.append(self.behind.popleft()[1])

    def row(self) -> tuple[int, bytes, bytes]:
        """What the open changes take to the store: next number to send, identifiers sent and not
        acknowledged, identifiers released.
        """
        self._sealed = (self.ledger.changes.number, self.sent)
        unacknowledged = [
            *self.acknowledging,
            *self.receiving,
            *(packet_id(number) for number, _ in self.resend),
        ]
        return self.sent, pack_ids(unacknowledged), pack_ids(self.released)

    def restore(
        self,
        sent: int,
        unacknowledged: bytes,
        released: bytes,
        deliveries: list[Delivery],
        unsure: bool,
    ) -> None:
        """The state after a restart. deliveries: those that were or may have been in flight, in
        order of number. unsure: the session was connected when the gateway died, so the first
        messages that the store calls unsent may have left.
        """
        flying = set(unpack_ids(unacknowledged))
        self.released = dict.fromkeys(unpack_ids(released))
        self.sent = self.next = sent
        doubtful = sent + self.ledger.limits.inflight if unsure else sent
        for delivery in deliveries:
            end = delivery.first + delivery.count
            delivery.sent = max(0, min(doubtful, end) - delivery.first)
            flown = [
                n
                for n in range(delivery.first, delivery.first + delivery.sent)
                if n >= sent or packet_id(n) in flying
            ]
            self.resend += [(number, delivery) for number in flown]
            delivery.left = len(flown) + delivery.count - delivery.sent
            self.sent = max(self.sent, delivery.first + delivery.sent)
            self.next = max(self.next, end)
            if delivery.left:
                self._count(delivery.left, delivery.left * (delivery.run.weight + OVERHEAD))
            else:
                self._forget(delivery)
            if delivery.sent < delivery.count:
                self.pending.append(delivery)
        self._sealed = (0, sent)

    def restore_tail(self, first: int, after: int, messages: int, size: int) -> None:
        """What waits in the store: its numbers from `first` to below `after`, how many messages
        that is, and their weights.
        """
        self.tail = first
        self.next = max(self.next, after)
        self._count(messages, size + messages * OVERHEAD)

    def _count(self, messages: int, size: int) -> None:
        self.messages += messages
        self.size += size
        self.ledger.queued += size
