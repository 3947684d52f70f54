"""Cuts: which messages are for a moving session at its new gateway, and which are for it at its old
gateway.

In: notices CUT and END (`addresses.py`), of this gateway and of other gateways. Out: notices in the
queues for other gateways, and finished moves. All changes become part of the next commit.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.broker.core import Core
from gateway.broker.fan_out import deliver
from gateway.broker.publish_run import NOTICES, PublishRun
from gateway.broker.session import NEVER, Session
from gateway.site.moving.addresses import AT_ONCE, Kind, Stage, encode_notices, share_number
from gateway.site.moving.session_moves import Forwarder, SessionMove, move_of, moves_of, note
from gateway.store.move_rows import OWN

AGAIN_S = 60.0
"""Seconds after which this gateway asks again for a notice that has not arrived."""


def say(core: Core, members: Iterable[str], kind: Kind, stages: list[Stage]) -> None:
    for at in range(0, len(stages), AT_ONCE):
        payload = encode_notices(kind, stages[at : at + AT_ONCE])
        run = PublishRun(core.router.topic(NOTICES), payload, 1)
        for member in members:
            deliver(core, moves_of(core).queues[member], run, 1 << 1, b"", 0, 1, core.promise())


def ask(core: Core, stage: Stage) -> None:
    """Handle the arrival of a session here, and send ASK to all other gateways. The messages that
    this gateway has forwarded until now were for the session at its old gateway. The other gateways
    get the session's filters before they get ASK.
    """
    session_moves = moves_of(core)
    core.neighbours.has_news = True
    say(core, session_moves.queues, Kind.ASK, [stage])
    cut(core, OWN, stage)


def cut(core: Core, member: str, stage: Stage) -> None:
    for session, move in moves_of(core).of(stage.moving_id):
        if stage.moves >= move.stage.moves:
            move.closed.discard(member)
        if move.forwarder is not None and stage.moves > move.stage.moves:
            move.forwarder.done.add(member)
        note(core, session)
        end_if_over(core, session, move)


def end_tail(core: Core, member: str, stage: Stage) -> None:
    found = moves_of(core).at(stage)
    if found is not None:
        session, move = found
        move.tails.discard(member)
        note(core, session)
        end_if_over(core, session, move)


def send_to(
    core: Core, session: Session, move: SessionMove, forwarder: Forwarder, member: str
) -> None:
    """Let a forwarder send its messages to `member`, the gateway of its session, which is now
    known.
    """
    forwarder.member = member
    session.expiry = NEVER  # the session may be in use
    core.changes.sessions[session.id] = session
    note(core, session)
    if session.send_flow.tail:
        session.send_flow.ask()


def close(core: Core, session: Session) -> None:
    """Forget the moves of a session that is here, because they are finished. From now on, all
    messages for it come directly.
    """
    moves_of(core).drop(session)
    note(core, session)
    core.router.matches_again(session)


def end_if_over(core: Core, session: Session, move: SessionMove) -> None:
    forwarder = move.forwarder
    if forwarder is None:
        if not move.closed and not move.tails and move_of(session) is move:
            close(core, session)
    elif forwarder.member is None or session.send_flow.messages or session.ended:
        return
    elif forwarder.member == OWN:
        core.effects.end(session)
        alike = moves_of(core).forwarders_of(
            move.next_stage
        )  # the session may have come back twice
        if not any(other.send_flow.messages for other, _, source in alike if source.member == OWN):
            end_tail(core, OWN, move.stage)
    elif not move.tails and forwarder.done >= {OWN, *moves_of(core).queues}:
        if forwarder.awaited is None:
            _leave_groups(core, session, move, forwarder)
        elif not forwarder.awaited:
            say(core, [forwarder.member], Kind.END, [move.next_stage])
            core.effects.end(session)


def _leave_groups(core: Core, session: Session, move: SessionMove, forwarder: Forwarder) -> None:
    """Let a forwarder leave its shared subscriptions, and send HERE to all other gateways. When a
    gateway has answered, all messages of that gateway for these subscriptions have arrived.
    """
    for topic_filter in list(session.subscriptions):
        if number := share_number(topic_filter):
            forwarder.groups[number] = topic_filter
            moves_of(core).has_left(move, number)
            core.router.unsubscribe(session, topic_filter)
            core.changes.subscriptions[session, topic_filter] = None
    move.filters = tuple({*move.filters, *forwarder.groups.values()})
    forwarder.awaited = set(moves_of(core).queues)
    core.neighbours.has_news = True
    say(core, moves_of(core).queues, Kind.HERE, [move.next_stage])
