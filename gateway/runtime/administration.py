"""Functions that end connections and sessions, for the gateway itself or an administrator."""

import logging
from collections.abc import Callable
from itertools import islice

from gateway.broker.session import Attached
from gateway.mqtt.reason import ReasonCode
from gateway.runtime.engine import Engine

log = logging.getLogger(__name__)

_MOST_NAMES = 5
"""Largest number of clients that a log line names."""


def dismiss(
    engine: Engine, chosen: Callable[[Attached], bool], reason: ReasonCode, text: str
) -> None:
    """End the connections for which `chosen` returns True. Each gets a DISCONNECT with this reason
    and text immediately. One log line has their number, and at most _MOST_NAMES of their names.
    """
    engine.do(_dismiss, engine, chosen, reason, text)


def _dismiss(
    engine: Engine, chosen: Callable[[Attached], bool], reason: ReasonCode, text: str
) -> None:
    found = {item: item.name for item in engine.broker.connections if chosen(item)}
    if found:
        more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
        names = ", ".join(islice(found.values(), _MOST_NAMES))
        log.warning("connections closed: %d, %s: %s%s", len(found), text, names, more)
    engine.hang_up(found, reason, text)


async def end_session(engine: Engine, client: str) -> bool:
    """End a session and its connection for an administrator, and wait until the change is on disk.
    Return False if the client has no session.
    """
    engine.begin()
    broker = engine.broker
    session = broker.sessions.get(client)
    if session is None:
        return False
    with broker.step:
        broker.effects.end(
            session, ReasonCode.ADMINISTRATIVE_ACTION, "an administrator ended the session"
        )
    engine.do(broker.settle)
    await engine.commits.kept()
    return True


async def forget_received(engine: Engine, client: str) -> None:
    """Forget the packet identifiers that a session has received and its client has not released,
    and wait until the change is on disk. Used for a client that has started again, and uses these
    identifiers for other messages.
    """
    engine.begin()
    session = engine.broker.sessions.get(client)
    if session is not None:
        with engine.broker.step:
            session.receive_flow.drop()
            engine.broker.changes.flows[session] = None
        await engine.commits.kept()
