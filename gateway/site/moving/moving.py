"""Sessions that leave for another gateway of the site, and sessions that come from there.

In: orders for the next commit. Out: what is kept of the session in memory goes when the commit is
sealed that takes its rows away, and is made when the commit is on disk that brought them. So memory
and store tell the same after each commit.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.broker.core import Core
from gateway.broker.restart import take_over
from gateway.broker.session import Session
from gateway.broker.store_rows import Recovered
from gateway.site.moving.following import arrived
from gateway.site.moving.journeys import moves
from gateway.store.move_rows import Giving, moved_of


def when_on_disk(core: Core, number: int, call: Callable[[], None]) -> None:
    """Call when commit `number` is on disk; if it is already, when the next one is."""
    core.waits.call(max(number, core.committed + 1), call)


def give(core: Core, session: Session, order: Giving) -> int:
    """A session that is left leaves for another gateway with the open changes; returns their
    number.
    """
    core.changes.sessions[session.id] = session
    core.changes.flows[session] = None
    moves(core).giving.append(order)
    return core.promise()


def stays(core: Core, order: Giving) -> bool:
    """Whether a session cannot leave: it has ended meanwhile."""
    session = core.by_id.get(order.session)
    return session is None or session.ended or session.connection is not None


def leave(core: Core, order: Giving) -> None:
    """The changes are sealed that take the session away: forget it. Its rows are the writer's."""
    session = core.by_id.pop(order.session)
    session.ended = True
    for topic_filter in list(session.subscriptions):
        core.router.unsubscribe(session, topic_filter)
    session.receive_flow.drop()
    session.send_flow.leave()
    core.sessions.pop(session.client, None)
    if session.account is not None:
        session.account.sessions -= 1
    will = core.wills.pop(session.client, None)
    if will is not None:
        core.will_bytes -= will.size


def left(core: Core, order: Giving) -> None:
    """The commit is on disk: nobody here needs its messages any more, but for other sessions that
    have them, too.
    """
    for message in order.released or ():
        core.needed_rows.release(message)


def arrive(core: Core, state: Recovered) -> None:
    """A session has come, and is on disk."""
    core.needed_rows.know(state.references)
    take_over(core, state)
    for number, *_ in moved_of(state).journeys:
        arrived(core, core.by_id[number])
    for row in state.marks:
        core.keep_mark(core.marks.merge(row))
