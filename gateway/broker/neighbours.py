"""The other gateways of a site, as the broker sees them.

In: what happens to sessions and publications here that others may know of, or are to know of. Out:
answers to clients, later (`dispatch.placed`, `exchanges.released`); where messages go for sessions
that move; and which commits are on a second disk, too.

`Neighbours` stands for no other gateway, and costs nothing. A site has a class of its own
(`gateway/site/moving/neighbours.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.broker.access import Asking
from gateway.broker.router import Route, RoutedTopic
from gateway.broker.session import Session
from gateway.broker.store_rows import Commit, Recovered
from gateway.mqtt.packets import Connect


class Neighbours:
    """There are none."""

    def leave(self) -> None:
        """There is no site any more."""

    # -- what clients ask for

    def claim(self, connection: Asking, packet: Connect) -> bool:
        """Claim the session of a CONNECT. True: the others are asked; then `dispatch.placed` is
        called, unless the connection has ended by then.
        """
        return False

    def release(self, connection: Asking, identifiers: Sequence[int]) -> bool:
        """Ask the others about identifiers of PUBRELs that are unknown here. True: then
        `exchanges.released` is called for each.
        """
        return False

    # -- messages for sessions that move

    def routes(self, topic: RoutedTopic) -> Iterable[Route]:
        """Yield the routes of a topic to sessions that move."""
        return ()

    def onward(self, session: Session, extra: bytes, share: str) -> tuple[Session, bytes]:
        """Return where a message for a session goes, and with which properties."""
        return session, extra

    def send_on(self, session: Session, read: bool) -> None:
        """Send on what waits for a session that is elsewhere. read: it has been read from the
        store; False: it has to be read again.
        """

    # -- a second disk

    @property
    def replicates(self) -> bool:
        """Whether acknowledgements of publications for the spool wait for a second disk."""
        return False

    @property
    def refuses(self) -> bool:
        """Whether such publications are refused: the second disk is missing for too long."""
        return False

    def lacks(self, commit: int) -> bool:
        """Whether rows of a commit are not on a second disk yet, where they have to be."""
        return False

    def is_safe(self, row: int) -> None:
        """The spool is on a second disk up to this row, or has landed."""

    # -- sessions, commits and time

    def know(self, state: Recovered) -> None:
        """The sessions of this state are restored next."""

    def restore(self, session: Session) -> bool:
        """Give a session that comes from the store its role. False: it is no client's."""
        return True

    def ended(self, session: Session) -> None:
        """A session has ended."""

    def seal(self) -> None:
        """The open changes are about to be sealed."""

    def sealed(self, commit: Commit) -> None:
        """They are the rows of this commit now; the open changes are still at hand."""

    def on_disk(self, number: int) -> None:
        """Commit `number` is on disk."""

    def tell(self) -> None:
        """All that waited for it has been done."""

    def reconfigure(self) -> None:
        """There is another configuration."""

    def advance(self) -> None:
        """Act on what has come due. Called about once a second."""


def alone(core: object, state: Recovered) -> Neighbours:
    """Make the neighbours of a broker that has none."""
    return Neighbours()
