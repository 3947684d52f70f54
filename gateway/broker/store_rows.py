"""Rows that go to the store with a commit, and are read from it at a start. This file only defines
the rows.

In: `Changes.seal` fills a `Commit`. Out: `gateway/store/apply.py` writes it in one transaction, and
`gateway/store/recovery.py` reads the rows as `Recovered`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SessionRow = tuple[int, str, int, int | None, int, str | None]
"""id, client, expiry in seconds, end of the connection (ms on the time axis; None while connected),
incarnation, user."""
FlowRow = tuple[int, bytes, int, bytes, bytes]
"""session, packet ids received (as `message_ids.unpack_set` reads them), number of the next message
to send, identifiers sent and not acknowledged, identifiers released."""
SubscriptionRow = tuple[int, str, int, int]
"""session, filter, options (bits 0-1 QoS, 2 no local, 3 retain as published, 4 retained messages
are still to be sent), subscription identifier (0 = none)."""
RETAINED_TO_COME = 16
AsideRow = tuple[int, str, int | None, str, int, int, bytes, int | None, bytes, str]
"""number, bridge, time of setting aside (µs since 1970, None if the clock was unknown), topic, QoS,
1 if retained, properties, expires (ms on the time axis), payload, reason."""
ASIDE_OVERHEAD = 64
"""Bytes that are counted for an `AsideRow` in addition to topic, payload and properties."""
MessageRow = tuple[int, str, int, int, bytes, int | None, bytes]
"""id, topic, 1 if retained, count, properties, expires (ms on the time axis), payloads joined."""
QueueRow = tuple[int, int, int, int, int, int, bytes, str, int]
"""session, first number, count, message, index of the first payload, flags (QoS << 1 | RETAIN),
properties for this receiver. Then: filter of the shared subscription, bytes of one publication for
the bounds (`PublishRun.weight`)."""
RetainedRow = tuple[str, str, int, bytes, int | None, bytes, int | None]
"""topic, publishing client, QoS, properties, expires (ms on the time axis), payload (empty for a
deletion), version (0 or None: not shared with peer gateways)."""
WillRow = tuple[str, int | None, int, str, int, int, bytes, int | None, bytes]
"""client, due (ms on the time axis; None while connected), delay in s, topic, QoS, retain,
properties, message expiry in s, payload."""
SpoolRow = tuple[int, str | None, int | None, int | None, str, str, bytes, int, int, int | None]
"""id, device, incarnation, sequence, client, topic, payload, boot, monotonic µs, received µs UTC.
"""
OriginRow = tuple[str, str, str, int]
"""kind, key, origin, bytes. Key: the identifier of an anonymous client (kind `session`), a topic
(`retained`), or a part of the spool and an origin with `bytes` in this part (`spool`)."""
MarkRow = tuple[str, int, int, int, int, bytes]
"""device, place (0…3, slot of the incarnation), incarnation, highest sequence, window (`marks.py`),
packet identifiers that an older version kept (as `message_ids.unpack_set` reads them)."""


class NeighbourRows:
    """Rows about peer gateways. Only an implementation of `neighbours.py` reads them."""


@dataclass(slots=True)
class Commit:
    """The changes of one transaction, as rows."""

    number: int
    boot: int = 0
    clock: int | None = None
    """Start of this boot in µs UTC, once known. Earlier spool rows of this boot need it."""
    axis: tuple[int, int | None] | None = None
    """Position of the time axis (ms), and µs UTC at that time if the clock is known."""
    sessions: list[SessionRow] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    """Ids of sessions to delete, with all rows except shared subscriptions' rows (`trimmed`)."""
    trimmed: list[tuple[int, int]] = field(default_factory=list)
    """Queue rows of ended sessions to delete: session, and highest number to delete. Rows with
    higher numbers, from shared subscriptions, stay for now."""
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    unsubscribed: list[tuple[int, str]] = field(default_factory=list)
    flows: list[FlowRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    queue: list[QueueRow] = field(default_factory=list)
    finished: list[tuple[int, int]] = field(default_factory=list)
    """Queue rows to delete, as session and first number."""
    dead: list[int] = field(default_factory=list)
    """Ids of messages to delete."""
    retained: list[RetainedRow] = field(default_factory=list)
    cleared: list[str] = field(default_factory=list)
    wills: list[WillRow] = field(default_factory=list)
    wills_done: list[str] = field(default_factory=list)
    marks: list[MarkRow] = field(default_factory=list)
    spool: list[SpoolRow] = field(default_factory=list)
    neighbours: NeighbourRows | None = None
    origins: list[OriginRow] = field(default_factory=list)
    origins_gone: list[tuple[str, str]] = field(default_factory=list)
    aside: list[AsideRow] = field(default_factory=list)
    aside_gone: list[int] = field(default_factory=list)
    """Numbers of set-aside messages to delete."""


@dataclass(slots=True)
class Recovered:
    """The contents of the store at a start, except the tails of long queues (`tails`)."""

    boot: int = 1
    """Number of this start of the gateway with this store, from 1."""
    now: float = 0.0
    """Time on the time axis, in seconds, from which this start continues."""
    next_session: int = 1
    """Lowest unused session number. Likewise `next_message` and `next_spool`, for their ids."""
    next_message: int = 1
    next_spool: int = 1
    spool: list[tuple[int, int]] = field(default_factory=list)
    """Last id and size in bytes of each part of the spool (`spool.PART`), in order."""
    lowest_spool: int | None = None
    """Id of the oldest row in the spool, None without a row."""
    spool_users: list[tuple[int, str | None, int]] = field(default_factory=list)
    """For each user and part of the spool (`spool.PART`): id of the newest row, user, and bytes of
    the rows. Rows of clients without a session are left out."""
    sessions: list[SessionRow] = field(default_factory=list)
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    flows: list[FlowRow] = field(default_factory=list)
    queue: list[tuple[Any, ...]] = field(default_factory=list)
    """Deliveries that were in flight, or may have been: session, and columns of `StoredDelivery`.
    In order of session and first number."""
    tails: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """Tails of queues: session, first number, number after the last, messages, bytes without
    OVERHEAD."""
    leaving: list[int] = field(default_factory=list)
    """Ids of ended sessions whose messages of shared subscriptions are not yet redistributed."""
    references: list[tuple[int, int]] = field(default_factory=list)
    """Messages with more than one queue row, each with the number of its rows."""
    retained: list[RetainedRow] = field(default_factory=list)
    wills: list[WillRow] = field(default_factory=list)
    marks: list[MarkRow] = field(default_factory=list)
    neighbours: NeighbourRows | None = None
    origins: list[OriginRow] = field(default_factory=list)
    aside: list[tuple[int, str, int]] = field(default_factory=list)
    """Messages that are set aside: number, bridge, and counted bytes, in order."""
