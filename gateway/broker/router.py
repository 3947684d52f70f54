"""Routing from a Topic Name to the sessions that get its messages.

In: subscriptions, and topic names from PUBLISH packets. Out: a `Topic` for each name. The routes of
a topic are matched once and used until a subscription that may match the name is added, changed or
removed (`NameIndex`).

A match visits at most 2^13 + _DEEP_LEVELS levels of filters, whatever the filters are. At each
level of the name, the matching nodes at most double. A filter's levels from its first `+` on that
are deeper than _FREE_LEVELS are counted and bounded.

Rules: a session gets a message once, however many of its filters match [MQTT-3.3.4-2], at their
highest QoS, with all their Subscription Identifiers [MQTT-3.3.4-3]; or, if configured, a copy for
each matching filter, with the filter's QoS and identifier [MQTT-3.3.4-5]. Each shared subscription
gets it once [MQTT-4.8.2-4]. A wildcard in first place does not match `$…` [MQTT-4.7.2-1].
`$share/…` stands for shared subscriptions (section 4.8.2) and is not a topic.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.broker.publish_run import PublishRun, Topic
from gateway.broker.session import Session, Subscription
from gateway.mqtt.errors import ProtocolError
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import (
    SHARE_PREFIX,
    SYSTEM_PREFIX,
    NameIndex,
    Node,
    split_shared,
    topic_matches,
    topic_name_problem,
)
from gateway.mqtt.wire import encode_string
from gateway.system.usage import Shared


class Share:
    """The subscribers of one `$share/name/filter`, in the order of their turns (MQTT 5, section
    4.8.2): each message goes to one of them. Connected subscribers come first. If none is
    connected, a durable session keeps the message. Each subscriber gets messages at its own granted
    QoS [MQTT-4.8.2-3]. A subscriber that may not read the topic is skipped, as is a subscriber with
    a full queue while another one has room. A peer gateway with subscribers takes part while no
    subscriber of this gateway is connected.
    """

    __slots__ = ("members", "name", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Session, Subscription] = {}
        self.turn = 0

    @property
    def qos(self) -> int:
        """The highest QoS granted to a subscriber."""
        return max(item.qos for item in self.members.values())

    def in_turn(
        self, eligible: Callable[[Session], bool], *, connected: bool
    ) -> list[tuple[Session, Subscription]]:
        """Return the eligible subscribers, beginning with the one whose turn it is. connected:
        True: only subscribers with a connection; False: only durable subscribers without one.
        Subscribers at other gateways are left out if there is any at this gateway."""
        found = [
            pair
            for pair in self.members.items()
            if (pair[0].connection is not None) is connected
            and (connected or pair[0].durable)
            and eligible(pair[0])
        ]
        if local := [pair for pair in found if not pair[0].foreign]:
            found = local
        first = self.turn % len(found) if found else 0
        return found[first:] + found[:first]


_NAMES = 4
"""Known topic names may take 1 / _NAMES of `limits.memory_bytes`."""
_TOPIC_BYTES, _COPIES = 2300, 7
"""Memory that a known name takes, in bytes: `_TOPIC_BYTES` + `_COPIES` * length of the name."""
_KNOWN_ROUTES = 1_000_000
_LEVEL_BYTES = 512
_FREE_LEVELS = 12
_DEEP_LEVELS = 50_000
"""Bound on the sum of `deep_levels` over all filters of all sessions."""
_LONGEST_KNOWN = 512
"""Longest name that is remembered, in bytes, because longer names could fill the memory."""


class Route:
    """A session that gets a topic's messages, with its subscriptions that match."""

    __slots__ = (
        "identifiers",
        "no_local",
        "own",
        "qos",
        "retain_as_published",
        "session",
        "subscriptions",
    )

    def __init__(self, session: Session, subscriptions: list[Subscription]) -> None:
        self.session = session
        self.subscriptions = subscriptions
        self.qos = max(item.qos for item in subscriptions)
        """The highest granted QoS."""
        self.retain_as_published = any(item.retain_as_published for item in subscriptions)
        self.identifiers = b"".join(item.extra for item in subscriptions)
        """Subscription Identifiers as encoded properties."""
        local = [item for item in subscriptions if not item.no_local]
        self.no_local = len(local) < len(subscriptions)
        """Whether any subscription has No Local. If so, `own` is for the session's own messages."""
        self.own = Route(session, local) if local and self.no_local else None
        """If `no_local`: route of this session's own messages; None if it must not receive them."""


