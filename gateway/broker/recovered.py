"""What a store hands to the broker at its start: the rows of `commit.py`, read back."""

from dataclasses import dataclass, field
from typing import Any

from gateway.broker.commit import FlowRow, RetainedRow, SessionRow, SubscriptionRow, WillRow


@dataclass(slots=True)
class Recovered:
    """boot: number of this start. now: where the time axis goes on, in seconds. next_*: first free
    numbers. spool: (last id, bytes) of the rows in the spool, in order.

    queue: what was or may have been in flight, as session and `StoredDelivery`, in order of session
    and first number. tails: what waits behind it, as session, first number, number after the last,
    messages, bytes of their payloads. references: messages that more than one row of the queue
    refers to, with how many do.
    """

    boot: int = 1
    now: float = 0.0
    next_session: int = 1
    next_message: int = 1
    next_spool: int = 1
    spool: list[tuple[int, int]] = field(default_factory=list)
    sessions: list[SessionRow] = field(default_factory=list)
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    flows: list[FlowRow] = field(default_factory=list)
    queue: list[tuple[Any, ...]] = field(default_factory=list)
    tails: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    references: list[tuple[int, int]] = field(default_factory=list)
    retained: list[RetainedRow] = field(default_factory=list)
    wills: list[WillRow] = field(default_factory=list)
