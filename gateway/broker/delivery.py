"""What stands in a session's queue: a run, or part of one. The orders that bring it back from the
store, and the connection to the session's client, as far as the queue knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gateway.broker.publish_run import PublishRun
from gateway.broker.store_rows import QueueRow
from gateway.broker.topic import NOTICES

PAGE_ROWS = 256
PAGE_BYTES = 1_000_000
"""What is read of a queue in the store in one step."""
MOST_PENDING = 4 * PAGE_ROWS
"""What a connected session holds in memory beyond what is in flight, and no more than `PAGE_BYTES`;
the rest of its queue waits in the store. A thousand devices that publish at once all fit in.
"""
PAGE_LOW = 64


class Delivery:
    """A run, or part of one, in one session's queue."""

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
        """Its number."""
        self.run = run
        self.first = first
        """The number of its first message; the others follow."""
        self.count = count
        self.skip = skip
        """Index in the run of its first publication."""
        self.flags = flags
        """QoS << 1 | RETAIN."""
        self.extra = extra
        """Properties for this receiver."""
        self.commit = commit
        """The commit that a QoS 2 PUBLISH waits for, 0 for none."""
        self.share = share
        """Filter of the shared subscription that it comes from."""
        self.sent = 0
        """How many have been sent."""
        self.left = count
        """How many are not done."""
        self.kept = False
        """It belongs into the store."""
        self.stored = False
        """It has a row there, or the sealed commit holds one."""

    @property
    def notice(self) -> bool:
        """What follows it means something else without it."""
        return self.run.topic.name == NOTICES

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
            self.run.weight,
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Read a page of a session's queue, from number `first` on."""

    session: int
    first: int
    whole: bool = False
    """All of the queue is in commits that come before the reading: something must be there."""


@dataclass(frozen=True, slots=True)
class Collect:
    """A session has ended: read a page of those rows of its queue, from number `first` on, that
    came from shared subscriptions.
    """

    session: int
    first: int
    others: bool = False
    """Read which messages its other rows refer to, too: the commit that ends it takes them away."""


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


class Receiver(Protocol):
    """The connection to the session's client, as far as its queue knows it."""

    @property
    def full(self) -> bool:
        """Nothing more should be sent for now."""

    @property
    def room(self) -> int:
        """Bytes that may be sent until it is full."""

    def shape(self, run: PublishRun, first: int, extra: bytes) -> tuple[bytes, bytes] | None: ...

    def send(self, packets: bytes, commit: int = 0, acknowledgements: int = 0) -> None: ...

    def send_qos_0(
        self, run: PublishRun, flags: int, extra: bytes, skip: int, count: int
    ) -> None: ...

    def fail(self, error: Exception, doing: str) -> None:
        """End the connection soon, because a call for it has raised an exception."""


class Outgoing:
    """Packets that leave in one piece."""

    __slots__ = ("_commit", "_packets", "_room", "_size", "connection")

    def __init__(self, connection: Receiver) -> None:
        self.connection = connection
        self._packets: list[bytes] = []
        self._size = 0
        self._room = connection.room
        """Bytes until the connection is full."""
        self._commit = 0
        """The commit that they wait for."""

    def add(self, packets: bytes, commit: int) -> None:
        if commit != self._commit:
            self.flush()
            self._commit = commit
        self._packets.append(packets)
        self._size += len(packets)
        if self._size > self._room:
            self.flush()

    def flush(self) -> None:
        if self._packets:
            try:
                self.connection.send(b"".join(self._packets), self._commit)
            except Exception as error:
                self.connection.fail(error, "messages are sent")
            self._packets.clear()
            self._size = 0
            self._room = self.connection.room
