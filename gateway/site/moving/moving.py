"""Moves of sessions between the gateways of a site, and the delivery of each message to a session
exactly once while it moves.

In: orders for the next commit; sessions that leave, arrive, or come back; notices of other gateways
(`addresses.py`). Out: forwarders (`session_moves.py`), forwarded messages, and notices in the
queues for other gateways. When a commit that removes a session's rows is sealed, the session is
removed from memory. When a commit that brings rows is on disk, the session is created in memory.
So memory and store agree after each commit.

- A session leaves: a forwarder takes its place in the router, in the same commit.
- A session arrives: this gateway sends ASK to all others. Messages published here until now were
  for the session at its old gateway, later ones are for the session here.
- ASK is received: this gateway sends CUT to all others. Messages published here until now are for
  the session at its old gateway, later ones are for the session at its new gateway. If the session
  was here, its forwarder sends its queue to the session's new gateway, page by page, and then later
  messages.
- CUT is received: messages forwarded by the sender of CUT are for the session here from now on, and
  no longer for a forwarder of an earlier move.
- A move from here has ended, and no ASK has come: this gateway sends HERE to all others, to ask
  where the session is. The answer is ASK or GONE.
- The session comes back: the forwarder's queue goes to the session here.
- All gateways have sent CUT, the forwarder's queue is empty, and no forwarder of an earlier move
  sends messages any more: END goes to the session's gateway, and the forwarder ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from gateway.broker.core import Core
from gateway.broker.restart import take_over
from gateway.broker.session import Session
from gateway.broker.store_rows import Recovered
from gateway.config import INSIDE, QueueSection
from gateway.mqtt.topics import SHARE_PREFIX, SYSTEM_PREFIX, split_shared
from gateway.site.moving.addresses import OWN_STAGES, Kind, Stage, new_moving_id
from gateway.site.moving.cuts import ask, close, end_if_over, say, send_to
from gateway.site.moving.session_moves import (
    Forwarder,
    SessionMove,
    move_of,
    move_rows,
    moves_of,
    note,
)
from gateway.store.move_rows import FORWARDER_PREFIX, OWN, SessionExport, moved_of
from gateway.system.logs import about

log = logging.getLogger(__name__)

_FORWARDERS = 4
"""At most 1 / _FORWARDERS of `limits.sessions` may be forwarders."""


def leave_forwarder(core: Core, order: SessionExport) -> None:
    """Put a forwarder in the place of a session that leaves, in the same commit. If there are too
    many forwarders, the session gets none, and late messages for it are lost.
    """
    session_moves, session = moves_of(core), core.by_id[order.session]
    earlier = move_of(session)
    if earlier is not None:
        session_moves.drop(session)
        note(core, session)
    wanted = [
        item
        for item in session.subscriptions.values()
        if not split_shared(item.topic_filter)[1].startswith(SYSTEM_PREFIX)
    ]
    if not session_moves.me or not wanted:
        return
    move = SessionMove(Stage(new_moving_id(), 0))
    if earlier is not None:
        stage = move.stage if earlier.stage.moving_id < OWN_STAGES else earlier.stage
        move = SessionMove(stage, earlier.closed, earlier.tails, earlier.filters)
    room = session_moves.forwarders < max(1, core.limits.sessions // _FORWARDERS)
    order.move = (*move.next_stage, session_moves.me, int(room))
    if not room:
        session_moves.refused += 1
        if core.log_throttle.allows("followers"):
            text = "too many sessions have moved away: late messages of further sessions are lost"
            log.warning(text, extra=about(client=session.client, reason="followers"))
        return
    move.forwarder = forwarder = Forwarder(order.key, session.user)
    if not any(item.topic_filter.startswith(SHARE_PREFIX) for item in wanted):
        forwarder.awaited = set()
    number = core.next_session()
    client = f"{FORWARDER_PREFIX}{number}"  # two forwarders may share a stage
    found = Session(core, number, client, queueing(core, session.client), session.expiry, 0, INSIDE)
    found.departed = session.departed
    core.by_id[number] = found
    core.changes.sessions[number] = found
    core.changes.flows[found] = None
    note(core, found)
    session_moves.add(found, move)
    for subscription in wanted:
        core.router.subscribe(found, subscription)
        core.changes.subscriptions[found, subscription.topic_filter] = None


def is_forwarder(client: str) -> bool:
    return client.startswith(FORWARDER_PREFIX)


def queueing(core: Core, client: str) -> QueueSection:
    """Return the queue limits for the forwarder of a client's session: the same as
    the client's own, except that a full queue drops its oldest messages.
    """
    section = core.config.queueing(client)
    return QueueSection(full="drop the oldest", messages=section.messages, bytes=section.bytes)


def over(core: Core, key: str) -> None:
    """Handle the end of a move from this gateway: the session is at another gateway, or has ended.
    If the session's gateway is not known, ask all others for it (HERE).
    """
    found = moves_of(core).waiting(key)
    if found is not None:
        move, forwarder = found
        forwarder.absent = set()
        say(core, moves_of(core).queues, Kind.HERE, [move.next_stage])


def arrived(core: Core, session: Session) -> None:
    """Handle a session that has arrived, or has come back to the gateway that it left."""
    move = move_of(session)
    if move is None or move.stage.moving_id < OWN_STAGES:
        return
    core.router.matches_again(session)
    note(core, session)
    if OWN in move.tails:
        _come_back(core, session, move)
    else:
        ask(core, move.stage)
    end_if_over(core, session, move)


def _come_back(core: Core, session: Session, move: SessionMove) -> None:
    """Give the queue of a forwarder to its session, which has come back to this gateway."""
    found = moves_of(core).forwarders_of(move.next_stage)  # empty if there were too many
    waiting = [item for item in found if item[2].member is None]
    if not any(item[2].member == OWN for item in found) and not waiting:
        move.tails.discard(OWN)
    for waiting_session, source, forwarder in waiting:
        move.closed, move.filters = set(source.closed), source.filters
        move.tails |= source.tails
        for topic_filter in list(waiting_session.subscriptions):
            core.router.unsubscribe(waiting_session, topic_filter)
            core.changes.subscriptions[waiting_session, topic_filter] = None
        send_to(core, waiting_session, source, forwarder, OWN)
        end_if_over(core, waiting_session, source)
    if move.closed:
        ask(core, move.stage)


def begin(core: Core, me: str, moved_out: Collection[str], tell: Callable[[], None]) -> None:
    """Resume all unfinished moves at the start of a site. Before, `session_moves.queues` must have
    the queues for the other gateways. me: this gateway's name. moved_out: keys of sessions that
    have left and that no gateway has confirmed yet. tell: see `SessionMoves.tell`.
    """
    session_moves = moves_of(core)
    session_moves.me, session_moves.tell = me, tell
    others = session_moves.queues.keys()
    for session, move in session_moves:
        forwarder = move.forwarder
        move.closed &= others
        move.tails &= others | {OWN}
        note(core, session)
        if forwarder is None:
            arrived(core, session)
        elif forwarder.member is None:
            if forwarder.key not in moved_out:
                over(core, forwarder.key)
        elif forwarder.member in others | {OWN}:
            send_to(core, session, move, forwarder, forwarder.member)
        else:
            core.effects.end(session)
        end_if_over(core, session, move)


def end_moves(core: Core) -> None:
    """End all moves. Call this if this gateway belongs to no site any more."""
    for session, move in moves_of(core):
        if move.forwarder is None:
            close(core, session)
        else:
            core.effects.end(session)


def give(core: Core, session: Session, order: SessionExport) -> int:
    """Begin to move a disconnected session to another gateway, with the next commit. Return the
    number of this commit.
    """
    core.changes.sessions[session.id] = session
    core.changes.flows[session] = None
    move_rows(core).exports.append(order)
    return core.promise()


def stays(core: Core, order: SessionExport) -> bool:
    """Whether an ordered move cannot happen: its session has ended, or a client is connected to it
    here."""
    session = core.by_id.get(order.session)
    return session is None or session.ended or session.connection is not None


def leave(core: Core, order: SessionExport) -> None:
    """Remove a session from memory, because the sealed changes export its rows. From now on, only
    the writer uses these rows.
    """
    session = core.by_id.pop(order.session)
    session.ended = True
    for topic_filter in list(session.subscriptions):
        core.router.unsubscribe(session, topic_filter)
    session.receive_flow.drop()
    session.send_flow.leave()
    core.sessions.pop(session.client, None)
    if session.account is not None:
        session.account.sessions -= 1
    if session.origin is not None:
        session.origin.sessions -= 1
    will = core.wills.pop(session.client, None)
    if will is not None:
        core.will_use.add(will.origin, -will.size)


def release_messages(core: Core, order: SessionExport) -> None:
    """Release the messages of a session after its outbound move is on disk. Messages that other
    sessions still need stay.
    """
    for message in order.released or ():
        core.needed_rows.release(message)


def arrive(core: Core, state: Recovered) -> None:
    """Create an inbound session in memory, after its rows are on disk."""
    core.needed_rows.know(state.references)
    take_over(core, state)
    for number, *_ in moved_of(state).moving_sessions:
        arrived(core, core.by_id[number])
    for row in state.marks:
        core.keep_mark(core.marks.merge(row))
