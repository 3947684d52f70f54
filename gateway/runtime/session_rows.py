"""The sessions of a running gateway as rows, for users and for peer gateways."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from gateway.broker.broker import Broker
from gateway.broker.session import Session
from gateway.mqtt.packets import Version
from gateway.store.session_views import SessionView, expiry_of, moved_view, subscription_view

Row = dict[str, Any]
_VERSIONS = {Version.V3_1: "3.1", Version.V3_1_1: "3.1.1", Version.V5: "5.0"}


class Places(Protocol):
    """The part of a site that knows to which member a session has moved."""

    def state_of(self, session: Session) -> str | None: ...

    def moved_out(self) -> Mapping[str, str]: ...


def session_rows(broker: Broker, places: Places | None) -> Iterator[Row]:
    """Yield a row for each session (`SessionView`). In a site, also yield a row for each
    session that has departed and has not arrived yet. `place` is set for special sessions: `in
    doubt`, `given to MEMBER`.
    """
    for session in list(broker.sessions.values()):
        if not session.ended:
            yield asdict(view(session, broker.now)) | place_of(session, places)
    for client, member in places.moved_out().items() if places is not None else ():
        yield moved_view(client, member)


def place_of(session: Session, places: Places | None) -> Row:
    place = places.state_of(session) if places is not None else None
    return {} if place is None else {"place": place}


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
