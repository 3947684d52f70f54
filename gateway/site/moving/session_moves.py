"""Sessions at this gateway with an unfinished move, and forwarders of departed sessions.

In: sessions, as they arrive and leave, and cuts. A cut is a position in the stream from one gateway
to another: messages before it are for the session at its old gateway, messages after it for the
session at its new gateway. Each gateway sends its cuts to all others at the same moment. Out:
whether a message is for a session; the session that a stage names (`addresses.Stage`); and the
destination of messages that match its subscriptions: a session, or the queue for another gateway.
Without a site there are no moves, and this code takes no time.

A forwarder has the subscriptions of a session that has moved. It queues the messages that the
session would have received at this gateway until the new gateway is known, and then sends them to
the new gateway. The forwarder is a session of this broker without a client: `Core.sessions` does
not contain it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import cast

from gateway.access.rules import Acl
from gateway.broker.core import Core
from gateway.broker.neighbours import Neighbours
from gateway.broker.router import Route, RoutedTopic
from gateway.broker.session import CLIENT, Role, Session
from gateway.mqtt.topics import topic_matches
from gateway.site.moving.addresses import Stage, address, share_number
from gateway.store.move_rows import MOST_MOVES, MOVING_IDS, OWN, Moves, MovingSessionRow, name_of

NEW = ""
"""Marker in `SessionMove.filters`. If it is an item, the session was here before, and all other
items are filters of its new subscriptions (`new_subscriptions.py`).
"""


class Forwarder:
    """The queue that stands in for a moved session, and sends the session's messages after it."""

    __slots__ = ("absent", "awaited", "done", "groups", "key", "member", "user")

    def __init__(
        self, key: str, user: str | None, member: str | None = None, done: set[str] | None = None
    ) -> None:
        self.key = key
        """Key of the session that the forwarder stands in for (`move_rows.py`)."""
        self.user = user
        """User whose rights the session has."""
        self.member = member
        """Gateway of the session, to which messages are sent. OWN: the session has come back to
        this gateway. None: not known yet.
        """
        self.done = done or set()
        """Gateways whose messages now go to the session itself, and no longer to this forwarder."""
        self.absent: set[str] | None = None
        """Gateways that have answered that they do not have the session; None before the gateways
        are asked.
        """
        self.groups: dict[int, str] = {}
        """Shared subscriptions that the forwarder has left, by number (`share_number`)."""
        self.awaited: set[str] | None = None
        """Gateways that have not answered since the forwarder left its shared subscriptions; empty
        if it has none. None: the forwarder has not left them.
        """

    @property
    def name(self) -> str:
        """Client identifier of the session that the forwarder stands in for."""
        return name_of(self.key)


