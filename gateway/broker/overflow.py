"""What happens when a queue is full. In: messages that are about to be queued for a session. Out:
room for them, or not.

Bounds: messages and bytes per session, bytes of all queues together. QoS 0 never forces anything:
it is dropped and counted. For QoS 1 and 2 the session's section of the configuration says:

    end the session        its queue and subscriptions are gone, its client is told 0x97 if it is
                           connected, and learns from Session Present 0 if it is not: a gap is never
                           silent
    drop the oldest        from the front of the queue, never what is in flight; counted. When they
                           are in the store alone, the queue is over its bound until they have been
                           read
    refuse the publisher   0x97 for the publisher, before anything of its message has an effect

When all queues together are full, the longest one pays: a slow consumer costs itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gateway.broker.delivery import OVERHEAD, PAGE_ROWS
from gateway.logs import about
from gateway.mqtt.reason import ReasonCode

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.burst import Burst
    from gateway.broker.session import Session

log = logging.getLogger(__name__)


def is_full(broker: Broker, session: Session, burst: Burst, count: int) -> bool:
    """Whether a session has no room for `count` messages of a burst."""
    size = count * (burst.size + OVERHEAD)
    return _over(broker, session, count, size) or broker.queued + size > broker.limits.memory_bytes


def _over(broker: Broker, session: Session, count: int, size: int) -> bool:
    outbound, limits = session.outbound, broker.limits
    return (
        outbound.messages + count > limits.queue_messages
        or outbound.size + size > limits.queue_bytes
    )


def _excess(broker: Broker, session: Session, count: int, size: int) -> tuple[int, int]:
    """By how many messages and bytes a queue is over its bounds, when so much more comes."""
    outbound, limits = session.outbound, broker.limits
    return (
        outbound.messages + count - limits.queue_messages,
        outbound.size + size - limits.queue_bytes,
    )


def make_room(broker: Broker, session: Session, burst: Burst, qos: int, count: int) -> bool:
    """Whether `count` messages of a burst may be queued for a session; what stands in their way may
    have been given up for it. Never for a session that has ended, as it may have since its turn for
    this burst was planned.
    """
    if session.ended:
        return False
    if session.queueing.full == "refuse the publisher" and qos:
        return True  # `is_full` was asked before
    size = count * (burst.size + OVERHEAD)
    while _over(broker, session, count, size):
        if not qos:
            broker.statistics.dropped += count
            return False
        if (
            session.queueing.full == "drop the oldest"
            and session.outbound.tail
            and not session.outbound.pending
        ):
            session.outbound.ask()  # over the bound until the oldest are at hand
            break
        if not _give_up(broker, session, *_excess(broker, session, count, size)):
            broker.statistics.overflowed += count
            return False
    while broker.queued + size > broker.limits.memory_bytes:
        if not qos:
            broker.statistics.dropped += count
            return False
        payers = [
            item
            for item in broker.sessions.values()
            if item.queueing.full != "refuse the publisher"
        ]
        longest = max(payers, key=lambda item: item.outbound.size)
        if longest.outbound.size < size:
            longest = session
        if (
            not _give_up(broker, longest, 0, broker.queued + size - broker.limits.memory_bytes)
            and longest is session
        ):
            return False
    return not session.ended


def _drop_oldest(broker: Broker, session: Session, messages: int, size: int) -> int:
    """Drop what makes so much room, or the rest of the oldest delivery if that is less. Returns how
    many messages that was.
    """
    outbound = session.outbound
    dropped = 0
    if outbound.pending:
        each = outbound.pending[0].burst.size + OVERHEAD
        dropped = outbound.discard(max(messages, -(-size // each)))
    if dropped and broker.throttle.allows(f"queue of {session.client}"):
        text = "%s: the queue is full, its oldest messages are dropped"
        log.warning(text, session.client, extra=about(client=session.client, reason="queue_full"))
    broker.statistics.overflowed += dropped
    return dropped


def trim(broker: Broker, session: Session) -> None:
    """A queue that drops its oldest had them in the store: drop a tenth more than it must, if it is
    long, so that this is seldom needed.
    """
    limits, outbound = broker.limits, session.outbound
    if session.queueing.full != "drop the oldest" or not _over(broker, session, 0, 0):
        return
    spare = (
        (limits.queue_messages // 10, limits.queue_bytes // 10)
        if outbound.messages > PAGE_ROWS
        else (0, 0)
    )
    while _over(broker, session, *spare) and _drop_oldest(
        broker, session, *_excess(broker, session, *spare)
    ):
        pass
    if _over(broker, session, 0, 0) and outbound.tail:
        outbound.ask()


def _give_up(broker: Broker, session: Session, messages: int, size: int) -> bool:
    """Make some room in a session's queue, for so much if need be; False when nothing can be given
    up, or the session has ended.
    """
    outbound = session.outbound
    if session.queueing.full == "drop the oldest":
        return _drop_oldest(broker, session, messages, size) > 0
    text = f"the queue is full ({outbound.messages} messages, {outbound.size} bytes)"
    log.warning(
        "%s: %s, the session ends",
        session.client,
        text,
        extra=about(client=session.client, reason="queue_full"),
    )
    broker.statistics.overflowed += outbound.messages
    if session.connection is not None:
        session.connection.disconnect(ReasonCode.QUOTA_EXCEEDED, text)
    if broker.sessions.get(session.client) is session:
        broker.end_session(session)
    return False
