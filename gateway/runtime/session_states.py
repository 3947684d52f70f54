"""The states of a session, as distinguished by MQTT 5, section 4.1."""

from enum import Enum

from gateway.broker.session import Session


class SessionState(Enum):
    CONNECTED = "its client is connected"
    AWAY = "its client is away; messages wait for it"
    ENDED = "nothing is kept for its client"


NEXT: dict[SessionState | None, frozenset[SessionState]] = {
    None: frozenset({SessionState.CONNECTED, SessionState.AWAY}),  # from the store, or a member
    SessionState.CONNECTED: frozenset({SessionState.AWAY, SessionState.ENDED}),
    SessionState.AWAY: frozenset({SessionState.CONNECTED, SessionState.ENDED}),
    SessionState.ENDED: frozenset(),
}
"""States that can follow each state. None: the session does not exist yet."""


def state_of(session: Session) -> SessionState:
    if session.ended:
        return SessionState.ENDED
    return SessionState.AWAY if session.connection is None else SessionState.CONNECTED
