"""Forwarding of messages for clients at other gateways of the site.

In: the filters of clients here, and messages of other members
(`gateway/site/forwarding/forwarding.py`). Out: for each other member a session of this broker, with
the filters of that member's clients. So this gateway's publications wait for the member in a queue
on disk, as for any absent client, and are sent when there is a link. The member acknowledges
messages that are on its disk. The member's forwarded messages arrive over the same connection, and
go only to clients of this gateway (`gateway/site/moving/peer_gateway.py`).

The gateway's internal clients (bridges, pages, mirrors) are left out: they see the publications of
their own gateway.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from gateway.broker.session import NEVER, Session, Subscription
from gateway.config import INSIDE, MEMBER
from gateway.mqtt.errors import quote
from gateway.mqtt.packets import Connect, Packet
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.topics import (
    SHARE_PREFIX,
    SYSTEM_PREFIX,
    shared_filter_problem,
    split_shared,
    topic_filter_problem,
)
from gateway.runtime.engine import Engine
from gateway.runtime.internal_client import Client, forget_members
from gateway.site.forwarding.forwarding import MOST_FILTERS, MemberForwarding
from gateway.site.forwarding.messages import GONE, MOST_QUEUE, WantedFilter
from gateway.site.moving.addresses import ADDRESS_BYTES, NOTICE_BYTES, share_number
from gateway.site.moving.moving import begin
from gateway.site.moving.neighbours import site_of
from gateway.site.moving.new_subscriptions import Behind
from gateway.site.moving.peer_gateway import PeerGateway

log = logging.getLogger(__name__)

WINDOW_S = 0.03
"""Seconds in which changes of filters are collected, to be sent in one frame."""


class Forwarding:
    """The exchange of forwarded messages with all other members, from creation to `close`. send:
    sends a frame to a member, or drops it.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        members: Iterable[str],
        send: Callable[[str, bytes], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._engine = engine
        self._broker = broker = engine.broker
        self._loop = loop
        self._changed: set[str] = set()
        """Filters whose subscribers here may have changed."""
        others = sorted(set(members) - {name})
        clients = {other: f"{MEMBER}{name}:{other}" for other in others}
        site_of(broker).session_moves.queues.clear()
        forget_members(broker, set(clients.values()))
        self._wanted: dict[str, int] = {}
        """Filters of clients here, each with its highest QoS."""
        self._shares: dict[int, str] = {}
        self._ports = {
            other: _Port(engine, other, client, self._shares, partial(send, other), loop)
            for other, client in clients.items()
        }
        for session in broker.by_id.values():
            self._changed.update(session.subscriptions)
        self._look()
        broker.router.watch = self._watch
        self._session_moves = site_of(broker).session_moves
        begin(broker, name, {row[0] for row in site_of(broker).moved.moved_out}, self._tell)
        self._behind = behind = Behind(broker)
        self._session_moves.caught_up = behind.cut
        for port in self._ports.values():
            port.behind = behind
        broker.settle()

    def close(self) -> None:
        self._broker.router.watch = lambda topic_filter, session: None
        self._session_moves.tell = lambda: None
        for port in self._ports.values():
            port.link_ended()

    # -- links

    def joined(self, member: str, hold_s: float = 0.0) -> None:
        """Note a link to a member. hold_s: see `MemberForwarding.joined`."""
        self._ports[member].joined((WantedFilter(*item) for item in self._wanted.items()), hold_s)

    def begin_in(self, seconds: float) -> None:
        """Let the exchanges that wait because of `hold_s` (`joined`) begin within this number of
        seconds.
        """
        for port in self._ports.values():
            if port.forwarding.holds:
                port.forwarding.begin_in(seconds)

    def link_ended(self, member: str) -> None:
        self._ports[member].link_ended()

    def received(self, member: str, frame: bytes) -> None:
        """Handle a frame of a member. Raises SiteError."""
        self._ports[member].forwarding.received(frame)

    # -- filters of clients here

    def _watch(self, topic_filter: str, session: Session | None) -> None:
        if session is not None and session.connection is not None:
            self._behind.subscribed(session, topic_filter)
        if not self._changed:
            self._loop.call_later(WINDOW_S, self._tell)
        self._changed.add(topic_filter)

    def _tell(self) -> None:
        filters = self._look()
        for port in self._ports.values() if filters else ():
            port.forwarding.change_filters(filters)

    def _look(self) -> list[WantedFilter]:
        """Return the filters of clients here that have changed since the last call."""
        changed, self._changed = self._changed, set()
        filters = []
        for topic_filter in changed:
            qos = None
            if not split_shared(topic_filter)[1].startswith(SYSTEM_PREFIX):
                qos = self._broker.router.wanted(topic_filter, _counts)
            if qos is not None and topic_filter not in self._wanted:
                number = share_number(topic_filter)
                in_use = number and self._shares.setdefault(number, topic_filter) != topic_filter
                if in_use or len(self._wanted) >= MOST_FILTERS:
                    self._leave_out(topic_filter)
                    continue
            if qos == self._wanted.get(topic_filter):
                continue
            filters.append(WantedFilter(topic_filter, GONE if qos is None else qos))
            if qos is not None:
                self._wanted[topic_filter] = qos
            else:
                del self._wanted[topic_filter]
                self._shares.pop(share_number(topic_filter), None)
        return filters

    def _leave_out(self, topic_filter: str) -> None:
        if self._broker.log_throttle.allows("filters of the site"):
            log.warning(
                "%s: too many topic filters: messages that match only this one do not arrive from"
                " the other gateways of the site",
                quote(topic_filter),
            )

    # -- figures for people

    def figures(self) -> dict[str, int]:
        """Return totals over all other members: filters, waiting messages and dropped messages;
        sessions that have moved to these members and have a forwarder (`followers`); and moved
        sessions that got no forwarder, for lack of room (`followers_refused`).
        """
        sessions = [port.session for port in self._ports.values()]
        return {
            "filters": sum(len(session.subscriptions) for session in sessions),
            "forward_waiting": sum(session.send_flow.messages for session in sessions),
            "forward_dropped": sum(session.send_flow.overflowed for session in sessions),
            "followers": self._session_moves.forwarders,
            "followers_refused": self._session_moves.refused,
        }


def _counts(session: Session) -> bool:
    return session.user != INSIDE or not session.role.settled


class _Near(Client):
    """Another member, as the client of its session at this broker."""

    def __init__(self, engine: Engine, port: _Port, client: str, packet_bytes: int) -> None:
        self._port = port
        self._greeted = False
        self._inbox: deque[bytes] = deque()
        self._paused = False
        self.has_ended = False
        properties = {
            PropertyId.SESSION_EXPIRY_INTERVAL: NEVER,
            PropertyId.MAXIMUM_PACKET_SIZE: packet_bytes,
        }
        connect = Connect(client, clean_start=False, properties=properties)
        longest = longest_packet(engine.broker.limits.packet_bytes)
        super().__init__(engine, client, INSIDE, self._one, connect, longest)

    def _one(self, packet: Packet | None) -> None:
        self._port.ended(self)

    def write(self, data: bytes) -> None:
        if not self._greeted:
            self._greeted = True
            data = data[_first(data) :]  # CONNACK
        if data and not self.has_ended:
            self._port.sent(data)

    def feed(self, data: bytes) -> None:
        self._inbox.append(data)
        self._work()

    def _work(self) -> None:
        while self._inbox and not self._paused and self._receiver is not None:
            data = self._inbox.popleft()
            self._receiver.receive(data)
            self._port.processed(self, len(data))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        if self._inbox:
            self._engine.call_later(0, self._work)

    def drained(self) -> None:
        if self._receiver is not None:
            self._receiver.writable()

    @property
    def unsent(self) -> int:
        return self._port.forwarding.waiting


def _first(data: bytes) -> int:
    """Return the number of bytes of the first packet in `data`."""
    length, at = 0, 1
    while True:
        length |= (data[at] & 0x7F) << 7 * (at - 1)
        at += 1
        if data[at - 1] < 0x80:
            return at + length


class _Port:
    """Forwarding to and from one other member (a `Port`)."""

    def __init__(
        self,
        engine: Engine,
        member: str,
        client: str,
        shares: dict[int, str],
        send: Callable[[bytes], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._engine = engine
        self._broker = engine.broker
        self._member = member
        self._client = client
        self._shares = shares
        self.behind: Behind | None = None
        self._near: _Near | None = None
        self._wanted_filters: dict[str, int] = {}
        self.session = self._ensure()
        self._wanted_filters = {
            item.topic_filter: item.qos for item in self.session.subscriptions.values()
        }
        packet_bytes = longest_packet(self._broker.limits.packet_bytes)
        self.forwarding = MemberForwarding(
            self, packet_bytes, self._wanted_filters, send, loop.call_later
        )

    def _ensure(self) -> Session:
        """Return the session that stands for the member at this broker. Create the session if there
        is none.
        """
        broker, client = self._broker, self._client
        session = broker.sessions.get(client)
        if session is not None and session.user != INSIDE:
            broker.end_session(session)  # the session of a client, from before the site
            session = None
        mark = broker.marks.latest(f"{client}>")
        if session is None or mark is None:  # a new store generation restarts the numbers
            mark = broker.marks.of(f"{client}>", secrets.randbelow(MOST_QUEUE - 1) + 1)
            broker.keep_mark(mark)  # on disk before any message leaves
        if session is None:
            session = broker.new_session(client, NEVER, 0, INSIDE)
            session.departed = broker.now
            broker.changes.sessions[session.id] = session
        self._queue = mark.incarnation
        if isinstance(session.role, PeerGateway):
            self._peer = session.role
            self._peer.shares = self._shares
        else:
            self._peer = session.role = PeerGateway(self._member, self._shares)
            session.foreign = True
            broker.router.changed()
        self.session = site_of(broker).session_moves.queues[self._member] = session
        self.change_filters([WantedFilter(*item) for item in self._wanted_filters.items()])
        return session

    @property
    def queue(self) -> int:
        if self.session.ended:
            with self._broker.step:
                self._ensure()
        return self._queue

    def joined(self, filters: Iterable[WantedFilter], hold_s: float) -> None:
        self._engine.begin()
        self.forwarding.joined(filters, hold_s)

    def link_ended(self) -> None:
        self.forwarding.link_ended()

    # -- calls from the member

    def open(self, queue: int, packet_bytes: int) -> None:
        self._engine.begin()
        if self.session.ended:  # the member knows the old queue number
            self._engine.call_later(0, self.forwarding.ended)
            return
        peer = self._peer
        peer.mark = self._broker.marks.of(f"{self._client}<", queue)
        peer.latest = 0
        self.session.receive_flow.use_mark(peer.mark)
        self._near = _Near(self._engine, self, self._client, max(packet_bytes, 128))
        if self.behind is not None:
            self.behind.opened(self._member)

    def shut(self) -> None:
        near, self._near = self._near, None
        if self.behind is not None:
            self.behind.shut(self._member)
        if near is not None:
            near.has_ended = True
            near.leave()

    def take(self, latest: int, data: bytes) -> None:
        if self._near is not None:
            self._peer.latest = max(latest, self._peer.latest)
            self._near.feed(data)

    def drained(self) -> None:
        if self._near is not None:
            self._near.drained()

    def change_filters(self, filters: Iterable[WantedFilter]) -> None:
        self._engine.begin()
        with self._broker.step:
            self._change_filters(filters)

    def _change_filters(self, filters: Iterable[WantedFilter]) -> None:
        broker, session = self._broker, self.session
        router, most = broker.router, broker.limits.memory_bytes
        for topic_filter, qos in filters:
            if qos == GONE:
                self._wanted_filters.pop(topic_filter, None)
                if not router.unsubscribe(session, topic_filter):
                    continue
            elif _is_bad(topic_filter) or not router.has_room(
                session, split_shared(topic_filter)[1], most
            ):
                continue
            else:
                self._wanted_filters[topic_filter] = qos
                number = share_number(topic_filter)
                wanted = Subscription(topic_filter, qos, False, True, number)
                if session.subscriptions.get(topic_filter) == wanted:
                    continue
                router.subscribe(session, wanted)
            broker.changes.subscriptions[session, topic_filter] = None

    # -- calls from our broker

    def sent(self, data: bytes) -> None:
        self.forwarding.sent(self.session.send_flow.flights.latest, data)

    def processed(self, near: _Near, size: int) -> None:
        if near is self._near:
            self.forwarding.processed(size)

    def ended(self, near: _Near) -> None:
        """End the exchange if it runs over this connection, which the broker has ended."""
        if near is self._near:
            self._near = None
            self.forwarding.ended()


def longest_packet(packet_bytes: int) -> int:
    """Return the size in bytes of the largest packet that another member may send: the largest
    publication of a client plus an address, or a publication with notices.
    """
    return max(packet_bytes + ADDRESS_BYTES, NOTICE_BYTES)


def _is_bad(topic_filter: str) -> bool:
    inner = split_shared(topic_filter)[1]
    if topic_filter.startswith(SHARE_PREFIX) and shared_filter_problem(topic_filter):
        return True
    return bool(topic_filter_problem(inner)) or inner.startswith(SYSTEM_PREFIX)
