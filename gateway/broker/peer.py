"""Who is at the far end of a connection, and how far the connection has come.

In: what the link knows. Out: for logs, access and publication identity.
"""

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Who greeted on a reliable link: the first two parts of publication identity."""

    name: str
    incarnation: int
    next_sequence: int
    """The sequence that it will use next."""
    proved: bool = False
    """It has shown that it has the key of this name."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The far end of a connection."""

    listener: str
    address: str
    """For logs, e.g. `127.0.0.1:40312` or `/dev/ttyUSB0`."""
    device: DeviceIdentity | None = None
    """Who greeted on a reliable link."""
    certificate_name: str | None = None
    """Common name of the certificate that a TLS client has proved to own."""


class State(Enum):
    """The states of a connection, and what each lets a client say (MQTT 5, section 3.1.0).

    The first packet is CONNECT, and there is no second one [MQTT-3.1.0-1, MQTT-3.1.0-2]: the stream
    of packets sees to that (`gateway/mqtt/stream.py`). Once a connection is closed, nothing comes
    in or goes out any more, whatever is under way.
    """

    NEW = auto()
    """Its CONNECT has not come."""
    ASKED = auto()
    """It is found out who the client is; what comes meanwhile waits."""
    OPEN = auto()
    """The client is known, and the connection has a session."""
    CLOSED = auto()


NEXT: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.ASKED, State.OPEN, State.CLOSED}),
    State.ASKED: frozenset({State.OPEN, State.CLOSED}),
    State.OPEN: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}
