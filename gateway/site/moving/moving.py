"""Outbound and inbound moves of sessions.

In: orders for the next commit. Out: when a commit that removes a session's rows is sealed, the
session is removed from memory. When a commit that brings rows is on disk, the session is created in
memory. So memory and store agree after each commit.
"""

from __future__ import annotations

from gateway.broker.core import Core
from gateway.broker.restart import take_over
from gateway.broker.session import Session
from gateway.broker.store_rows import Recovered
from gateway.site.moving.forwarders import arrived
from gateway.site.moving.session_moves import move_rows
from gateway.store.move_rows import SessionExport, moved_of


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
