"""The broker's state after a start, from the rows of the store.

In: `Recovered`. Out: sessions, subscriptions, flows, retained messages and wills as of the last
commit. All connections ended when the gateway stopped, so a client that was connected then counts
as disconnected now, and its will is due.
"""

from __future__ import annotations

from typing import cast

from gateway.broker.core import Core
from gateway.broker.delivery import Collect, Delivery
from gateway.broker.publish_run import OVERHEAD, PublishRun
from gateway.broker.queue_pages import StoredDelivery, delivery_of
from gateway.broker.retained import Retained
from gateway.broker.retained_changes import BEFORE
from gateway.broker.retained_feed import RetainedFeed
from gateway.broker.send_flow import SendFlow
from gateway.broker.session import Session, Subscription
from gateway.broker.spool import PART
from gateway.broker.store_rows import RETAINED_TO_COME, Recovered
from gateway.broker.will import StoredWill
from gateway.mqtt.message_ids import packet_id, unpack_ids
from gateway.system.usage import Account, Origin


def take_over(core: Core, state: Recovered) -> None:
    """Fill the broker with the state of the store. Called once, before a client connects."""
    by_id: dict[int, Session] = {}
    connected = set()
    origins = {(kind, key): name for kind, key, name, _ in state.origins}
    core.neighbours.know(state)
    for number, client, expiry, departed, incarnation, user in state.sessions:
        queue = core.config.queueing(client)
        session = by_id[number] = core.by_id[number] = Session(
            core, number, client, queue, expiry, incarnation, user
        )
        session.durable = True
        if core.neighbours.restore(session):
            core.sessions[client] = session
            address = origins.get(("session", client), "")
            core.give(session, address if user is None else f"user {user}")
        session.departed = core.now if departed is None else departed / 1000
        if departed is None:
            connected.add(number)
            core.changes.sessions[number] = session
    shares = [(row, core.accounts.of(user), size) for row, user, size in state.spool_users]
    spool: list[tuple[int, Account | Origin | None, int]] = [
        *(item for item in shares if item[1].spool_share < 1),
        *(
            (int(key.partition(" ")[0]) * PART, core.origins.of(name), size)
            for kind, key, name, size in state.origins
            if kind == "spool" and key.partition(" ")[0].isdecimal()
        ),
    ]
    if spool:
        core.spool.restore_shares(spool)
    for number, topic_filter, options, identifier in state.subscriptions:
        session = by_id[number]
        core.router.subscribe(session, Subscription.stored(topic_filter, options, identifier))
        if options & RETAINED_TO_COME:
            session.feed = session.feed or RetainedFeed()
            session.feed.add(topic_filter, core.retained)
            session.feed.noted.add(topic_filter)
    _restore_flows(core, state, by_id, connected)
    if state.retained:
        _restore_retained(core, state, origins)
    for client, due_ms, delay, topic, qos, retain, properties, lifetime, payload in state.wills:
        session_of = core.sessions.get(client)
        origin = session_of.origin if session_of else None
        more = properties, delay, lifetime, None, origin
        stored = StoredWill(topic, payload, qos, bool(retain), *more)
        core.will_use.add(origin, stored.size)
        latest = core.now + min(delay, session_of.expiry if session_of else 0)
        core.wills[client] = core.changes.wills[client] = stored.at(
            latest if due_ms is None else min(latest, due_ms / 1000)
        )


def _restore_retained(core: Core, state: Recovered, names: dict[tuple[str, str], str]) -> None:
    deletions = []
    for topic, publisher, qos, properties, expires_ms, payload, version in state.retained:
        expires = None if expires_ms is None else expires_ms / 1000
        origin = core.origins.of(names.get(("retained", topic), ""))
        version = version or BEFORE
        kept = Retained(topic, publisher, qos, payload, properties, expires, version, origin)
        if payload:
            core.retained.put(kept)
        else:
            deletions.append(kept)
    for deletion in sorted(deletions, key=lambda item: item.expires or 0):
        core.retained.put_deletion(deletion)


def _restore_flows(
    core: Core, state: Recovered, by_id: dict[int, Session], connected: set[int]
) -> None:
    runs: dict[int, PublishRun] = {}
    queues: dict[int, list[Delivery]] = {}
    for number, *row in state.queue:
        queues.setdefault(number, []).append(
            delivery_of(core, by_id[number], cast(StoredDelivery, tuple(row)), runs)
        )
    flows = {
        number: (received, sent, flying, released)
        for number, received, sent, flying, released in state.flows
    }
    for number, session in by_id.items():
        received, sent, unacknowledged, released = flows.get(number, (b"", 1, b"", b""))
        session.receive_flow.restore(received)
        flow = session.send_flow
        flow.flights.released = dict.fromkeys(unpack_ids(released))
        unsure = core.limits.inflight if number in connected else 0
        _restore_queue(flow, sent, set(unpack_ids(unacknowledged)), queues.get(number, []), unsure)
    for number, first, after, messages, size in state.tails:
        flow = by_id[number].send_flow
        flow.tail = first
        flow.next = max(flow.next, after)
        flow.count(messages, size + messages * OVERHEAD)
    core.orders += [Collect(number, 0) for number in state.leaving]
    for session in by_id.values():
        if not session.expiry:
            core.effects.end(session)


def _restore_queue(
    flow: SendFlow, sent: int, flying: set[int], deliveries: list[Delivery], unsure: int
) -> None:
    """Restore a queue. deliveries: deliveries that were or may have been in flight, in order.
    flying: identifiers in flight. sent: first unsent number. unsure: how many messages from `sent`
    on may have been sent before the gateway died with the session connected.
    """
    flow.sent = flow.next = sent
    possibly_sent = sent + unsure
    for delivery in deliveries:
        end = delivery.first + delivery.count
        delivery.sent = max(0, min(possibly_sent, end) - delivery.first)
        flown = [
            n
            for n in range(delivery.first, delivery.first + delivery.sent)
            if n >= sent or packet_id(n) in flying
        ]
        flow.flights.resend += [(number, delivery) for number in flown]
        delivery.open = len(flown) + delivery.count - delivery.sent
        flow.sent = max(flow.sent, delivery.first + delivery.sent)
        flow.next = max(flow.next, end)
        if delivery.open:
            flow.count(delivery.open, delivery.open * (delivery.run.weight + OVERHEAD))
        else:
            flow.forget(delivery)
        if delivery.sent < delivery.count:
            flow.pending.append(delivery)
    flow.sealed = (0, sent)
