"""Limits of queues. In: messages that are about to be queued for a session. Out: whether there is
room for them. Sessions that have to end are noted in `effects.py`.

Bounds: messages and bytes per session (`[limits]`, or its own `[[queue]]` section), and bytes of
all queues together. Expired messages at the front of a queue are dropped first. QoS 0 is dropped
and counted, unless the session keeps QoS 0 and drops the oldest. For QoS 1 and 2, the configuration
decides:

  end the session        its queue and subscriptions are deleted; the client gets 0x97
                         if it is connected, and otherwise sees Session Present 0: a gap is never
                         silent
  drop the oldest        from the front of the queue, never messages in flight; counted. Notices
                         for a peer gateway stay, as long as they are few
  refuse the publisher   0x97 for the publisher, before its message has any effect

If the front of the queue is only in the store, it is read first. In the meantime the queue may
exceed its bound by an eighth, or by a page if a page is larger. Beyond that, "end the session" and
"refuse the publisher" do so, and "drop the oldest" drops the new messages.

When all queues together are full, the longest queues give up messages until a 32nd of the bound is
free, so a slow consumer harms only itself: "end the session" ends it, "drop the oldest" drops, now
or once the messages are read from the store, and "refuse the publisher" gives up nothing.
Publishers are refused while all queues together exceed their bound by an eighth.
"""

from __future__ import annotations

import logging
from itertools import islice

from gateway.broker.core import Core
from gateway.broker.delivery import MOST_PENDING, PAGE_BYTES, PAGE_ROWS
from gateway.broker.publish_run import NOTICES, OVERHEAD, PublishRun
from gateway.broker.session import Session
from gateway.config.bound_names import queue_key
from gateway.mqtt.reason import ReasonCode
from gateway.system.logs import about

log = logging.getLogger(__name__)

_GRACE = 8
"""While the store reads what to drop, bounds grow by 1 / _GRACE; a queue's by a page at least."""
_ALL_QUEUES = "limits.memory_bytes"
_SPARE = 32
"""After the longest queues were shortened, 1 / _SPARE of `limits.memory_bytes` is free."""


def is_full(core: Core, session: Session, run: PublishRun, count: int) -> bool:
    """Return whether a session's queue, or all queues together, have no room for `count` messages
    of a run. If only the session's queue is full, first drop its expired messages."""
    size = count * (run.weight + OVERHEAD)
    if core.queued - core.to_drop + size > core.limits.memory_bytes:
        return True
    if not _over(core, session, count, size):
        return False
    reading = _drop_expired(core, session)
    return _over(core, session, count, size, grace=reading)


def is_crowded(core: Core, run: PublishRun) -> bool:
    """Whether a run would bring all queues together over nine eighths of `limits.memory_bytes`."""
    most = core.limits.memory_bytes
    size = run.count * (run.weight + OVERHEAD)
    return core.queued + size > most + most // _GRACE


def never_fits(core: Core, session: Session, run: PublishRun) -> bool:
    """Whether an empty queue of a session would have no room for one message of a run."""
    size = run.weight + OVERHEAD
    return size > bounds(core, session)[1] or size > core.limits.memory_bytes


def make_room(core: Core, session: Session, run: PublishRun, qos: int, count: int) -> bool:
    """Make room in a session's queue for `count` messages of a run; older messages may be dropped.
    Return False if the new messages are dropped: there is no room, or the session ends."""
    if session.ended:
        return False
    size = count * (run.weight + OVERHEAD)
    exceeds = core.queued - core.to_drop + size > core.limits.memory_bytes
    send_flow, (messages, most) = session.send_flow, bounds(core, session)
    if send_flow.messages + count > messages or send_flow.size + size > most:
        if not _forces(session, qos) or not (
            _make_room_in(core, session, count, size) or _is_needed(core, session, run)
        ):
            return _drop(core, session, qos, count)
    elif exceeds and not qos:
        return _drop(core, session, qos, count)
    if exceeds:
        core.effects.note_over_limit()
    return True


