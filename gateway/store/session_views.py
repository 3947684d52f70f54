"""Views of a session for users, the same of a running broker's session
(`gateway/runtime/session_rows.py`) and of a session in a closed store (`views.py`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gateway.broker.session import NEVER, Subscription


@dataclass(frozen=True, slots=True)
class SessionView:
    client: str
    connected: bool
    address: str | None
    """Address of the client. Address and version are None without a connection."""
    version: str | None
    user: str | None
    device: bool
    expiry_s: int | None
    """Session Expiry Interval in seconds, None for never."""
    away_s: int | None
    """Seconds since the connection ended, None while connected."""
    queued: int
    """Messages in the queue, including sent ones that wait for PUBACK or PUBREC."""
    queued_bytes: int
    inflight: int
    """Messages that were sent and are not fully acknowledged."""
    receiving: int
    """QoS 2 messages from the client between PUBLISH and PUBREL."""
    subscriptions: int


IN_DOUBT = "in doubt"
"""Value of `place` in the view of a suspect session: a peer gateway may hold a newer session."""


def moved_view(client: str, member: str) -> dict[str, Any]:
    """Return the view of a session that departed to a peer gateway and has not arrived yet."""
    nothing = SessionView(client, False, None, None, None, False, None, None, 0, 0, 0, 0, 0)
    return asdict(nothing) | {"place": f"given to {member}"}


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int | None


def subscription_view(item: Subscription) -> SubscriptionView:
    return SubscriptionView(
        item.topic_filter,
        item.qos,
        item.no_local,
        item.retain_as_published,
        item.identifier or None,
    )


def expiry_of(expiry: int) -> int | None:
    return None if expiry == NEVER else expiry
