"""What makes each message reach a session once while it moves between the gateways of a site.

In: sessions that leave, arrive, or come back; notices of other gateways (`addresses.py`) and what
they send for one session alone. Out: followers (`journey.py`), what they send on, and notices in
the queues for other gateways. All that goes with the open changes.

    a session leaves      a follower takes its place in the router, in the same commit
    it arrives            ASK to all: what was published here until now was for it elsewhere, and
                          is for it here from now on
    ASK is heard          CUT to all, the same for what is published at that gateway
    CUT is heard          what that gateway passes on is for the session here from now on; it is not
                          for a follower any more whose session has moved so often
    ASK is heard where    the follower's queue goes to where the session is, page by page, and so
    the session was       does what comes then
    it is over there,     HERE asks all where it is: ASK, or GONE
    and none has come
    it comes back         the follower's queue goes to the session here
    all have cut, nothing is left, and nothing comes from earlier followers
                          END to where the session is; the follower ends
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gateway.broker.addresses import (
    AT_ONCE,
    NOTICES,
    Address,
    Kind,
    Stage,
    address,
    encode_notices,
    new_lineage,
    read_notices,
)
from gateway.broker.fan_out import deliver, pass_on, pass_to
from gateway.broker.journey import OWN, Follower, Journey
from gateway.broker.publish_run import RETAIN, PublishRun
from gateway.broker.session import NEVER, Session
from gateway.config import INSIDE, QueueSection
from gateway.logs import about
from gateway.mqtt.topics import SYSTEM_PREFIX, split_shared

if TYPE_CHECKING:
    from collections.abc import Collection

    from gateway.broker.core import Core
    from gateway.broker.store_rows import Giving

log = logging.getLogger(__name__)

_FOLLOWERS = 4
"""For each session that there may be, this part of a follower."""
_AGAIN_S = 60.0
_MARK = "\0"
"""No client identifier holds it [MQTT-1.5.4-2]."""


# -- a session leaves


def follow(core: Core, order: Giving, next_session: Callable[[], int]) -> None:
    """A session leaves with the changes that are about to be sealed: its follower takes its
    place.
    """
    journeys, session = core.journeys, core.by_id[order.session]
    earlier = session.journey
    if earlier is not None:
        journeys.drop(session)
        core.changes.journeys[session] = None
    wanted = [
        item
        for item in session.subscriptions.values()
        if not split_shared(item.topic_filter)[1].startswith(SYSTEM_PREFIX)
    ]
    if not journeys.me or not wanted:
        return
    journey = Journey(Stage(new_lineage(), 0))
    if earlier is not None:
        journey = Journey(earlier.stage, earlier.closed, earlier.tails, earlier.filters)
    room = journeys.followers < max(1, core.limits.sessions // _FOLLOWERS)
    order.journey = (*journey.following, journeys.me, int(room))
    if not room:
        journeys.refused += 1
        if core.log_throttle.allows("followers"):
            text = "too many sessions have left: messages that are late for one more are lost"
            log.warning(text, extra=about(client=session.client, reason="followers"))
        return
    journey.follower = Follower(order.key, session.user)
    number = next_session()
    client = f"{_MARK}{journey.stage.lineage:x}:{journey.stage.moves}"
    found = Session(core, number, client, queueing(core, session.client), session.expiry, 0, INSIDE)
    found.left = session.left
    core.by_id[number] = found
    core.changes.sessions[number] = found
    core.changes.journeys[found] = None
    journeys.add(found, journey)
    for subscription in wanted:
        core.router.subscribe(found, subscription)
        core.changes.subscriptions[found, subscription.topic_filter] = None


def is_follower(client: str) -> bool:
    return client.startswith(_MARK)


def queueing(core: Core, client: str) -> QueueSection:
    """How messages wait for the follower of a client's session."""
    section = core.config.queueing(client)
    return QueueSection(full="drop the oldest", messages=section.messages, bytes=section.bytes)


# -- where it is gets known


def over(core: Core, key: str) -> None:
    """What was given is over here: the session is elsewhere, or nowhere. It is asked for, unless it
    has said where it is.
    """
    found = core.journeys.waiting(key)
    if found is not None:
        journey, follower = found
        follower.gone = set()
        _say(core, core.journeys.queues, Kind.HERE, [journey.following])


def _send_on(
    core: Core, session: Session, journey: Journey, follower: Follower, member: str
) -> None:
    """It is known where the session is."""
    follower.member = member
    session.expiry = NEVER  # the session may be in use
    core.changes.sessions[session.id] = session
    core.changes.journeys[session] = None
    if session.send_flow.tail:
        session.send_flow.ask()


def arrived(core: Core, session: Session) -> None:
    """A session has come, or has come back to where it was given away."""
    journey = session.journey
    if journey is None:
        return
    core.router.matches_again(session)
    core.changes.journeys[session] = None
    if OWN in journey.tails:
        _come_back(core, session, journey)
    else:
        _ask(core, journey.stage)
    _end_if_over(core, session, journey)


