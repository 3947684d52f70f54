"""The sessions of a running gateway as rows, for users and for peer gateways."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from gateway.broker.broker import Broker
from gateway.broker.session import Session
from gateway.broker.view import moved_view, view

Row = dict[str, Any]


class Places(Protocol):
    """The part of a site that knows to which member a session has moved."""

    def state_of(self, session: Session) -> str | None: ...

    def moved_out(self) -> Mapping[str, str]: ...


def session_rows(broker: Broker, places: Places | None) -> Iterator[Row]:
    """Yield a row for each session (`gateway/broker/view.py`). In a site, also yield a row for each
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
