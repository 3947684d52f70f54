"""A commit: one transaction of the store, as plain rows. Nothing here knows what the rows mean.

In: `Changes.seal` fills it. Out: `gateway/store/apply.py` writes it; `gateway/store/recovery.py`
brings rows of the same form back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
MessageRow = tuple[int, str, int, int, bytes, int | None, bytes]
"""id, topic, 1 if retained, count, properties, expires (axis ms), payloads joined."""
QueueRow = tuple[int, int, int, int, int, int, bytes, str, int]
"""session, first number, count, message, index of the first payload, flags (QoS << 1 | RETAIN),
properties for this receiver, filter of the shared subscription that it comes from, bytes of one
payload.
"""
RetainedRow = tuple[str, str, int, bytes, int | None, bytes]
"""topic, client that published it, QoS, properties, expires (axis ms), payload."""
WillRow = tuple[str, int | None, int, str, int, int, bytes, int | None, bytes]
"""client, due (axis ms; None while connected), delay in s, topic, QoS, retain, properties, message
expiry in s, payload.
"""
SpoolRow = tuple[int, str | None, int | None, int | None, str, str, bytes, int, int, int | None]
"""id, device, incarnation, sequence, client, topic, payload, boot, monotonic µs, received µs UTC.
"""


@dataclass(slots=True)
class Commit:
    """One transaction as rows. ended: session ids with all that belongs to them. clock: µs UTC at
    the start of this boot, once it is known, for the spool rows that came before. axis: where the
    time axis is (ms), and µs UTC then if the clock is known.
    """

    number: int
    boot: int = 0
    clock: int | None = None
    axis: tuple[int, int | None] | None = None
    sessions: list[SessionRow] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    unsubscribed: list[tuple[int, str]] = field(default_factory=list)
    flows: list[FlowRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    queue: list[QueueRow] = field(default_factory=list)
    finished: list[tuple[int, int]] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    retained: list[RetainedRow] = field(default_factory=list)
    cleared: list[str] = field(default_factory=list)
    wills: list[WillRow] = field(default_factory=list)
    wills_done: list[str] = field(default_factory=list)
    spool: list[SpoolRow] = field(default_factory=list)
