"""The broker: every session, subscription and message of one gateway. No socket, no disk, no clock.

In: connections (`open`), their bytes (`Connection.receive`), the time (`advance`), and the news
that a commit is on disk (`on_disk`). Out: `dirty`, the connections that have bytes to write or want
to close; and `seal()`, the next commit.

Whoever drives it sets `now` (seconds on the time axis, `gateway/service/clock.py`) before it hands
in anything, writes what is dirty at the end of each turn of the event loop, and seals whenever the
disk is free and something is urgent.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from gateway.broker.access import Access, Acl
from gateway.broker.admission import Admission
from gateway.broker.burst import Burst
from gateway.broker.changes import Changes
from gateway.broker.commit import Commit
from gateway.broker.connection import Connection
from gateway.broker.effects import Effects
from gateway.broker.handshake import Ask
from gateway.broker.queue_limits import let_the_longest_pay
from gateway.broker.recovered import Recovered
from gateway.broker.refusals import say
from gateway.broker.restore import restore
from gateway.broker.retained import RetainedMessages
from gateway.broker.router import Router
from gateway.broker.routing import feed_retained, publish, redeal, refuses
from gateway.broker.rows import Rows
from gateway.broker.session import Session
from gateway.broker.spool import Spool
from gateway.broker.statistics import Statistics
from gateway.broker.sys_topics import SystemTopics
from gateway.broker.throttle import Throttle
from gateway.broker.will import StoredWill
from gateway.config import Config
from gateway.mqtt.reason import ReasonCode

if TYPE_CHECKING:
    from gateway.broker.paging import Order
    from gateway.broker.peer import Peer

_FEEDS = 4
"""Sessions that get retained messages in one turn."""

_AXIS_S = 30.0
"""Seconds between two notes of the time axis in the store, as long as there are commits to carry
them.
"""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a listener allows. receive_maximum: ours, announced to its clients."""

    access: Access
    receive_maximum: int = 1024


