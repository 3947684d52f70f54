"""What the gateways of a site say to one another of sessions that move (`addresses.py`).

In: their notices, and the time. Out: what follows from them, and our answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.broker.core import Core
from gateway.mqtt.errors import ProtocolError
from gateway.site.moving.addresses import Kind, Stage, read_notices
from gateway.site.moving.cuts import cut, end_if_over, end_tail, say, send_to
from gateway.site.moving.journey import Follower, Journey
from gateway.site.moving.journeys import journeys_of
from gateway.store.move_rows import OWN

AGAIN_S = 60.0
"""After so long a notice that has not come is asked for again."""
_AT_ONCE = 1000
"""Journeys that are looked at in one turn of the loop."""
_ASKS, _FEWEST_ASKS = 4, 65_536
"""How often a gateway may ask in a minute of ours: so often for each session that there may be.
One that is open is asked for twice by then, and at a start. And so often in any case, for clients
that move to and fro."""


def heard(core: Core, member: str, payloads: Iterable[bytes]) -> None:
    """Notices of another gateway. Raises MqttError."""
    journeys, asked = journeys_of(core), list[Stage]()
    answers: dict[Kind, list[Stage]] = {Kind.ASK: [], Kind.GONE: [], Kind.END: []}
    for payload in payloads:
        for kind, stage in read_notices(payload):
            if kind is Kind.CUT:
                cut(core, member, stage)
            elif kind is Kind.ASK:
                asked.append(stage)
                journeys.asks[member] += 1
                if journeys.asks[member] > max(_FEWEST_ASKS, _ASKS * core.limits.sessions):
                    raise ProtocolError("PUBLISH: it asks for sessions too often")
                cut(core, member, stage)
                _found(core, member, stage)
                _answered(core, member, stage)
            elif kind is Kind.END:
                end_tail(core, member, stage)
            elif kind is Kind.HERE:
                here = journeys.at(stage) is not None
                answers[Kind.ASK if here else Kind.GONE].append(stage)
            elif kind is Kind.GONE:
                _missed(core, member, stage)
                _answered(core, member, stage)
            elif not journeys.followers_of(stage):
                answers[Kind.END].append(stage)
    say(core, journeys.queues, Kind.CUT, asked)
    for stage in asked:
        cut(core, OWN, stage)
    for kind, stages in answers.items():
        say(core, [member], kind, stages)


def _found(core: Core, member: str, stage: Stage) -> None:
    """A session is there."""
    for session, journey, follower in journeys_of(core).followers_of(stage):
        if follower.member not in (member, OWN):
            send_to(core, session, journey, follower, member)
            end_if_over(core, session, journey)


def _missed(core: Core, member: str, stage: Stage) -> None:
    """A session is not there: what follows it ends when it is nowhere."""
    for session, _, follower in journeys_of(core).followers_of(stage):
        if follower.gone is not None:
            follower.gone.add(member)
        nowhere = follower.gone is not None and follower.gone >= journeys_of(core).queues.keys()
        if follower.member == member or (follower.member is None and nowhere):
            core.effects.end(session)


def _answered(core: Core, member: str, stage: Stage) -> None:
    """All that a follower can still get from there as a member of a group has come."""
    for session, journey, follower in journeys_of(core).followers_of(stage):
        if follower.awaited:
            follower.awaited.discard(member)
            end_if_over(core, session, journey)


def advance(core: Core) -> None:
    """To be called about once a second: followers expire with their sessions, and whoever waits for
    a notice asks for it, for it may have been in a queue that was too long. Where many sessions
    move, each has its turn later.
    """
    journeys = journeys_of(core)
    if journeys.count_from + AGAIN_S <= core.now:
        journeys.count_from = core.now
        journeys.asks.clear()
    asked: dict[tuple[str, Kind], list[Stage]] = {}
    for session, journey in journeys.next(_AT_ONCE):
        if journey.follower is not None and session.ends <= core.now:
            core.effects.end(session)
        elif journey.asked is None:
            journey.asked = core.now
        elif journey.asked + AGAIN_S <= core.now:
            journey.asked = core.now
            for question in _questions(core, journey):
                asked.setdefault(question, []).append(
                    journey.following if question[1] is Kind.HERE else journey.stage
                )
    for (member, kind), stages in asked.items():
        if not journeys.queues[member].send_flow.messages:
            say(core, [member], kind, stages)


def _questions(core: Core, journey: Journey) -> Iterable[tuple[str, Kind]]:
    """Which gateways are to say what."""
    follower, tails = journey.follower, journey.tails - {OWN}
    for member in tails:
        yield member, Kind.TAIL
    if follower is not None:
        for member in _sought(core, follower):
            yield member, Kind.HERE
    elif tails or journey.closed:
        for member in journeys_of(core).queues:
            yield member, Kind.ASK


def _sought(core: Core, follower: Follower) -> Iterable[str]:
    """Whom a follower waits for."""
    if follower.awaited or follower.member == OWN:
        return follower.awaited or ()
    if follower.member is not None:
        return [follower.member]
    return journeys_of(core).queues if follower.gone is not None else ()
