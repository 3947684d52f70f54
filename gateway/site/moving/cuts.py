"""Cuts: which messages are for a moving session at its new place, and which at its old one.

In: cuts and ends, of this gateway and of others. Out: notices in the queues for other gateways, and
finished journeys. All changes are part of the open changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.broker.core import Core
from gateway.broker.fan_out import deliver
from gateway.broker.publish_run import PublishRun
from gateway.broker.session import NEVER, Session
from gateway.broker.topic import NOTICES
from gateway.site.moving.addresses import AT_ONCE, Kind, Stage, encode_notices, share_number
from gateway.site.moving.journey import Follower, Journey, journey_of
from gateway.site.moving.journeys import journeys_of, note
from gateway.store.move_rows import OWN


def say(core: Core, members: Iterable[str], kind: Kind, stages: list[Stage]) -> None:
    for at in range(0, len(stages), AT_ONCE):
        payload = encode_notices(kind, stages[at : at + AT_ONCE])
        run = PublishRun(core.router.topic(NOTICES), payload, 1)
        for member in members:
            deliver(core, journeys_of(core).queues[member], run, 1 << 1, b"", 0, 1, core.promise())


def ask(core: Core, stage: Stage) -> None:
    """Handle the arrival of a session: messages forwarded until now were not for it. The others get
    its filters first.
    """
    journeys = journeys_of(core)
    journeys.untold = True
    say(core, journeys.queues, Kind.ASK, [stage])
    cut(core, OWN, stage)


def cut(core: Core, member: str, stage: Stage) -> None:
    for session, journey in journeys_of(core).of(stage.lineage):
        if stage.moves >= journey.stage.moves:
            journey.closed.discard(member)
        if journey.follower is not None and stage.moves > journey.stage.moves:
            journey.follower.done.add(member)
        note(core, session)
        end_if_over(core, session, journey)


def end_tail(core: Core, member: str, stage: Stage) -> None:
    found = journeys_of(core).at(stage)
    if found is not None:
        session, journey = found
        journey.tails.discard(member)
        note(core, session)
        end_if_over(core, session, journey)


def send_to(
    core: Core, session: Session, journey: Journey, follower: Follower, member: str
) -> None:
    """Set the place of a forwarder's session, which is now known."""
    follower.member = member
    session.expiry = NEVER  # the session may be in use
    core.changes.sessions[session.id] = session
    note(core, session)
    if session.send_flow.tail:
        session.send_flow.ask()


def close(core: Core, session: Session) -> None:
    """End the journey of a session that is here: from now on it is a normal session."""
    journeys_of(core).drop(session)
    note(core, session)
    core.router.matches_again(session)


def end_if_over(core: Core, session: Session, journey: Journey) -> None:
    follower = journey.follower
    if follower is None:
        if not journey.closed and not journey.tails and journey_of(session) is journey:
            close(core, session)
    elif follower.member is None or session.send_flow.messages or session.ended:
        return
    elif follower.member == OWN:
        core.effects.end(session)
        alike = journeys_of(core).followers_of(
            journey.following
        )  # the session may have come back twice
        if not any(left.send_flow.messages for left, _, its in alike if its.member == OWN):
            end_tail(core, OWN, journey.stage)
    elif not journey.tails and follower.done >= {OWN, *journeys_of(core).queues}:
        if follower.awaited is None:
            _leave_groups(core, session, journey, follower)
        elif not follower.awaited:
            say(core, [follower.member], Kind.END, [journey.following])
            core.effects.end(session)


def _leave_groups(core: Core, session: Session, journey: Journey, follower: Follower) -> None:
    """Let a forwarder leave its shared subscriptions. The other gateways' earlier messages for them
    arrive before their answers.
    """
    for topic_filter in list(session.subscriptions):
        if number := share_number(topic_filter):
            follower.groups[number] = topic_filter
            journeys_of(core).has_left(journey, number)
            core.router.unsubscribe(session, topic_filter)
            core.changes.subscriptions[session, topic_filter] = None
    journey.filters = tuple({*journey.filters, *follower.groups.values()})
    follower.awaited = set(journeys_of(core).queues)
    journeys_of(core).untold = True
    say(core, journeys_of(core).queues, Kind.HERE, [journey.following])
