"""Notices between the gateways of a site about sessions that move (`addresses.py`).

In: notices of other gateways, and the time. Out: the resulting changes, and this gateway's answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.broker.core import Core
from gateway.mqtt.errors import ProtocolError
from gateway.site.moving.addresses import OWN_STAGES, Kind, Stage, read_notices
from gateway.site.moving.cuts import AGAIN_S, cut, end_if_over, end_tail, say, send_to
from gateway.site.moving.session_moves import Forwarder, SessionMove, moves_of
from gateway.store.move_rows import OWN

_AT_ONCE = 1000
"""Largest number of moves that one call of `advance` handles."""
_ASKS, _FEWEST_ASKS = 4, 65_536
"""Bound of a gateway's ASK notices per minute: _ASKS times the session limit of this gateway, but
at least _FEWEST_ASKS, because a client may move often. An unfinished move normally causes two ASK
notices per minute, and another one at each start.
"""


def heard(core: Core, member: str, payloads: Iterable[bytes]) -> None:
    """Handle notices of another gateway. Raises MqttError."""
    session_moves, asked = moves_of(core), list[Stage]()
    own: list[Stage] = []
    answers: dict[Kind, list[Stage]] = {Kind.ASK: [], Kind.GONE: [], Kind.END: []}
    for payload in payloads:
        for kind, stage in read_notices(payload):
            if kind is Kind.CUT:
                _cut(core, member, stage)
            elif kind is Kind.ASK:
                (own if stage.moving_id < OWN_STAGES else asked).append(stage)
                session_moves.asks[member] += 1
                if session_moves.asks[member] > max(_FEWEST_ASKS, _ASKS * core.limits.sessions):
                    raise ProtocolError("PUBLISH: notices ask about sessions too often")
                cut(core, member, stage)
                _found(core, member, stage)
                _answered(core, member, stage)
            elif kind is Kind.END:
                end_tail(core, member, stage)
            elif kind is Kind.HERE:
                is_present = session_moves.at(stage) is not None
                answers[Kind.ASK if is_present else Kind.GONE].append(stage)
            elif kind is Kind.GONE:
                _missed(core, member, stage)
                _answered(core, member, stage)
            elif not session_moves.forwarders_of(stage):
                answers[Kind.END].append(stage)
    say(core, [member], Kind.CUT, own)
    say(core, session_moves.queues, Kind.CUT, asked)
    for stage in asked:
        cut(core, OWN, stage)
    for kind, stages in answers.items():
        say(core, [member], kind, stages)


def _cut(core: Core, member: str, stage: Stage) -> None:
    cut(core, member, stage)
    if stage.moving_id < OWN_STAGES:
        moves_of(core).caught_up(member, stage)


def _found(core: Core, member: str, stage: Stage) -> None:
    for session, move, forwarder in moves_of(core).forwarders_of(stage):
        if forwarder.member not in (member, OWN):
            send_to(core, session, move, forwarder, member)
            end_if_over(core, session, move)


def _missed(core: Core, member: str, stage: Stage) -> None:
    """Handle the notice that a session is not at `member`. The session's forwarder ends if it sends
    to `member`, or if no gateway has the session.
    """
    for session, _, forwarder in moves_of(core).forwarders_of(stage):
        if forwarder.absent is not None:
            forwarder.absent.add(member)
        nowhere = forwarder.absent is not None and forwarder.absent >= moves_of(core).queues.keys()
        if forwarder.member == member or (forwarder.member is None and nowhere):
            core.effects.end(session)


def _answered(core: Core, member: str, stage: Stage) -> None:
    """Note that `member` has answered: all its messages for a forwarder's shared subscriptions have
    arrived.
    """
    for session, move, forwarder in moves_of(core).forwarders_of(stage):
        if forwarder.awaited:
            forwarder.awaited.discard(member)
            end_if_over(core, session, move)


def advance(core: Core) -> None:
    """Expire forwarders with their sessions, and ask again for missing notices, which may have been
    dropped from a full queue. Call this about once a second; each call handles a bounded number of
    moves.
    """
    session_moves = moves_of(core)
    if session_moves.count_from + AGAIN_S <= core.now:
        session_moves.count_from = core.now
        session_moves.asks.clear()
    asked: dict[tuple[str, Kind], dict[Stage, None]] = {}
    for session, move in session_moves.next(_AT_ONCE):
        if move.forwarder is not None and session.ends <= core.now:
            core.effects.end(session)
        elif move.asked is None:
            move.asked = core.now
        elif move.asked + AGAIN_S <= core.now:
            move.asked = core.now
            for question in _questions(core, move):
                stage = move.next_stage if question[1] is Kind.HERE else move.stage
                asked.setdefault(question, {})[stage] = None
    for (member, kind), stages in asked.items():
        if not session_moves.queues[member].send_flow.messages:
            say(core, [member], kind, list(stages))


def _questions(core: Core, move: SessionMove) -> Iterable[tuple[str, Kind]]:
    """Yield the notices by which a move asks other gateways: the name of a gateway, and the kind of
    notice to send to it.
    """
    forwarder, tails = move.forwarder, move.tails - {OWN}
    for member in tails:
        yield member, Kind.TAIL
    if forwarder is not None:
        for member in _sought(core, forwarder):
            yield member, Kind.HERE
    elif tails or move.closed:
        for member in moves_of(core).queues:
            yield member, Kind.ASK


def _sought(core: Core, forwarder: Forwarder) -> Iterable[str]:
    """Return the members whose answer a forwarder waits for."""
    if forwarder.awaited or forwarder.member == OWN:
        return forwarder.awaited or ()
    if forwarder.member is not None:
        return [forwarder.member]
    return moves_of(core).queues if forwarder.absent is not None else ()
