"""The state of a bridge, for users."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """The state of one bridge. The counts `sent` to `aside_lost` are since the start.

    error: why there is no connection, None while there is one. waiting, waiting_bytes: messages on
    disk for the other broker. sent: acknowledged by it. refused: by it, for good. dropped: at the
    bound, the oldest first. received: from the other broker. set_aside: messages that can never
    reach it. aside_lost: set-aside messages dropped at their bound. aside, aside_bytes: set-aside
    messages kept now. lacking: filters of `down` that the other broker refuses. unconfirmed:
    messages given up because the other broker closes the connection at their PUBREL; they may have
    arrived. not_taken: messages from the other broker that this gateway can never take. held:
    messages that this gateway refuses for now; the other broker keeps them. looped: messages that
    came back in a loop of bridges and did not cross again. retained: off, waiting, comparing,
    equal, or the reason why both brokers cannot be compared. differ: retained topics that differ,
    None while that is unknown. agreed: retained topics that both brokers are proven to agree on.
    oldest_s: age of the oldest waiting message in seconds, at most, None if none waits.
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
    set_aside: int = 0
    aside_lost: int = 0
    aside: int = 0
    aside_bytes: int = 0
    lacking: tuple[str, ...] = ()
    unconfirmed: int = 0
    not_taken: int = 0
    held: int = 0
    looped: int = 0
    retained: str = "off"
    differ: int | None = None
    agreed: int = 0
    oldest_s: float | None = None
