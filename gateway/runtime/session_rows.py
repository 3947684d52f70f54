"""The sessions of a running gateway as rows for people and for other members of its site."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from gateway.broker.broker import Broker
from gateway.broker.session import Session
from gateway.broker.view import gone, view

Row = dict[str, Any]


class Places(Protocol):
    """What this gateway knows of its clients' places in the site."""

    def state_of(self, session: Session) -> str | None: ...

    def given(self) -> Mapping[str, str]: ...


def session_rows(broker: Broker, places: Places | None) -> Iterator[Row]:
    """One for each session (`gateway/broker/view.py`); in a site `place` says what is special about
    it: `in doubt`, `given to MEMBER`.
    """
    for session in list(broker.sessions.values()):
        if not session.ended:
            yield asdict(view(session, broker.now)) | place_of(session, places)
    for client, member in places.given().items() if places is not None else ():
        yield gone(client, member)


def place_of(session: Session, places: Places | None) -> Row:
    place = places.state_of(session) if places is not None else None
    return {} if place is None else {"place": place}
