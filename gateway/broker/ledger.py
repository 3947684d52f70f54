"""What every queue must know of the whole: how much waits in all, what the next commit will hold,
what the store is to read, and what is counted.

In: what queues take, send and finish. Out: the open changes, and orders for the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gateway.broker.changes import Changes, Kept
from gateway.broker.needed_rows import NeededRows
from gateway.broker.statistics import Statistics
from gateway.broker.step import Step

if TYPE_CHECKING:
    from gateway.broker.delivery import Order
    from gateway.broker.marks import Mark
    from gateway.config import LimitsSection


class Sender(Protocol):
    """A queue."""

    def pump(self) -> None:
        """Send as much as the receiver takes."""

    def fail(self, error: Exception, doing: str) -> bool:
        """End the receiver's connection because of an error. False: there is no connection."""


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
        self.after_commit: list[Callable[[], None]] = []
        """To be called after the next commit: what is to be read was not committed yet."""

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
