"""New sessions whose clients may not know of them.

In: sessions that began in doubt, or while a member was silent, and their connections. Out: the mark
`unheard` of their places, until the client has sent something. A client that has not heard Session
Present 0 goes on with its old state: it would publish again what another member has. So the answer
is repeated.
"""

from __future__ import annotations

from gateway.broker.connection import Connection
from gateway.site.wiring.places import Places


class Unheard(dict[str, tuple[Connection, float]]):
    """The connections that have sent nothing yet, and the times of their answers, by key."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places = places

    def begin(self, key: str) -> None:
        """Mark the session that is about to begin, with the open changes."""
        place = self._places.of(key)
        place.suspect = place.unheard = True
        self._places.save(key)

    def answered(self, key: str, connection: Connection) -> None:
        self[key] = connection, connection.broker.now

    def look(self) -> None:
        """Clear the marks of clients that have sent something since their answer."""
        for key, (connection, answered) in list(self.items()):
            if connection.seen > answered:
                del self[key]
                if (place := self._places.get(key)) is not None and place.unheard:
                    self._places.trust(key)
                    connection.broker.promise()

    def doubt(self, key: str | None = None) -> None:
        """Note another doubt about a session, or about all: no packet clears that one."""
        if self:
            self.look()
            for one in list(self) if key is None else [key]:
                self.pop(one, None)
