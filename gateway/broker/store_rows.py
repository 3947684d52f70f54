"""The rows that go to the store with a commit, and come back from it at a start. Nothing here knows
what they mean.

In: `Changes.seal` fills a `Commit`. Out: `gateway/store/apply.py` writes it in one transaction, and
`gateway/store/recovery.py` brings the rows back as `Recovered`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SessionRow = tuple[int, str, int, int | None, int, str | None]
"""id, client, expiry in seconds, when it was left (axis ms; None while connected), incarnation,
user.
"""
FlowRow = tuple[int, bytes, int, bytes, bytes]
"""session, packet ids received (as `message_ids.unpack_set` reads them), number of the next message
to send, identifiers sent and not acknowledged, identifiers released.
"""
SubscriptionRow = tuple[int, str, int, int]
"""session, filter, options (bits 0-1 QoS, 2 no local, 3 retain as published, 4 its retained
messages are still to come), subscription identifier (0 = none).
"""
RETAINED_TO_COME = 16
AsideRow = tuple[int, str, int | None, str, int, int, bytes, int | None, bytes, str]
"""number, bridge, when it was set aside (µs since 1970, None if the clock was unknown), topic, QoS,
1 if retained, properties, expires (axis ms), payload, reason.
"""
MessageRow = tuple[int, str, int, int, bytes, int | None, bytes]
"""id, topic, 1 if retained, count, properties, expires (axis ms), payloads joined."""
QueueRow = tuple[int, int, int, int, int, int, bytes, str, int]
"""session, first number, count, message, index of the first payload, flags (QoS << 1 | RETAIN),
properties for this receiver, filter of the shared subscription that it comes from, bytes of one
publication for the bounds (`PublishRun.weight`).
"""
RetainedRow = tuple[str, str, int, bytes, int | None, bytes, int | None]
"""topic, client that published it, QoS, properties, expires (axis ms), payload (empty for a
deletion that is remembered), version (0 or None: it was not shared with a site's other gateways).
"""
WillRow = tuple[str, int | None, int, str, int, int, bytes, int | None, bytes]
"""client, due (axis ms; None while connected), delay in s, topic, QoS, retain, properties, message
expiry in s, payload.
"""
SpoolRow = tuple[int, str | None, int | None, int | None, str, str, bytes, int, int, int | None]
"""id, device, incarnation, sequence, client, topic, payload, boot, monotonic µs, received µs UTC.
"""


MarkRow = tuple[str, int, int, int, int, bytes]
"""device, place, incarnation, highest sequence, window (`marks.py`), packet identifiers that an
older version kept (as `message_ids.unpack_set` reads them).
"""


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
    """Whose session it is (`gateway/broker/elsewhere.py`)."""
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
class Moves:
    """What a commit changes for the sake of the site's other gateways."""

    giving: list[Giving] = field(default_factory=list)
    taking: list[Taking] = field(default_factory=list)
    readdressed: list[tuple[str, str]] = field(default_factory=list)
    """member, key: what was given to somebody else, who has not taken it."""
    forgotten: list[str] = field(default_factory=list)
    """Keys of what was given and is kept no longer."""
    places: dict[str, PlaceRow | None] = field(default_factory=dict)
    """By key. None: nothing is to be remembered any more."""
    trusted: bool = False
    """The sessions of a restored store are marked."""
    members: frozenset[str] | None = None
    """Those of the site, where they are other ones than before."""


@dataclass(slots=True)
class Commit:
    """One transaction."""

    number: int
    boot: int = 0
    clock: int | None = None
    """µs UTC at the start of this boot, once it is known, for the spool rows that came before."""
    axis: tuple[int, int | None] | None = None
    """Where the time axis is (ms), and µs UTC then if the clock is known."""
    sessions: list[SessionRow] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    """Ids of sessions that go with all that belongs to them, but for `left`."""
    left: list[tuple[int, int]] = field(default_factory=list)
    """Of sessions that have ended: up to which number all rows of their queues go. Those behind it
    that came from shared subscriptions stay for now."""
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    unsubscribed: list[tuple[int, str]] = field(default_factory=list)
    flows: list[FlowRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    queue: list[QueueRow] = field(default_factory=list)
    finished: list[tuple[int, int]] = field(default_factory=list)
    """Queue rows that go, as session and first number."""
    dead: list[int] = field(default_factory=list)
    """Ids of messages that go."""
    retained: list[RetainedRow] = field(default_factory=list)
    cleared: list[str] = field(default_factory=list)
    wills: list[WillRow] = field(default_factory=list)
    wills_done: list[str] = field(default_factory=list)
    marks: list[MarkRow] = field(default_factory=list)
    spool: list[SpoolRow] = field(default_factory=list)
    journeys: list[JourneyRow] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    """Sessions whose journeys are over."""
    moves: Moves | None = None
    """None without a site."""
    aside: list[AsideRow] = field(default_factory=list)
    aside_gone: list[int] = field(default_factory=list)
    """Numbers of messages that are set aside no longer."""


class Moved(NamedTuple):
    """What a store knows of sessions that move between the gateways of a site."""

    places: Sequence[PlaceRow] = ()
    given: Sequence[GivenRow] = ()
    mistrusted: bool = False
    """The store was restored, and its sessions are not marked for that yet."""
    members: frozenset[str] | None = None
    """The others that the site had when it ran last. None: it has never run in a site."""


@dataclass(slots=True)
class Recovered:
    """What the store holds at a start."""

    boot: int = 1
    """Number of this start."""
    now: float = 0.0
    """Where the time axis goes on, in seconds."""
    next_session: int = 1
    """The first free number; so with the two below."""
    next_message: int = 1
    next_spool: int = 1
    spool: list[tuple[int, int]] = field(default_factory=list)
    """(last id, bytes) of the rows in the spool, in order."""
    lowest_spool: int | None = None
    """Id of its oldest row."""
    spool_users: list[tuple[int, str | None, int]] = field(default_factory=list)
    """Whose they are, as far as their clients still have sessions: (id of a row, user, bytes of his
    rows around it)."""
    sessions: list[SessionRow] = field(default_factory=list)
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    flows: list[FlowRow] = field(default_factory=list)
    queue: list[tuple[Any, ...]] = field(default_factory=list)
    """What was or may have been in flight, as session and `StoredDelivery`, in order of session and
    first number."""
    tails: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """What waits behind it, as session, first number, number after the last, messages, bytes of
    them without OVERHEAD."""
    leaving: list[int] = field(default_factory=list)
    """Sessions that have ended, whose messages from shared subscriptions nobody else has yet."""
    references: list[tuple[int, int]] = field(default_factory=list)
    """Messages that more than one row of the queue refers to, with how many do."""
    retained: list[RetainedRow] = field(default_factory=list)
    wills: list[WillRow] = field(default_factory=list)
    marks: list[MarkRow] = field(default_factory=list)
    journeys: list[JourneyRow] = field(default_factory=list)
    moved: Moved = field(default_factory=Moved)
    aside: list[tuple[int, str, int]] = field(default_factory=list)
    """Messages that are set aside: number, bridge, and the bytes that it counts for, in order."""
