"""What the broker counts. Plain integers; whoever wants to see them reads them when it looks."""

from dataclasses import dataclass, field
from typing import Literal

from gateway.mqtt.reason import ReasonCode

Request = Literal["connect", "publish", "subscribe"]


@dataclass(slots=True)
class Statistics:
    """received, sent: PUBLISH packets by QoS. dropped: QoS 0 messages that a slow or full receiver
    did not get. refusals: requests answered with a failure, by kind and reason. disconnects:
    connections that the broker ended, by reason. repeated: QoS 2 PUBLISH packets that were known
    already. overflowed: messages given up in full queues. rests: how often a client was not read
    for a while because its user published too much.
    """

    received: list[int] = field(default_factory=lambda: [0, 0, 0])
    sent: list[int] = field(default_factory=lambda: [0, 0, 0])
    bytes_received: int = 0
    bytes_sent: int = 0
    connections: int = 0
    dropped: int = 0
    refusals: dict[tuple[Request, ReasonCode], int] = field(default_factory=dict)
    disconnects: dict[ReasonCode, int] = field(default_factory=dict)
    repeated: int = 0
    unknown_releases: int = 0
    expired: int = 0
    too_large: int = 0
    overflowed: int = 0
    rests: int = 0
    commits: int = 0

    def refuse(self, request: Request, reason: ReasonCode, count: int = 1) -> None:
        self.refusals[request, reason] = self.refusals.get((request, reason), 0) + count

    def disconnect(self, reason: ReasonCode) -> None:
        self.disconnects[reason] = self.disconnects.get(reason, 0) + 1

    def refused(self, request: Request) -> int:
        """Requests of a kind that were refused, for whatever reason."""
        return sum(count for (kind, _), count in self.refusals.items() if kind == request)
