"""SUBSCRIBE and UNSUBSCRIBE.

Rules: the answer has the granted QoS of each filter, in order [MQTT-3.8.4-6]. If the session is
durable, the answer is sent after the commit. Retained messages follow as the session has room
(`retained_feed.py`). With Retain Handling 0 they are sent always, with 1 for a new subscription
only, with 2 never. A shared subscription gets none.

A filter that occurs several times in one packet is one subscription, with the options of its last
entry, and its retained messages are sent once. One packet may contain as many different filters as
a session may have.
"""

from __future__ import annotations

from gateway.broker.connection import Connection
from gateway.broker.refusals import refused, words
from gateway.broker.retained_feed import RetainedFeed
from gateway.broker.session import Session, Subscription
from gateway.broker.spool import ROW_OVERHEAD
from gateway.mqtt.errors import quote
from gateway.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from gateway.mqtt.packets import Subscription as Wanted
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SHARE_PREFIX, SYSTEM_PREFIX, split_shared

_BOUNDS = {
    ReasonCode.QUOTA_EXCEEDED: " (limits.subscriptions, limits.memory_bytes, or a full disk)",
    ReasonCode.TOPIC_FILTER_INVALID: " (limits.topic_levels)",
}
"""Configuration keys that may cause the refusal of a filter, by reason code, for the log."""
_GRANTED = (ReasonCode.GRANTED_QOS_0, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2)


def subscribe(connection: Connection, session: Session, packet: Subscribe) -> None:
    identifier = (packet.properties or {}).get(PropertyId.SUBSCRIPTION_IDENTIFIER, [0])[0]
    first = {wanted.topic_filter: wanted for wanted in reversed(packet.subscriptions)}
    last = {wanted.topic_filter: wanted for wanted in packet.subscriptions}
    always = {item.topic_filter for item in packet.subscriptions if item.retain_handling == 0}
    refusals: dict[str, ReasonCode] = {}
    most = connection.broker.limits.subscriptions
    for number, (topic_filter, wanted) in enumerate(last.items()):
        if number >= most:
            refusals[topic_filter] = ReasonCode.QUOTA_EXCEEDED
            continue
        reason = connection.policy.access.refuses_subscribe(connection, wanted.topic_filter)
        with connection.broker.step:
            reason, new = _grant(connection, session, wanted, identifier, reason)
        if reason:
            refusals[topic_filter] = reason
        elif topic_filter in always or (new and first[topic_filter].retain_handling == 1):
            with connection.broker.step:
                _want_retained(connection, session, topic_filter)
    reasons = [
        refusals.get(wanted.topic_filter) or _GRANTED[wanted.qos] for wanted in packet.subscriptions
    ]
    for reason in set(refusals.values()):
        filters = [item for item, why in refusals.items() if why == reason]
        more = f" and {len(filters) - 1} more" if len(filters) > 1 else ""
        text = f"filter {quote(filters[0])}{more}: {words(reason)}{_BOUNDS.get(reason, '')}"
        refused(connection.broker, connection, "subscribe", reason, text, len(filters))
    commit = connection.broker.promise() if session.durable else 0
    connection.answer(Suback(packet.packet_id, reasons), commit)


def _grant(
    connection: Connection,
    session: Session,
    wanted: Wanted,
    identifier: int,
    reason: ReasonCode | None,
) -> tuple[ReasonCode | None, bool]:
    """Add a subscription, unless it is refused. Return the reason of the refusal or None, and
    whether the subscription is new. reason: refusal by the access rules, or None.
    """
    broker, most = connection.broker, connection.broker.limits
    known = wanted.topic_filter in session.subscriptions
    inner = split_shared(wanted.topic_filter)[1]
    if reason:
        return reason, False
    if inner.count("/") >= most.topic_levels and not inner.startswith(SYSTEM_PREFIX):
        return ReasonCode.TOPIC_FILTER_INVALID, False
    if not known:
        size = (len(inner) + ROW_OVERHEAD) * session.durable
        if (
            len(session.subscriptions) >= most.subscriptions
            or not broker.router.has_room(session, inner, most.memory_bytes)
            or (size and broker.lacks_room(size))
        ):
            return ReasonCode.QUOTA_EXCEEDED, False
        broker.changes.bytes += size
    subscription = Subscription(
        wanted.topic_filter,
        wanted.qos,
        wanted.no_local or connection.bridge,
        wanted.retain_as_published or connection.bridge,
        identifier,
    )
    new = broker.router.subscribe(session, subscription)
    if session.durable:
        broker.changes.subscriptions[session, wanted.topic_filter] = None
    return None, new


def _want_retained(connection: Connection, session: Session, topic_filter: str) -> None:
    """Queue the retained messages that match a filter, unless the subscription is shared."""
    broker = connection.broker
    if topic_filter.startswith(SHARE_PREFIX):
        return
    system = topic_filter.startswith(SYSTEM_PREFIX)
    source = broker.system_messages() if system else broker.retained
    if source.count:
        session.feed = session.feed or RetainedFeed()
        session.feed.add(topic_filter, source)
        broker.feed(session)


def unsubscribe(connection: Connection, session: Session, packet: Unsubscribe) -> None:
    broker = connection.broker
    reasons = []
    for topic_filter in packet.topic_filters:
        with broker.step:
            found = broker.router.unsubscribe(session, topic_filter)
            if found and session.feed is not None:
                session.feed.remove(topic_filter)
            if found and session.durable:
                broker.changes.subscriptions[session, topic_filter] = None
        reasons.append(ReasonCode.SUCCESS if found else ReasonCode.NO_SUBSCRIPTION_EXISTED)
    changed = session.durable and ReasonCode.SUCCESS in reasons
    connection.answer(Unsuback(packet.packet_id, reasons), broker.promise() if changed else 0)