def _come_back(core: Core, session: Session, journey: Journey) -> None:
    """What follows a session that is here again goes to it."""
    found = core.journeys.followers_of(journey.following)  # none: there were too many
    waiting = [item for item in found if item[2].member is None]
    if not any(item[2].member == OWN for item in found) and not waiting:
        journey.tails.discard(OWN)
    for left, its, follower in waiting:
        journey.closed, journey.filters = set(its.closed), its.filters
        journey.tails |= its.tails
        for topic_filter in list(left.subscriptions):
            core.router.unsubscribe(left, topic_filter)
            core.changes.subscriptions[left, topic_filter] = None
        _send_on(core, left, its, follower, OWN)
        _end_if_over(core, left, its)
    if journey.closed:
        _ask(core, journey.stage)


# -- notices


def _ask(core: Core, stage: Stage) -> None:
    """A session has come, in this moment: what was passed on until now was not for it. The others
    hear of its filters first.
    """
    journeys = core.journeys
    journeys.untold = True
    _say(core, journeys.queues, Kind.ASK, [stage])
    _cut(core, OWN, stage)


def heard(core: Core, member: str, payloads: Iterable[bytes]) -> None:
    """Notices of another gateway. Raises MalformedPacket."""
    asked: list[Stage] = []
    answers: dict[Kind, list[Stage]] = {Kind.ASK: [], Kind.GONE: [], Kind.END: []}
    for payload in payloads:
        for kind, stage in read_notices(payload):
            if kind is Kind.CUT:
                _cut(core, member, stage)
            elif kind is Kind.ASK:
                asked.append(stage)
                _cut(core, member, stage)
                _found(core, member, stage)
            elif kind is Kind.END:
                _end_tail(core, member, stage)
            elif kind is Kind.HERE:
                here = core.journeys.at(stage) is not None
                answers[Kind.ASK if here else Kind.GONE].append(stage)
            elif kind is Kind.GONE:
                _miss(core, member, stage)
            elif not core.journeys.followers_of(stage):
                answers[Kind.END].append(stage)
    _say(core, core.journeys.queues, Kind.CUT, asked)
    for stage in asked:
        _cut(core, OWN, stage)
    for kind, stages in answers.items():
        _say(core, [member], kind, stages)


def _say(core: Core, members: Iterable[str], kind: Kind, stages: list[Stage]) -> None:
    for at in range(0, len(stages), AT_ONCE):
        payload = encode_notices(kind, stages[at : at + AT_ONCE])
        run = PublishRun(core.router.topic(NOTICES), payload, 1)
        for member in members:
            deliver(core, core.journeys.queues[member], run, 1 << 1, b"", 0, 1, core.promise())


def _cut(core: Core, member: str, stage: Stage) -> None:
    for session, journey in core.journeys.of(stage.lineage):
        if stage.moves >= journey.stage.moves:
            journey.closed.discard(member)
        if journey.follower is not None and stage.moves > journey.stage.moves:
            journey.follower.done.add(member)
        core.changes.journeys[session] = None
        _end_if_over(core, session, journey)


def _end_tail(core: Core, member: str, stage: Stage) -> None:
    found = core.journeys.at(stage)
    if found is not None:
        session, journey = found
        journey.tails.discard(member)
        core.changes.journeys[session] = None
        _end_if_over(core, session, journey)


def _found(core: Core, member: str, stage: Stage) -> None:
    """A session is there."""
    for session, journey, follower in core.journeys.followers_of(stage):
        if follower.member not in (member, OWN):
            _send_on(core, session, journey, follower, member)
            _end_if_over(core, session, journey)


def _miss(core: Core, member: str, stage: Stage) -> None:
    """A session is not there: what follows it ends when it is nowhere."""
    for session, _, follower in core.journeys.followers_of(stage):
        if follower.gone is not None:
            follower.gone.add(member)
        nowhere = follower.gone is not None and follower.gone >= core.journeys.queues.keys()
        if follower.member == member or (follower.member is None and nowhere):
            core.effects.end(session)


def _end_if_over(core: Core, session: Session, journey: Journey) -> None:
    follower = journey.follower
    if follower is None:
        if not journey.closed and not journey.tails and session.journey is journey:
            core.journeys.drop(session)
            core.changes.journeys[session] = None
            core.router.matches_again(session)
    elif follower.member is None or session.send_flow.messages or session.ended:
        return
    elif follower.member == OWN:
        core.effects.end(session)
        _end_tail(core, OWN, journey.stage)
    elif not journey.tails and follower.done >= {OWN, *core.journeys.queues}:
        _say(core, [follower.member], Kind.END, [journey.following])
        core.effects.end(session)


# -- messages that are late


def sends_on(session: Session) -> bool:
    """Whether what waits for a session belongs to one that is known to be elsewhere."""
    journey = session.journey
    follower = journey.follower if journey is not None else None
    return follower is not None and follower.member is not None