class SessionMove(Role):
    settled = False
    __slots__ = ("asked", "closed", "filters", "forwarder", "stage", "tails")

    def __init__(
        self,
        stage: Stage,
        closed: set[str] | None = None,
        tails: set[str] | None = None,
        filters: tuple[str, ...] = (),
        forwarder: Forwarder | None = None,
    ) -> None:
        self.stage = stage
        """Stage of the session; for a forwarder, the stage while the session was here."""
        self.closed = closed or set()
        """Gateways whose cut has not arrived. Until then, their messages that match `filters` are
        for the session at its old gateway.
        """
        self.tails = tails or set()
        """Gateways that still forward late messages for the session."""
        self.filters = filters
        """Filters for messages of the gateways in `closed`.

        After a move: the filters of the session when it arrived. A message that matches one
        is for the session at its old gateway. With the item NEW, the session has not moved, and the
        other items are its new filters. A message that matches only new filters is not accepted,
        because it may be older than they are. Of a forwarder: the `filters` of the session's own
        unfinished move, if it had one, and the shared subscriptions that the forwarder has left.
        """
        self.forwarder = forwarder
        """The forwarder, if the session has left this gateway; None if it has arrived here."""
        self.asked: float | None = None
        """Time, on the time axis, at which `advance` (`notices.py`) last asked other gateways about
        this move, or first checked the move. None before the first check.
        """

    @classmethod
    def stored(cls, row: MovingSessionRow) -> SessionMove:
        """Return the move that a row of the store describes. Raises ValueError."""
        _, moving_id, moves, closed, tails, filters, key, user, member, done = row
        lists = _names(closed, tails, filters, done)
        known = set(lists[0]), set(lists[1]), tuple(lists[2])
        forwarder = None if key is None else Forwarder(key, user, member, set(lists[3]))
        if forwarder is not None:
            forwarder.groups = {n: item for item in known[2] if (n := share_number(item))}
        if not (0 < moving_id < MOVING_IDS and 0 <= moves < MOST_MOVES):
            raise ValueError("a session move with an impossible number")
        return cls(Stage(moving_id, moves), *known, forwarder)

    def row(self, session: int) -> MovingSessionRow:
        moving_id, moves = self.stage
        found = self.forwarder
        lists = sorted(self.closed), sorted(self.tails), self.filters
        closed, tails, filters = map(json.dumps, lists)
        if found is None:
            return session, moving_id, moves, closed, tails, filters, None, None, None, "[]"
        done = json.dumps(sorted(found.done))
        more = found.key, found.user, found.member, done
        return session, moving_id, moves, closed, tails, filters, *more

    @property
    def next_stage(self) -> Stage:
        """Stage of the session after the next move."""
        return Stage(self.stage.moving_id, self.stage.moves + 1)

    @property
    def gets_copies(self) -> bool:
        """Whether the session gets one copy of a message for each matching subscription. A
        forwarder does not: it sends each message once.
        """
        return self.forwarder is None

    @property
    def sends_on(self) -> bool:
        """Whether this is a forwarder that can send its queue, because its session's gateway is
        known.
        """
        return self.forwarder is not None and self.forwarder.member is not None

    def may_read(self, acl: Acl, session: Session, topic: str) -> bool:
        if (forwarder := self.forwarder) is not None:
            return acl.may_read(forwarder.user, forwarder.name, topic)
        return super().may_read(acl, session, topic)

    @property
    def is_new(self) -> bool:
        """Whether this object is about new subscriptions, and not about a move."""
        return NEW in self.filters

    def had_subscribed(self, session: Session, topic: str) -> bool:
        """Whether one of `filters` matches the topic. If `filters` are new subscriptions, return
        False if an older filter of the session matches as well. The time for a call grows with the
        number of the session's filters.
        """
        if self.is_new:
            others = session.subscriptions.keys() - self.filters
            if any(topic_matches(item, topic) for item in others):
                return False
        return any(topic_matches(item, topic) for item in self.filters)

    def accepts(self, member: str, had_subscribed: bool) -> bool:
        """Whether this session, or this forwarder, gets the messages of a topic. member: the
        gateway that forwards them; OWN for messages that are published at this gateway.
        had_subscribed: the value of `had_subscribed` for the topic.
        """
        if self.forwarder is not None and member in self.forwarder.done:
            return False
        return member not in self.closed or not had_subscribed


def move_of(session: Session) -> SessionMove | None:
    """Return the unfinished move of a session, or None."""
    return session.role if isinstance(session.role, SessionMove) else None


def _names(*texts: str) -> list[list[str]]:
    lists = [json.loads(text) for text in texts]
    for found in lists:
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise ValueError("a session move with text that is not a list of names")
    return lists


