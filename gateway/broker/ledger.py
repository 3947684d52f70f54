"""What every queue must know of the whole: how much waits in all, what the next commit will hold,
what the store is to read, and what is counted.

In: what queues take, send and finish. Out: the open changes, and orders for the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Protocol

from gateway.broker.changes import Changes, Kept
from gateway.broker.delivery import Order
from gateway.broker.marks import Mark
from gateway.broker.needed_rows import NeededRows
from gateway.config import LimitsSection
from gateway.mqtt.errors import MqttError
from gateway.mqtt.reason import ReasonCode

Request = Literal["connect", "publish", "subscribe"]


@dataclass(slots=True)
class Statistics:
    """What the broker counts. Whoever wants to see the numbers reads them when it looks."""

    received: list[int] = field(default_factory=lambda: [0, 0, 0])
    """PUBLISH packets by QoS; so with `sent`."""
    sent: list[int] = field(default_factory=lambda: [0, 0, 0])
    bytes_received: int = 0
    bytes_sent: int = 0
    connections: int = 0
    dropped: int = 0
    """QoS 0 messages that a slow or full receiver did not get."""
    refusals: dict[tuple[Request, ReasonCode], int] = field(default_factory=dict)
    """Requests answered with a failure, by kind and reason."""
    disconnects: dict[ReasonCode, int] = field(default_factory=dict)
    """Connections that the broker ended, by reason."""
    repeated: int = 0
    """QoS 2 PUBLISH packets that were known already."""
    unknown_releases: int = 0
    """PUBREL for identifiers that were not known."""
    expired: int = 0
    too_large: int = 0
    """Messages larger than their receiver takes."""
    overflowed: int = 0
    """Messages given up in full queues."""
    vanished: int = 0
    """Messages that queues have lost in the store, since the start."""
    rests: int = 0
    """How often a client was not read for a while because its user published too much."""
    commits: int = 0
    pauses: dict[str, int] = field(default_factory=dict)
    """Connections that ended because a publication was refused for now, by bound (`lack.py`)."""

    def refuse(self, request: Request, reason: ReasonCode, count: int = 1) -> None:
        self.refusals[request, reason] = self.refusals.get((request, reason), 0) + count

    def disconnect(self, reason: ReasonCode) -> None:
        self.disconnects[reason] = self.disconnects.get(reason, 0) + 1

    def pause(self, bound: str) -> None:
        self.pauses[bound] = self.pauses.get(bound, 0) + 1

    def refused(self, request: Request) -> int:
        """Requests of a kind that were refused, for whatever reason."""
        return sum(count for (kind, _), count in self.refusals.items() if kind == request)


class Step:
    """Steps: pieces of work on shared state, each done as a whole or not at all. `unfinished`
    counts those that an exception has left in the middle. After such an exception the state in
    memory may tell what no commit will ever hold, so nothing may be committed or acknowledged any
    more (`README.md`, "Where an exception ends").

    An exception in a step does not end the step: the count stays, whoever catches the exception. An
    MqttError does end it: it says that a client has broken the protocol, and is raised before
    anything shared has changed.

    Use: `with core.step:`. Where each message comes by: `core.step.unfinished += 1` before and
    `-= 1` after the work, which costs less; no MqttError may be raised in between.
    """

    __slots__ = ("error", "unfinished")

    def __init__(self) -> None:
        self.unfinished = 0
        """Steps that have begun and not ended; not 0 between two turns: one was left in the middle.
        """
        self.error: BaseException | None = None
        """The exception that left one, if that is known."""

    def __enter__(self) -> None:
        self.unfinished += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or issubclass(kind, MqttError):
            self.unfinished -= 1
        else:
            self.error = self.error or error


class Sender(Protocol):
    """A queue."""

    def pump(self) -> None:
        """Send as much as the receiver takes."""

    def fail(self, error: Exception, doing: str) -> bool:
        """End the receiver's connection because of an error. False: there is no connection."""


class Holder(Protocol):
    """A connection that holds packets back."""

    def on_disk(self, number: int) -> None:
        """Commit `number` is on disk: let go what waited for it."""

    def on_two_disks(self) -> None:
        """More of the spool is on two disks: let go what waited for that."""

    def fail(self, error: Exception, doing: str) -> None:
        """End the connection soon, because a call for it has raised an exception."""


class Waits:
    """What waits for commits, by their numbers: connections that hold packets back, and what is
    done behind these. Commits come to the disk in the order of their numbers, without a gap.
    """

    def __init__(self) -> None:
        self.held: dict[int, list[Holder]] = {}
        self.twice: dict[int, list[Holder]] = {}
        """Those that wait until the commit is on a second disk, too."""
        self.calls: dict[int, list[Callable[[], None]]] = {}

    def hold(self, connection: Holder, commit: int, twice: bool = False) -> None:
        """A connection holds packets until a commit is on disk. twice: on two disks."""
        waiting = self.twice if twice else self.held
        waiting.setdefault(commit, []).append(connection)

    def has_packets(self, commit: int) -> bool:
        """Whether packets wait for a commit."""
        return commit in self.held or commit in self.twice

    def call(self, commit: int, call: Callable[[], None]) -> None:
        """Call when a commit is on disk that is not yet."""
        self.calls.setdefault(commit, []).append(call)


class Ledger:
    limits: LimitsSection

    def __init__(self, now: float, limits: LimitsSection, rows: NeededRows) -> None:
        self.now = now
        """Seconds on the time axis (`gateway/runtime/clock.py`)."""
        self.limits = limits
        self.step = Step()
        """Work on what all connections share."""
        self.statistics = Statistics()
        self.queued = 0
        """Bytes in all queues."""
        self.owed = 0
        """Bytes of them that queues give up when they have been read from the store."""
        self.received = 0
        """Identifiers between PUBLISH and PUBREL, of all sessions."""
        self.changes = Changes(1)
        """What the next commit will hold."""
        self.committed = 0
        """Number of the last commit that is on disk."""
        self.needed_rows = rows
        self.orders: list[Order] = []
        """For the store to carry out."""
        self.to_send: list[Sender] = []
        """Queues whose messages leave at the end of the turn, all of a queue in one piece."""
        self.waits = Waits()
        """What waits for commits."""

    def send(self) -> None:
        """Send what was queued in this turn."""
        flows, self.to_send = self.to_send, []
        for flow in flows:
            before = self.step.unfinished
            try:
                flow.pump()
            except Exception as error:
                self._fail(flow, error, before)

    def serve(self, flow: Sender, call: Callable[[], None]) -> None:
        """Do something for one queue. An exception that leaves shared state whole ends the
        connection of the queue's receiver.
        """
        before = self.step.unfinished
        try:
            call()
        except Exception as error:
            self._fail(flow, error, before)

    def _fail(self, flow: Sender, error: Exception, before: int) -> None:
        if self.step.unfinished != before or not flow.fail(error, "its queue is sent"):
            raise error

    def promise(self) -> int:
        """Somebody waits for the open changes: returns their number."""
        self.changes.urgent = True
        return self.changes.number

    def keep_flow(self, session: Kept) -> int:
        """The state of a session's flows goes with the open changes: returns their number."""
        changes = self.changes
        changes.flows[session] = None
        changes.urgent = True
        return changes.number

    def keep_mark(self, mark: Mark) -> int:
        """A board's mark goes with the open changes: returns their number."""
        self.changes.marks[mark] = None
        mark.commit = self.promise()
        return mark.commit
