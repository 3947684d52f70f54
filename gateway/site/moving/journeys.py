"""Sessions here with an unfinished move, and forwarders of those that have left (`journey.py`).

In: such sessions as they arrive and leave. Out: the session that a stage stands for, and the
destination of messages that match its subscriptions: a session, or the queue for another gateway.
Without a site there are no journeys, and this code takes no time.
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
from gateway.site.moving.journey import Follower, Journey, journey_of
from gateway.store.move_rows import OWN, Moves


class Journeys:
    def __init__(self) -> None:
        self.me = ""
        """Name of this gateway in the site; empty without one: then no session gets a forwarder."""
        self.queues: dict[str, Session] = {}
        """The sessions that stand for the other gateways, by name."""
        self.tell: Callable[[], None] = lambda: None
        """Sends the other gateways new filters."""
        self.untold = False
        """Whether `tell` must be called before the open changes are on disk, because sessions have
        arrived."""
        self.asks: Counter[str] = Counter()
        """Number of questions of each gateway in the current minute."""
        self.count_from = 0.0
        """Start of that minute, on the time axis."""
        self.followers = 0
        self.refused = 0
        """Sessions that left without a forwarder, because there were too many."""
        self._lineages: dict[int, list[tuple[Session, Journey]]] = {}
        self._round = iter(self)
        self._groups: dict[int, dict[Journey, None]] = {}
        """Forwarders that have left a shared subscription, by its number."""
        self._latest: dict[str, tuple[Session, Journey]] = {}
        """The forwarder of each session that left last, by the session's key."""

    def add(self, session: Session, journey: Journey) -> None:
        session.role = journey
        self._lineages.setdefault(journey.stage.lineage, []).append((session, journey))
        if (follower := journey.follower) is not None:
            self.followers += 1
            for number in follower.groups:
                self.has_left(journey, number)
            if follower.member is None:
                self._latest[follower.key] = session, journey

    def drop(self, session: Session) -> None:
        """Forget a journey after the end of the session or of the journey."""
        journey = journey_of(session)
        if journey is not None:
            session.role = CLIENT
            lineage = self._lineages[journey.stage.lineage]
            lineage.remove((session, journey))
            if not lineage:
                del self._lineages[journey.stage.lineage]
            if (follower := journey.follower) is not None:
                self.followers -= 1
                for number in follower.groups:
                    del self._groups[number][journey]
                    if not self._groups[number]:
                        del self._groups[number]
                if self._latest.get(follower.key) == (session, journey):
                    del self._latest[follower.key]

    def has_left(self, journey: Journey, number: int) -> None:
        """Note that a forwarder has left a shared subscription."""
        self._groups.setdefault(number, {})[journey] = None

    def left(self, number: int) -> Journey | None:
        """Return a forwarder that has left this shared subscription, or None."""
        return next(iter(self._groups.get(number, ())), None)

    def __iter__(self) -> Iterator[tuple[Session, Journey]]:
        for lineage in list(self._lineages.values()):
            yield from list(lineage)

    def next(self, most: int) -> list[tuple[Session, Journey]]:
        """Return the next journeys in turn, at most `most`. Each has its turn before any has a
        second one.
        """
        found = list(islice(self._round, most))
        if len(found) < most:
            self._round = iter(self)
        return found

    def of(self, lineage: int) -> list[tuple[Session, Journey]]:
        return list(self._lineages.get(lineage, ()))

    def at(self, stage: Stage) -> tuple[Session, Journey] | None:
        """Return the session that a stage stands for, or else its forwarder."""
        found = None
        for session, journey in self._lineages.get(stage.lineage, ()):
            if journey.stage == stage and not session.ended:
                if journey.follower is None:
                    return session, journey
                if journey.follower.member != OWN:
                    found = session, journey
        return found

    def followers_of(self, stage: Stage) -> list[tuple[Session, Journey, Follower]]:
        """Return the forwarders here for the session at a stage."""
        return [
            (session, journey, journey.follower)
            for session, journey in self._lineages.get(stage.lineage, ())
            if journey.follower is not None and journey.following == stage and not session.ended
        ]

    def waiting(self, key: str) -> tuple[Journey, Follower] | None:
        """Return the forwarder of a session whose place is unknown, or None."""
        session, journey = self._latest.get(key, (None, None))
        if session is None or journey is None or session.ended:
            return None
        follower = journey.follower
        return (journey, follower) if follower is not None and follower.member is None else None

    def routes(self, topic: RoutedTopic, member: str) -> Iterable[Route]:
        """Yield the routes of messages that a gateway forwards, to sessions that move."""
        for route, came_with in topic.moving:
            journey = journey_of(route.session)
            if journey is None or journey.takes(member, came_with):
                session, extra = self.onward(route.session, route.identifiers, "")
                if session is route.session:
                    yield route
                else:
                    onward = Route(session, route.subscriptions)
                    onward.identifiers = extra
                    yield onward

    def onward(self, session: Session, extra: bytes, share: str) -> tuple[Session, bytes]:
        """Return the session that a message goes to, and the properties to send."""
        journey = journey_of(session)
        if journey is not None and journey.follower is not None and journey.follower.member:
            queue = self.queues[journey.follower.member]
            return queue, address(journey.following, share)
        return session, extra


class WithJourneys(Neighbours):
    """Neighbours between which sessions move."""

    def __init__(self) -> None:
        self.journeys = Journeys()
        self.changed: dict[Session, None] = {}
        """Sessions whose journeys the open changes bring to the store."""


def of(core: Core) -> WithJourneys:
    return cast(WithJourneys, core.neighbours)


def journeys_of(core: Core) -> Journeys:
    return of(core).journeys


def moves(core: Core) -> Moves:
    """Return the rows about moves in the open changes."""
    changes = core.changes
    if changes.neighbours is None:
        changes.neighbours = Moves()
    return cast(Moves, changes.neighbours)


def note(core: Core, session: Session) -> None:
    """Note that the journey of a session has changed."""
    moves(core)
    of(core).changed[session] = None
