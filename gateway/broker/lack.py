"""The reason why a publication is not taken, and the bound behind it.

In: a reason code, and for 0x97 (Quota exceeded) the bound that was reached. Out: what the client is
told, what the log says, and the label of the metrics.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from gateway.mqtt.reason import ReasonCode


class Bound(StrEnum):
    """A bound that refuses a publication. The values are labels of metrics."""

    SPOOL = "spool"
    SECOND_DISK = "second_disk"
    DISK = "disk"
    MEMORY = "memory"
    QUEUE = "queue"
    IDENTIFIERS = "identifiers"
    RETAINED = "retained"

    @property
    def words(self) -> str:
        """The state of this bound, for people."""
        return _BOUNDS[self][0]

    @property
    def passes(self) -> bool:
        """Whether room comes back by itself: the same publication is taken when it comes again."""
        return _BOUNDS[self][1]


_BOUNDS = {
    Bound.SPOOL: ("the spool has no room", True),  # the uplink lands
    Bound.SECOND_DISK: ("no other member of the site takes copies", True),  # it comes back
    Bound.DISK: ("the disk has no room", True),
    Bound.MEMORY: ("the queues have no room in memory", True),  # subscribers read
    Bound.QUEUE: ("the queue of a subscriber has no room", True),  # it reads
    Bound.IDENTIFIERS: ("too many messages wait for their PUBREL", True),  # memory, too
    Bound.RETAINED: ("the retained messages have no room", False),  # until somebody clears one
}
"""The table of all bounds, with the reason why room comes back; README.md has it for people."""


FOR_GOOD = "what they publish is refused for good"
"""The same where no bound is the reason."""


class Lack(NamedTuple):
    """The reason why a publication is not taken."""

    reason: ReasonCode
    bound: Bound | None = None
    """The bound that was reached. None: the same publication will never be taken."""
    text: str = ""
    """The bound and the key that moves it, for the log; filled in by `fan_out.explained`."""

    @property
    def passes(self) -> bool:
        """Whether the refusal is for now. All others are for good: trying again is no help."""
        return self.bound is not None and self.bound.passes
