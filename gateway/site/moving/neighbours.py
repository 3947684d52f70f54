"""The peer gateways of a site, for the broker (`gateway/broker/neighbours.py`).

In: changes of sessions, and publications, at this gateway. Out: the consequences for sessions that
move, and for the second disk of the spool. `SiteNeighbours.lookup` queries the other gateways.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, cast

from gateway.access.rules import WaitingCaller
from gateway.broker.core import Core
from gateway.broker.router import Route, RoutedTopic
from gateway.broker.session import Session
from gateway.broker.store_rows import Commit, Recovered
from gateway.mqtt.packets import Connect
from gateway.site.moving import moving, notices
from gateway.site.moving.late_messages import send_on, wait_to_send_on
from gateway.site.moving.replicated import Replicated
from gateway.site.moving.session_moves import (
    SessionMove,
    WithSessionMoves,
    move_of,
    move_rows,
    note,
)
from gateway.store.move_rows import OWN, Moves, moved_of


class SessionLookup(Protocol):
    """The interface of the session lookup for the broker. A lookup asks the other members about
    clients.
    """

    def waits(self, connection: WaitingCaller, packet: Connect) -> bool:
        """Whether a CONNECT waits for the replies of a session lookup. If so, `dispatch.placed` is
        called later, unless the connection has ended by then.
        """

    def release(self, connection: WaitingCaller, identifiers: Sequence[int]) -> bool:
        """Query the other members, if needed, about packet identifiers that are unknown here.
        Return False if the broker has to answer at once. Otherwise `exchanges.released` is called
        later for each identifier, or the connection ends.
        """

    def has_newest(self, session: Session) -> bool:
        """Whether the session here is certainly the newest one of its client, and no other member
        has an older one any more.
        """


class SiteNeighbours(WithSessionMoves):
    """The neighbours of one broker. state: contents of the broker's store at the start."""

    def __init__(self, core: Core, state: Recovered) -> None:
        super().__init__()
        self._core = core
        self.lookup: SessionLookup | None = None
        """The session lookup; None before the site has begun."""
        self.second_disk: Replicated | None = None
        """Tracker of the spool rows that are replicated; None unless `copies = 2`."""
        self.moved = moved_of(state)
        """Rows about moves that were in the store at the start."""
        self._stored: dict[int, SessionMove] = {}

    def leave(self) -> None:
        moving.end_moves(self._core)
        if self.moved.members:  # members that return count as new
            move_rows(self._core).members = frozenset()
            self._core.promise()

    # -- requests of clients

    def claim(self, connection: WaitingCaller, packet: Connect) -> bool:
        if self.lookup is None:
            return False
        with self._core.step:
            return self.lookup.waits(connection, packet)

    def release(self, connection: WaitingCaller, identifiers: Sequence[int]) -> bool:
        if self.lookup is None:
            return False
        with self._core.step:
            return self.lookup.release(connection, identifiers)

    # -- messages for sessions that move

    def routes(self, topic: RoutedTopic) -> Iterable[Route]:
        return self.session_moves.routes(topic, OWN)

    def onward(self, session: Session, extra: bytes, share: str) -> tuple[Session, bytes]:
        return self.session_moves.onward(session, extra, share)

    def send_on(self, session: Session, read: bool) -> None:
        (send_on if read else wait_to_send_on)(self._core, session)

    # -- a second disk

    @property
    def refuses(self) -> bool:
        return self.second_disk is not None and self.second_disk.refusing

    def lacks(self, commit: int) -> bool:
        return self.second_disk is not None and self.second_disk.commit < commit

    def is_safe(self, row: int) -> None:
        if self.second_disk is not None:
            self.second_disk.safe(row)

    # -- sessions, commits and time

    def know(self, state: Recovered) -> None:
        self._stored = {row[0]: SessionMove.stored(row) for row in moved_of(state).moving_sessions}

    def restore(self, session: Session) -> bool:
        core, move = self._core, self._stored.pop(session.id, None)
        if move is not None:
            self.session_moves.add(session, move)
            if (forwarder := move.forwarder) is not None:
                session.queueing = moving.queueing(core, forwarder.name)
                return False
        elif moving.is_forwarder(session.client):  # a forwarder without its move
            core.effects.end(session)
        return True

    def has_newest(self, session: Session) -> bool:
        return self.lookup is not None and self.lookup.has_newest(session)

    def ended(self, session: Session) -> None:
        if move_of(session) is not None:
            self.session_moves.drop(session)
            note(self._core, session)

    def seal(self) -> None:
        core, rows = self._core, self._core.changes.neighbours
        if isinstance(rows, Moves):
            rows.exports = [order for order in rows.exports if not moving.stays(core, order)]
            for order in rows.exports:
                core.changes.origins["session", core.by_id[order.session].client] = None
                moving.leave_forwarder(core, order)

    def sealed(self, commit: Commit) -> None:
        if isinstance(rows := commit.neighbours, Moves):
            for session in self.changed:
                if (move := move_of(session)) is None:
                    rows.arrived.append(session.id)
                elif session.durable:
                    rows.moving_sessions.append(move.row(session.id))
            self.changed.clear()
            for order in rows.exports:
                moving.leave(self._core, order)
        if self.second_disk is not None:
            self.second_disk.sealed(commit.number, commit.spool)

    def on_disk(self, number: int) -> None:
        if self.second_disk is not None:
            self.second_disk.on_disk(number)

    def tell(self) -> None:
        self.has_news = False
        self.session_moves.tell()

    def reconfigure(self) -> None:
        for session, move in self.session_moves:
            if move.forwarder is not None:
                session.queueing = moving.queueing(self._core, move.forwarder.name)

    def advance(self) -> None:
        notices.advance(self._core)


def site_of(core: Core) -> SiteNeighbours:
    """Return the neighbours of a broker that was created for a site."""
    return cast("SiteNeighbours", core.neighbours)
