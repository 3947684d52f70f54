"""Entries of a session's queue: each is a run, or part of a run. This file defines the entries,
references to their rows in the store, orders to read these rows, and the connection as the queue
sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gateway.broker.publish_run import NOTICES, PublishRun
from gateway.broker.store_rows import QueueRow
from gateway.mqtt.runs import LARGE, Piece

PAGE_ROWS = 256
PAGE_BYTES = 1_000_000
"""A read from a stored queue ends at PAGE_ROWS rows, or at the row that reaches PAGE_BYTES."""
MOST_PENDING = 4 * PAGE_ROWS
"""Largest number of messages that a connected session keeps in memory in addition to the messages
in flight; their total size is at most about `PAGE_BYTES`. The rest of its queue stays in the store.
The value leaves room for a thousand devices that publish at the same time.
"""
PAGE_LOW = 64
_SWEEP = 256
"""From this number of unneeded message rows on, they are deleted even while the disk is busy."""


class Delivery:
    """A run, or part of a run, in the queue of one session."""

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
        self.run = run
        self.first = first
        """Number of the delivery's first message. Its later messages have the next numbers."""
        self.count = count
        self.skip = skip
        """Index in the run of the first publication of this delivery."""
        self.flags = flags
        """Flags of the PUBLISH's first byte: QoS << 1 | RETAIN."""
        self.extra = extra
        """Encoded properties for this receiver only."""
        self.commit = commit
        """Number of the commit that a QoS 2 PUBLISH waits for, 0 for none."""
        self.share = share
        """Filter of the shared subscription that the messages match, or empty."""
        self.sent = 0
        self.open = count
        """Number of messages that are neither acknowledged (PUBACK, PUBREC) nor dropped."""
        self.kept = False
        """Whether the delivery has to be in the store: QoS above 0, in a durable session."""
        self.stored = False
        """Whether the store, or a sealed commit, has a row for the delivery."""

    @property
    def notice(self) -> bool:
        """Whether the messages are notices between gateways, on which later messages depend."""
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
    """An order for the store: read a page of a session's queue, from message number `first` on."""

    session: int
    first: int
    whole: bool = False
    """If True, all rows of the queue are on disk before the read, so an empty page means a loss."""


@dataclass(frozen=True, slots=True)
class Collect:
    """An order for the store: read a page of an ended session's queue, from message number `first`
    on. Only rows from shared subscriptions are read; of other rows, at most the message ids.
    """

    session: int
    first: int
    others: bool = False
    """Whether to read also the message ids of the session's other rows. The commit that ends the
    session deletes these rows."""


Order = Load | Collect


class Undelivered(NamedTuple):
    """Messages for the subscribers of a shared subscription: new messages, or messages that a
    subscriber did not get before its session ended.
    """

    run: PublishRun
    qos: int
    share: str
    """Filter of the shared subscription."""
    skip: int
    """Index in the run of the first of these messages."""
    number: int
    """Number of consecutive messages of the run, beginning with `skip`."""


class NeededRows:
    """References to rows of the tables `message` and `queue`.

    In: new and removed references to messages. Out: ids for new messages, and keys of rows to
    delete. A message is stored once, however many queues refer to it. Only messages with more than
    one reference are counted, so a million waiting messages take no memory here.

    A new message overwrites the row of a message that is no longer needed. Overwriting a row
    touches one page of the database; an insert and a delete touch six. The queue rows of the old
    message are deleted in the same commit, or earlier.
    """

    __slots__ = ("_references", "dead", "finished", "next", "reused")

    def __init__(self, next_message: int, references: list[tuple[int, int]]) -> None:
        self.next = next_message
        """Lowest id that no message has had yet."""
        self.finished: list[tuple[int, int]] = []
        """Queue rows to be deleted, each as session number and first message number."""
        self.dead: list[int] = []
        """Ids of messages to be deleted, unless new messages take the ids over."""
        self.reused: set[int] = set()
        """Ids that were in `dead`, and that new messages of the open changes have taken over."""
        self._references = dict(references)

    @property
    def unwritten_deletions(self) -> int:
        """Number of rows that wait to be deleted."""
        return len(self.finished) + len(self.dead)

    def refer(self, run: PublishRun) -> None:
        """Count a queue row that refers to a run. The first one gives the run its message id."""
        if run.message:
            self._references[run.message] = self._references.get(run.message, 1) + 1
        elif self.dead:
            run.message = self.dead.pop()
            self.reused.add(run.message)
        else:
            run.message = self.next
            self.next += 1

    def know(self, references: list[tuple[int, int]]) -> None:
        """Add messages with more than one reference, each with the number of its references."""
        self._references.update(references)

    def reserve(self, count: int) -> int:
        """Reserve `count` ids that no message has had. Return the first one."""
        self.next += count
        return self.next - count

    def forget(self, run: PublishRun) -> None:
        """Note that one queue row less refers to a run. After the last one, `run.message` is 0."""
        if run.message and self.release(run.message, run.written or run.message in self.reused):
            run.message = 0
            run.written = False

    def release(self, message: int, written: bool = True) -> bool:
        """Remove a reference to a message. Return True if it was the last reference. written:
        whether the store has a row with this id. After the last reference, this row is deleted or
        overwritten.
        """
        count = self._references.pop(message, 1)
        if count > 2:
            self._references[message] = count - 1
        if count == 1 and written:
            self.dead.append(message)
        return count == 1

    def sweep(self, all_of_them: bool) -> tuple[list[tuple[int, int]], list[int]]:
        """Return what to delete with the sealed changes: keys of queue rows, and ids of messages
        (few ids only with `all_of_them`). The same commit removes the messages of these queue rows
        from `flow`. So a start can tell a finished delivery from a damaged `flow`.
        """
        finished, self.finished = self.finished, []
        self.reused.clear()
        dead: list[int] = []
        if all_of_them or len(self.dead) >= _SWEEP:
            dead, self.dead = self.dead, []
        return finished, dead


class Receiver(Protocol):
    """The connection to the session's client (`connection.py`), as far as the queue needs it."""

    @property
    def full(self) -> bool: ...

    @property
    def size(self) -> int: ...

    def shape(self, run: PublishRun, first: int, extra: bytes) -> tuple[bytes, bytes] | None: ...

    def send(self, packets: Piece, commit: int = 0, acknowledgements: int = 0) -> None: ...

    def send_qos_0(
        self, run: PublishRun, flags: int, extra: bytes, skip: int, count: int
    ) -> None: ...

    def fail(self, error: Exception, doing: str) -> None: ...


class Outgoing:
    """Packets for one connection that are collected and sent together."""

    __slots__ = ("_commit", "_most", "_packets", "_size", "connection")

    def __init__(self, connection: Receiver, most: int) -> None:
        self.connection = connection
        self._most = most
        """Bytes that may wait for the client before the connection counts as full."""
        self._packets: list[Piece] = []
        self._size = 0
        self._commit = 0
        """Number of the commit that must be on disk before the packets are sent."""

    def add(self, packets: Piece, commit: int) -> None:
        large = len(packets) >= LARGE
        if self._packets and (commit != self._commit or large):
            self.flush()
        self._commit = commit
        self._packets.append(packets)
        self._size += len(packets)
        if large or self.connection.size + self._size > self._most:
            self.flush()

    def flush(self) -> None:
        if self._packets:
            try:
                packets = self._packets
                self.connection.send(
                    packets[0] if len(packets) == 1 else b"".join(packets), self._commit
                )
            except Exception as error:
                self.connection.fail(error, "sending messages")
            self._packets.clear()
            self._size = 0
