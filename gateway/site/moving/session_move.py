"""The state of a session's move: which messages are for the session at its new gateway, and which
are for it at its old gateway. The forwarder (`Forwarder`) of a session that has moved has a state
of the same class.

In: cuts. A cut is a position in the stream from one gateway to another: messages before it are for
the session at its old gateway, messages after it for the session at its new gateway. Each gateway
sends its cuts to all others at the same moment. Out: whether a message is for this session.

A forwarder has the subscriptions of a session that has moved. It queues the messages that the
session would have received at this gateway until the new gateway is known, and then sends them to
the new gateway. The forwarder is a session of this broker without a client: `Core.sessions` does
not contain it.
"""

from __future__ import annotations

import json

from gateway.access.rules import Acl
from gateway.broker.session import Role, Session
from gateway.mqtt.topics import topic_matches
from gateway.site.moving.addresses import Stage, share_number
from gateway.store.move_rows import MOST_MOVES, MOVING_IDS, MovingSessionRow, name_of

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
        forwarder = None if key is None else Forwarder(key, user, member, set(_names(done)))
        known = set(_names(closed)), set(_names(tails)), tuple(_names(filters))
        if forwarder is not None:
            forwarder.groups = {n: item for item in known[2] if (n := share_number(item))}
        if not (0 < moving_id < MOVING_IDS and 0 <= moves < MOST_MOVES):
            raise ValueError("a session move with an impossible number")
        return cls(Stage(moving_id, moves), *known, forwarder)

    def row(self, session: int) -> MovingSessionRow:
        moving_id, moves = self.stage
        sets = _listed(self.closed), _listed(self.tails), json.dumps(self.filters)
        if (found := self.forwarder) is None:
            return session, moving_id, moves, *sets, None, None, None, "[]"
        done = _listed(found.done)
        return session, moving_id, moves, *sets, found.key, found.user, found.member, done

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


def _names(text: str) -> list[str]:
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError("a session move with text that is not a list of names")
    return found


def _listed(names: set[str]) -> str:
    return json.dumps(sorted(names))
