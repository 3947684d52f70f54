"""Side effects of a run of messages, noted until the run is done.

In: notes from inside loops over routes, subscribers or sessions. Out: the effects. When no
iteration is in progress, `Broker.settle` carries them out in this order, again and again until no
effect remains:

  1. A connection ends because a call for it has raised an exception.
  2. A session ends: its client is informed, then its subscriptions and its queue are deleted.
  3. Messages that an ended session leaves in a shared subscription go to the other subscribers;
     messages that are in the store follow in pages (`queue_pages.py`).
  4. All queues together exceed their bound: the longest queues drop messages.
  5. A will is published. Thousands of wills may take several turns: the store holds them until
     then.
  6. The state of a session that ended with its connection is deleted. This may take several turns,
     because such a session is not in the store.

The loop ends, because messages that are distributed again overflow no queue (`fan_out.py`).
"""

from __future__ import annotations

from collections import deque

from gateway.broker.delivery import Undelivered
from gateway.broker.session import Attached, Session
from gateway.mqtt.reason import ReasonCode


class Effects:
    __slots__ = ("ends", "faults", "leaves", "over_limit", "undelivered", "waiting", "wills")

    def __init__(self) -> None:
        self.waiting = False
        """Whether there is anything to carry out."""
        self.faults: dict[Attached, None] = {}
        """Connections that end because of an internal error."""
        self.ends: dict[Session, tuple[ReasonCode, str] | None] = {}
        """Sessions that end, each with reason code and text for its client if connected. None: code
        0x80."""
        self.wills: dict[str, Session | None] = {}
        """Clients whose will is due, with the session of the will if it is known. The session may
        have ended."""
        self.undelivered: deque[Undelivered] = deque()
        self.leaves: dict[Session, None] = {}
        """Sessions without a row in the store that have ended with their connections."""
        self.over_limit = False
        """Whether all queues together exceed their bound in bytes."""

    def fault(self, connection: Attached) -> None:
        """Note an exception in a call for a connection. The connection has to end."""
        self.faults[connection] = None
        self.waiting = True

    def end(self, session: Session, reason: ReasonCode | None = None, text: str = "") -> None:
        """Note the end of a session; from now on nothing is queued for it."""
        if not session.ended:
            session.ended = self.waiting = True
            self.ends[session] = None if reason is None else (reason, text)

    def leave(self, session: Session) -> None:
        """Note the end of a session that is in memory only, and so ends with its connection."""
        if not session.ended:
            session.ended = self.waiting = True
            self.leaves[session] = None

    def will(self, client: str, session: Session | None) -> None:
        self.wills[client] = session
        self.waiting = True

    def add_undelivered(self, messages: Undelivered) -> None:
        self.undelivered.append(messages)
        self.waiting = True

    def note_over_limit(self) -> None:
        self.over_limit = self.waiting = True