class Broker:
    """now: seconds on the time axis. utc_start: µs UTC when this boot began, None while the clock
    is not known. dirty: connections to write to. disk_full: the store takes no more messages; new
    publications that need the disk are refused. disk_room: bytes of messages that the open changes
    may hold; what goes beyond is refused, too. queued: bytes in all queues; partial: in packets
    that have not come whole, of them partial_nameless of clients that are not known yet;
    will_bytes: in wills, also of clients that are connected. owed: bytes that queues give up when
    they have been read. effects: to be carried out by `settle`. nameless: connections without an
    accepted CONNECT, the oldest first. orders: to be carried out by the store (`paging.py`), or on
    another thread (`handshake.Ask`). starved: sessions whose next page was not committed yet.
    """

    def __init__(self, config: Config, state: Recovered) -> None:
        self.config = config
        self.limits = limits = config.limits
        self.started = self.now = state.now
        self.utc_start: int | None = None
        self.acl = Acl(config.acl)
        self.admission = Admission(self)
        self.router = Router(config.spool.topics, limits.topic_levels, self.may_read)
        self.retained = RetainedMessages()
        self.spool = Spool(config.spool_bytes, state.next_spool, state.boot, state.spool)
        self.statistics = Statistics()
        self.throttle = Throttle(lambda: self.now)
        self.sessions: dict[str, Session] = {}
        self.connections: dict[Connection, None] = {}
        self.system = SystemTopics(self)
        self.nameless: dict[Connection, None] = {}
        self.wills: dict[str, StoredWill] = {}
        self.dirty: list[Connection] = []
        self.queued = 0
        self.owed = 0
        self.effects = Effects()
        self.partial = 0
        self.partial_nameless = 0
        self.will_bytes = 0
        self.disk_full = False
        self.disk_room = sys.maxsize
        self.changes = Changes(1)
        self.rows = Rows(state.next_message, state.references)
        self.orders: list[Order | Ask] = []
        self.starved: list[Session] = []
        self._feeding: dict[Session, None] = {}
        self._last_committed = 0
        self._axis_noted = state.now
        self._waiting: dict[int, list[Connection]] = {}
        self._next_session = state.next_session
        restore(self, state)

    def reconfigure(self, config: Config) -> None:
        """Go by another configuration from now on. What a client was told at CONNECT holds until
        its connection ends.
        """
        self.config = config
        self.limits = config.limits
        self.acl = Acl(config.acl)
        self.spool.limit = config.spool_bytes
        for session in self.sessions.values():
            session.queueing = config.queueing(session.client)
        for connection in self.connections:
            connection.topics.clear()
        self.router.reconfigure(config.spool.topics, config.limits.topic_levels)

    # -- connections and sessions

    def open(self, peer: Peer, policy: Policy) -> Connection:
        """A connection that has still to say who it is. When too many have not, the one that has
        had the longest time for it goes.
        """
        if len(self.nameless) >= self.limits.connections:
            self._lose_patience(
                next(iter(self.nameless)),
                ReasonCode.SERVER_BUSY,
                "too many connections have sent no CONNECT",
            )
        self.settle()
        connection = Connection(self, peer, policy)
        self.connections[connection] = self.nameless[connection] = None
        self.statistics.connections += 1
        return connection

    def _lose_patience(self, connection: Connection, reason: ReasonCode, text: str) -> None:
        say(connection, reason, text)
        connection.disconnect(reason, text)

    def new_session(self, client: str, expiry: int, incarnation: int, user: str | None) -> Session:
        session = Session(
            self,
            self._next_session,
            client,
            self.config.queueing(client),
            expiry,
            incarnation,
            user,
        )
        self._next_session += 1
        self.sessions[client] = session
        return session

    def may_read(self, session: Session, topic: str) -> bool:
        """Whether a session may get messages of a topic."""
        return self.acl.may_read(session.user, session.client, topic)

    def joined(self, session: Session, will: StoredWill | None) -> int:
        """A connection has its session. Returns the commit that its CONNACK waits for, 0 for
        none.
        """
        pending = self.wills.pop(session.client, None)
        if pending is not None:
            self.will_bytes -= pending.size
        if will is not None:
            self.will_bytes += will.size
            self.changes.bytes += will.size
        if pending is not None or will is not None:
            self.changes.wills[session.client] = will
        if session.durable:
            self.changes.sessions[session.id] = session
        elif will is None and pending is None and not self.changes.ended:
            return 0
        return self.promise()

    def left(self, connection: Connection, will: bool) -> None:
        """A connection has ended. will: its will is to be published."""
        self.connections.pop(connection, None)
        self.nameless.pop(connection, None)
        session = connection.session
        if session is None or session.connection is not connection:
            return
        session.connection = None
        session.left = self.now
        session.inbound.suspend()
        session.outbound.suspend()
        self._leave_will(connection, session, will)
        if session.expiry:
            self.changes.sessions[session.id] = session
        else:
            self.effects.end(session)

    def _leave_will(self, connection: Connection, session: Session, wanted: bool) -> None:
        stored, connection.will = connection.will, None
        if stored is None:
            return
        if not wanted:
            self.will_bytes -= stored.size
            self.changes.wills[session.client] = None
            return
        due = self.now + min(stored.delay, session.expiry)
        self.wills[session.client] = self.changes.wills[session.client] = stored.at(due)
        if due <= self.now:
            self.effects.will(session.client, session)

    def size_of_will(self, client: str) -> int:
        """Bytes of the will that a client has left behind, or has while it is connected."""
        session = self.sessions.get(client)
        will = self.wills.get(client)
        if will is None and session is not None and session.connection is not None:
            will = session.connection.will
        return will.size if will is not None else 0

    def settle(self) -> None:
        """Carry out what a run of messages has caused (`effects.py`)."""
        effects = self.effects
        while effects.waiting:
            if effects.ends:
                session = next(iter(effects.ends))
                self._end(session, effects.ends.pop(session))
            elif effects.wills:
                client = next(iter(effects.wills))
                self._publish_will(client, effects.wills.pop(client))
            elif effects.left_behind:
                redeal(self, effects.left_behind.popleft())
            elif effects.crowded:
                effects.crowded = False
                let_the_longest_pay(self)
            else:
                effects.waiting = False

    def _publish_will(self, client: str, session: Session | None) -> None:
        """Publish the will of a client that is gone; one that is refused now is tried again
        later. session: whose will it is, if it is known; it may have ended by now.
        """
        will = self.wills.get(client)
        if will is None:
            return
        expires = None if will.expiry is None else self.now + will.expiry
        topic = self.router.topic(will.topic)
        burst = Burst(
            topic,
            will.payload,
            will.qos,
            will.retain,
            properties=will.properties,
            expires=expires,
            publisher=session,
        )
        reason = refuses(self, burst)
        if session is not None and not self.acl.may_write(session.user, client, will.topic):
            reason = ReasonCode.NOT_AUTHORIZED  # it was allowed when the client connected
        if reason == ReasonCode.QUOTA_EXCEEDED:
            if will.due is None or will.due > self.now:
                self.wills[client] = self.changes.wills[client] = will.at(self.now)
            return
        del self.wills[client]
        self.will_bytes -= will.size
        self.changes.wills[client] = None
        if reason:
            self.statistics.refuse("publish", reason)
        else:
            publish(self, burst, client)

    def end_session(self, session: Session) -> None:
        """Forget a session with all that belongs to it, now. Not for use while sessions or routes
        are iterated over: note it in `effects` there.
        """
        self.effects.end(session)
        self.settle()

    def _end(self, session: Session, told: tuple[ReasonCode, str] | None) -> None:
        if session.connection is not None:
            session.connection.disconnect(*told or (ReasonCode.UNSPECIFIED_ERROR, "it ended"))
        if session.client in self.wills:
            self.effects.will(session.client, session)
        for topic_filter in list(session.subscriptions):
            self.router.unsubscribe(session, topic_filter)
        session.outbound.suspend()
        orphans = session.outbound.orphans()
        session.outbound.drop()
        self.sessions.pop(session.client, None)
        if session.durable:
            self.changes.sessions.pop(session.id, None)
            self.changes.flows.pop(session, None)
            self.changes.ended.append(session.id)
        for messages in orphans:
            self.effects.leave_behind(messages)

    # -- retained messages

    def feed(self, session: Session) -> None:
        """A session may have room for retained messages that it waits for."""
        if session.feed is not None:
            self._feeding[session] = None

    def go_on(self) -> bool:
        """Do some of the work that is too much for one turn. True: there is more of it, or
        something to write.
        """
        for session in list(islice(self._feeding, _FEEDS)):
            del self._feeding[session]
            if not session.ended and feed_retained(self, session):
                self._feeding[session] = None
        self.settle()
        return bool(self._feeding or self.dirty)

    # -- commits

    @property
    def committed(self) -> int:
        """Number of the last commit that is on disk."""
        return self._last_committed

    def promise(self) -> int:
        """Somebody waits for the open changes: returns their number."""
        self.changes.urgent = True
        return self.changes.number

    def keep_flow(self, session: Session) -> int:
        """The state of a session's flows goes with the open changes: returns their number."""
        changes = self.changes
        changes.flows[session] = None
        changes.urgent = True
        return changes.number

    def hold(self, connection: Connection, number: int) -> None:
        """A connection holds packets that wait for commit `number`."""
        self._waiting.setdefault(number, []).append(connection)

    def is_waited_for(self, number: int) -> bool:
        """Whether packets wait for commit `number`."""
        return number in self._waiting

    @property
    def idle_work(self) -> bool:
        """Whether the disk has something to do though nobody waits for it."""
        return not self.changes.empty or self.rows.waste > 0

    def seal(self, sweep: bool = False) -> Commit:
        """Close the open changes; they are the next commit. Rows that are no longer needed are
        deleted with it when they are many, or when `sweep` says that there is time: a delete
        touches pages, too.
        """
        commit = self.changes.seal(self.spool.boot)
        self.changes = Changes(commit.number + 1)
        if self.now - self._axis_noted >= _AXIS_S:
            self._axis_noted = self.now
            commit.axis = int(self.now * 1000), self.utc
        commit.finished, commit.dead = self.rows.sweep(sweep)
        return commit

    def on_disk(self, number: int) -> None:
        """Commit `number` is on disk: let go what waited for it."""
        self._last_committed = number
        self.statistics.commits += 1
        for connection in self._waiting.pop(number, ()):
            connection.committed(number)
        starved, self.starved = self.starved, []
        for session in starved:
            session.outbound.refill()

    # -- time

    @property
    def monotonic(self) -> int:
        """µs since the gateway started."""
        return int((self.now - self.started) * 1_000_000)

    @property
    def utc(self) -> int | None:
        """µs since 1970, None while the clock is not known."""
        return None if self.utc_start is None else self.utc_start + self.monotonic

    def set_clock(self, utc_start: int | None) -> None:
        """The clock became known, or was corrected. Rows that came before get their time with the
        next commit.
        """
        if self.utc_start is None and utc_start is not None:
            self.changes.clock = utc_start
            self._axis_noted = float("-inf")
        self.utc_start = utc_start

    def advance(self) -> None:
        """Act on what has come due. To be called about once a second."""
        now = self.now
        for connection in list(self.nameless):
            if now - connection.seen > self.limits.connect_timeout_s and not connection.waiting:
                self._lose_patience(connection, ReasonCode.KEEP_ALIVE_TIMEOUT, "no CONNECT came")
        for connection in list(self.connections):
            silent = now - connection.seen
            if (
                connection.session is not None
                and connection.keep_alive
                and not connection.unheard
                and silent > connection.keep_alive
            ):
                connection.disconnect(
                    ReasonCode.KEEP_ALIVE_TIMEOUT, f"nothing was heard for {silent:.0f} s"
                )
        for client, will in self.wills.items():
            if will.due is not None and will.due <= now:
                self.effects.will(client, self.sessions.get(client))
        for session in self.sessions.values():
            if session.ends <= now:
                self.effects.end(session)
        self.settle()
        self.system.advance()
        self.settle()
        for topic in self.retained.expired(now):
            self.retained.remove(topic)
            self.changes.retained[topic] = None
