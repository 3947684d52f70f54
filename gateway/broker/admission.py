"""Bounds on the number and the rate of clients. In: a CONNECT with its address, listener and user.
Out: a reason to refuse, or None.

Rules: the number of clients has a bound in total and per listener, and the number of sessions has a
bound (reason code 0x97). The rate of CONNECTs from one address has a bound (0x9F); one burst may
have as many CONNECTs as ten seconds allow. A client that connects again, in place of its old
connection, counts once. A board is never refused by these bounds, because it has no other way in.

If all connections are in use, a connection of an origin that has more than its share is ended for a
new client of another origin. If there are too many sessions, in total or of one origin, an empty
session ends for a new one: the one longest without a connection, if that is over an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from gateway.access.rules import Refusal
from gateway.broker.core import Core
from gateway.broker.session import CLIENT, Attached, Session
from gateway.config import INSIDE
from gateway.mqtt.reason import ReasonCode
from gateway.system.usage import Origin, Spare, origin, within

_BURST_S = 10.0
_FULL = "too many connections (limits.connections)"
_ADDRESSES = 4096
_IDLE_S = 3600.0
"""Seconds without a connection after which an empty session may be ended to make room."""


class Admission:
    """Admission of clients. Each address has a leaky bucket, stored as the time at which the bucket
    is empty; a CONNECT adds 1 / rate seconds to that time.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._empty_at: dict[str, float] = {}
        self._idle = Spare(
            lambda: sorted(core.sessions.values(), key=lambda item: item.departed or inf),
            lambda item: _holds_nothing(core, item),
            lambda: core.now,
        )

    def refuses(self, connection: Attached) -> Refusal | None:
        core, peer = self._core, connection.peer
        if peer.device is not None:
            return None
        known = core.sessions.get(connection.client)
        limit, joins = core.limits.connections, known is None or known.connection is None
        is_full = len(core.connections) - len(core.nameless) >= limit
        if joins and is_full and core.attached.greedy(limit) is None:
            return ReasonCode.QUOTA_EXCEEDED, _FULL
        most = connection.policy.connections
        former = known.connection if known is not None else None
        if former is not None and former.peer.listener == peer.listener:
            most = None  # it takes the place of its former connection
        if most is not None and core.listeners[peer.listener] >= most:
            text = "too many connections on this listener (listener.connections)"
            return ReasonCode.QUOTA_EXCEEDED, text
        address = origin(peer.address)
        full = self._empty_at.pop(address, 0.0)
        empty_at = max(full, core.now) + 1 / core.limits.connects_per_s
        if empty_at > core.now + _BURST_S:
            self._empty_at[address] = full
            text = f"too many connections per second from {address} (limits.connects_per_s)"
            return ReasonCode.CONNECTION_RATE_EXCEEDED, text
        if len(self._empty_at) >= _ADDRESSES:
            del self._empty_at[next(iter(self._empty_at))]
        self._empty_at[address] = empty_at
        return None

    def lacks_connection(
        self, owner: Origin | None, end: Callable[[Attached, ReasonCode, str], None]
    ) -> str:
        """Make room for a connection when all connections are in use: end one of an origin that has
        more than its share, unless this origin is `owner`. Return the exceeded bound in words; ""
        if there is room.
        """
        core, most = self._core, self._core.limits.connections
        greedy = core.attached.greedy(most)
        if greedy is None or greedy is owner:
            return _FULL
        text = f"{greedy.name} has too many connections (limits.connections): others need room"
        first = next(c for c in core.connections if c.session and c.session.origin is greedy)
        end(first, ReasonCode.QUOTA_EXCEEDED, text)
        return ""

    def lacks_session(self, owner: Origin | None, end: Callable[[Session], None]) -> str:
        """Make room for a session of `owner`. If the owner has its full share of the sessions, end
        an empty session of the owner. If there are too many sessions in all, end any empty session.
        Return "" if there is room, else the exceeded bound in words. end: ends a session."""
        core, most = self._core, self._core.limits.sessions
        if owner is not None and not within(owner.sessions + 1, most):
            if (found := self._idle.take(lambda item: item.origin is owner)) is None:
                return f"{owner.name} has too many sessions (limits.sessions): others need room"
            end(found)
        if len(core.sessions) >= most:
            if (found := self._idle.take(lambda item: True)) is None:
                return "too many sessions (limits.sessions)"
            end(found)
        return ""


def _holds_nothing(core: Core, session: Session) -> bool:
    """Whether a session has had no connection for an hour and is empty, so that it may end."""
    return (
        session.departed is not None
        and core.now - session.departed > _IDLE_S
        and not session.ended
        and not session.subscriptions
        and not session.send_flow.holds_messages
        and not session.receive_flow.received
        and session.client not in core.wills
        and session.account is not None
        and session.user != INSIDE
        and session.role is CLIENT
        and core.neighbours.has_newest(session)
    )