class RoutedTopic(Topic):
    """A Topic Name with the receivers of its messages."""

    __slots__ = ("durable", "heard", "moving", "refusing", "routes", "shares")

    def __init__(self, name: str, wire: bytes) -> None:
        super().__init__(name, wire)
        self.heard: Callable[[PublishRun], None] | None = None
        self.routes: list[Route] = []
        self.moving: list[tuple[Route, bool]] = []
        """Routes to sessions whose move is not over; `routes` does not contain them. Flag: whether
        the session had subscribed to the topic on its arrival (`Role.had_subscribed`).
        """
        self.shares: list[Share] = []
        self.durable = 0
        """Highest QoS granted to a durable session or to a shared subscription."""
        self.refusing: list[Session] = []
        """Sessions whose full queue refuses the publisher."""


def _forget_routes(topic: RoutedTopic) -> None:
    topic.routes, topic.moving, topic.shares, topic.refusing = [], [], [], []


class _Node(Node):
    """A level of the filters' tree, with the subscribers of the filter that ends at this level."""

    __slots__ = ("members", "shares")

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[Session, Route] = {}
        self.shares: dict[str, Share] = {}


def memory(topic_filter: str) -> int:
    """Return an approximate upper bound, in bytes, of the memory that a subscription takes."""
    return len(topic_filter) + _LEVEL_BYTES * (topic_filter.count("/") + 1)


def deep_levels(topic_filter: str) -> int:
    """Return how many levels of a filter, from its first `+` on, are deeper than _FREE_LEVELS."""
    levels = topic_filter.split("/")
    if len(levels) <= _FREE_LEVELS or "+" not in levels:
        return 0
    return len(levels) - max(_FREE_LEVELS, levels.index("+"))


