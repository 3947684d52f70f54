"""The broker: all sessions, subscriptions and messages of one gateway. The broker uses no socket,
no disk and no clock.

In: connections (`enter`), whose bytes arrive through `dispatch.py`; the time (`advance`); the news
that a commit is on disk (`on_disk`). Out: `dirty`, the connections that have bytes to write or want
to close; and `seal()`, the next commit.

The caller sets `now` (seconds on the time axis, `gateway/runtime/clock.py`) before each call. The
caller writes dirty connections at the end of each turn of the event loop, and seals a commit
whenever the disk is free and the changes are urgent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Any

from gateway.access.rules import Acl, Ask
from gateway.broker import queue_pages
from gateway.broker.admission import Admission
from gateway.broker.changes import Changes
from gateway.broker.core import Core
from gateway.broker.delivery import Collect, Order
from gateway.broker.fan_out import feed_retained, lacks, publish, redistribute
from gateway.broker.ledger import Holder
from gateway.broker.neighbours import Neighbours, alone
from gateway.broker.publish_run import PublishRun
from gateway.broker.queue_limits import shorten_longest_queues
from gateway.broker.refusals import INTERNAL_ERROR, blame, say
from gateway.broker.restart import take_over
from gateway.broker.retained import RetainedMessages
from gateway.broker.retained_changes import expire
from gateway.broker.session import Attached, Session, State
from gateway.broker.store_rows import Commit, Recovered
from gateway.broker.will import StoredWill
from gateway.config import Config
from gateway.mqtt.reason import ReasonCode

log = logging.getLogger(__name__)

_FEEDS = 4
"""Number of sessions that get retained messages in one turn."""

_AT_ONCE = 2000
"""Largest number of expired sessions, of due wills and of silent connections that one call of
`advance` handles. The rest follows in later calls.
"""

_NO_CONNECT = "no CONNECT arrived in time (limits.connect_timeout_s)"

_AXIS_S = 30.0
"""Shortest time, in seconds, between two records of the time axis in the store. A record is made
only in a commit that happens anyway.
"""


class Broker(Core):
    def __init__(
        self,
        config: Config,
        state: Recovered,
        neighbours: Callable[[Core, Recovered], Neighbours] = alone,
    ) -> None:
        super().__init__(config, state, neighbours)
        self.admission = Admission(self)
        self.system_messages: Callable[[], RetainedMessages] = RetainedMessages
        """Returns the retained messages below `$SYS`. Set by the broker's caller."""
        self.dirty: list[Attached] = []
        """Connections with bytes to write, or to be closed. The caller empties the list."""
        self.questions: list[Ask] = []
        """CONNECTs whose check runs off the event loop (`dispatch.answered`)."""
        self.partial = 0
        """Bytes of incomplete packets of all connections, bounded by `limits.memory_bytes`."""
        self.partial_nameless = 0
        """Bytes of incomplete packets from clients without an accepted CONNECT."""
        self.names = 0
        """Memory of all topic aliases, in bytes."""
        self.feeding: dict[Session, None] = {}
        """Sessions that wait for retained messages, and may have room for some."""
        self._axis_noted = state.now
        take_over(self, state)
        self.settle()

    def reconfigure(self, config: Config) -> None:
        """Change the configuration. Values announced in a CONNACK stay valid for its connection."""
        self.config = config
        self.limits = config.limits
        self.acl = Acl(config.acl, self.is_board, config.owns_identifier)
        self.spool.limit_to(config.spool_bytes, config.spool.devices_share)
        self.accounts.reconfigure(config.quota_of)
        for session in self.sessions.values():
            session.queueing = config.queueing(session.client)
        self.neighbours.reconfigure()
        self.router.reconfigure(
            config.spooled,
            config.limits.topic_levels,
            config.limits.memory_bytes,
            copies=config.delivery.overlapping == "each",
        )

    # -- connections and sessions

    def enter(self, connection: Attached) -> None:
        """Add a connection that has not sent CONNECT yet. If there are too many such connections,
        the oldest one is closed.
        """
        if len(self.nameless) >= self.limits.connections:
            text = "too many connections have sent no CONNECT (limits.connections)"
            self.dismiss(next(iter(self.nameless)), ReasonCode.SERVER_BUSY, text)
        self.settle()
        self.connections[connection] = self.nameless[connection] = None
        self.statistics.connections += 1

    def dismiss(self, connection: Attached, reason: ReasonCode, text: str) -> None:
        say(self, connection, reason, text)
        self.hang_up(connection, reason, text)

    def hang_up(self, connection: Attached, reason: ReasonCode, text: str) -> None:
        """End a connection. An error while DISCONNECT is written affects no other connection."""
        before = self.step.unfinished
        try:
            connection.disconnect(reason, text)
        except Exception as error:
            if self.step.unfinished != before:
                raise
            blame(self, connection, error, "writing its DISCONNECT")
            if connection.state is not State.CLOSED:
                connection.end(text, will=True)

    def new_session(
        self, client: str, expiry: int, incarnation: int, user: str | None, origin: str = ""
    ) -> Session:
        queueing = self.config.queueing(client)
        session = Session(self, self.next_session(), client, queueing, expiry, incarnation, user)
        self.sessions[client] = self.by_id[session.id] = session
        if session.durable:
            self.changes.flows[session] = None  # a missing row means that the session is gone
            if origin and user is None:
                self.changes.origins["session", client] = origin, 0
        self.give(session, origin)
        return session

    def joined(self, session: Session, will: StoredWill | None) -> int:
        """Note that a client has joined its session; a pending will is dropped. will: the will in
        the CONNECT, or None. Return the number of the commit that CONNACK waits for, or 0.
        """
        pending = self.wills.pop(session.client, None)
        if pending is not None:
            self.will_use.add(pending.origin, -pending.size)
        if will is not None:
            self.will_use.add(will.origin, will.size)
            self.changes.bytes += will.size
        if pending is not None or will is not None:
            self.changes.wills[session.client] = will
        if session.durable:
            self.changes.sessions[session.id] = session
        elif will is None and pending is None and not self.changes.ended:
            return 0
        return self.promise()

    def disconnected(self, connection: Attached, will: bool) -> None:
        """Remove a connection that has ended. will: whether to publish its will."""
        self.connections.pop(connection, None)
        self.nameless.pop(connection, None)
        session = connection.session
        if session is None or session.connection is not connection:
            return
        session.connection = None
        self.listeners[connection.peer.listener] -= 1
        if session.origin is not None:
            self.attached.add(session.origin, -1)
        if session.account is not None:
            session.account.connections -= 1
        session.departed = self.now
        session.receive_flow.suspend()
        session.send_flow.suspend()
        self._leave_will(connection, session, will)
        if session.expiry:
            self.changes.sessions[session.id] = session
        elif session.durable:
            self.effects.end(session)
        else:
            self.effects.leave(session)

    def _leave_will(self, connection: Attached, session: Session, wanted: bool) -> None:
        stored, connection.will = connection.will, None
        if stored is None:
            return
        if not wanted:
            self.will_use.add(stored.origin, -stored.size)
            self.changes.wills[session.client] = None
            return
        due = self.now + min(stored.delay, session.expiry)
        self.wills[session.client] = self.changes.wills[session.client] = stored.at(due)
        if due <= self.now:
            self.effects.will(session.client, session)

    def size_of_will(self, client: str) -> int:
        """Return the size in bytes of a client's will, whether the client is connected or not."""
        session = self.sessions.get(client)
        will = self.wills.get(client)
        if will is None and session is not None and session.connection is not None:
            will = session.connection.will
        return will.size if will is not None else 0

    def settle(self, coming: str | None = None) -> None:
        """Carry out the effects of a run of messages (`effects.py`). If this turn has taken long
        enough, some effects wait for a later turn. coming: a client that has a new connection; its
        will and the end of its old session do not wait.
        """
        if not self.effects.waiting:
            return
        self.step.unfinished += 1
        self._settle(coming)
        self.step.unfinished -= 1

    def _settle(self, coming: str | None) -> None:
        effects = self.effects
        if coming is not None and (session := self.sessions.get(coming)) in effects.leaves:
            effects.ends[session] = effects.leaves.pop(session)
        while effects.waiting:
            if effects.faults:
                connection, _ = effects.faults.popitem()
                self.hang_up(connection, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, INTERNAL_ERROR)
            elif effects.ends:
                session = next(iter(effects.ends))
                self._end(session, effects.ends.pop(session))
            elif effects.undelivered:
                redistribute(self, effects.undelivered.popleft())
            elif effects.over_limit:
                effects.over_limit = False
                shorten_longest_queues(self)
            elif coming in effects.wills:
                self._publish_will(coming)
            elif (effects.wills or effects.leaves) and self.turn_is_over():
                return
            elif effects.wills:
                self._publish_will(next(iter(effects.wills)))
            elif effects.leaves:
                self._end(effects.leaves.popitem()[0], None)
            else:
                effects.waiting = False

    def _publish_will(self, client: str) -> None:
        """Publish the due will of a disconnected client. If the will is refused for now, or its
        check raises an exception, the will is tried again later.
        """
        session = self.effects.wills.pop(client)
        will = self.wills.get(client)
        if will is None:
            return
        before = self.step.unfinished
        try:
            run, reason = self._judge_will(client, session, will)
        except Exception as error:
            if self.step.unfinished != before:
                raise
            run, reason = None, ReasonCode.QUOTA_EXCEEDED
            if self.log_throttle.allows(f"will of {client}"):
                log.error("%s: internal error in the will; trying it again", client, exc_info=error)
        if run is None or reason == ReasonCode.QUOTA_EXCEEDED:
            if will.due is None or will.due > self.now:
                self.wills[client] = self.changes.wills[client] = will.at(self.now)
            return
        del self.wills[client]
        self.will_use.add(will.origin, -will.size)
        self.changes.wills[client] = None
        if reason:
            self.statistics.refuse("publish", reason)
        else:
            publish(self, run, client)

    def _judge_will(
        self, client: str, session: Session | None, will: StoredWill
    ) -> tuple[PublishRun, ReasonCode | None]:
        """Return a will as a message, and the reason not to publish it now, or None."""
        expires = None if will.expiry is None else self.now + will.expiry
        with self.step:
            topic = self.router.topic(will.topic)
        run = PublishRun(
            topic,
            will.payload,
            will.qos,
            will.retain,
            properties=will.properties,
            expires=expires,
            publisher=session,
        )
        with self.step:
            lack = lacks(self, run)
        reason = lack and lack.reason
        if session is not None and not self.acl.may_write(session.user, client, will.topic):
            reason = ReasonCode.NOT_AUTHORIZED  # the will was allowed when the client connected
        return run, reason

    def end_session(self, session: Session) -> None:
        """End a session and delete all its state now. While iterating over sessions or routes, do
        not call this: note the end in `effects`.
        """
        self.effects.end(session)
        self.settle(session.client)

    def _end(self, session: Session, bye: tuple[ReasonCode, str] | None) -> None:
        if session.connection is not None:
            self.hang_up(session.connection, *bye or (ReasonCode.UNSPECIFIED_ERROR, "it ended"))
        if session.client in self.wills:
            self.effects.will(session.client, session)
        for topic_filter in list(session.subscriptions):
            self.router.unsubscribe(session, topic_filter)
        session.send_flow.suspend()
        orphans = session.send_flow.orphans()
        session.send_flow.drop()
        session.receive_flow.drop()
        self.sessions.pop(session.client, None)
        self.by_id.pop(session.id, None)
        if session.account is not None:
            session.account.sessions -= 1
        if session.origin is not None:
            session.origin.sessions -= 1
        self.neighbours.ended(session)
        if session.durable:
            self.changes.origins["session", session.client] = None
            self.changes.sessions.pop(session.id, None)
            self.changes.flows.pop(session, None)
            self.changes.ended.append(session.id)
        for messages in orphans:
            self.effects.add_undelivered(messages)

    # -- retained messages

    def feed(self, session: Session) -> None:
        """Note that a session which waits for retained messages may have room for more of them."""
        if session.feed is not None:
            self.feeding[session] = None

    def _feed(self, session: Session) -> bool:
        before, connection = self.step.unfinished, session.connection
        try:
            return feed_retained(self, session)
        except Exception as error:
            if self.step.unfinished != before or connection is None:
                raise
            connection.fail(error, "sending retained messages")
            return False

    def go_on(self) -> None:
        """Continue work that is too long for one turn: retained messages, wills, ended sessions."""
        for session in list(islice(self.feeding, _FEEDS)):
            del self.feeding[session]
            if not session.ended and self._feed(session):
                self.feeding[session] = None
            if self.turn_is_over():
                break
        if self.effects.wills:
            self._publish_will(next(iter(self.effects.wills)))
        elif self.effects.leaves:
            self._end(self.effects.leaves.popitem()[0], None)
        if self.effects.waiting:
            self.settle()

    # -- commits

    @property
    def idle_work(self) -> bool:
        """Whether there is something to commit, even if no client waits for the commit."""
        return not self.changes.empty or self.needed_rows.unwritten_deletions > 0

    def seal(self, sweep: bool = False) -> Commit:
        """Close the open changes and return them as the next commit. Raises RuntimeError if a step
        was interrupted. sweep: whether to delete unneeded message rows even if they are few,
        because the disk is idle.
        """
        if self.step.unfinished:
            raise RuntimeError("work on shared state was interrupted") from self.step.error
        if self.changes.neighbours is not None:
            self.neighbours.seal()
        self.changes.origins |= self.spool.notes
        self.spool.notes.clear()
        commit = self.changes.seal(self.spool.boot)
        if commit.neighbours is not None or self.neighbours.second_disk is not None:
            self.neighbours.sealed(commit)
        self.changes = Changes(commit.number + 1)
        if self.now - self._axis_noted >= _AXIS_S:
            self._axis_noted = self.now
            commit.axis = int(self.now * 1000), self.utc
        rows = self.needed_rows
        if rows.finished or rows.dead or rows.reused:
            commit.finished, commit.dead = rows.sweep(sweep)
        return commit

    def on_disk(self, number: int) -> int:
        """Release packets and calls that wait for a commit. Return how many connections waited."""
        self.committed = number
        self.statistics.commits += 1
        waiting = self.waits.uncommitted.pop(number, ())
        for connection in waiting:
            before = self.step.unfinished
            try:
                connection.on_disk(number)
            except Exception as error:
                self._hold(connection, error, before, "the disk")
        clients = len(waiting)
        if self.neighbours.second_disk is not None:
            self.neighbours.on_disk(number)
        if self.waits.copied:
            clients += self._release_copied()
        if self.effects.waiting:  # connections that ended after their last acknowledgements
            self.settle()
        for call in self.waits.calls.pop(number, ()):
            call()
        if self.neighbours.has_news:
            self.neighbours.tell()
        return clients

    def spool_is_safe(self, row: int) -> int:
        """Release acknowledgements that wait for spool rows up to `row`, which are now on two disks
        or landed. Return the number of connections that waited.
        """
        self.neighbours.is_safe(row)
        return self._release_copied()

    def _release_copied(self) -> int:
        waiting, clients = self.waits.copied, 0
        for number in [number for number in waiting if not self.neighbours.lacks(number)]:
            for connection in waiting.pop(number):
                clients += 1
                before = self.step.unfinished
                try:
                    connection.on_two_disks()
                except Exception as error:
                    self._hold(connection, error, before, "two disks")
        return clients

    def _hold(self, connection: Holder, error: Exception, before: int, action: str) -> None:
        """End a connection whose pending acknowledgements could not be released."""
        if self.step.unfinished != before:
            raise error
        connection.fail(error, f"releasing answers that waited for {action}")

    def take_read(self, order: Order, rows: Any) -> None:
        """Handle the rows that the store has read for an order."""
        queue_pages.answer(self, order, rows)
        self.settle()

    def take_unread(self, order: Order, error: Exception) -> bool:
        """Handle an order that the store could not carry out: end the order's session, and return
        True. Return False for a `Collect`, whose session has ended already: the engine must stop.
        """
        session = self.by_id.get(order.session)
        if isinstance(order, Collect):
            return False
        if session is not None:
            session.send_flow.asked = False
            queue_pages.unreadable(self, session, error)
            self.settle()
        return True

    # -- time

    def set_clock(self, utc_start: int | None) -> None:
        """Set the start of this boot, in µs UTC, because the clock became known or was corrected.
        Rows that were stored before the clock was known get their time with the next commit.
        """
        if self.utc_start is None and utc_start is not None:
            self.changes.clock = utc_start
            self._axis_noted = float("-inf")
        self.utc_start = utc_start

    def advance(self) -> None:
        """Handle all deadlines that have passed. Call this about once a second."""
        now = self.now
        for connection in list(self.nameless):
            late = now - connection.seen > self.limits.connect_timeout_s
            if late and connection.state is State.NEW:
                self.dismiss(connection, ReasonCode.KEEP_ALIVE_TIMEOUT, _NO_CONNECT)
        ended = 0
        for connection in list(self.connections):
            silent = now - connection.seen
            if ended < _AT_ONCE and (
                connection.state is State.OPEN
                and connection.keep_alive
                and not connection.unread
                and silent > connection.keep_alive
            ):
                ended += 1
                text = f"nothing was heard for {silent:.0f} s"
                self.hang_up(connection, ReasonCode.KEEP_ALIVE_TIMEOUT, text)
        due = (
            client
            for client, will in self.wills.items()
            if will.due is not None and will.due <= now
        )
        for client in list(islice(due, _AT_ONCE)):
            self.wills[client] = self.wills.pop(client)  # if it is refused, other wills come first
            self.effects.will(client, self.sessions.get(client))
        expired = (session for session in self.sessions.values() if session.ends <= now)
        for session in islice(expired, _AT_ONCE):
            self.effects.end(session)
        self.neighbours.advance()
        self.settle()
        self.accounts.sweep(now)
        self.origins.sweep()
        expire(self)
