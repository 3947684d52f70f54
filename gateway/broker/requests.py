"""SUBSCRIBE and UNSUBSCRIBE.

Rules: the answer says for each filter, in order, what was granted [MQTT-3.8.4-6]; it leaves after
the commit when the session is durable; retained messages follow it (Retain Handling 0: always, 1:
for a new subscription only, 2: never; never for a shared one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.burst import RETAIN, Burst
from gateway.broker.refusals import refused, words
from gateway.broker.router import Subscription, memory
from gateway.broker.routing import deliver
from gateway.mqtt.errors import quote
from gateway.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe, Version
from gateway.mqtt.packets import Subscription as Wanted
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SHARE_PREFIX, SYSTEM_PREFIX, split_shared

if TYPE_CHECKING:
    from gateway.broker.connection import Connection


def subscribe(connection: Connection, packet: Subscribe) -> None:
    identifier = (packet.properties or {}).get(PropertyId.SUBSCRIPTION_IDENTIFIER, [0])[0]
    reasons = []
    retained: list[tuple[Wanted, Subscription]] = []
    for wanted in packet.subscriptions:
        reason, new = _grant(connection, wanted, identifier)
        reasons.append(reason)
        shared = wanted.topic_filter.startswith(SHARE_PREFIX) and connection.version == Version.V5
        if (
            reason < ReasonCode.UNSPECIFIED_ERROR
            and not shared
            and (wanted.retain_handling == 0 or (wanted.retain_handling == 1 and new))
        ):
            assert connection.session is not None  # noqa: S101 - CONNECT comes first
            retained.append((wanted, connection.session.subscriptions[wanted.topic_filter]))
    connection.answer(Suback(packet.packet_id, reasons), _commit(connection))
    for wanted, subscription in retained:
        _send_retained(connection, wanted.topic_filter, subscription)


def _grant(connection: Connection, wanted: Wanted, identifier: int) -> tuple[ReasonCode, bool]:
    """The reason for one filter, and whether the subscription is new."""
    broker, session = connection.broker, connection.session
    assert session is not None  # noqa: S101 - CONNECT comes first
    reason = connection.policy.access.refuses_subscribe(connection, wanted.topic_filter)
    known = wanted.topic_filter in session.subscriptions
    inner = split_shared(wanted.topic_filter)[1]
    if (
        not reason
        and inner.count("/") >= broker.limits.topic_levels
        and not inner.startswith(SYSTEM_PREFIX)
    ):
        reason = ReasonCode.TOPIC_FILTER_INVALID
    if not reason and not known:
        router, limits = broker.router, broker.limits
        if (
            len(session.subscriptions) >= limits.subscriptions
            or router.size + memory(inner) > limits.memory_bytes
        ):
            reason = ReasonCode.QUOTA_EXCEEDED
    if reason:
        refused(
            connection, "subscribe", reason, f"filter {quote(wanted.topic_filter)}: {words(reason)}"
        )
        return reason, False
    subscription = Subscription(
        wanted.topic_filter, wanted.qos, wanted.no_local, wanted.retain_as_published, identifier
    )
    new = broker.router.subscribe(session, subscription)
    if session.durable:
        broker.changes.subscriptions[session, wanted.topic_filter] = None
    return ReasonCode(wanted.qos), new


def _send_retained(connection: Connection, topic_filter: str, subscription: Subscription) -> None:
    broker, session = connection.broker, connection.session
    assert session is not None  # noqa: S101 - CONNECT comes first
    kept = broker.system.current() if topic_filter.startswith(SYSTEM_PREFIX) else broker.retained
    for message in kept.matching(topic_filter, broker.now):
        if (subscription.no_local and message.client == session.client) or not broker.may_read(
            session, message.topic
        ):
            continue
        topic = broker.router.topic(message.topic)
        burst = Burst(
            topic,
            message.payload,
            message.qos,
            True,
            properties=message.properties,
            expires=message.expires,
        )
        deliver(
            broker, session, burst, min(message.qos, subscription.qos), RETAIN, subscription.extra
        )


def unsubscribe(connection: Connection, packet: Unsubscribe) -> None:
    broker, session = connection.broker, connection.session
    assert session is not None  # noqa: S101 - CONNECT comes first
    reasons = []
    for topic_filter in packet.topic_filters:
        found = broker.router.unsubscribe(session, topic_filter)
        reasons.append(ReasonCode.SUCCESS if found else ReasonCode.NO_SUBSCRIPTION_EXISTED)
        if found and session.durable:
            broker.changes.subscriptions[session, topic_filter] = None
    connection.answer(Unsuback(packet.packet_id, reasons), _commit(connection))


def _commit(connection: Connection) -> int:
    """What an answer about a durable session waits for."""
    session = connection.session
    if session is not None and session.durable:
        return connection.broker.promise()
    return 0
