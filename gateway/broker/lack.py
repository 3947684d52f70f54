"""The reason why a publication is not taken, and the bound behind it.

In: a reason code, and for 0x97 (Quota exceeded) the bound that was reached. Out: what the client is
told, what the log says, and the label of the metrics.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from gateway.mqtt.reason import ReasonCode


class Bound(StrEnum):
    """A bound whose room can come back by itself. The values are labels of metrics."""

    SPOOL = "spool"
    SECOND_DISK = "second_disk"
    DISK = "disk"
    MEMORY = "memory"
    QUEUE = "queue"
    RETAINED = "retained"
    IDENTIFIERS = "identifiers"

    @property
    def words(self) -> str:
        """The state of this bound, for people."""
        return _WORDS[self]


_WORDS = {
    Bound.SPOOL: "the spool has no room",
    Bound.SECOND_DISK: "no other member of the site takes copies",
    Bound.DISK: "the disk has no room",
    Bound.MEMORY: "the queues have no room in memory",
    Bound.QUEUE: "the queue of a subscriber has no room",
    Bound.RETAINED: "the retained messages have no room",
    Bound.IDENTIFIERS: "too many messages wait for their PUBREL",
}


FOR_GOOD = "what they publish is refused for good, which MQTT before 5 cannot say"
"""The same where no bound is the reason."""


class Lack(NamedTuple):
    """The reason why a publication is not taken."""

    reason: ReasonCode
    bound: Bound | None = None
    """The bound that was reached. None: the same publication will never be taken."""
    text: str = ""
    """The bound and the key that moves it, for the log; filled in by `fan_out.explained`."""
