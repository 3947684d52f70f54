"""Views of a session for users. In: a session of a running broker. `gateway/store/views.py` gives
the same views of a session in the store.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gateway.broker.session import NEVER, Session
from gateway.broker.topic import Subscription
from gateway.mqtt.packets import Version

_VERSIONS = {Version.V3_1: "3.1", Version.V3_1_1: "3.1.1", Version.V5: "5.0"}


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


def view(session: Session, now: float) -> SessionView:
    """Return a view of a session. now: seconds on the broker's time axis."""
    connection, send_flow = session.connection, session.send_flow
    return SessionView(
        client=session.client,
        connected=connection is not None,
        address=connection.peer.address if connection else None,
        version=_VERSIONS[Version(connection.version)] if connection else None,
        user=session.user,
        device=session.incarnation != 0,
        expiry_s=expiry_of(session.expiry),
        away_s=None if session.departed is None else int(now - session.departed),
        queued=send_flow.messages,
        queued_bytes=send_flow.size,
        inflight=send_flow.flights.count,
        receiving=len(session.receive_flow.received),
        subscriptions=len(session.subscriptions),
    )


def details(session: Session, now: float) -> dict[str, Any]:
    """Return the fields of a `SessionView` as a dictionary, and each subscription in full."""
    return asdict(view(session, now)) | {
        "subscriptions": [
            asdict(subscription_view(item)) for item in session.subscriptions.values()
        ]
    }


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
