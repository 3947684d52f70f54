"""What the broker counts. Plain integers; whoever wants to see them reads them when it looks."""

from dataclasses import dataclass, field
from typing import Literal

from gateway.mqtt.reason import ReasonCode

Request = Literal["connect", "publish", "subscribe"]


@dataclass(slots=True)
class Statistics:
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
