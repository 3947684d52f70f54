"""What the broker counts. Plain integers."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Statistics:
    """received, sent: PUBLISH packets by QoS. dropped: QoS 0 messages that a slow or full receiver did not get. refused: publications
    answered with a failure. repeated: QoS 2 PUBLISH packets that were known already.
    turned_away: CONNECTs refused for their number, rate, name or password. overflowed: messages given up in full queues."""

    received: list[int] = field(default_factory=lambda: [0, 0, 0])
    sent: list[int] = field(default_factory=lambda: [0, 0, 0])
    bytes_received: int = 0
    bytes_sent: int = 0
    connections: int = 0
    dropped: int = 0
    refused: int = 0
    repeated: int = 0
    unknown_releases: int = 0
    turned_away: int = 0
    expired: int = 0
    too_large: int = 0
    overflowed: int = 0
    commits: int = 0
