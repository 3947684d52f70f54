"""The peer gateways of a site, for the broker (`gateway/broker/neighbours.py`).

In: changes of sessions and publications here. Out: the consequences for sessions that move, and for
the second disk of the spool. The code that queries other gateways is in `elsewhere`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, cast

from gateway.broker.access import Asking
from gateway.broker.connection import Connection
from gateway.broker.core import Core
from gateway.broker.router import Route, RoutedTopic
from gateway.broker.session import Session
from gateway.broker.store_rows import Commit, Recovered
from gateway.mqtt.packets import Connect
from gateway.site.moving import following, moving, notices
from gateway.site.moving.doubled import Doubled
from gateway.site.moving.journey import Journey, journey_of
from gateway.site.moving.journeys import WithJourneys, moves, note
from gateway.site.moving.late_messages import send_on, wait_to_send_on
from gateway.store.move_rows import OWN, Moves, moved_of


class Elsewhere(Protocol):
    """The session lookup, for sessions that are not here."""

    def waits(self, connection: Asking, packet: Connect) -> bool:
        """Whether a CONNECT waits for the replies of a session lookup. Then `dispatch.placed` is
        called, unless the connection has ended by then.
        """

    def release(self, connection: Asking, identifiers: Sequence[int]) -> bool:
        """Whether the others are queried about identifiers that are unknown here. Then
        `exchanges.released` is called for each.
        """


class SiteNeighbours(WithJourneys):
    """The neighbours of one broker. state: contents of its store at the start."""

    def __init__(self, core: Core, state: Recovered) -> None:
        super().__init__()
        self._core = core
        self.elsewhere: Elsewhere | None = None
        """The session lookup; None before the site has begun."""
        self.doubled: Doubled | None = None
        """Tracks which spool rows are replicated; None unless `copies = 2`."""
        self.moved = moved_of(state)
        """Moves in the store at the start."""
        self._stored: dict[int, Journey] = {}

    def leave(self) -> None:
        following.end_journeys(self._core)
        if self.moved.members:  # members that return count as new
            moves(self._core).members = frozenset()
            self._core.promise()

    # -- what clients ask for

    def claim(self, connection: Asking, packet: Connect) -> bool:
        if self.elsewhere is None:
            return False
        cast("Connection", connection).broker.settle(connection.client)
        with self._core.step:
            return self.elsewhere.waits(connection, packet)

    def release(self, connection: Asking, identifiers: Sequence[int]) -> bool:
        if self.elsewhere is None:
            return False
        with self._core.step:
            return self.elsewhere.release(connection, identifiers)

    # -- messages for sessions that move

    def routes(self, topic: RoutedTopic) -> Iterable[Route]:
        return self.journeys.routes(topic, OWN)

    def onward(self, session: Session, extra: bytes, share: str) -> tuple[Session, bytes]:
        return self.journeys.onward(session, extra, share)

    def send_on(self, session: Session, read: bool) -> None:
        (send_on if read else wait_to_send_on)(self._core, session)

    # -- a second disk

    @property
    def replicates(self) -> bool:
        return self.doubled is not None

    @property
    def refuses(self) -> bool:
        return self.doubled is not None and self.doubled.refusing

    def lacks(self, commit: int) -> bool:
        return self.doubled is not None and self.doubled.commit < commit

    def is_safe(self, row: int) -> None:
        if self.doubled is not None:
            self.doubled.safe(row)

    # -- sessions, commits and time

    def know(self, state: Recovered) -> None:
        self._stored = {row[0]: Journey.stored(row) for row in moved_of(state).journeys}

    def restore(self, session: Session) -> bool:
        core, journey = self._core, self._stored.pop(session.id, None)
        if journey is not None:
            self.journeys.add(session, journey)
            if (follower := journey.follower) is not None:
                session.queueing = following.queueing(core, follower.name)
                return False
        elif following.is_follower(session.client):  # a forwarder without its journey
            core.effects.end(session)
        return True

    def ended(self, session: Session) -> None:
        if journey_of(session) is not None:
            self.journeys.drop(session)
            note(self._core, session)

    def seal(self) -> None:
        core, rows = self._core, self._core.changes.neighbours
        if isinstance(rows, Moves):
            rows.giving = [order for order in rows.giving if not moving.stays(core, order)]
            for order in rows.giving:
                following.follow(core, order)

    def sealed(self, commit: Commit) -> None:
        if isinstance(rows := commit.neighbours, Moves):
            for session in self.changed:
                if (journey := journey_of(session)) is None:
                    rows.arrived.append(session.id)
                else:
                    rows.journeys.append(journey.row(session.id))
            self.changed.clear()
            for order in rows.giving:
                moving.leave(self._core, order)
        if self.doubled is not None:
            self.doubled.sealed(commit.number, commit.spool)

    def on_disk(self, number: int) -> None:
        if self.doubled is not None:
            self.doubled.on_disk(number)

    def tell(self) -> None:
        if self.journeys.untold:
            self.journeys.untold = False
            self.journeys.tell()

    def reconfigure(self) -> None:
        for session, journey in self.journeys:
            if journey.follower is not None:
                session.queueing = following.queueing(self._core, journey.follower.name)

    def advance(self) -> None:
        notices.advance(self._core)


def site_of(core: Core) -> SiteNeighbours:
    """Return the neighbours of a broker that was created for a site."""
    return cast("SiteNeighbours", core.neighbours)
