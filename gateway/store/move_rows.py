"""The rows of sessions that move between the gateways of a site.

In: sessions that leave and come, and places of clients, from `gateway/site/`. Out: the same in the
tables `place`, `given`, `given_part` and `journey` (`moves.py`).

A session is known among the gateways by its key: its client identifier and whose it is. So nobody
can fetch or end the session of another user by its client identifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from gateway.broker.store_rows import NeighbourRows, Recovered
from gateway.mqtt.wire import MAX_VARINT

HALF = 27
"""Bits of each of the two numbers that a lineage is sent as."""
LINEAGES = 1 << 2 * HALF
MOST_MOVES = MAX_VARINT
OWN = ""
"""This gateway, among the names of gateways."""
STANDS_IN = "\0"
"""A client identifier that begins so is that of a follower: no client has one [MQTT-1.5.4-2]."""
_OF_A_DEVICE = "device"

PlaceRow = tuple[str, int, int, str]
"""key, epoch, 1 if doubtful, names of the members that may hold an older session, as a list in
JSON (`gateway/site/rules/holder.py`).
"""
GivenRow = tuple[str, str, int, int, int | None]
"""key, member, parts, messages, ends (axis ms; None for never)."""

JourneyRow = tuple[int, int, int, str, str, str, str | None, str | None, str | None, str]
"""session, lineage, moves, then names as lists in JSON: gateways whose cut has not come, gateways
that send on what comes late, filters that it came with. Of a follower: key and user of the session
that it follows, where that is (None: not known), gateways that are done (`journey.py`); None, None,
None and [] for others.
"""


@dataclass(slots=True)
class Giving:
    """A session leaves for another gateway of the site. Its rows as they stand at the end of the
    commit become parts (`gateway/store/move_out.py`), and go.
    """

    session: int
    key: str
    """Whose session it is (`gateway/store/move_rows.py`)."""
    member: str
    """Name of the gateway that takes it."""
    journey: tuple[int, int, str, int] | None = None
    """lineage, moves, name of this gateway, 1 if a follower is here. None: it had no subscription,
    so no message is late for it."""
    ends: int | None = None
    """The writer's answer: when the session expires (axis ms), None for never."""
    released: list[int] | None = None
    """And for each row of its queue that went, the message that it refers to. None: it had ended,
    and nothing has left."""


@dataclass(slots=True)
class Taking:
    """A session comes from another gateway, as parts. When they are wrong nothing of it is written,
    and the rest of the commit is.
    """

    session: int
    key: str
    now: int
    """Where the time axis is (ms)."""
    parts: Sequence[bytes] | None
    """None: those that were given, and are still here."""
    first_message: int
    """Ids from this one on are for its messages."""
    most_messages: int
    most_queued: int
    """Places in its queue, of which several may refer to one message."""
    most_subscriptions: int
    me: str
    """Name of this gateway,"""
    others: Sequence[str]
    """and of the others."""
    state: Recovered | None = None
    """The writer's answer: what a start would read of the session."""
    wrong: str | None = None
    """Or why it cannot be taken."""


@dataclass(slots=True)
class Moves(NeighbourRows):
    """What a commit changes for the sake of the site's other gateways."""

    giving: list[Giving] = field(default_factory=list)
    taking: list[Taking] = field(default_factory=list)
    readdressed: list[tuple[str, str]] = field(default_factory=list)
    """member, key: what was given to somebody else, who has not taken it."""
    forgotten: list[str] = field(default_factory=list)
    """Keys of what was given and is kept no longer."""
    journeys: list[JourneyRow] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    """Sessions whose journeys are over."""
    places: dict[str, PlaceRow | None] = field(default_factory=dict)
    """By key. None: nothing is to be remembered any more."""
    trusted: bool = False
    """The sessions of a restored store are marked."""
    members: frozenset[str] | None = None
    """Those of the site, where they are other ones than before."""


@dataclass(slots=True)
class Moved(NeighbourRows):
    """What a store knows of sessions that move between the gateways of a site."""

    places: Sequence[PlaceRow] = ()
    given: Sequence[GivenRow] = ()
    mistrusted: bool = False
    """The store was restored, and its sessions are not marked for that yet."""
    members: frozenset[str] | None = None
    """The others that the site had when it ran last. None: it has never run in a site."""
    journeys: Sequence[JourneyRow] = ()


def key_of(client: str, user: str | None, incarnation: int) -> str:
    """incarnation: of the board that it is, 0 for other clients."""
    if incarnation:
        return f"{client}\0{_OF_A_DEVICE}"
    if user is None:
        return client
    return f"{client}\0{sha256(user.encode()).hexdigest()[:16]}"


def name_of(key: str) -> str:
    """The client identifier in a key."""
    return key.partition("\0")[0]


def moved_of(state: Recovered) -> Moved:
    """Return what a store knows of moves."""
    return state.neighbours if isinstance(state.neighbours, Moved) else Moved()


def had_site(state: Recovered) -> bool:
    """Whether a store knows anything of other gateways."""
    moved = moved_of(state)
    return (
        bool(moved.places or moved.given or moved.journeys or moved.members is not None)
    ) or any(client.startswith(STANDS_IN) for _, client, *_ in state.sessions)
