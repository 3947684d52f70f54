"""A session: what the broker keeps for a client (MQTT 5, section 4.1), whether it is connected or
not.

A session is durable when it outlives its connection (Session Expiry Interval > 0, or Clean Session
0); only then is anything of it stored. It stays so until it ends, even if a later connection says
that it is to end with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.inbound import Inbound
from gateway.broker.outbound import Outbound

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.commit import SessionRow
    from gateway.broker.connection import Connection
    from gateway.broker.retained_feed import RetainedFeed
    from gateway.broker.router import Subscription
    from gateway.config import QueueSection

NEVER = 0xFFFF_FFFF
"""Session Expiry Interval of a session that does not expire."""


class Session:
    """id: its number in the store, never used twice. expiry: Session Expiry Interval in seconds.
    left: when its connection ended, on the broker's time axis, None while connected. incarnation:
    of the device behind it, 0 for others. queueing: what happens when its queue is full. user:
    whose it is, None for anonymous clients and devices. ended: the broker has forgotten it. feed:
    retained messages that are still to come, None for none.
    """

    __slots__ = (
        "client",
        "connection",
        "durable",
        "ended",
        "expiry",
        "feed",
        "id",
        "inbound",
        "incarnation",
        "left",
        "outbound",
        "queueing",
        "subscriptions",
        "user",
    )

    def __init__(
        self,
        broker: Broker,
        identifier: int,
        client: str,
        queueing: QueueSection,
        expiry: int,
        incarnation: int,
        user: str | None,
    ) -> None:
        self.id = identifier
        self.client = client
        self.queueing = queueing
        self.expiry = expiry
        self.durable = expiry > 0
        self.ended = False
        self.incarnation = incarnation
        self.user = user
        self.left: float | None = None
        self.connection: Connection | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.feed: RetainedFeed | None = None
        self.inbound = Inbound()
        self.outbound = Outbound(broker, self)

    @property
    def ends(self) -> float:
        """When a session that was left expires, on the time axis."""
        if self.left is None or self.expiry == NEVER:
            return float("inf")
        return self.left + self.expiry

    def row(self) -> SessionRow:
        left = None if self.left is None else int(self.left * 1000)
        return self.id, self.client, self.expiry, left, self.incarnation, self.user
