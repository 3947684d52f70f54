"""Rows of sessions that move between the gateways of a site.

In: outbound and inbound sessions, and which gateway has the session of each client, from
`gateway/site/`. Out: rows of the tables `place`, `given`, `given_part` and `journey` (`apply.py`).

The gateways identify a session by its key: the client identifier and the user. So a user cannot
fetch or end another user's session by its client identifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from gateway.broker.store_rows import NeighbourRows, Recovered
from gateway.mqtt.wire import MAX_VARINT

HALF = 27
"""A moving id has 54 bits. It is sent in two halves of this many bits."""
MOVING_IDS = 1 << 2 * HALF
MOST_MOVES = MAX_VARINT
OWN = ""
"""The name of this gateway in lists of gateways."""
FORWARDER_PREFIX = "\0"
"""Prefix of the client identifiers of forwarders. No client can have such an identifier
[MQTT-1.5.4-2].
"""
_OF_A_DEVICE = "device"

PlaceRow = tuple[str, int, int, str]
"""Columns of `place`: key, epoch, 1 if suspect or 2 if from a copy of the store, JSON list of the
members that may hold an older session (`gateway/site/wiring/places.py`).
"""
GivenRow = tuple[str, str, int, int, int | None]
"""Columns of `given`: key, member, number of parts, number of messages, time of expiry (ms on the
time axis; None for never).
"""

MovingSessionRow = tuple[int, int, int, str, str, str, str | None, str | None, str | None, str]
"""Columns of `journey`: session, moving id, number of moves; then three JSON lists: gateways whose
cut has not arrived, gateways that send late messages, Topic Filters when the session arrived. Then,
only for a forwarder: key and user of its session, the gateway that has this session (None: not
known), JSON list of the gateways whose messages now go to that session itself (`session_moves.py`).
In the row of a session, the last four are None, None, None and [].
"""


@dataclass(slots=True)
class SessionExport:
    """Order to export a session to another gateway of the site. The rows that the session has at
    the end of the commit become parts (`gateway/store/move_out.py`), and are deleted.
    """

    session: int
    key: str
    """The key of the session (`key_of`)."""
    member: str
    """The name of the receiving gateway."""
    move: tuple[int, int, str, int] | None = None
    """The values of the MOVE record: moving id, number of moves, name of this gateway, 1 if this
    gateway has a forwarder for the session. None: the session has no subscription, so no message
    can arrive late for it.
    """
    ends: int | None = None
    """Result, set by the writer: the time at which the session expires, in ms on the time axis;
    None for never.
    """
    released: list[int] | None = None
    """Result, set by the writer: for each exported queue entry, the number of its message. None:
    the session had ended, and no row was exported.
    """


@dataclass(slots=True)
class SessionImport:
    """Order to import a session from another gateway, from parts. If the parts are wrong, no row of
    the session is written. The rest of the commit is written in any case.
    """

    session: int
    key: str
    now: int
    """The present time in ms on this gateway's time axis."""
    parts: Sequence[bytes] | None
    """The received parts. None: this gateway's own exported parts, which are still in its store."""
    first_message: int
    """First free number for a message."""
    most_messages: int
    most_queued: int
    """Largest number of messages in the session's queue. A message counts as often as the queue has
    entries that refer to it.
    """
    most_subscriptions: int
    me: str
    """The name of this gateway."""
    others: Sequence[str]
    """The names of the other gateways."""
    state: Recovered | None = None
    """Result, set by the writer: the session's state, as a start would read it."""
    wrong: str | None = None
    """Result, set by the writer if the session cannot be imported: the reason, in words."""


@dataclass(slots=True)
class Moves(NeighbourRows):
    """Changes in a commit that concern the other gateways of the site."""

    exports: list[SessionExport] = field(default_factory=list)
    imports: list[SessionImport] = field(default_factory=list)
    redirected: list[tuple[str, str]] = field(default_factory=list)
    """(member, key) of exported sessions that now go to `member`, because the member that was
    chosen first did not fetch them.
    """
    forgotten: list[str] = field(default_factory=list)
    """Keys of exported sessions whose parts this commit deletes."""
    moving_sessions: list[MovingSessionRow] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    """Numbers of sessions whose moves are over: their rows of `journey` are deleted."""
    places: dict[str, PlaceRow | None] = field(default_factory=dict)
    """Rows of `place` by key. None: delete the row."""
    trusted: bool = False
    """Whether this commit marks the sessions of a restored store as suspect. If True, the writer
    also deletes `mistrusted` from `meta`.
    """
    members: frozenset[str] | None = None
    """The other members of the site; None if they have not changed."""


@dataclass(slots=True)
class Moved(NeighbourRows):
    """The store's records of session moves between the gateways of a site."""

    places: Sequence[PlaceRow] = ()
    moved_out: Sequence[GivenRow] = ()
    is_suspect: bool = False
    """Whether the store was restored and its sessions are not yet marked as suspect."""
    members: frozenset[str] | None = None
    """The other members of the site when this store was last used in a site. None: the store has
    never run in a site.
    """
    moving_sessions: Sequence[MovingSessionRow] = ()


@lru_cache(maxsize=4096)
def key_of(client: str, user: str | None, incarnation: int) -> str:
    """Return the key of a session. incarnation: the board's incarnation, 0 for clients other than
    boards.
    """
    if incarnation:
        return f"{client}\0{_OF_A_DEVICE}"
    if user is None:
        return client
    return f"{client}\0{sha256(user.encode()).hexdigest()[:16]}"


def name_of(key: str) -> str:
    """Return the client identifier in a session key."""
    return key.partition("\0")[0]


def moved_of(state: Recovered) -> Moved:
    """Return a store's records about session moves, or an empty `Moved`."""
    return state.neighbours if isinstance(state.neighbours, Moved) else Moved()


def had_site(state: Recovered) -> bool:
    """Return whether the gateway of a store was in a site before."""
    moved = moved_of(state)
    return (
        bool(moved.places or moved.moved_out or moved.moving_sessions or moved.members is not None)
    ) or any(client.startswith(FORWARDER_PREFIX) for _, client, *_ in state.sessions)
