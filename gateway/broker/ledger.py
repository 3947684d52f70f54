"""State that all queues share: number of queued bytes, open changes, statistics.

In: the messages that queues take, send and finish. Out: the open changes, and orders for the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Protocol

from gateway.broker.changes import Changes, PersistentSession
from gateway.broker.delivery import NeededRows, Order
from gateway.broker.marks import Mark
from gateway.config import LimitsSection
from gateway.mqtt.errors import MqttError
from gateway.mqtt.reason import ReasonCode

Request = Literal["connect", "publish", "subscribe"]


@dataclass(slots=True)
class Statistics:
    received: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Numbers of PUBLISH packets received at QoS 0, 1 and 2. `sent` has those of packets sent."""
    sent: list[int] = field(default_factory=lambda: [0, 0, 0])
    bytes_received: int = 0
    bytes_sent: int = 0
    connections: int = 0
    dropped: int = 0
    """QoS 0 messages that a slow or full receiver did not get."""
    refusals: dict[tuple[Request, ReasonCode], int] = field(default_factory=dict)
    """Requests answered with a failure, by kind and reason."""
    disconnects: dict[ReasonCode, int] = field(default_factory=dict)
    """Number of connections that the broker ended, by reason."""
    repeated: int = 0
    """Number of QoS 2 PUBLISH packets that were duplicates."""
    unknown_releases: int = 0
    """PUBREL packets for unknown identifiers."""
    expired: int = 0
    too_large: int = 0
    """Messages that are larger than their receiver accepts."""
    overflowed: int = 0
    """Messages that were dropped because queues were full: new ones, or older ones to make room."""
    vanished: int = 0
    """Queued messages that were lost, because their rows in the store were missing or damaged."""
    quota_pauses: int = 0
    """Pauses in reading from a client because its user published more than the quota allows."""
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
        """Return the number of refused requests of a kind, whatever the reason."""
        return sum(count for (kind, _), count in self.refusals.items() if kind == request)


class Step:
    """Steps: pieces of work on shared state, each done as a whole or not at all.

    `unfinished` counts the steps that are in progress or that an exception has interrupted. After
    such an exception, memory may contain state that no commit will ever contain, so nothing may be
    committed or acknowledged any more (`README.md`, "Where an exception ends").

    A step that an exception has interrupted stays counted, even if the exception is caught. Only
    after an MqttError is the step over: a client has broken the protocol, and the error is raised
    before shared state changes.

    Use: `with core.step:`. On the path of each message: `core.step.unfinished += 1` before and `-=
    1` after the work, which is faster; no MqttError may be raised in between.
    """

    __slots__ = ("error", "unfinished")

    def __init__(self) -> None:
        self.unfinished = 0
        """Steps that have begun and not ended. A value above 0 between two turns means that a step
        was interrupted."""
        self.error: BaseException | None = None
        """The exception that interrupted a step, if known."""

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
    """A queue of outgoing messages (`send_flow.py`)."""

    def pump(self) -> None: ...

    def fail(self, error: Exception, doing: str) -> bool: ...


class Holder(Protocol):
    """A connection (`connection.py`) with pending acknowledgements."""

    def on_disk(self, number: int) -> None: ...

    def on_two_disks(self) -> None: ...

    def fail(self, error: Exception, doing: str) -> None: ...


class CommitWaits:
    """Connections and calls that wait for commits, by commit number. Commits get to the disk in the
    order of their numbers, without a gap.
    """

    def __init__(self) -> None:
        self.uncommitted: dict[int, list[Holder]] = {}
        """For each commit, the connections with packets that wait until it is on disk."""
        self.copied: dict[int, list[Holder]] = {}
        """Connections that wait until a commit is on a second disk, by the commit's number."""
        self.calls: dict[int, list[Callable[[], None]]] = {}


class Ledger:
    limits: LimitsSection

    def __init__(self, now: float, limits: LimitsSection, rows: NeededRows) -> None:
        self.now = now
        """Present time, in seconds on the time axis (`gateway/runtime/clock.py`)."""
        self.limits = limits
        self.step = Step()
        """Context manager for steps: each step is done whole or not at all."""
        self.statistics = Statistics()
        self.queued = 0
        """Bytes of the messages in all queues, as counted against `limits.memory_bytes`."""
        self.to_drop = 0
        """Part of `queued`: bytes of messages that are dropped when they are read from disk."""
        self.received = 0
        """Number of packet identifiers between PUBLISH and PUBREL, in all sessions."""
        self.changes = Changes(1)
        self.committed = 0
        """Number of the last commit that is on disk."""
        self.needed_rows = rows
        self.orders: list[Order] = []
        self.to_send: list[Sender] = []
        """Queues with messages to send at the end of the turn."""
        self.waits = CommitWaits()

    def send(self) -> None:
        """Send everything that was queued in this turn."""
        flows, self.to_send = self.to_send, []
        for flow in flows:
            before = self.step.unfinished
            try:
                flow.pump()
            except Exception as error:
                self._fail(flow, error, before)

    def serve(self, flow: Sender, call: Callable[[], None]) -> None:
        """Call a function for one queue. If it raises an exception but leaves shared state
        consistent, only the connection of the queue's receiver ends.
        """
        before = self.step.unfinished
        try:
            call()
        except Exception as error:
            self._fail(flow, error, before)

    def _fail(self, flow: Sender, error: Exception, before: int) -> None:
        if self.step.unfinished != before or not flow.fail(error, "sending its queue"):
            raise error

    def when_on_disk(self, commit: int, call: Callable[[], None]) -> None:
        """Call a function when a commit is on disk, or at once if the commit is on disk already."""
        if commit <= self.committed:
            call()
        else:
            self.waits.calls.setdefault(commit, []).append(call)

    def promise(self) -> int:
        """Mark the open changes as urgent. Return the number of the commit that contains them."""
        self.changes.urgent = True
        return self.changes.number

    def keep_flow(self, session: PersistentSession) -> int:
        """Add the state of a session's flows to the open changes. Return their commit's number."""
        changes = self.changes
        changes.flows[session] = None
        changes.urgent = True
        return changes.number

    def keep_mark(self, mark: Mark) -> int:
        """Add a board's anti-replay window to the open changes. Return their commit's number."""
        self.changes.marks[mark] = None
        mark.commit = self.promise()
        return mark.commit