class Router:
    """All subscriptions of all sessions."""

    def __init__(
        self,
        spool: list[str],
        levels: int,
        may_read: Callable[[Session, str], bool],
        memory: int,
        *,
        copies: bool = False,
    ) -> None:
        self._may_read = may_read
        self._spool = spool
        """Filters of the topics that are spooled."""
        self._levels = levels
        """Largest number of levels that a topic may have."""
        self._most = memory // _NAMES
        """Largest number of bytes that known topics may take."""
        self._copies = copies
        """Whether a session gets one copy for each of its matching filters."""
        self.heard: dict[str, Callable[[PublishRun], None]] = {}
        """Callbacks by the first level of a topic. Each gets every run with this first level."""
        self.watch: Callable[[str, Session | None], None] = lambda topic_filter, session: None
        """Callback for each changed filter, with the session if its subscription is new."""
        self._root = _Node()
        self.topics: dict[bytes, RoutedTopic] = {}
        """Known topics by their encoded name. All are forgotten if they take too much memory."""
        self._size = 0
        """Upper bound of the memory that the known topics take, in bytes."""
        self._index: NameIndex[RoutedTopic] = NameIndex()
        """The topics whose routes are known."""
        self._temporary: RoutedTopic | None = None
        """The topic matched last if it is not in `topics`. The next match forgets its routes."""
        self._routes = 0
        """Number of routes that topics have cached since the last call of `changed`."""
        self.count = 0
        """Number of subscriptions."""
        self.use = Shared()
        """Bytes of memory that the subscriptions take, by origin of the session."""
        self.deep = Shared()
        """Sum of `deep_levels` over all subscriptions, by origin of the session."""

    def reconfigure(
        self, spool: list[str], levels: int, memory: int, *, copies: bool = False
    ) -> None:
        """Replace the rules by those of another configuration. Every topic is routed again."""
        self._spool, self._levels, self._copies = spool, levels, copies
        self._most = memory // _NAMES
        self._forget()

    def topic(self, name: str) -> RoutedTopic:
        """Return the topic of this name. Raises ProtocolError with 0x90 for an invalid name."""
        return self.known(encode_string(name), name)

    def known(self, wire: bytes, name: str) -> RoutedTopic:
        """Do the same as `topic`, for a caller that has the encoded name `wire`."""
        topic = self.topics.get(wire)
        if topic is None:
            problem = topic_name_problem(name)
            if problem:
                raise ProtocolError(f"PUBLISH: topic name {problem}", ReasonCode.TOPIC_NAME_INVALID)
            topic = RoutedTopic(name, wire)
            if len(wire) <= _LONGEST_KNOWN:
                size = _TOPIC_BYTES + _COPIES * len(wire)
                if self._size + size > self._most:
                    self._forget()
                self._size += size
                self.topics[wire] = topic
        return topic

    def _forget(self) -> None:
        self.topics.clear()
        self._size = 0
        self.changed()

    def subscribe(self, session: Session, subscription: Subscription) -> bool:
        """Add or replace a subscription [MQTT-3.8.4-3]. Return True if the session had no
        subscription with this filter.
        """
        topic_filter = subscription.topic_filter
        new = topic_filter not in session.subscriptions
        session.subscriptions[topic_filter] = subscription
        share, inner = split_shared(topic_filter)
        node = self._root.at(inner)
        if share is None:
            node.members[session] = Route(session, [subscription])
        else:
            node.shares.setdefault(share, Share(topic_filter)).members[session] = subscription
        if new:
            self._count(session, topic_filter, inner, 1)
        self._reroute(inner)
        self.watch(topic_filter, session if new else None)
        return new

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Remove a subscription. Return False if there was none."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        share, inner = split_shared(topic_filter)
        path = [self._root]
        levels = inner.split("/")
        for level in levels:
            path.append(path[-1].children[level])
        if share is None:
            del path[-1].members[session]
        else:
            members = path[-1].shares[share].members
            del members[session]
            if not members:
                del path[-1].shares[share]
        while levels and not ((last := path.pop()).children or last.members or last.shares):
            del path[-1].children[levels.pop()]
        self._count(session, topic_filter, inner, -1)
        self._reroute(inner)
        self.watch(topic_filter, None)
        return True

    def _count(self, session: Session, topic_filter: str, inner: str, by: int) -> None:
        self.count += by
        self.use.add(session.origin, by * memory(topic_filter))
        if "+" in inner and (deep := deep_levels(inner)):
            self.deep.add(session.origin, by * deep)

    def _reroute(self, topic_filter: str) -> None:
        """Match the topics that a filter may match again when they are next used."""
        near = self._index.near(topic_filter)
        if near is None:
            self.changed()
        for topic in near or ():
            topic.stale = True

    def has_room(self, session: Session, topic_filter: str, most: int) -> bool:
        """Whether there is room for one more subscription of a session. topic_filter: without
        `$share/NAME/`. most: size limit of all sessions' subscriptions, in bytes.
        """
        deep, owner = deep_levels(topic_filter), session.origin
        return self.use.fits(owner, memory(topic_filter), most) and (
            not deep or self.deep.fits(owner, deep, _DEEP_LEVELS)
        )

    def begins(self, level: str) -> bool:
        """Whether any filter begins with this topic level."""
        return level in self._root.children

    def share(self, topic_filter: str) -> Share | None:
        """Return the shared subscription of a `$share/…` filter; None without a subscriber."""
        name, inner = split_shared(topic_filter)
        node = self._find(inner)
        return node.shares.get(name) if node and name else None

    def _find(self, topic_filter: str) -> _Node | None:
        node: _Node | None = self._root
        for level in topic_filter.split("/"):
            node = node.children.get(level) if node else None
        return node

    def wanted(self, topic_filter: str, counts: Callable[[Session], bool]) -> int | None:
        """Return the highest QoS at which a session that `counts` accepts has a filter, or None."""
        share, inner = split_shared(topic_filter)
        node = self._find(inner)
        if node is None:
            return None
        if share is None:
            found = ((session, route.qos) for session, route in node.members.items())
            return max((qos for session, qos in found if counts(session)), default=None)
        shared = node.shares.get(share)
        members = shared.members.items() if shared else ()
        return max((item.qos for session, item in members if counts(session)), default=None)

    def matches_again(self, session: Session) -> None:
        """Match the topics of a session's filters again, because its messages go elsewhere now."""
        for topic_filter in session.subscriptions:
            self._reroute(split_shared(topic_filter)[1])

    def changed(self) -> None:
        """Mark every topic, so that it is matched again when it is next used."""
        for topic in self._index.clear():
            topic.indexed, topic.stale = False, True
            _forget_routes(topic)
        self._routes = 0

    def routed(self, topic: Topic) -> RoutedTopic:
        """Return the same topic with up-to-date routes."""
        if topic.stale:
            self.match(topic)  # type: ignore[arg-type]
        return topic  # type: ignore[return-value] # every topic comes from here

    def match(self, topic: RoutedTopic) -> None:
        """Bring `topic.routes` and `topic.shares` up to date."""
        if self._temporary is not None:
            _forget_routes(self._temporary)
        temporary = self.topics.get(topic.wire) is not topic
        self._temporary = topic if temporary else None
        found: dict[Session, Route] = {}
        copies: list[Route] = []
        too_deep = topic.name.count("/") >= self._levels and not topic.name.startswith(
            SYSTEM_PREFIX
        )
        bad = too_deep or topic.name.startswith(SHARE_PREFIX)
        topic.refused = ReasonCode.TOPIC_NAME_INVALID if bad else None
        topic.heard = self.heard.get(topic.name.partition("/")[0])
        topic.spooled = any(topic_matches(item, topic.name) for item in self._spool)
        topic.shares = []
        for node in self._root.matching(topic.name):
            for session, route in node.members.items():
                if self._may_read(session, topic.name):
                    known = found.get(session)
                    if known is None:
                        found[session] = route
                    elif self._copies and session.role.gets_copies:
                        copies.append(route)
                    else:
                        merged = known.subscriptions + route.subscriptions
                        found[session] = Route(session, merged)
            topic.shares += node.shares.values()
        routes = [*found.values(), *copies]
        topic.routes = [route for route in routes if route.session.role.settled]
        had_subscribed = {
            session: session.role.had_subscribed(session, topic.name)
            for session in found
            if not session.role.settled
        }
        topic.moving = [
            (route, had_subscribed[route.session])
            for route in routes
            if route.session in had_subscribed
        ]
        topic.durable = max(
            [route.qos for route in routes if route.session.durable]
            + [share.qos for share in topic.shares],
            default=0,
        )
        sessions = [route.session for route in routes if route.qos]
        for share in topic.shares:
            sessions += share.members
        topic.refusing = [
            session for session in sessions if session.queueing.full == "refuse the publisher"
        ]
        self._routes += len(routes)
        if self._routes > _KNOWN_ROUTES:
            kept = topic.routes, topic.moving, topic.shares, topic.refusing
            self.changed()
            topic.routes, topic.moving, topic.shares, topic.refusing = kept
        if not temporary and not topic.indexed:
            self._index.add(topic.name, topic)
            topic.indexed = True
        topic.stale = not topic.indexed
