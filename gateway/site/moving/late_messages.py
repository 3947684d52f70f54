"""Late messages: messages for a session that has moved, which follow the session to its new
gateway.

In: queued messages of the session's forwarder, page by page, and messages that another gateway has
sent for one session. Out: the same messages in the queue for another gateway, with an address, or
in the session's own queue. A message leaves one queue and enters another in one commit.
"""

from __future__ import annotations

from gateway.broker.core import Core
from gateway.broker.delivery import Undelivered
from gateway.broker.fan_out import deliver, distribute, redistribute
from gateway.broker.publish_run import PublishRun
from gateway.broker.queue_limits import is_full
from gateway.broker.router import Route
from gateway.broker.session import Session
from gateway.config import INSIDE
from gateway.mqtt.runs import RETAIN
from gateway.site.moving.addresses import Address, Kind, Stage, address, share_number
from gateway.site.moving.cuts import end_if_over, say
from gateway.site.moving.session_moves import SessionMove, move_of, moves_of


def send_on(core: Core, session: Session) -> None:
    """Send the messages of a forwarder's queue that are in memory to the session's new gateway. If
    more messages are in the store, read the next page of them.
    """
    move, flow = move_of(session), session.send_flow
    assert move is not None  # noqa: S101 - `Role.sends_on`
    while flow.pending:
        item = flow.pending[0]
        if item.run.expires is None or item.run.expires > core.now:
            skip, count = item.skip + item.sent, item.count - item.sent
            _forward(core, move, item.run, item.flags, item.share, skip, count, core.promise())
        flow.discard(item.count)
    if flow.tail:
        flow.ask()
    end_if_over(core, session, move)


def wait_to_send_on(core: Core, session: Session) -> None:
    """Read the forwarder's queue again after the next commit, because a part of the queue is not on
    disk yet.
    """
    core.promise()
    core.when_on_disk(core.committed + 1, session.send_flow.ask)


def _forward(
    core: Core,
    move: SessionMove,
    run: PublishRun,
    flags: int,
    share: str,
    skip: int,
    count: int,
    commit: int,
) -> None:
    assert move.forwarder is not None  # noqa: S101 - the caller has looked
    member = move.forwarder.member
    if not member:
        _deliver_here(core, move.stage, run, flags, share, skip, count, commit)
    else:
        queue, extra = moves_of(core).queues[member], address(move.next_stage, share)
        deliver(core, queue, run, flags, extra, skip, count, commit, share)


def receive(core: Core, member: str, run: PublishRun, to: Address, share: str, commit: int) -> None:
    """Handle messages that another gateway has sent for one session. to: the address that the other
    gateway has added to the messages. share: filter of the shared subscription to which the
    messages belong, "" for none or an unknown one.
    """
    if to.share and not share:
        _deal_again(core, run, to.share)
    elif not _deliver_here(core, to.stage, run, _flags(run), share, 0, run.count, commit):
        _deal_again(core, run, to.share)
        say(core, [member], Kind.GONE, [to.stage])


def _deal_again(core: Core, run: PublishRun, number: int) -> None:
    """Give messages of a shared subscription to another subscriber, here or at another gateway,
    because their subscriber here is gone. number: the shared subscription (`share_number`); with 0
    nothing is done.
    """
    for share in core.router.routed(run.topic).shares if number else ():
        if share_number(share.name) == number:
            redistribute(core, Undelivered(run, run.qos, share.name, 0, run.count))


def receive_for_share(core: Core, run: PublishRun, number: int, share: str, commit: int) -> None:
    """Handle messages that another gateway has sent for a shared subscription. They go to a
    subscriber at this gateway; if there is none, to one that has departed from here; else to any
    subscriber at another gateway.
    """
    if _give_to_group(core, run, share, commit):
        return
    move = moves_of(core).departed_of(number)
    if move is not None and move.forwarder is not None:
        group = move.forwarder.groups[number]
        _forward(core, move, run, _flags(run), group, 0, run.count, commit)
    else:
        _deal_again(core, run, number)


def _give_to_group(core: Core, run: PublishRun, share: str, commit: int) -> bool:
    """Give messages to a subscriber of a shared subscription at this gateway. Return False if there
    is none: perhaps the sender does not know yet that the last subscriber has left.
    """
    group = core.router.share(share)
    if group is None or all(session.foreign for session in group.members):
        return False
    distribute(core, group, Undelivered(run, run.qos, share, 0, run.count), commit)
    return True


def forward(core: Core, run: PublishRun, member: str, commit: int) -> None:
    """Route a run that another gateway of the site has forwarded, to this gateway's clients only.

    member: name of the other gateway. commit: number of the commit that records the run as
    received.
    """
    qos, topic = run.qos, core.router.routed(run.topic)
    for route in topic.routes:
        if route.session.user != INSIDE:
            deliver_forwarded(core, route, run, qos, 0, run.count, commit)
    for route in moves_of(core).routes(topic, member) if topic.moving else ():
        deliver_forwarded(core, route, run, qos, 0, run.count, commit)


def deliver_forwarded(
    core: Core, route: Route, run: PublishRun, qos: int, skip: int, count: int, commit: int
) -> None:
    """Deliver forwarded messages to one session. If its queue is full and configured to refuse the
    publisher, drop them: the publisher has got its acknowledgement already.
    """
    session = route.session
    if session.queueing.full == "refuse the publisher" and is_full(core, session, run, 1):
        core.statistics.overflowed += count  # the publisher has its answer already
        session.send_flow.overflowed += count
        return
    flags = RETAIN if run.retain and route.retain_as_published else 0
    flags |= min(qos, route.qos) << 1
    deliver(core, session, run, flags, route.identifiers, skip, count, commit)


def _flags(run: PublishRun) -> int:
    """Return QoS and RETAIN of a run as the flags that `deliver` accepts."""
    return run.qos << 1 | (RETAIN if run.retain else 0)


def _deliver_here(
    core: Core,
    stage: Stage,
    run: PublishRun,
    flags: int,
    share: str,
    skip: int,
    count: int,
    commit: int,
) -> bool:
    """Deliver messages to a session or its forwarder here. Return False if there is neither."""
    found = moves_of(core).at(stage)
    if found is None:
        return False
    session, move = found
    if (forwarder := move.forwarder) is not None:
        if forwarder.member:
            _forward(core, move, run, flags, share, skip, count, commit)
        else:
            deliver(core, session, run, flags, b"", skip, count, commit, share)
        return True
    qos = flags >> 1
    if not share:
        for route, _ in core.router.routed(run.topic).moving:
            if route.session is session:
                deliver_forwarded(core, route, run, qos, skip, count, commit)
    elif (subscription := session.subscriptions.get(share)) is not None:
        flags = min(qos, subscription.qos) << 1 | flags & subscription.retain_as_published
        deliver(core, session, run, flags, subscription.extra, skip, count, commit, share)
    else:
        part = run.part(skip, count)
        part.qos = qos
        if not _give_to_group(core, part, share, commit):
            _deal_again(core, part, share_number(share))
    return True
