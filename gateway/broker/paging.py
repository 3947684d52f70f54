"""Queues longer than memory should hold: their tail waits in the store alone.

In: "this queue has room for more of its tail" and "this session with a tail ends". Out: orders for
whoever drives the broker, who reads the store and hands the rows back. A session that is away holds
nothing in memory; one that is connected holds about a page beyond what is in flight.

Rules: an order is carried out after every commit sealed before it and before every commit sealed
after it; rows that are not committed yet are simply not found, and asked for again after the next
commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.broker.burst import Burst
from gateway.broker.delivery import Collect, Delivery, Load
from gateway.broker.effects import LeftBehind

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.session import Session

StoredDelivery = tuple[int, int, int, int, int, bytes, str, str, int, int, bytes, int | None, bytes]
"""first number, count, message, index of the first payload, flags, extra, share, then of the
message: topic, retain, count, properties, expires, payloads joined.
"""


Order = Load | Collect
"""For the store."""


def delivery_of(
    broker: Broker, session: Session, row: StoredDelivery, known: dict[int, Burst] | None = None
) -> Delivery:
    """A delivery from the store. known: bursts by message id, to use for and to add to."""
    first, count, message, skip, flags, extra, share = row[:7]
    burst = known.get(message) if known is not None else None
    if burst is None:
        burst = burst_of(broker, message, *row[7:])
        if known is not None:
            known[message] = burst
    delivery = Delivery(session, burst, first, count, skip, flags, extra, share=share)
    delivery.stored = delivery.kept = True
    return delivery


def burst_of(
    broker: Broker,
    message: int,
    topic: str,
    retain: int,
    count: int,
    properties: bytes,
    expires: int | None,
    body: bytes,
) -> Burst:
    """A burst from a row of the store."""
    burst = Burst(
        broker.router.topic(topic),
        body,
        0,
        bool(retain),
        count=count,
        stride=len(body) // count,
        properties=properties,
        expires=None if expires is None else expires / 1000,
    )
    burst.message = message
    burst.written = True
    return burst


def answer(broker: Broker, order: Order, rows: Any) -> None:
    """What an order asked for has been read."""
    if isinstance(order, Load):
        _loaded(broker, order, rows)
    else:
        _collected(broker, *rows)


def _loaded(broker: Broker, order: Load, rows: list[StoredDelivery]) -> None:
    session = order.session
    if broker.sessions.get(session.client) is not session:
        return
    known: dict[int, Burst] = {}
    session.outbound.take_page(
        order.first, [delivery_of(broker, session, row, known) for row in rows]
    )


def _collected(broker: Broker, messages: list[int], shared: list[StoredDelivery]) -> None:
    """A session has ended: its messages lose a reference each, and what came from shared
    subscriptions goes to other members.
    """
    for message in messages:
        broker.rows.release(message)
    for row in shared:
        _, count, _, skip, flags, _, share = row[:7]
        burst = burst_of(broker, 0, *row[7:])
        burst.written = False
        broker.effects.leave_behind(LeftBehind(burst, flags >> 1, share, skip, count))
    broker.settle()