class SessionMoves:
    def __init__(self) -> None:
        self.me = ""
        """Name of this gateway in the site, or "" without a site. Without a site no session gets a
        forwarder.
        """
        self.queues: dict[str, Session] = {}
        """The sessions that stand for the other gateways, by the gateway's name."""
        self.tell: Callable[[], None] = lambda: None
        """Callback that sends new filters to the other gateways (`Neighbours.has_news`)."""
        self.caught_up: Callable[[str, Stage], None] = lambda member, stage: None
        """Callback for each CUT for new subscriptions (`new_subscriptions.py`). Its arguments are
        the gateway that has sent the CUT, and the stage in the CUT.
        """
        self.asks: Counter[str] = Counter()
        """Number of ASK notices from each gateway since `count_from`."""
        self.count_from = 0.0
        """Time at which the counting in `asks` began, on the time axis."""
        self.forwarders = 0
        self.refused = 0
        """Number of sessions that moved without a forwarder, because there were too many
        forwarders.
        """
        self._moving_ids: dict[int, dict[Session, SessionMove]] = {}
        self._round = iter(self)
        self._groups: dict[int, dict[SessionMove, None]] = {}
        """Forwarders that have left a shared subscription, by number of the shared subscription."""
        self._latest: dict[str, tuple[Session, SessionMove]] = {}
        """The newest forwarder, by session key, that was added while the session's new gateway was
        unknown.
        """

    def add(self, session: Session, move: SessionMove) -> None:
        session.role = move
        self._moving_ids.setdefault(move.stage.moving_id, {})[session] = move
        if (forwarder := move.forwarder) is not None:
            self.forwarders += 1
            for number in forwarder.groups:
                self.has_left(move, number)
            if forwarder.member is None:
                self._latest[forwarder.key] = session, move

    def drop(self, session: Session) -> None:
        """Forget the move of a session, because the move or the session has ended. A session
        without a move stays as it is.
        """
        move = move_of(session)
        if move is not None:
            session.role = CLIENT
            moving_id = self._moving_ids[move.stage.moving_id]
            del moving_id[session]
            if not moving_id:
                del self._moving_ids[move.stage.moving_id]
            if (forwarder := move.forwarder) is not None:
                self.forwarders -= 1
                for number in forwarder.groups:
                    del self._groups[number][move]
                    if not self._groups[number]:
                        del self._groups[number]
                if self._latest.get(forwarder.key) == (session, move):
                    del self._latest[forwarder.key]

    def has_left(self, move: SessionMove, number: int) -> None:
        """Note that a forwarder has left the shared subscription with this number."""
        self._groups.setdefault(number, {})[move] = None

    def departed_of(self, number: int) -> SessionMove | None:
        """Return the move whose forwarder left this shared subscription first (`has_left`); None if
        there is none.
        """
        return next(iter(self._groups.get(number, ())), None)

    def __iter__(self) -> Iterator[tuple[Session, SessionMove]]:
        for moving_id in list(self._moving_ids.values()):
            yield from list(moving_id.items())

    def next(self, most: int) -> list[tuple[Session, SessionMove]]:
        """Return the next moves in turn, at most `most`. Every move is returned once before any is
        returned again.
        """
        found = list(islice(self._round, most))
        if len(found) < most:
            self._round = iter(self)
        return found

    def of(self, moving_id: int) -> list[tuple[Session, SessionMove]]:
        return list(self._moving_ids.get(moving_id, {}).items())

    def at(self, stage: Stage) -> tuple[Session, SessionMove] | None:
        """Return the session at this stage with its move. If only a forwarder stands for the
        session here, return the forwarder with its move; None if there is neither.
        """
        found = None
        for session, move in self._moving_ids.get(stage.moving_id, {}).items():
            if move.stage == stage and not session.ended:
                if move.forwarder is None:
                    return session, move
                if move.forwarder.member != OWN:
                    found = session, move
        return found

    def forwarders_of(self, stage: Stage) -> list[tuple[Session, SessionMove, Forwarder]]:
        """Return this gateway's forwarders of the move that brought the session to this stage."""
        return [
            (session, move, move.forwarder)
            for session, move in self._moving_ids.get(stage.moving_id, {}).items()
            if move.forwarder is not None and move.next_stage == stage and not session.ended
        ]

    def waiting(self, key: str) -> tuple[SessionMove, Forwarder] | None:
        """Return the move and the forwarder of a session that has moved away, if its new gateway is
        not known; otherwise None.
        """
        session, move = self._latest.get(key, (None, None))
        if session is None or move is None or session.ended:
            return None
        forwarder = move.forwarder
        return (move, forwarder) if forwarder is not None and forwarder.member is None else None

    def routes(self, topic: RoutedTopic, member: str) -> Iterable[Route]:
        """Yield the routes on which a message to `topic` reaches moving sessions. member: the
        member that forwards the message, or OWN if the message is published at this gateway.
        """
        for route, had_subscribed in topic.moving:
            move = move_of(route.session)
            if move is None or move.accepts(member, had_subscribed):
                session, extra = self.onward(route.session, route.identifiers, "")
                if session is route.session:
                    yield route
                else:
                    onward = Route(session, route.subscriptions)
                    onward.identifiers = extra
                    yield onward

    def onward(self, session: Session, extra: bytes, share: str) -> tuple[Session, bytes]:
        """Return the session whose queue gets a message for `session`, and the properties to send
        with the message. If `session` has moved and its new gateway is known, the queue for that
        gateway gets the message, and the properties name `session`. Otherwise, return the arguments
        unchanged.
        """
        move = move_of(session)
        if move is not None and move.forwarder is not None and move.forwarder.member:
            queue = self.queues[move.forwarder.member]
            return queue, address(move.next_stage, share)
        return session, extra


class WithSessionMoves(Neighbours):
    """The neighbours of a broker, with the state of all session moves."""

    def __init__(self) -> None:
        self.session_moves = SessionMoves()
        self.changed: dict[Session, None] = {}
        """Sessions whose moves the next commit stores."""


def moves_of(core: Core) -> SessionMoves:
    return cast(WithSessionMoves, core.neighbours).session_moves


def move_rows(core: Core) -> Moves:
    """Return the rows about moves for the next commit."""
    changes = core.changes
    if changes.neighbours is None:
        changes.neighbours = Moves()
    return cast(Moves, changes.neighbours)


def note(core: Core, session: Session) -> None:
    """Note that the move of a session has changed, so that the next commit stores it."""
    move_rows(core)
    cast(WithSessionMoves, core.neighbours).changed[session] = None
