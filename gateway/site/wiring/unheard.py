"""New sessions whose clients may not know of them.

In: sessions that began in place of suspect sessions, or while a member was silent, and their
connections. Out: `Place.unheard` of each of these sessions, set until the client has sent
something. A client that has not received Session Present 0 continues with its old state. So it
would publish messages that another member already has. Therefore the client's next CONNECT is
answered with Session Present 0 again.
"""

from __future__ import annotations

from gateway.broker.connection import Connection
from gateway.broker.session import State
from gateway.site.wiring.places import Places

LOOKS_PER_S = 100_000
"""Largest average number of clients that are checked per second. Each round checks all clients in
`Unheard`. The wait for the next round grows with their number: after another gateway has ended, all
its clients may be there.
"""


class Unheard(dict[str, tuple[Connection, float]]):
    """The connections that have sent nothing since their CONNACK, each with the time of its
    CONNACK, by session key.
    """

    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places = places
        self._next = 0.0

    def begin(self, key: str) -> None:
        """Mark a session that will begin as suspect and unheard, with the next commit."""
        place = self._places.of(key)
        place.suspect = place.unheard = True
        self._places.save(key)

    def answered(self, key: str, connection: Connection) -> None:
        self[key] = connection, connection.broker.now

    def look(self, now: float) -> None:
        """Check all clients, unless they were checked too recently (LOOKS_PER_S)."""
        if now >= self._next:
            self._next = now + len(self) / LOOKS_PER_S
            self._look_at_all()

    def look_at(self, key: str) -> None:
        """Clear `suspect` and `unheard` of a client that has sent something since its CONNACK.
        Forget a connection that has closed without sending anything; the client's place stays as it
        is.
        """
        if key not in self:
            return
        connection, answered = self[key]
        if connection.seen > answered:
            del self[key]
            if (place := self._places.get(key)) is not None and place.unheard:
                self._places.trust(key)
                connection.broker.promise()
        elif connection.state is State.CLOSED:
            del self[key]

    def doubt(self, key: str | None = None) -> None:
        """Note that a session has become suspect for a reason other than `begin`. From now on, a
        packet on the client's present connection does not clear `suspect`. key: None for all
        sessions.
        """
        if key is None:
            self._look_at_all()
            self.clear()
        else:
            self.look_at(key)
            self.pop(key, None)

    def _look_at_all(self) -> None:
        for key in list(self):
            self.look_at(key)
