"""A publication's ways: to sessions, to shared subscriptions, into the spool, into the retained
messages.

In: a burst. Out: queued and sent packets, rows for the next commit, and the number of the commit
that the burst's acknowledgement waits for.

Rules: what is refused has no effect at all; what is taken has all its effects in one commit; a
message goes out at the lower of its own QoS and the granted one [MQTT-3.8.4-8]; RETAIN goes along
where the subscription asks for it [MQTT-3.3.1-12, MQTT-3.3.1-13].
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gateway.broker.burst import RETAIN, Burst
from gateway.broker.delivery import PAGE_LOW
from gateway.broker.effects import LeftBehind
from gateway.broker.queue_limits import is_crowded, is_full, make_room
from gateway.broker.retained import Retained
from gateway.broker.spool import ROW_OVERHEAD
from gateway.logs import about
from gateway.mqtt.reason import ReasonCode

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.router import Subscription
    from gateway.broker.session import Session
    from gateway.broker.shared import Share
    from gateway.broker.spool import Identity


log = logging.getLogger(__name__)


def refuses(broker: Broker, burst: Burst, durable: bool = False) -> ReasonCode | None:
    """Why a burst cannot be taken at all, or None. durable: its sender's session outlives its
    connection.
    """
    topic = burst.topic
    if topic.stale:
        broker.router.match(topic)
    if topic.refused:
        return topic.refused
    if topic.spooled and not broker.spool.fits(burst):
        return ReasonCode.QUOTA_EXCEEDED
    full = broker.disk_full or broker.changes.bytes + burst.count * burst.size > broker.disk_room
    if full and (
        topic.spooled
        or burst.retain
        or (burst.qos and topic.durable)
        or (burst.qos == 2 and durable)
    ):
        return ReasonCode.QUOTA_EXCEEDED
    if broker.owed and burst.qos and topic.durable and is_crowded(broker, burst):
        return ReasonCode.QUOTA_EXCEEDED
    if (
        topic.refusing
        and burst.qos
        and any(is_full(broker, session, burst, burst.count) for session in topic.refusing)
    ):
        return ReasonCode.QUOTA_EXCEEDED
    if burst.retain and burst.size:
        size, limits = burst.size + len(topic.name) + len(burst.properties), broker.limits
        if not broker.retained.fits(topic.name, size, limits.retained, limits.retained_bytes):
            return ReasonCode.QUOTA_EXCEEDED
    return None


def publish(
    broker: Broker, burst: Burst, client: str, identity: Identity | None = None, commit: int = 0
) -> int:
    """Route a burst, keep it for those who are away, put it into the spool. client: who published
    it. commit: one that it waits for in any case. Returns the commit that its acknowledgement waits
    for, 0 for none.
    """
    topic = burst.topic
    if topic.stale:
        broker.router.match(topic)
    if topic.spooled:
        broker.changes.spool += broker.spool.rows(
            burst, client, identity, broker.monotonic, broker.utc
        )
        broker.changes.bytes += burst.count * (burst.size + ROW_OVERHEAD)
        commit = broker.promise()
    qos = burst.qos
    if qos and not commit and topic.durable:
        commit = broker.promise()
    if burst.retain:
        commit = _retain(broker, burst, client) or commit
    publisher = burst.publisher
    for route in topic.routes:
        session = route.session
        if session is publisher:
            if route.own is None:
                continue
            route = route.own
        flags = RETAIN if burst.retain and route.retain_as_published else 0
        _deliver(
            broker,
            session,
            burst,
            min(qos, route.qos) << 1 | flags,
            route.identifiers,
            0,
            burst.count,
            commit,
        )
    for share in topic.shares:
        messages = LeftBehind(burst, qos, share.name, 0, burst.count)
        if not _deal(broker, share, messages, commit, with_room=True):
            _deal_one_by_one(broker, share, messages, commit)
    return commit


def _deal(
    broker: Broker, share: Share, messages: LeftBehind, commit: int, *, with_room: bool
) -> bool:
    """Give messages to the members of a shared subscription. with_room: only to those that have
    room for all of them. False when nobody may have them.
    """
    burst, qos, name, skip, count = messages

    def eligible(member: Session) -> bool:
        return (
            not member.ended
            and broker.may_read(member, burst.topic.name)
            and not (with_room and is_full(broker, member, burst, count))
        )

    dealt = share.deal(count, eligible)
    for session, subscription, part in dealt:
        flags = min(qos, subscription.qos) << 1 | (
            burst.retain and subscription.retain_as_published
        )
        _deliver(broker, session, burst, flags, subscription.extra, skip, part, commit, name)
        if session.ended and qos:
            broker.effects.leave_behind(LeftBehind(burst, qos, name, skip, part))
        skip += part
    return bool(dealt)


def _deal_one_by_one(broker: Broker, share: Share, messages: LeftBehind, commit: int) -> None:
    """Nobody has room for all of these messages: somebody may have room for one of them; where
    nobody has, the queue of the one whose turn it is overflows.
    """
    burst, qos, name, skip, count = messages
    for index in range(skip, skip + count):
        one = LeftBehind(burst, qos, name, index, 1)
        if not _deal(broker, share, one, commit, with_room=True):
            _deal(broker, share, one, commit, with_room=False)


def redeal(broker: Broker, messages: LeftBehind) -> None:
    """Give what an ended member of a shared subscription had not got to the others, if there are
    any, and as far as they have room: nobody's queue overflows by it.
    """
    burst, qos, name, skip, count = messages
    share = broker.router.share(name)
    if share is None:
        return
    commit = broker.promise()
    if _deal(broker, share, messages, commit, with_room=True):
        return
    for index in range(skip, skip + count):
        one = LeftBehind(burst, qos, name, index, 1)
        if not _deal(broker, share, one, commit, with_room=True):
            left = skip + count - index
            broker.statistics.overflowed += left
            if broker.throttle.allows(f"queues of {name}"):
                log.warning(
                    "%s: a member's session ended, and no other member has room for its messages",
                    name,
                    extra=about(reason="queue_full"),
                )
            return


def feed_retained(broker: Broker, session: Session) -> bool:
    """Send a session some of the retained messages that it waits for, as far as it has room. True:
    there is room for more.
    """
    feed, sent, looked = session.feed, 0, False
    while feed:
        if not feed.page:
            if looked:
                return True
            feed.look()
            looked = True
            continue
        if not _has_room_for_retained(broker, session):
            return False
        if sent >= _PAGE_BYTES:
            return True
        _, topic, topic_filter = item = feed.page.popleft()
        subscription, message = session.subscriptions.get(topic_filter), item.message
        if (
            subscription is None
            or message is None
            or (message.expires is not None and message.expires <= broker.now)
            or (subscription.no_local and message.client == session.client)
            or not broker.may_read(session, topic)
        ):
            continue
        _send_retained(broker, session, message, subscription)
        sent += message.size
    if feed is not None:
        for topic_filter in feed.noted:
            broker.changes.subscriptions[session, topic_filter] = None
    session.feed = None
    return False


_PAGE_BYTES = 262_144
"""Of retained messages for one session in one step."""


def _has_room_for_retained(broker: Broker, session: Session) -> bool:
    outbound, connection = session.outbound, session.connection
    return (
        connection is not None
        and not connection.full
        and connection.size <= broker.limits.outgoing_bytes
        and not outbound.tail
        and len(outbound.pending) < min(PAGE_LOW, broker.limits.queue_messages)
        and outbound.messages < broker.limits.queue_messages
        and outbound.size < broker.limits.queue_bytes
    )


def _send_retained(
    broker: Broker, session: Session, message: Retained, subscription: Subscription
) -> None:
    burst = Burst(
        broker.router.topic(message.topic),
        message.payload,
        message.qos,
        True,
        properties=message.properties,
        expires=message.expires,
    )
    qos = min(message.qos, subscription.qos)
    commit = broker.promise() if qos and session.durable else 0
    _deliver(broker, session, burst, qos << 1 | RETAIN, subscription.extra, 0, 1, commit)


def _deliver(
    broker: Broker,
    session: Session,
    burst: Burst,
    flags: int,
    extra: bytes,
    skip: int,
    count: int,
    commit: int,
    share: str = "",
) -> None:
    """flags: QoS << 1 | RETAIN. share: filter of the shared subscription that this comes from."""
    outbound = session.outbound
    qos, connection = flags >> 1, session.connection
    if (
        not qos
        and connection is not None
        and not (outbound.pending or outbound.resend or outbound.tail)
    ):
        connection.send_qos_0(burst, flags, extra, skip, count)
        return
    if not qos and connection is None and not session.queueing.qos_0:
        return
    if not qos and outbound.tail and not session.queueing.qos_0:
        broker.statistics.dropped += count  # it cannot wait behind what is on disk
    elif count > 1 and is_full(broker, session, burst, count):
        # room is made for one after the other, as if they had come alone
        for index in range(skip, skip + count):
            _deliver(broker, session, burst, flags, extra, index, 1, commit, share)
    elif make_room(broker, session, burst, qos, count):
        outbound.queue(burst, flags, extra, skip, count, commit, share)


def _retain(broker: Broker, burst: Burst, client: str) -> int:
    """Keep the last publication of a burst for later subscribers. Returns the commit that this is
    part of, 0 when nothing changes.
    """
    name = burst.topic.name
    if burst.size:
        message = Retained(
            name, client, burst.qos, burst.payload(burst.count - 1), burst.properties, burst.expires
        )
        broker.retained.put(message)
        broker.changes.retained[name] = message
        broker.changes.bytes += burst.size + ROW_OVERHEAD
    elif broker.retained.remove(name):
        broker.changes.retained[name] = None
    else:
        return 0
    return broker.promise()
