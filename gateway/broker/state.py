"""The states of a connection, and what each lets a client say (MQTT 5, section 3.1.0).

Rules:

- The first packet is CONNECT, and there is no second one [MQTT-3.1.0-1, MQTT-3.1.0-2]; the stream
  of packets sees to that (`gateway/mqtt/stream.py`).
- While it is found out who the client is, nothing more is acted on; what comes waits.
- Once a connection is closed, nothing comes in or goes out any more, whatever is under way.
"""

from enum import Enum, auto


class State(Enum):
    NEW = auto()
    """Its CONNECT has not come."""
    ASKED = auto()
    """It is found out who the client is."""
    OPEN = auto()
    """The client is known, and the connection has a session."""
    CLOSED = auto()


NEXT: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.ASKED, State.OPEN, State.CLOSED}),
    State.ASKED: frozenset({State.OPEN, State.CLOSED}),
    State.OPEN: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}
