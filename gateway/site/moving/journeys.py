"""Sessions here whose move between gateways of the site is not over, and followers of those that
have left (`journey.py`).

In: such sessions as they come and go. Out: the one that a stage stands for, and where what matches
their subscriptions goes: to a session, or through the queue for another gateway to it. Without a
site there are none, and nothing of this costs anything.
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
        """This gateway's name in the site; empty without one: no session is followed."""
        self.queues: dict[str, Session] = {}
        """The sessions that stand for the other gateways, by name."""
        self.tell: Callable[[], None] = lambda: None
        """Tells the other gateways the filters that have come."""
        self.untold = False
        """Sessions have come: that is to be done before the open changes are on the disk."""
        self.asks: Counter[str] = Counter()
        """How often each gateway has asked for a session, in a minute or less."""
        self.count_from = 0.0
        """When that minute began, on the time axis."""
        self.followers = 0
        self.refused = 0
        """Sessions that have left without a follower, since there were too many."""
        self._lineages: dict[int, list[tuple[Session, Journey]]] = {}
        self._round = iter(self)
        self._groups: dict[int, dict[Journey, None]] = {}
        """Followers that have left a shared subscription, by its number."""
        self._latest: dict[str, tuple[Session, Journey]] = {}
        """The follower of each session that left last, by the session's key."""

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
        """It has ended, or its journey has."""
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
        """A follower has left a shared subscription."""
        self._groups.setdefault(number, {})[journey] = None

    def left(self, number: int) -> Journey | None:
        """A follower that has left this shared subscription."""
        return next(iter(self._groups.get(number, ())), None)

    def __iter__(self) -> Iterator[tuple[Session, Journey]]:
        for lineage in list(self._lineages.values()):
            yield from list(lineage)

    def next(self, most: int) -> list[tuple[Session, Journey]]:
        """Those whose turn it is, at most so many; all have their turn before one has it again."""
        found = list(islice(self._round, most))
        if len(found) < most:
            self._round = iter(self)
        return found

    def of(self, lineage: int) -> list[tuple[Session, Journey]]:
        return list(self._lineages.get(lineage, ()))

    def at(self, stage: Stage) -> tuple[Session, Journey] | None:
        """The session that a stage stands for, or else what follows it."""
        found = None
        for session, journey in self._lineages.get(stage.lineage, ()):
            if journey.stage == stage and not session.ended:
                if journey.follower is None:
                    return session, journey
                if journey.follower.member != OWN:
                    found = session, journey
        return found

    def followers_of(self, stage: Stage) -> list[tuple[Session, Journey, Follower]]:
        """What sends on messages for the session at a stage from here."""
        return [
            (session, journey, journey.follower)
            for session, journey in self._lineages.get(stage.lineage, ())
            if journey.follower is not None and journey.following == stage and not session.ended
        ]

    def waiting(self, key: str) -> tuple[Journey, Follower] | None:
        """The follower of a session of which nobody has said where it is."""
        session, journey = self._latest.get(key, (None, None))
        if session is None or journey is None or session.ended:
            return None
        follower = journey.follower
        return (journey, follower) if follower is not None and follower.member is None else None

    def routes(self, topic: RoutedTopic, member: str) -> Iterable[Route]:
        """Of those that travel: who gets what a gateway passes on."""
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
        """Where a message for a session goes, with which properties."""
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
    """What the open changes hold for the sake of other gateways."""
    changes = core.changes
    if changes.neighbours is None:
        changes.neighbours = Moves()
    return cast(Moves, changes.neighbours)


def note(core: Core, session: Session) -> None:
    """The journey of a session has changed."""
    moves(core)
    of(core).changed[session] = None
