"""Entries of a session's queue (a run, or part of one), the orders that read them from the store,
and the connection as the queue sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gateway.broker.publish_run import LARGE, Piece, PublishRun
from gateway.broker.store_rows import QueueRow
from gateway.broker.topic import NOTICES

PAGE_ROWS = 256
PAGE_BYTES = 1_000_000
"""Largest number of rows, and of bytes, that one read takes from a queue in the store."""
MOST_PENDING = 4 * PAGE_ROWS
"""Largest number of messages that a connected session keeps in memory in addition to those in
flight. Their size is at most `PAGE_BYTES`. The rest of its queue stays in the store. The value
leaves room for a thousand devices that publish at once.
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
        "open",
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
        """Number of the session."""
        self.run = run
        self.first = first
        """Number of the first message; the others follow."""
        self.count = count
        self.skip = skip
        """Index in the run of the first publication."""
        self.flags = flags
        """QoS << 1 | RETAIN."""
        self.extra = extra
        """Properties for this receiver."""
        self.commit = commit
        """The commit that a QoS 2 PUBLISH waits for, 0 for none."""
        self.share = share
        """Filter of the shared subscription that the messages match, or empty."""
        self.sent = 0
        """Number of messages that were sent."""
        self.open = count
        """Number of messages that are not finished."""
        self.kept = False
        """Whether the messages belong in the store."""
        self.stored = False
        """Whether the store or the sealed commit has a row for the delivery."""

    @property
    def notice(self) -> bool:
        """Whether later messages depend on this one."""
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
    """An order to read a page of a session's queue, from number `first` on."""

    session: int
    first: int
    whole: bool = False
    """Whether commits before the read contain the whole queue, so that the page cannot be empty."""


@dataclass(frozen=True, slots=True)
class Collect:
    """An order to read a page of an ended session's queue, from number `first` on. Only rows from
    shared subscriptions are read.
    """

    session: int
    first: int
    others: bool = False
    """Whether to read the message numbers of the session's other rows, too. The commit that ends
    the session deletes these rows.
    """


Order = Load | Collect
"""An order for the store."""


class Undelivered(NamedTuple):
    """Messages that a shared subscription's subscriber did not get before its session ended."""

    run: PublishRun
    qos: int
    share: str
    """Filter of the shared subscription."""
    skip: int
    """Index in the run of the first message."""
    number: int
    """Number of the messages."""


class Receiver(Protocol):
    """The connection to the session's client, as far as the queue needs it."""

    @property
    def full(self) -> bool:
        """Whether nothing more should be sent for now."""

    @property
    def room(self) -> int:
        """Bytes that may be sent until the connection is full."""

    def shape(self, run: PublishRun, first: int, extra: bytes) -> tuple[bytes, bytes] | None: ...

    def send(self, packets: Piece, commit: int = 0, acknowledgements: int = 0) -> None: ...

    def send_qos_0(
        self, run: PublishRun, flags: int, extra: bytes, skip: int, count: int
    ) -> None: ...

    def fail(self, error: Exception, doing: str) -> None:
        """End the connection soon, because a call for it has raised an exception."""


class Outgoing:
    """Packets that are sent together."""

    __slots__ = ("_commit", "_packets", "_room", "_size", "connection")

    def __init__(self, connection: Receiver) -> None:
        self.connection = connection
        self._packets: list[Piece] = []
        self._size = 0
        self._room = connection.room
        """Bytes until the connection is full."""
        self._commit = 0
        """The commit that the packets wait for."""

    def add(self, packets: Piece, commit: int) -> None:
        large = len(packets) >= LARGE
        if commit != self._commit or large:
            self.flush()
            self._commit = commit
        self._packets.append(packets)
        self._size += len(packets)
        if self._size > self._room or large:
            self.flush()

    def flush(self) -> None:
        if self._packets:
            try:
                packets = self._packets
                self.connection.send(
                    packets[0] if len(packets) == 1 else b"".join(packets), self._commit
                )
            except Exception as error:
                self.connection.fail(error, "messages are sent")
            self._packets.clear()
            self._size = 0
            self._room = self.connection.room
