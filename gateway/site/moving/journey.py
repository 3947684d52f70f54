"""A session that has moved between gateways of the site: which messages are for it, and which are
for the session as it was before the move. Or what it has left behind here: its follower.

In: cuts. A cut stands in what one gateway sends to another: what comes before it is for the
session where it was, what comes after it for the session where it is now. Each gateway sends its
cuts to all others at one instant. Out: whether a message is for this session.

A follower has the subscriptions of a session that has left. It queues what the session would have
got here, until it is known where that is, and sends it there. It is a session of this broker, but
no client's: `Core.sessions` does not have it.
"""

from __future__ import annotations

import json

from gateway.broker.access import Acl
from gateway.broker.session import Role, Session
from gateway.mqtt.topics import topic_matches
from gateway.site.moving.addresses import Stage, share_number
from gateway.store.move_rows import LINEAGES, MOST_MOVES, JourneyRow, name_of


class Follower:
    __slots__ = ("awaited", "done", "gone", "groups", "key", "member", "user")

    def __init__(
        self, key: str, user: str | None, member: str | None = None, done: set[str] | None = None
    ) -> None:
        self.key = key
        """Whose session it follows (`move_rows.py`)."""
        self.user = user
        """Whose rights it has."""
        self.member = member
        """Where the session is: what comes goes there. OWN: it has come back here. None: that is
        not known yet."""
        self.done = done or set()
        """Gateways whose messages go to the session itself by now."""
        self.gone: set[str] | None = None
        """Gateways that do not have it, once all are asked; None before."""
        self.groups: dict[int, str] = {}
        """Its shared subscriptions, by number, when it has left them."""
        self.awaited: set[str] | None = None
        """Gateways that may not know yet that it has. None: it has not left them."""

    @property
    def name(self) -> str:
        """Client identifier of the session that it follows."""
        return name_of(self.key)


class Journey(Role):
    settled = False
    __slots__ = ("asked", "closed", "filters", "follower", "stage", "tails")

    def __init__(
        self,
        stage: Stage,
        closed: set[str] | None = None,
        tails: set[str] | None = None,
        filters: tuple[str, ...] = (),
        follower: Follower | None = None,
    ) -> None:
        self.stage = stage
        """Of a follower: the session's while it was here."""
        self.closed = closed or set()
        """Gateways whose cut has not come: what they pass on is for the session where it was."""
        self.tails = tails or set()
        """Gateways that send on what comes late for it."""
        self.filters = filters
        """What it had subscribed to when it came: what it subscribes to here, nobody sends on. Of a
        follower, the shared subscriptions that it has left, too."""
        self.follower = follower
        """None for a session that has come."""
        self.asked: float | None = None
        """Since when it waits for what it has asked for, on the time axis, about."""

    @classmethod
    def stored(cls, row: JourneyRow) -> Journey:
        """Raises ValueError."""
        _, lineage, moves, closed, tails, filters, key, user, member, done = row
        follower = None if key is None else Follower(key, user, member, set(_names(done)))
        known = set(_names(closed)), set(_names(tails)), tuple(_names(filters))
        if follower is not None:
            follower.groups = {n: item for item in known[2] if (n := share_number(item))}
        if not (0 < lineage < LINEAGES and 0 <= moves < MOST_MOVES):
            raise ValueError("a journey of a session that cannot be")
        return cls(Stage(lineage, moves), *known, follower)

    def row(self, session: int) -> JourneyRow:
        lineage, moves = self.stage
        sets = _listed(self.closed), _listed(self.tails), json.dumps(self.filters)
        if (found := self.follower) is None:
            return session, lineage, moves, *sets, None, None, None, "[]"
        done = _listed(found.done)
        return session, lineage, moves, *sets, found.key, found.user, found.member, done

    @property
    def following(self) -> Stage:
        """The session after the next move."""
        return Stage(self.stage.lineage, self.stage.moves + 1)

    @property
    def gets_copies(self) -> bool:
        """A follower sends on what comes once."""
        return self.follower is None

    @property
    def sends_on(self) -> bool:
        """Whether what waits belongs to a session that is known to be elsewhere."""
        return self.follower is not None and self.follower.member is not None

    def may_read(self, acl: Acl, session: Session, topic: str) -> bool:
        if (follower := self.follower) is not None:
            return acl.may_read(follower.user, follower.name, topic)
        return super().may_read(acl, session, topic)

    def came_with(self, topic: str) -> bool:
        """Whether it had subscribed to a topic when it came. This looks at all its filters."""
        return any(topic_matches(item, topic) for item in self.filters)

    def takes(self, member: str, came_with: bool) -> bool:
        """Whether what a gateway passes on, or this one publishes (OWN), is for this session.
        came_with: that of its topic.
        """
        if self.follower is not None and member in self.follower.done:
            return False
        return member not in self.closed or not came_with


def journey_of(session: Session) -> Journey | None:
    """Return the journey of a session, None when it is over, or the session has never moved."""
    return session.role if isinstance(session.role, Journey) else None


def _names(text: str) -> list[str]:
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError("a journey of a session with names that cannot be")
    return found


def _listed(names: set[str]) -> str:
    return json.dumps(sorted(names))
