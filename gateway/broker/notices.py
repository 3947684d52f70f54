"""What the gateways of a site say to one another of sessions that move (`addresses.py`).

In: their notices, and the time. Out: what follows from them, and our answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.broker.addresses import Kind, Stage, read_notices
from gateway.broker.cuts import AGAIN_S, cut, end_if_over, end_tail, say, send_to
from gateway.broker.journey import OWN, Follower
from gateway.mqtt.errors import ProtocolError

if TYPE_CHECKING:
    from gateway.broker.core import Core


_ASKS, _FEWEST_ASKS = 4, 65_536
"""How often a gateway may ask in a minute of ours: so often for each session that there may be.
One that is open is asked for twice by then, and at a start. And so often in any case, for clients
that move to and fro."""


def heard(core: Core, member: str, payloads: Iterable[bytes]) -> None:
    """Notices of another gateway. Raises MqttError."""
    journeys, asked = core.journeys, list[Stage]()
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
    for session, journey, follower in core.journeys.followers_of(stage):
        if follower.member not in (member, OWN):
            send_to(core, session, journey, follower, member)
            end_if_over(core, session, journey)


def _missed(core: Core, member: str, stage: Stage) -> None:
    """A session is not there: what follows it ends when it is nowhere."""
    for session, _, follower in core.journeys.followers_of(stage):
        if follower.gone is not None:
            follower.gone.add(member)
        nowhere = follower.gone is not None and follower.gone >= core.journeys.queues.keys()
        if follower.member == member or (follower.member is None and nowhere):
            core.effects.end(session)


def _answered(core: Core, member: str, stage: Stage) -> None:
    """All that a follower can still get from there as a member of a group has come."""
    for session, journey, follower in core.journeys.followers_of(stage):
        if follower.awaited:
            follower.awaited.discard(member)
            end_if_over(core, session, journey)


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
    journeys.ask_again = core.now + AGAIN_S
    journeys.asks.clear()
    asked: dict[tuple[str, Kind], list[Stage]] = {}
    for _, journey in journeys:
        follower, tails = journey.follower, journey.tails - {OWN}
        for member in tails:
            asked.setdefault((member, Kind.TAIL), []).append(journey.stage)
        if follower is None:
            for member in journeys.queues if tails or journey.closed else ():
                asked.setdefault((member, Kind.ASK), []).append(journey.stage)
        else:
            for member in _sought(core, follower):
                asked.setdefault((member, Kind.HERE), []).append(journey.following)
    for (member, kind), stages in asked.items():
        if not journeys.queues[member].send_flow.messages:
            say(core, [member], kind, stages)


def _sought(core: Core, follower: Follower) -> Iterable[str]:
    """Whom a follower waits for."""
    if follower.awaited or follower.member == OWN:
        return follower.awaited or ()
    if follower.member is not None:
        return [follower.member]
    return core.journeys.queues if follower.gone is not None else ()
