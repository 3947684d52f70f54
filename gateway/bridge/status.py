"""What people see of a bridge."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """waiting, waiting_bytes: for the other broker, on disk. sent: acknowledged by it. refused: by
    it, for good. dropped: at the bound, the oldest first. received: from it. The last four since
    the start. error: why there is no connection, None while there is one.
    """

    name: str
    server: str
    error: str | None
    waiting: int
    waiting_bytes: int
    sent: int
    refused: int
    dropped: int
    received: int
