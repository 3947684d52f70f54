"""Routing of a publication: to sessions, shared subscriptions, the spool and the retained messages.

In: a run. Out: queued and sent packets, rows for the next commit, and the number of the commit that
the run's acknowledgement waits for.

Rules: a refused run has no effect at all; an accepted run has all its effects in one commit. A
message is sent at the lower of its own QoS and the granted one [MQTT-3.8.4-8]. RETAIN is kept
if the subscription asks for it [MQTT-3.3.1-12, MQTT-3.3.1-13].
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from gateway.broker.core import Core
from gateway.broker.delivery import PAGE_LOW, Undelivered
from gateway.broker.lack import Bound, Lack
from gateway.broker.publish_run import OVERHEAD, PublishRun
from gateway.broker.queue_limits import (
    bound_key,
    bounds,
    is_crowded,
    is_full,
    judged_at_once,
    make_room,
    never_fits,
)
from gateway.broker.retained import Retained
from gateway.broker.retained_changes import clear, keep, next_version
from gateway.broker.router import RoutedTopic, Share
from gateway.broker.session import Session, Subscription
from gateway.broker.spool import ROW_OVERHEAD, Identity
from gateway.mqtt.errors import quote
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.runs import RETAIN
from gateway.mqtt.topics import SHARE_PREFIX
from gateway.system.logs import about
from gateway.system.usage import Account, Origin

_Member = tuple[Session, Subscription]
_Members = list[_Member]

log = logging.getLogger(__name__)


def lacks(core: Core, run: PublishRun, durable: bool = False) -> Lack | None:
    """Return the reason why a run cannot be accepted as a whole, or None. durable: whether the
    publisher's session outlives its connection.
    """
    topic: RoutedTopic = run.topic  # type: ignore[assignment] # every topic is the router's
    if topic.stale:
        core.router.match(topic)
    if topic.refused:
        return Lack(topic.refused)
    bound: Bound | None = None
    if topic.spooled and not core.spool.fits(run, _account(core, run)):
        bound = Bound.SPOOL
    elif (
        topic.spooled
        and run.qos
        and core.neighbours.second_disk is not None
        and core.neighbours.refuses
    ):
        bound = Bound.SECOND_DISK
    elif (
        topic.spooled or run.retain or (run.qos and topic.durable) or (run.qos == 2 and durable)
    ) and (core.disk_lack or core.changes.bytes + run.count * run.weight > core.disk_room):
        bound = Bound.DISK
    elif core.to_drop and run.qos and topic.durable and is_crowded(core, run):
        bound = Bound.MEMORY
    elif topic.refusing and run.qos and _full_queue(core, run, topic) is not None:
        bound = Bound.QUEUE
    elif run.retain and run.size:
        size = _retained_size(run, topic)
        if not core.retained.fits(topic.name, size, core.limits, _origin(run)):
            bound = Bound.RETAINED
    return None if bound is None else Lack(ReasonCode.QUOTA_EXCEEDED, bound)


def explained(core: Core, run: PublishRun, lack: Lack) -> Lack:
    """Return `lack` with its text. If the refusal is for good, the bound in the result is None."""
    topic = core.router.routed(run.topic)
    if topic.refused:
        shared = topic.name.startswith(SHARE_PREFIX)
        text = "$share/ is for shared subscriptions" if shared else "limits.topic_levels"
        return lack._replace(text=text)
    if lack.bound is None:
        return lack
    if never := _never(core, run, topic):
        return lack._replace(bound=None, text=never)
    return lack._replace(text=_text(core, run, topic, lack.bound))


def _never(core: Core, run: PublishRun, topic: RoutedTopic) -> str:
    """Return, in words, a bound that is too small for even one publication of a run, or "". Such a
    publication is refused for good, because sending it again would never succeed.
    """
    text, limits = "", core.limits
    if topic.spooled and not core.spool.fits_when_empty(run, _account(core, run)):
        text = "the message is larger than the spool: spool.max_bytes, or quota.spool_share"
    elif run.retain and run.size and _retained_size(run, topic) > limits.retained_bytes:
        text = "the message is larger than limits.retained_bytes"
    elif run.qos and topic.refusing:
        found = (item for item in topic.refusing if never_fits(core, item, run))
        if (session := next(found, None)) is not None:
            key = bound_key(core, session, 0, run.weight + OVERHEAD)
            text = f"the message is larger than the queue of {quote(session.client)}: {key}"
    return text


def _text(core: Core, run: PublishRun, topic: RoutedTopic, bound: Bound) -> str:
    """Return, in words, the exceeded bound and its configuration key."""
    limits = core.limits
    if bound is Bound.SPOOL:
        return (
            "the spool, or the client's share of it, is full: spool.max_bytes, or quota.spool_share"
        )
    if bound is Bound.SECOND_DISK:
        return f"{bound.words} (site.copies)"
    if bound is Bound.DISK:
        return core.lacks_room(run.count * run.weight)
    if bound is Bound.IDENTIFIERS:
        return f"{bound.words}: limits.memory_bytes"
    if bound is Bound.MEMORY:
        return "all queues together are full: limits.memory_bytes"
    if bound is Bound.QUEUE and (session := _full_queue(core, run, topic)) is not None:
        key = bound_key(core, session, run.count, run.count * (run.weight + OVERHEAD))
        return f"the queue of {quote(session.client)} is full: {key}"
    if core.retained.fits(topic.name, _retained_size(run, topic), limits):
        return "this user or address retains too much: limits.retained, limits.retained_bytes"
    if core.retained.count >= limits.retained:
        return "too many retained messages: limits.retained"
    return "the retained messages take too much memory: limits.retained_bytes"


def _full_queue(core: Core, run: PublishRun, topic: RoutedTopic) -> Session | None:
    """Return a session with a full queue that refuses the publisher, or None."""
    return next((item for item in topic.refusing if is_full(core, item, run, run.count)), None)


def _retained_size(run: PublishRun, topic: RoutedTopic) -> int:
    return run.size + len(topic.name) + len(run.properties)


def _account(core: Core, run: PublishRun) -> Account | None:
    """Return the account of the user who published a run, None for a board."""
    if run.publisher is None:  # a will whose session has ended
        return core.accounts.of(None)
    return run.publisher.account


def _origin(run: PublishRun) -> Origin | None:
    return None if run.publisher is None else run.publisher.origin


def publish(
    core: Core, run: PublishRun, client: str, identity: Identity | None = None, commit: int = 0
) -> int:
    """Route a run: send it, queue it for disconnected clients, and spool it. client: identifier of
    the publisher, "" for the gateway. commit: number of a commit that the acknowledgement waits for
    in any case. Return the number of the commit that the acknowledgement waits for, 0 for none.
    """
    core.step.unfinished += 1
    topic: RoutedTopic = run.topic  # type: ignore[assignment] # every topic is the router's
    if topic.stale:
        core.router.match(topic)
    if topic.spooled:
        core.changes.spool += core.spool.rows(
            run, client, identity, core.now - core.started, core.utc_start, _account(core, run)
        )
        core.changes.bytes += run.count * (run.weight + ROW_OVERHEAD)
        commit = commit or core.promise()
    qos = run.qos
    if qos and not commit and topic.durable:
        commit = core.promise()
    if run.retain and client:  # "" is the gateway: in memory only (`announce.py`)
        commit = _retain(core, run, client) or commit
    if topic.heard is not None:
        topic.heard(run)
    publisher = run.publisher
    routes = topic.routes
    if topic.moving:
        routes = [*routes, *core.neighbours.routes(topic)]
    for route in routes:
        session = route.session
        if session is publisher and route.no_local:
            if route.own is None:
                continue
            route = route.own
        flags = RETAIN if run.retain and route.retain_as_published else 0
        deliver(
            core,
            session,
            run,
            min(qos, route.qos) << 1 | flags,
            route.identifiers,
            0,
            run.count,
            commit,
        )
        if session is publisher:
            session.send_flow.pump()  # before the answer to its PUBLISH
    for share in topic.shares:
        distribute(core, share, Undelivered(run, qos, share.name, 0, run.count), commit)
    core.step.unfinished -= 1
    return commit


def distribute(core: Core, share: Share, messages: Undelivered, commit: int) -> None:
    """Distribute messages to the subscribers of a shared subscription. If no subscriber has room,
    the subscribers next in turn get the messages, and their queues overflow.
    """
    _overflow(core, share, _distribute(core, share, messages, commit), commit)


def _eligible(core: Core, run: PublishRun, again: bool = False) -> Callable[[Session], bool]:
    """Return a function that tells whether a subscriber of a shared subscription may get a run.
    again: whether the run was given before to a subscriber whose session has ended.
    """
    name = run.topic.name
    foreign = not again and run.publisher is not None and run.publisher.foreign

    def eligible(member: Session) -> bool:
        return not member.ended and not (foreign and member.foreign) and core.may_read(member, name)

    return eligible


def _distribute(
    core: Core, share: Share, messages: Undelivered, commit: int, again: bool = False
) -> Undelivered:
    """Distribute messages to the subscribers of a shared subscription that have room, connected
    ones first. Return the messages for which no subscriber has room.
    """
    eligible = _eligible(core, messages.run, again)
    for connected in (True, False):
        if not messages.number:
            break
        members = share.in_turn(eligible, connected=connected)
        roomy = _with_room(core, members, messages) if messages.number > 1 else []
        if roomy and len(_with_room(core, roomy, messages)) == len(roomy):
            messages = _distribute_evenly(core, share, roomy, messages, commit)
        else:
            messages = _distribute_one_by_one(core, share, members, messages, commit)
    return messages


def _with_room(core: Core, members: _Members, messages: Undelivered) -> _Members:
    """Return the subscribers with room for an even share of the messages."""
    part = -(-messages.number // max(1, len(members)))
    return [pair for pair in members if not is_full(core, pair[0], messages.run, part)]


def _distribute_evenly(
    core: Core, share: Share, members: _Members, messages: Undelivered, commit: int
) -> Undelivered:
    """Give each subscriber an even share. Each must have room. Return the remaining messages."""
    each, more = divmod(messages.number, len(members))
    for index, member in enumerate(members):
        if part := each + (index < more):
            messages = _give(core, share, member, messages, part, commit)
    return messages


def _distribute_one_by_one(
    core: Core, share: Share, members: _Members, messages: Undelivered, commit: int
) -> Undelivered:
    """Give the messages to subscribers with room, in turn. Return the remaining messages."""
    ring = deque(members)
    while ring and messages.number:
        if is_full(core, ring[0][0], messages.run, 1):
            ring.popleft()
        else:
            messages = _give(core, share, ring[0], messages, 1, commit)
            ring.rotate(-1)
    return messages


def _overflow(core: Core, share: Share, messages: Undelivered, commit: int) -> None:
    """Deliver messages in turn although no queue has room. The rule of each full queue applies."""
    if not messages.number:
        return
    eligible = _eligible(core, messages.run)
    ring: deque[_Member] = deque()
    for connected in (True, False):
        ring = ring or deque(share.in_turn(eligible, connected=connected))
    while ring and messages.number:
        messages = _give(core, share, ring[0], messages, 1, commit)
        ring.rotate(-1)
        if ring[-1][0].ended:
            ring.pop()


def _give(
    core: Core,
    share: Share,
    member: _Member,
    messages: Undelivered,
    part: int,
    commit: int,
) -> Undelivered:
    """Give the first `part` messages to one subscriber. Return the remaining messages."""
    run, qos, name, skip, count = messages
    session, subscription = member
    flags = min(qos, subscription.qos) << 1 | (run.retain and subscription.retain_as_published)
    extra = subscription.extra
    if not session.role.settled:
        session, extra = core.neighbours.onward(session, extra, name)
    deliver(core, session, run, flags, extra, skip, part, commit, name)
    if session.ended and qos:
        core.effects.add_undelivered(Undelivered(run, qos, name, skip, part))
    share.turn += part
    return Undelivered(run, qos, name, skip + part, count - part)


def redistribute(core: Core, messages: Undelivered) -> None:
    """Give messages of an ended session to the other subscribers of a shared subscription, as far
    as they have room. No queue overflows: messages without room are dropped and counted.
    """
    share = core.router.share(messages.share)
    if share is None:
        return
    undelivered = _distribute(core, share, messages, core.promise(), again=True).number
    if not undelivered:
        return
    core.statistics.overflowed += undelivered
    if core.log_throttle.allows(f"queues of {quote(share.name)}"):
        log.warning(
            "%s: messages of a session that ended were dropped: other subscribers have no room",
            quote(share.name),
            extra=about(reason="queue_full"),
        )


def feed_retained(core: Core, session: Session) -> bool:
    """Send a session some of the retained messages that it waits for, if there is room. Return True
    if a later call can send more.
    """
    feed, sent, looked = session.feed, 0, False
    while feed:
        if not feed.page:
            if looked:
                return True
            feed.look()
            looked = True
            continue
        message = feed.page[0].message
        if not _has_room_for_retained(core, session, message.size if message else 0):
            return False
        if sent >= _PAGE_BYTES:
            return True
        _, topic, topic_filter = item = feed.page[0]
        subscription, message = session.subscriptions.get(topic_filter), item.message
        wanted = not (
            subscription is None
            or message is None
            or (message.expires is not None and message.expires <= core.now)
            or (subscription.no_local and message.client == session.client)
            or not core.may_read(session, topic)
        )
        feed.page.popleft()
        if wanted and subscription is not None and message is not None:
            with core.step:
                _send_retained(core, session, message, subscription)
            sent += message.size
    if feed is not None:
        for topic_filter in feed.noted:
            core.changes.subscriptions[session, topic_filter] = None
    session.feed = None
    return False


_PAGE_BYTES = 262_144
"""Bytes of retained messages after which one step for a session ends."""


def _has_room_for_retained(core: Core, session: Session, size: int) -> bool:
    send_flow, connection = session.send_flow, session.connection
    messages, most = bounds(core, session)
    return (
        connection is not None
        and not connection.full
        and connection.size <= core.limits.outgoing_bytes
        and not send_flow.tail
        and len(send_flow.pending) < min(PAGE_LOW, messages)
        and send_flow.messages < messages
        and (not send_flow.size or send_flow.size + size + OVERHEAD <= most)
    )


def _send_retained(
    core: Core, session: Session, message: Retained, subscription: Subscription
) -> None:
    run = PublishRun(
        core.router.topic(message.topic),
        message.payload,
        message.qos,
        True,
        properties=message.properties,
        expires=message.expires,
    )
    qos = min(message.qos, subscription.qos)
    commit = core.promise() if qos and session.durable else 0
    deliver(core, session, run, qos << 1 | RETAIN, subscription.extra, 0, 1, commit)


def deliver(
    core: Core,
    session: Session,
    run: PublishRun,
    flags: int,
    extra: bytes,
    skip: int,
    count: int,
    commit: int,
    share: str = "",
) -> None:
    """Send or queue `count` publications of a run, from index `skip` on, for one session. flags:
    QoS << 1 | RETAIN. share: filter of the shared subscription that the messages match, or empty.
    """
    send_flow = session.send_flow
    qos, connection = flags >> 1, session.connection
    if (
        not qos
        and connection is not None
        and not (send_flow.pending or send_flow.flights.resend or send_flow.tail)
    ):
        try:
            connection.send_qos_0(run, flags, extra, skip, count)
        except Exception as error:
            connection.fail(error, "sending a message")
        return
    if not qos and connection is None and not session.queueing.qos_0:
        return
    if not qos and send_flow.tail and not session.queueing.qos_0:
        core.statistics.dropped += count  # QoS 0 cannot wait for the tail on disk
        return
    while count and not session.ended:
        part = count
        if count > 1 and is_full(core, session, run, count):
            part = min(count, judged_at_once(core, session, run, qos))
        if make_room(core, session, run, qos, part):
            send_flow.queue(run, flags, extra, skip, part, commit, share)
        skip, count = skip + part, count - part


def _retain(core: Core, run: PublishRun, client: str) -> int:
    """Store or delete the topic's retained message. Return the commit's number; 0: no change."""
    name = run.topic.name
    if run.size:
        payload, version = run.payload(run.count - 1), next_version(core, name)
        more = run.properties, run.expires, version, _origin(run)
        keep(core, Retained(name, client, run.qos, payload, *more))
    elif not clear(core, name):
        return 0
    return core.promise()