def judged_at_once(core: Core, session: Session, run: PublishRun, qos: int) -> int:
    """Return the number of messages of a run, at least 1, that one call of `make_room` may judge
    together. In separate calls, all of them would have the same result: there is room, or the
    oldest messages are dropped, or (at QoS 0) the new message is dropped."""
    send_flow, limits, each = session.send_flow, core.limits, run.weight + OVERHEAD
    free = _free(core, session, each)
    if not _forces(session, qos):
        free = min(free, (limits.memory_bytes - core.queued + core.to_drop) // each)
        return free if free > 0 else run.count
    if free <= 0 and session.queueing.full == "drop the oldest":
        count = size = 0
        for oldest in send_flow.pending:
            if oldest.notice:
                continue
            count += oldest.count - oldest.sent
            size += (oldest.count - oldest.sent) * (oldest.run.weight + OVERHEAD)
            if count >= run.count:
                break
        if count and not free:
            free = min(count, size // each, bounds(core, session)[0])
        elif not count and send_flow.tail:
            free = _free(core, session, each, grace=True)
            return free if free > 0 else run.count
    return max(1, free)


def _forces(session: Session, qos: int) -> bool:
    """Whether `queueing.full` applies at this QoS. If not, a full queue drops new messages."""
    return qos > 0 or (session.queueing.qos_0 and session.queueing.full == "drop the oldest")


def _free(core: Core, session: Session, each: int, *, grace: bool = False) -> int:
    """Return for how many more messages of `each` bytes a queue has room; 0 or less if none."""
    messages, size = bounds(core, session, grace=grace)
    send_flow = session.send_flow
    return min(messages - send_flow.messages, (size - send_flow.size) // each)


def _drop(core: Core, session: Session, qos: int, count: int) -> bool:
    if qos:
        core.statistics.overflowed += count
        session.send_flow.overflowed += count
    else:
        core.statistics.dropped += count
    return False


def _make_room_in(core: Core, session: Session, count: int, size: int) -> bool:
    """Do the same as `make_room` for new messages that would exceed the queue's own bounds."""
    send_flow = session.send_flow
    full = session.queueing.full
    if full == "refuse the publisher":
        return True  # `is_full` was checked before
    send_flow.pump()  # messages in flight are never dropped
    reading = _drop_expired(core, session)
    if full == "drop the oldest":
        _drop_until_fits(core, session, count, size)
    if not _over(core, session, count, size):
        return True
    if full == "drop the oldest" and send_flow.tail and _oldest(core, session) is None:
        send_flow.ask()
        reading = True
    if reading and not _over(core, session, count, size, grace=True):
        return True
    if full == "end the session":
        text = f"the queue is full ({send_flow.messages} messages, {send_flow.size} bytes; "
        _end(core, session, f"{text}{bound_key(core, session, count, size)})")
    return False


def _is_needed(core: Core, session: Session, run: PublishRun) -> bool:
    """Whether a full queue takes a run all the same. True only for notices to a peer gateway, while
    the queue has fewer messages than twice its bound."""
    return run.topic.name == NOTICES and session.send_flow.messages < 2 * bounds(core, session)[0]


def _over(core: Core, session: Session, count: int, size: int, *, grace: bool = False) -> bool:
    send_flow, (messages, most) = session.send_flow, bounds(core, session, grace=grace)
    return send_flow.messages + count > messages or send_flow.size + size > most


def bounds(core: Core, session: Session, *, grace: bool = False) -> tuple[int, int]:
    """Return a queue's bounds: messages, bytes. grace: allow more, until the store is read."""
    queueing, limits = session.queueing, core.limits
    messages = queueing.messages or limits.queue_messages
    most = queueing.bytes or limits.queue_bytes
    if grace:
        messages += max(messages // _GRACE, PAGE_ROWS)
        most += max(most // _GRACE, PAGE_BYTES)
    return messages, most


def bound_key(core: Core, session: Session, count: int, size: int) -> str:
    """Return the key of the bound that `count` more messages, of `size` bytes in total, exceed."""
    send_flow, (messages, most) = session.send_flow, bounds(core, session)
    if send_flow.messages + count > messages:
        return queue_key(session.client, session.queueing, "messages", messages)
    if send_flow.size + size > most:
        return queue_key(session.client, session.queueing, "bytes", most)
    return _ALL_QUEUES


def _drop_expired(core: Core, session: Session) -> bool:
    """Drop expired messages at a queue's front. Return True if a page of the tail was ordered."""
    send_flow = session.send_flow
    while send_flow.pending:
        expires = send_flow.pending[0].run.expires
        if expires is None or expires > core.now:
            return False
        core.statistics.expired += send_flow.discard(send_flow.pending[0].count)
    if not send_flow.tail or send_flow.tail_expires > core.now:
        return False
    send_flow.ask()
    return True


def _oldest(core: Core, session: Session) -> int | None:
    """Return the index in `pending` of the delivery to drop first: the oldest delivery that is not
    a notice. If too many notices come before it, return the index of the oldest notice. None if the
    delivery to drop is not in memory."""
    send_flow = session.send_flow
    if not send_flow.pending or not send_flow.pending[0].notice:
        return 0 if send_flow.pending else None
    most = min(MOST_PENDING, bounds(core, session)[0] // 2)
    for at, delivery in enumerate(islice(send_flow.pending, most)):
        if not delivery.notice:
            return at
    return None if len(send_flow.pending) < most else 0


def _drop_until_fits(core: Core, session: Session, count: int, size: int) -> None:
    """Drop the oldest messages, if possible until `count` messages of `size` bytes in all fit."""
    send_flow, (messages, most) = session.send_flow, bounds(core, session)
    while _over(core, session, count, size) and _drop_oldest(
        core,
        session,
        send_flow.messages + count - messages,
        send_flow.size + size - most,
        bound_key(core, session, count, size),
    ):
        pass


def _drop_oldest(
    core: Core, session: Session, messages: int, size: int, bound: str = _ALL_QUEUES
) -> int:
    """Drop unsent messages of the oldest delivery, until `messages` messages and `size` bytes are
    freed or none is left. Return the number of dropped messages. bound: key of the bound, for the
    log."""
    send_flow, at = session.send_flow, _oldest(core, session)
    dropped = 0
    if at is not None:
        each = send_flow.pending[at].run.weight + OVERHEAD
        dropped = send_flow.discard(max(messages, -(-size // each)), at)
    if dropped and core.log_throttle.allows(f"queue of {session.client}"):
        text = "%s: the queue is full (%s), its oldest messages are dropped"
        extra = about(client=session.client, reason="queue_full")
        log.warning(text, session.client, bound, extra=extra)
    core.statistics.overflowed += dropped
    send_flow.overflowed += dropped
    return dropped


def _end(core: Core, session: Session, text: str) -> None:
    if core.log_throttle.allows(f"end of {session.client}"):
        extra = about(client=session.client, reason="queue_full")
        log.warning("%s: %s, the session ends", session.client, text, extra=extra)
    core.statistics.overflowed += session.send_flow.messages
    core.effects.end(session, ReasonCode.QUOTA_EXCEEDED, text)


def trim(core: Core, session: Session) -> None:
    """Shorten a queue whose front was read: drop expired messages and the bytes in `to_drop`. If
    the queue exceeds its bounds and drops its oldest messages when full, drop messages until the
    bounds are kept. If it then had more than PAGE_ROWS messages, drop a tenth of the bounds more,
    as room for new messages."""
    send_flow = session.send_flow
    _drop_expired(core, session)
    while send_flow.to_drop > 0 and _drop_oldest(core, session, 0, send_flow.to_drop):
        pass
    if session.queueing.full == "drop the oldest" and _over(core, session, 0, 0):
        messages, most = bounds(core, session)
        spare = (messages // 10, most // 10) if send_flow.messages > PAGE_ROWS else (0, 0)
        _drop_until_fits(core, session, *spare)
        if send_flow.tail and _over(core, session, 0, 0):
            send_flow.ask()
    if send_flow.tail and send_flow.to_drop > 0:
        send_flow.ask()


def shorten_longest_queues(core: Core) -> None:
    """If all queues together exceed their bound, drop messages of the longest queues, or end their
    sessions, until 1 / _SPARE of the bound is free. Queues that refuse publishers are left out."""
    most = core.limits.memory_bytes
    if core.queued - core.to_drop <= most:
        return
    core.send()  # messages in flight are never dropped
    excess = core.queued - core.to_drop - most + most // _SPARE
    queues = [
        session
        for session in core.by_id.values()
        if session.queueing.full != "refuse the publisher"
        and not session.ended
        and session.send_flow.size > session.send_flow.to_drop
    ]
    queues.sort(key=lambda session: session.send_flow.size, reverse=True)
    for session in queues:
        send_flow = session.send_flow
        before = send_flow.size - send_flow.to_drop
        _drop_expired(core, session)
        if session.queueing.full == "end the session":
            if before > 0:
                text = f"all queues together are full ({_ALL_QUEUES}), and this one is the longest"
                _end(core, session, f"{text} ({send_flow.size} bytes)")
                excess -= before
        else:
            wanted = min(before, excess)
            while send_flow.size - send_flow.to_drop > before - wanted and _drop_oldest(
                core, session, 0, send_flow.size - send_flow.to_drop - before + wanted
            ):
                pass
            if send_flow.tail:
                later = send_flow.size - send_flow.to_drop - before + wanted
                send_flow.to_drop += later  # dropped as soon as they are read
                core.to_drop += later
                send_flow.ask()
            excess -= before - send_flow.size + send_flow.to_drop
        if excess <= 0:
            return
