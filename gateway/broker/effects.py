"""What a run of messages has caused beside itself, noted until the run is done.

In: notes from wherever a cause is found, inside loops over routes, members or sessions. Out:
`Broker.settle` carries them out when nothing is being iterated over, in this order, and over again
until nothing is left:

    1. a connection ends because a call for it has raised an exception
    2. a session ends: its client is told, its subscriptions go, its queue goes
    3. what a member of a shared subscription leaves behind goes to the other members; what of it
       waits in the store follows in pages (`queue_pages.py`)
    4. all queues together hold too much: the longest ones pay
    5. a will is published; those of thousands may take some turns, for they stand in the store
       until then
    6. what belongs to a session that has ended with its connection goes; that may take some turns,
       too, for the store knows nothing of it

That ends: a session ends once, a will is published once, and messages that are dealt again make
nobody's queue overflow (`fan_out.py`).
"""

from __future__ import annotations

from collections import deque

from gateway.broker.delivery import LeftBehind
from gateway.broker.session import Attached, Session
from gateway.mqtt.reason import ReasonCode


class Effects:
    __slots__ = ("crowded", "ends", "faults", "leaves", "left_behind", "waiting", "wills")

    def __init__(self) -> None:
        self.waiting = False
        """Whether there is anything to carry out."""
        self.faults: dict[Attached, None] = {}
        """Connections that end because of an error of ours."""
        self.ends: dict[Session, tuple[ReasonCode, str] | None] = {}
        """Sessions that end, with what their clients are told if they are connected."""
        self.wills: dict[str, Session | None] = {}
        """Clients whose will is due, with the session whose will it is if that is known, which may
        have ended by now."""
        self.left_behind: deque[LeftBehind] = deque()
        self.leaves: dict[Session, None] = {}
        """Sessions that have ended with their connections."""
        self.crowded = False
        """All queues together hold more than they may."""

    def fault(self, connection: Attached) -> None:
        """A call for a connection has raised an exception."""
        self.faults[connection] = None
        self.waiting = True

    def end(self, session: Session, reason: ReasonCode | None = None, text: str = "") -> None:
        """A session ends; from now on nothing is queued for it."""
        if not session.ended:
            session.ended = self.waiting = True
            self.ends[session] = None if reason is None else (reason, text)

    def leave(self, session: Session) -> None:
        """A session that the store does not know ends with its connection."""
        if not session.ended:
            session.ended = self.waiting = True
            self.leaves[session] = None

    def will(self, client: str, session: Session | None) -> None:
        self.wills[client] = session
        self.waiting = True

    def leave_behind(self, messages: LeftBehind) -> None:
        self.left_behind.append(messages)
        self.waiting = True

    def crowd(self) -> None:
        self.crowded = self.waiting = True
