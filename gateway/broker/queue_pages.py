"""Queues longer than memory should hold: their tail waits in the store alone.

In: "this queue has room for more of its tail" and "this session with a tail ends". Out: orders for
the driver of the core, which reads the store and hands the rows back. A session that is away holds
nothing in memory; one that is connected holds about a page beyond what is in flight.

Rules: an order is carried out after every commit sealed before it and before every commit sealed
after it; rows that are not committed yet are simply not found, and asked for again after the next
commit. What a session leaves behind for the other members of shared subscriptions outlives it in
the store: each page of it goes with the commit that gives its messages to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.broker.delivery import Collect, Delivery, LeftBehind, Load, Order
from gateway.broker.late_messages import send_on, sends_on, wait_to_send_on
from gateway.broker.publish_run import PublishRun
from gateway.broker.queue_limits import trim

if TYPE_CHECKING:
    from gateway.broker.core import Core
    from gateway.broker.session import Session

StoredDelivery = tuple[int, int, int, int, int, bytes, str, str, int, int, bytes, int | None, bytes]
"""first number, count, message, index of the first payload, flags, extra, share, then of the
message: topic, retain, count, properties, expires, payloads joined.
"""


def delivery_of(
    core: Core, session: Session, row: StoredDelivery, known: dict[int, PublishRun] | None = None
) -> Delivery:
    """A delivery from the store. known: runs by message id, to use for and to add to."""
    first, count, message, skip, flags, extra, share = row[:7]
    run = known.get(message) if known is not None else None
    if run is None:
        run = run_of(core, message, *row[7:])
        if known is not None:
            known[message] = run
    delivery = Delivery(session.id, run, first, count, skip, flags, extra, share=share)
    delivery.stored = delivery.kept = True
    return delivery


def run_of(
    core: Core,
    message: int,
    topic: str,
    retain: int,
    count: int,
    properties: bytes,
    expires: int | None,
    body: bytes,
) -> PublishRun:
    """A run from a row of the store."""
    run = PublishRun(
        core.router.topic(topic),
        body,
        0,
        bool(retain),
        count=count,
        stride=len(body) // count,
        properties=properties,
        expires=None if expires is None else expires / 1000,
    )
    run.message = message
    run.written = True
    return run


def answer(core: Core, order: Order, rows: Any) -> None:
    """What an order asked for has been read. What follows from it is left to `effects.py`."""
    if isinstance(order, Load):
        _loaded(core, order, rows)
    else:
        _collected(core, order, *rows)


def _loaded(core: Core, order: Load, rows: list[StoredDelivery]) -> None:
    session = core.by_id.get(order.session)
    if session is None:
        return
    known: dict[int, PublishRun] = {}
    deliveries = [delivery_of(core, session, row, known) for row in rows]
    new = session.send_flow.take_page(order.first, deliveries)
    if sends_on(session):
        (send_on if new else wait_to_send_on)(core, session)
    elif new:
        trim(core, session)
        session.send_flow.go_on()


def _collected(
    core: Core, order: Collect, messages: list[int], shared: list[StoredDelivery]
) -> None:
    """A session has ended: its messages lose a reference each, and what came from shared
    subscriptions goes to other members, page by page.
    """
    for message in messages:
        core.needed_rows.release(message)
    for row in shared:
        last, count, message, skip, flags, _, share = row[:7]
        core.needed_rows.release(message)
        core.changes.left[order.session] = last
        run = run_of(core, 0, *row[7:])
        run.written = False
        core.effects.leave_behind(LeftBehind(run, flags >> 1, share, skip, count))
    if shared:
        core.orders.append(Collect(order.session, last + 1))
