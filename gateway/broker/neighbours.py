"""The peer gateways of a site: the interface for the broker.

In: changes of sessions and publications that peer gateways must know. Out: later answers to clients
(`dispatch.placed`, `exchanges.released`); routes for sessions that move; and the commits that are
on a second disk.

`Neighbours` stands for a gateway without peers. A site has its own subclass
(`gateway/site/moving/neighbours.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.access.rules import WaitingCaller
from gateway.broker.router import Route, RoutedTopic
from gateway.broker.session import Session
from gateway.broker.store_rows import Commit, Recovered
from gateway.mqtt.packets import Connect


class Neighbours:
    """The broker's interface to peer gateways. This base class serves a gateway without a site."""

    lookup: object | None = None
    """Lookup of sessions and identifiers at peer gateways. None: no peer gateway is queried."""
    second_disk: object | None = None
    """Tracker of the rows that must reach a second disk before their publications are acknowledged.
    None: no second disk is required."""
    has_news = False
    """Whether there is news for `tell`, which is called when the open changes are on disk."""

    def leave(self) -> None:
        """Leave the site for good."""

    # -- requests of clients

    def claim(self, connection: WaitingCaller, packet: Connect) -> bool:
        """Claim the session of a CONNECT. Return True if the peer gateways are queried. In that
        case `dispatch.placed` is called later, unless the connection has ended by then.
        """
        return False

    def release(self, connection: WaitingCaller, identifiers: Sequence[int]) -> bool:
        """Query the peer gateways about PUBRELs with identifiers that this gateway does not know.
        Return True if a query is sent; `exchanges.released` is then called for each identifier.
        """
        return False

    # -- messages for sessions that move

    def routes(self, topic: RoutedTopic) -> Iterable[Route]:
        """Yield the routes of a topic to sessions that move."""
        return ()

    def onward(self, session: Session, extra: bytes, share: str) -> tuple[Session, bytes]:
        """Return the session whose queue gets a message for `session`, and properties to send."""
        return session, extra

    def send_on(self, session: Session, read: bool) -> None:
        """Forward the queue of a session that has moved. read: whether the store has returned a
        page of the queue. If not, the queue is read again after the next commit.
        """

    # -- a second disk

    @property
    def refuses(self) -> bool:
        """Whether publications for the spool are refused for lack of the second disk."""
        return False

    def lacks(self, commit: int) -> bool:
        """Whether rows of a commit still have to reach a second disk."""
        return False

    def is_safe(self, row: int) -> None:
        """Note that all spool rows up to this id are on a second disk, or have landed."""

    # -- sessions, commits and time

    def know(self, state: Recovered) -> None:
        """Note what `restore` needs of the recovered state. Called before the first `restore`."""

    def restore(self, session: Session) -> bool:
        """Give a session from the store its role. Return False if it is not a client's session."""
        return True

    def has_newest(self, session: Session) -> bool:
        """Whether this gateway certainly has the newest session of the client."""
        return True

    def ended(self, session: Session) -> None:
        """Note that a session has ended."""

    def seal(self) -> None:
        """Add rows about peer gateways to the open changes, just before a commit takes them."""

    def sealed(self, commit: Commit) -> None:
        """Note that the open changes have become this commit. Called at once, and only if the
        commit has rows about peer gateways or a second disk is required.
        """

    def on_disk(self, number: int) -> None:
        """Note that commit `number` is on disk. Called only if a second disk is required."""

    def tell(self) -> None:
        """Report news to peer gateways. Called if `has_news`, when the commit's packets leave."""

    def reconfigure(self) -> None:
        """Apply a changed configuration."""

    def advance(self) -> None:
        """Do the work that is due. Call this about once a second."""


def alone(core: object, state: Recovered) -> Neighbours:
    """Return the `Neighbours` of a broker without a site."""
    return Neighbours()
