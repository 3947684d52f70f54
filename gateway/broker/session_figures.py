"""One look at all sessions: what would cost every message something if it were counted as it goes
by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.broker.core import Core


@dataclass(frozen=True, slots=True)
class SessionFigures:
    sessions: int
    connected: int
    durable: int
    queued: int
    """Messages in all queues, what is in flight included."""
    longest: int
    """Messages in the longest queue."""
    inflight: int
    """Messages sent and not yet acknowledged to the end."""


def take(core: Core) -> SessionFigures:
    """Some milliseconds for 10,000 sessions."""
    connected = durable = queued = longest = inflight = 0
    for session in core.sessions.values():
        send_flow = session.send_flow
        connected += session.connection is not None
        durable += session.durable
        if send_flow.messages or send_flow.released:  # most have nothing
            queued += send_flow.messages
            inflight += send_flow.inflight
            longest = max(longest, send_flow.messages)
    return SessionFigures(len(core.sessions), connected, durable, queued, longest, inflight)
