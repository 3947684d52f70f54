"""The pause of one connection whose client was refused (`pauses.py` has the rules and the times).

In: publications that arrive within the pause. Out: the same publications once the pause is over,
and the time until which the gateway does not read from the client.
"""

from __future__ import annotations

from collections import deque

from gateway.broker.broker import Broker
from gateway.broker.lack import Bound
from gateway.broker.pauses import Record
from gateway.broker.publish_run import PublishRun
from gateway.broker.spool import Identity
from gateway.mqtt.reason import ReasonCode

EACH_BYTES = 65_536
"""Largest number of bytes of postponed publications of one connection. If there are more, the
gateway does not read from the connection until the pause is over.
"""
PART = 8
"""All postponed publications together may take 1 / PART of `limits.memory_bytes`."""
_RUN_BYTES = 512
"""Memory that a postponed run takes in addition to its packets and properties, in bytes."""
_LOOK_S = 1.0
"""Seconds between two checks of an ending connection whose last acknowledgement waits for a second
disk. Each checks whether the peer gateway with that disk still answers.
"""
_OF_THE_SPOOL = (Bound.SPOOL, Bound.SECOND_DISK, Bound.DISK)
"""Bounds of the whole spool. If the spool accepts any publication, it is below these bounds."""


class Pause:
    """The pause of one connection after a refusal. Publications at QoS 1 and 2 are postponed until
    `until`: they have no effect, and their packet identifiers are not kept. All other packets are
    handled as usual: PINGREQ, acknowledgements, subscriptions, QoS 0.
    """

    __slots__ = (
        "_broker",
        "after",
        "bound",
        "farewell",
        "key",
        "put_off",
        "reason",
        "record",
        "shared",
        "size",
        "topic",
        "until",
    )

    def __init__(self, broker: Broker, key: int, record: Record | None, shared: bool) -> None:
        self._broker = broker
        self.key = key
        self.record = record
        """The client's last pause. None before the first one, and once its reason has ended."""
        self.shared = shared
        """Whether all clients without an identifier at this address share the record. If so, no
        publication is postponed: each is accepted or refused at once. If one is refused within the
        pause, its connection ends only after the pause.
        """
        self.until = record.over(broker.now) if record is not None and not shared else float("-inf")
        """Time on the broker's clock at which this connection's pause ends; -inf without one."""
        self.farewell = ""
        """Reason String of the connection's end; empty while the connection continues. If it is
        set, publications at QoS 1 and 2 are dropped unanswered; the client sends them again."""
        self.reason: ReasonCode | None = None
        """Reason code with which the connection ends."""
        self.bound: Bound | None = None
        self.topic = ""
        """Topic of the publication that exceeds `bound` and so ends the connection."""
        self.after = 0
        """Number of the commit that must be on disk before the connection ends; 0 for none."""
        self.put_off: deque[tuple[PublishRun, Identity | None]] = deque()
        """Publications that are postponed, in order of arrival."""
        self.size = 0
        """Total size of the postponed publications, in bytes."""

    def puts_off(self, run: PublishRun, identity: Identity | None) -> bool:
        """Postpone a run, or drop it if the connection is ending. False: process it now."""
        broker = self._broker
        if not (self.farewell or self.put_off or broker.now < self.until):
            return False
        if not self.farewell:
            size = _size(run)
            self.put_off.append((run, identity))
            self.size += size
            broker.put_off += size
        return True

    def next(self) -> tuple[PublishRun, Identity | None] | None:
        """Remove and return the first postponed run if it is due; otherwise return None."""
        if self.farewell or not self.put_off or self._broker.now < self.until:
            return None
        run, identity = self.put_off.popleft()
        size = _size(run)
        self.size -= size
        self._broker.put_off -= size
        return run, identity

    @property
    def stops_reading(self) -> bool:
        """Whether reading stops, too: too many bytes wait, or the refused packet was too large."""
        broker = self._broker
        return broker.now < self.until and (
            self.reason == ReasonCode.PACKET_TOO_LARGE
            or self.size > EACH_BYTES
            or broker.put_off > broker.limits.memory_bytes // PART
        )

    def ends(self, copied: bool) -> float | None:
        """Return the time on the time axis at which to look at the client again; None if nothing
        waits for the end of its pause. copied: whether acknowledgements wait for a second disk.
        """
        now = self._broker.now
        if now >= self.until:
            return now + _LOOK_S if self.farewell and copied else None
        return self.until if self.put_off or self.farewell or self.stops_reading else None

    def took(self, run: PublishRun) -> bool:
        """Note that a publication was accepted. If this ends the reason for the pause, forget the
        pause. Return True if the pause is forgotten and no publication is postponed.
        """
        record, topic = self.record, run.topic
        if record is None or not (
            topic.name == record.topic or (topic.spooled and record.bound in _OF_THE_SPOOL)
        ):
            return False
        self._broker.pauses.forget(self.key)
        self.record = None
        return not self.put_off

    def forget_put_off(self) -> None:
        self._broker.put_off -= self.size
        self.size = 0
        self.put_off.clear()

    def leave(self) -> None:
        """Drop postponed messages. If a refusal ended the connection, begin the client's pause."""
        broker = self._broker
        self.forget_put_off()
        if self.farewell:
            with broker.step:
                broker.pauses.refused(self.key, broker.now, self.bound, self.topic)
                broker.statistics.pause(self.bound or "for_good")


def _size(run: PublishRun) -> int:
    return len(run.raw) + len(run.properties) + _RUN_BYTES
