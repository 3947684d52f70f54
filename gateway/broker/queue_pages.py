"""Long queues, whose tail is only in the store.

In: calls for a queue that has room for more of its tail, and for a session that ends with a tail.
Out: orders for the caller of the core, which reads the store and returns the rows. A session of a
disconnected client has no messages in memory. A session of a connected client has about a page of
messages in memory, in addition to the messages in flight.

Rules: an order is carried out after every commit that was sealed before the order, and before every
later commit. An order does not find rows that are not committed yet; it is repeated after the next
commit. If a row is missing or damaged, the session ends, and its client sees Session Present 0; the
queue of a bridge or peer gateway continues without that row. Both are logged.

Messages that an ended session leaves in shared subscriptions stay in the store. Each page is
deleted with the commit that gives its messages to other subscribers.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from gateway.broker.core import Core
from gateway.broker.delivery import Collect, Delivery, Load, Order, Undelivered
from gateway.broker.publish_run import OVERHEAD, PublishRun
from gateway.broker.queue_limits import trim
from gateway.broker.send_flow import SendFlow
from gateway.broker.session import Session
from gateway.config import INSIDE
from gateway.mqtt.reason import ReasonCode
from gateway.system.amounts import are
from gateway.system.logs import about, printable

log = logging.getLogger(__name__)

StoredDelivery = tuple[int, int, int, int, int, bytes, str, str, int, int, bytes, int | None, bytes]
"""Columns of the queue row: first number, count, message, index of the first payload, flags, extra,
share. Columns of the message row: topic, retain, count, properties, expires, payloads joined."""


def delivery_of(
    core: Core, session: Session, row: StoredDelivery, known: dict[int, PublishRun] | None = None
) -> Delivery:
    """Return a delivery from its row. known: runs by message id; new ones are added."""
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
    """Handle the rows that the store has read for an order."""
    if isinstance(order, Load):
        _loaded(core, order, rows)
    else:
        _collected(core, order, *rows)


def _loaded(core: Core, order: Load, rows: list[StoredDelivery]) -> None:
    session = core.by_id.get(order.session)
    if session is None:
        return
    send_flow = session.send_flow
    if order.first == send_flow.tail and (missing := _missing(session, order, rows)):
        _tell(core, session, missing)
        if session.user != INSIDE:
            text = f"{are(missing)} gone from its queue in the store"
            core.effects.end(session, ReasonCode.UNSPECIFIED_ERROR, text)
            return
        send_flow.count(-missing, -missing * OVERHEAD)
    known: dict[int, PublishRun] = {}
    deliveries = [delivery_of(core, session, row, known) for row in rows if is_whole(row)]
    after = rows[-1][0] + rows[-1][1] if rows else order.first
    if not rows and order.whole and order.first == send_flow.tail:
        after = send_flow.next
    new = _take_page(core, send_flow, order.first, deliveries, after)
    if session.role.sends_on:
        core.neighbours.send_on(session, new)
    elif new:
        trim(core, session)
        if session.connection is None and not session.queueing.qos_0:
            send_flow.leave_to_store()
        send_flow.pump()


def _take_page(
    core: Core, flow: SendFlow, first: int, deliveries: list[Delivery], after: int
) -> bool:
    """Add a page to a queue: messages with the numbers from `first` on, below `after`. The page is
    empty if the tail is not committed yet. A message that the page lacks is lost for good. Return
    False if no message was added.
    """
    flow.asked = False
    if first != flow.tail:
        flow.refill()
        return False
    if after == first:
        core.when_on_disk(core.committed + 1, partial(core.serve, flow, flow.ask))
        return False
    for delivery in deliveries:
        _take_behind(flow, delivery.first)
        flow.pending.append(delivery)
    flow.tail = after if after < flow.next else 0
    flow.tail_expires = 0.0
    _take_behind(flow, after)
    return True


def _take_behind(flow: SendFlow, number: int) -> None:
    """Append to `pending` the QoS 0 deliveries that were queued before message `number`."""
    while flow.behind and flow.behind[0][0] <= number:
        flow.pending.append(flow.behind.popleft()[1])


def is_whole(row: StoredDelivery) -> bool:
    """Whether the message of a row can be sent. The row's topic is None if there is no message."""
    return row[7] is not None


def _missing(session: Session, order: Load, rows: list[StoredDelivery]) -> int:
    """Return how many messages of a page are missing: the rows whose message is gone, and the gaps
    in the message numbers. In a queue for a peer gateway, gaps do not count.
    """
    if not rows:
        return session.send_flow.next - order.first if order.whole else 0
    missing, following = 0, order.first
    for row in rows:
        if not session.foreign:
            missing += max(0, row[0] - following)
        if not is_whole(row):
            missing += row[1]
        following = row[0] + row[1]
    return missing


def _tell(core: Core, session: Session, missing: int) -> None:
    core.statistics.vanished += missing
    goes_on = session.user == INSIDE
    log.error(
        "%s: %s gone from its queue in the store. %s. See: onceway store check",
        printable(session.client),
        are(missing),
        "Its other messages are kept"
        if goes_on
        else "The session ends, and its client gets Session Present 0 at its next CONNECT",
        extra=about(client=session.client, reason="store_damaged"),
    )


def unreadable(core: Core, session: Session, error: Exception) -> None:
    """End a session whose queue has an unreadable page."""
    own = session.user == INSIDE
    log.error(
        "%s: its queue cannot be read from the store (%s: %s). The session ends, and %s. See:"
        " onceway store check",
        printable(session.client),
        type(error).__name__,
        error,
        "a new one begins" if own else "its client gets Session Present 0",
        extra=about(client=session.client, reason="store_damaged"),
    )
    text = "its queue cannot be read from the store"
    core.effects.end(session, ReasonCode.UNSPECIFIED_ERROR, text)


def _collected(
    core: Core, order: Collect, messages: list[int], shared: list[StoredDelivery]
) -> None:
    """Release the messages of an ended session. Hand messages from shared subscriptions to other
    subscribers, and order the next page of these messages.
    """
    for message in messages:
        core.needed_rows.release(message)
    missing = 0
    for row in shared:
        last, count, message, skip, flags, _, share = row[:7]
        core.needed_rows.release(message)
        core.changes.trimmed[order.session] = last
        if not is_whole(row):
            missing += count
            continue
        run = run_of(core, 0, *row[7:])
        run.written = False
        core.effects.add_undelivered(Undelivered(run, flags >> 1, share, skip, count))
    if missing:
        core.statistics.vanished += missing
        log.error(
            "shared subscriptions: %s gone from the store. See: onceway store check",
            are(missing),
            extra=about(reason="store_damaged"),
        )
    if shared:
        core.orders.append(Collect(order.session, last + 1))
