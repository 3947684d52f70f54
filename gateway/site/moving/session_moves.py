"""Sessions at this gateway with an unfinished move, and forwarders of departed sessions
(`session_move.py`).

In: sessions, as they arrive and leave. Out: the session that a stage names (`addresses.Stage`), and
the destination of messages that match its subscriptions: a session, or the queue for another
gateway. Without a site there are no moves, and this code takes no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import cast

from gateway.broker.core import Core
from gateway.broker.neighbours import Neighbours
from gateway.broker.router import Route, RoutedTopic
from gateway.broker.session import CLIENT, Session
from gateway.site.moving.addresses import Stage, address
from gateway.site.moving.session_move import Forwarder, SessionMove, move_of
from gateway.store.move_rows import OWN, Moves


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
