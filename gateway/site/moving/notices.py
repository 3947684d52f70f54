"""Notices between the gateways of a site about sessions that move (`addresses.py`).

In: their notices, and the time. Out: the resulting changes, and this gateway's answers.
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
"""Time after which a missing notice is asked for again."""
_AT_ONCE = 1000
"""Journeys that one turn of the loop handles."""
_ASKS, _FEWEST_ASKS = 4, 65_536
"""Bounds of a gateway's questions per minute: _ASKS for each possible session, and _FEWEST_ASKS in
any case, for clients that move often. An open journey is asked for twice in that time, and at a
start."""


def heard(core: Core, member: str, payloads: Iterable[bytes]) -> None:
    """Handle notices of another gateway. Raises MqttError."""
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
    """Handle the news that a session is at `member`."""
    for session, journey, follower in journeys_of(core).followers_of(stage):
        if follower.member not in (member, OWN):
            send_to(core, session, journey, follower, member)
            end_if_over(core, session, journey)


def _missed(core: Core, member: str, stage: Stage) -> None:
    """Handle the news that a session is not at `member`. If it is nowhere, its forwarder ends."""
    for session, _, follower in journeys_of(core).followers_of(stage):
        if follower.gone is not None:
            follower.gone.add(member)
        nowhere = follower.gone is not None and follower.gone >= journeys_of(core).queues.keys()
        if follower.member == member or (follower.member is None and nowhere):
            core.effects.end(session)


def _answered(core: Core, member: str, stage: Stage) -> None:
    """Note that all messages for a forwarder's shared subscriptions have arrived from `member`."""
    for session, journey, follower in journeys_of(core).followers_of(stage):
        if follower.awaited:
            follower.awaited.discard(member)
            end_if_over(core, session, journey)


def advance(core: Core) -> None:
    """Expire forwarders with their sessions, and ask again for missing notices, which may have been
    lost in a queue that was too long. To be called about once a second; each call handles a bounded
    number.
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
    """Yield gateways and the notices to ask them for."""
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
    """Return the gateways that a forwarder waits for."""
    if follower.awaited or follower.member == OWN:
        return follower.awaited or ()
    if follower.member is not None:
        return [follower.member]
    return journeys_of(core).queues if follower.gone is not None else ()
