"""What stands in a session's queue: a run, or part of one. And the orders that bring it back from
the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gateway.broker.publish_run import PublishRun
    from gateway.broker.store_rows import QueueRow

OVERHEAD = 64
"""Bytes that a queued message takes beside its payload, for the bounds."""


PAGE_ROWS = 256
PAGE_BYTES = 1_000_000
"""What a connected session holds in memory beyond what is in flight; the rest of its queue waits in
the store.
"""
PAGE_LOW = 64


class Delivery:
    """A run, or part of one, in one session's queue.

    session: the session's number. first, count: its numbers. skip: index in the run of its first
    publication. flags: QoS << 1 | RETAIN. extra: properties for this receiver. sent: how many have
    been sent. left: how many are not done. commit: the commit that a QoS 2 PUBLISH waits for, 0 for
    none. share: filter of the shared subscription that it comes from. kept: it belongs into the
    store. stored: it has a row there, or the sealed commit holds one.
    """

    __slots__ = (
        "commit",
        "count",
        "extra",
        "first",
        "flags",
        "kept",
        "left",
        "run",
        "sent",
        "session",
        "share",
        "skip",
        "stored",
    )

    def __init__(
        self,
        session: int,
        run: PublishRun,
        first: int,
        count: int,
        skip: int,
        flags: int,
        extra: bytes,
        commit: int = 0,
        share: str = "",
    ) -> None:
        self.session = session
        self.run = run
        self.first = first
        self.count = count
        self.skip = skip
        self.flags = flags
        self.extra = extra
        self.commit = commit
        self.share = share
        self.sent = 0
        self.left = count
        self.kept = False
        self.stored = False

    def row(self) -> QueueRow:
        message = self.run.message
        return (
            self.session,
            self.first,
            self.count,
            message,
            self.skip,
            self.flags,
            self.extra,
            self.share,
            self.run.size,
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Read a page of a session's queue, from number `first` on."""

    session: int
    first: int


@dataclass(frozen=True, slots=True)
class Collect:
    """A session ends: read which messages its queue refers to from number `first` on, and those
    rows that came from shared subscriptions.
    """

    session: int
    first: int


Order = Load | Collect
"""For the store."""


class LeftBehind(NamedTuple):
    """Messages that a member of a shared subscription did not get before its session ended."""

    run: PublishRun
    qos: int
    share: str
    """Filter of the shared subscription."""
    skip: int
    """Index in the run of the first one."""
    number: int
    """How many they are."""
