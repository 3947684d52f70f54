"""The reason why a publication is not accepted, and the bound that was reached.

In: a reason code, and for 0x97 (Quota exceeded) the bound that was reached. Out: the text for the
client and the log, and the label of the metrics.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from gateway.mqtt.reason import ReasonCode


class Bound(StrEnum):
    """A bound that a refused publication would exceed. The values are labels of metrics."""

    SPOOL = "spool"
    SECOND_DISK = "second_disk"
    DISK = "disk"
    MEMORY = "memory"
    QUEUE = "queue"
    IDENTIFIERS = "identifiers"
    RETAINED = "retained"

    @property
    def words(self) -> str:
        return _BOUNDS[self][0]

    @property
    def passes(self) -> bool:
        """Whether normal operation makes room again, so that a retry can succeed."""
        return _BOUNDS[self][1]


_BOUNDS = {
    Bound.SPOOL: ("the spool has no room", True),  # the uplink lands
    Bound.SECOND_DISK: ("no other member of the site accepts copies", True),  # that member returns
    Bound.DISK: ("the disk accepts no data", True),
    Bound.MEMORY: ("the queues have no room in memory", True),  # subscribers read
    Bound.QUEUE: ("the queue of a subscriber has no room", True),  # the subscriber reads
    Bound.IDENTIFIERS: ("too many messages wait for their PUBREL", True),  # clients send PUBREL
    Bound.RETAINED: ("there is no room for retained messages", False),  # until a client clears one
}
"""Text of each bound, and whether its refusals are temporary. The comments name the event that
makes room. README.md has the table for users.
"""


FOR_GOOD = "their messages are refused for good"
"""Text for a refusal for good whose reason is not a bound."""


class Lack(NamedTuple):
    """The reason why a publication is not accepted."""

    reason: ReasonCode
    bound: Bound | None = None
    """The bound that was reached. None: the same publication will never be accepted."""
    text: str = ""
    """The bound and its configuration key, for the log; set by `fan_out.explained`."""

    @property
    def passes(self) -> bool:
        """Whether the refusal is temporary. If not, a retry is useless."""
        return self.bound is not None and self.bound.passes