def send_on(core: Core, session: Session) -> None:
    """A page of what waits for a follower has been read: it goes to where its session is."""
    journey, flow = session.journey, session.send_flow
    assert journey is not None  # noqa: S101 - `sends_on`
    while flow.pending:
        item = flow.pending[0]
        if item.run.expires is None or item.run.expires > core.now:
            skip, count = item.skip + item.sent, item.count - item.sent
            _forward(core, journey, item.run, item.flags, item.share, skip, count, core.promise())
        flow.discard(item.count)
    if flow.tail:
        flow.ask()
    _end_if_over(core, session, journey)


def wait_to_send_on(core: Core, session: Session) -> None:
    """What waits for a follower is not on the disk yet."""
    core.promise()
    core.after_commit.append(session.send_flow.ask)


def _forward(
    core: Core,
    journey: Journey,
    run: PublishRun,
    flags: int,
    share: str,
    skip: int,
    count: int,
    commit: int,
) -> None:
    assert journey.follower is not None  # noqa: S101 - the caller has looked
    member = journey.follower.member
    if not member:
        _bring(core, OWN, journey.stage, run, flags, share, skip, count, commit)
    else:
        queue, extra = core.journeys.queues[member], address(journey.following, share)
        deliver(core, queue, run, flags, extra, skip, count, commit, share)


def come(core: Core, member: str, run: PublishRun, to: Address, share: str, commit: int) -> None:
    """What another gateway has sent for one session. share: filter of the shared subscription that
    it is for.
    """
    if to.share and not share:
        return
    flags = run.qos << 1 | (RETAIN if run.retain else 0)
    if not _bring(core, member, to.stage, run, flags, share, 0, run.count, commit):
        _say(core, [member], Kind.GONE, [to.stage])


def _bring(
    core: Core,
    member: str,
    stage: Stage,
    run: PublishRun,
    flags: int,
    share: str,
    skip: int,
    count: int,
    commit: int,
) -> bool:
    """False: the session is not here, nor what follows it."""
    found = core.journeys.at(stage)
    if found is None:
        return False
    session, journey = found
    if (follower := journey.follower) is not None:
        if follower.member:
            _forward(core, journey, run, flags, share, skip, count, commit)
        else:
            deliver(core, session, run, flags, b"", skip, count, commit, share)
        return True
    qos = flags >> 1
    if not share:
        for route in core.router.routed(run.topic).travellers:
            if route.session is session:
                pass_to(core, route, run, qos, skip, count, commit)
    elif (subscription := session.subscriptions.get(share)) is not None:
        flags = min(qos, subscription.qos) << 1 | flags & subscription.retain_as_published
        deliver(core, session, run, flags, subscription.extra, skip, count, commit, share)
    else:
        part = run.part(skip, count)
        part.qos = qos
        pass_on(core, part, member, share, commit)
    return True


# -- time, and starts


def begin(core: Core, me: str, given: Collection[str], tell: Callable[[], None]) -> None:
    """The site begins, with the queues for its other gateways in `journeys.queues`. given: keys of
    sessions that have left and that nobody has taken.
    """
    journeys = core.journeys
    journeys.me, journeys.tell = me, tell
    others = journeys.queues.keys()
    for session, journey in journeys:
        follower = journey.follower
        journey.closed &= others
        journey.tails &= others | {OWN}
        core.changes.journeys[session] = None
        if follower is None:
            arrived(core, session)
        elif follower.member is None:
            if follower.key not in given:
                over(core, follower.key)
        elif follower.member in others | {OWN}:
            _send_on(core, session, journey, follower, follower.member)
        else:
            core.effects.end(session)
        _end_if_over(core, session, journey)
    journeys.ask_again = core.now + _AGAIN_S


def end_journeys(core: Core) -> None:
    """There is no site any more."""
    for session, journey in core.journeys:
        if journey.follower is None:
            core.journeys.drop(session)
            core.changes.journeys[session] = None
            core.router.matches_again(session)
        else:
            core.effects.end(session)


def advance(core: Core) -> None:
    """To be called about once a second: followers expire with their sessions, and whoever waits for
    a notice asks for it, for it may have been in a queue that was too long.
    """
    journeys = core.journeys
    for session, journey in journeys:
        if journey.follower is not None and session.ends <= core.now:
            core.effects.end(session)
    if journeys.ask_again > core.now:
        return
    journeys.ask_again = core.now + _AGAIN_S
    asked: dict[tuple[str, Kind], list[Stage]] = {}
    for _, journey in journeys:
        follower, tails = journey.follower, journey.tails - {OWN}
        for member in tails:
            asked.setdefault((member, Kind.TAIL), []).append(journey.stage)
        if follower is None:
            for member in journeys.queues if tails or journey.closed else ():
                asked.setdefault((member, Kind.ASK), []).append(journey.stage)
        elif follower.member != OWN:
            sought = [] if follower.gone is None else journeys.queues
            for member in [follower.member] if follower.member else sought:
                asked.setdefault((member, Kind.HERE), []).append(journey.following)
    for (member, kind), stages in asked.items():
        if not journeys.queues[member].send_flow.messages:
            _say(core, [member], kind, stages)
