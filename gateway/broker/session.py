"""A session: the state that the broker keeps for a client (MQTT 5, section 4.1), connected or not.

A session is durable if it outlives its connection (Session Expiry Interval > 0, or Clean Session
0). Only a durable session is stored. A session stays durable until it ends, even if a later
connection sets the expiry to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Protocol

from gateway.access.rules import Acl, Policy, WaitingCaller
from gateway.broker.delivery import Receiver
from gateway.broker.ledger import Holder, Ledger
from gateway.broker.publish_run import PublishRun
from gateway.broker.receive_flow import ReceiveFlow
from gateway.broker.retained_feed import RetainedFeed
from gateway.broker.send_flow import SendFlow
from gateway.broker.store_rows import RETAINED_TO_COME, SessionRow, SubscriptionRow
from gateway.broker.will import StoredWill
from gateway.config import QueueSection
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.runs import Piece
from gateway.mqtt.wire import encode_varint
from gateway.system.usage import Account, Origin

NEVER = 0xFFFF_FFFF
"""Session Expiry Interval of a session that does not expire."""


class State(Enum):
    """The states of a connection (MQTT 5, section 3.1.0). The first packet is CONNECT, and no
    second CONNECT follows [MQTT-3.1.0-1, MQTT-3.1.0-2]: the packet stream checks that
    (`gateway/mqtt/stream.py`). A closed connection neither accepts nor sends packets.
    """

    NEW = auto()
    """CONNECT has not arrived."""
    ASKED = auto()
    """CONNECT is being checked; later packets wait."""
    OPEN = auto()
    """CONNECT was accepted, and the connection has a session."""
    CLOSED = auto()


NEXT: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.ASKED, State.OPEN, State.CLOSED}),
    State.ASKED: frozenset({State.OPEN, State.CLOSED}),
    State.OPEN: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}


class Attached(Receiver, Holder, WaitingCaller, Protocol):
    """The interface of a connection (`connection.py`) for code that deals with sessions."""

    will: StoredWill | None
    dirty: bool
    packet_limit: int
    policy: Policy
    version: int
    size: int
    seen: float
    unread: bool
    state: State
    keep_alive: float

    @property
    def session(self) -> Session | None: ...

    def take(self) -> Piece: ...

    def disconnect(self, reason: ReasonCode, text: str) -> None: ...

    def end(self, reason: str, will: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Subscription:
    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    """Subscription Identifier, 0 for none."""

    @classmethod
    def stored(cls, topic_filter: str, options: int, identifier: int) -> Subscription:
        """Return a subscription from its row in the store."""
        return cls(topic_filter, options & 3, bool(options & 4), bool(options & 8), identifier)

    @property
    def options(self) -> int:
        """The options as one number, as in `SubscriptionRow`."""
        return self.qos | self.no_local << 2 | self.retain_as_published << 3

    @property
    def extra(self) -> bytes:
        """The Subscription Identifier as an encoded property, empty without one."""
        return b"\x0b" + encode_varint(self.identifier) if self.identifier else b""


class Role:
    """The role of a session. This class is the role of an ordinary client's session.
    `neighbours.py` adds roles for other gateways: for a peer gateway, for a session that has moved
    here, and for one that has moved away.
    """

    __slots__ = ()
    settled: ClassVar[bool] = True
    """Whether all messages for the session come directly, none through a peer gateway."""

    @property
    def gets_copies(self) -> bool:
        """Whether overlapping filters may give this session several copies of one message."""
        return True

    @property
    def sends_on(self) -> bool:
        """Whether the queue's messages are handed on, to a peer gateway or another session."""
        return False

    def may_read(self, acl: Acl, session: Session, topic: str) -> bool:
        return acl.may_read(session.user, session.client, topic)

    def had_subscribed(self, session: Session, topic: str) -> bool:
        """Whether the session had subscribed to a topic when it moved here."""
        return False

    def receive(
        self, connection: Attached, run: PublishRun, identifiers: Sequence[int] = ()
    ) -> None:
        """Process publications of a peer gateway. identifiers: Subscription Identifiers, by which
        the peer gateway names the receiver.
        """

    def release(self, identifiers: Sequence[int]) -> tuple[list[int], int]:
        """Handle PUBRELs of a peer gateway. Return the positions in `identifiers` of the unknown
        ones, and the number of the commit that the answer waits for, 0 for none.
        """
        return [], 0


CLIENT = Role()


class Session:
    __slots__ = (
        "account",
        "client",
        "connection",
        "departed",
        "durable",
        "ended",
        "expiry",
        "feed",
        "foreign",
        "id",
        "incarnation",
        "origin",
        "queueing",
        "receive_flow",
        "role",
        "send_flow",
        "subscriptions",
        "user",
    )

    def __init__(
        self,
        ledger: Ledger,
        identifier: int,
        client: str,
        queueing: QueueSection,
        expiry: int,
        incarnation: int,
        user: str | None,
    ) -> None:
        self.id = identifier
        """Number of the session in the store, never reused."""
        self.client = client
        self.queueing = queueing
        """Limits of the queue, and the action when it is full."""
        self.expiry = expiry
        """Session Expiry Interval in seconds."""
        self.durable = expiry > 0
        """Whether the session outlives its connection."""
        self.ended = False
        """Whether the session has ended, even if some of its state is not deleted yet."""
        self.incarnation = incarnation
        """Incarnation of the session's device, 0 for other clients."""
        self.role = CLIENT
        self.foreign = False
        """Whether the session stands for a peer gateway."""
        self.user = user
        """Owner of the session, None for anonymous clients and devices."""
        self.account: Account | None = None
        """Account of the user; None for a board's session."""
        self.origin: Origin | None = None
        self.departed: float | None = None
        """Time at which the connection ended, on the broker's time axis; None while connected."""
        self.connection: Attached | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.feed: RetainedFeed | None = None
        """Retained messages that must still be sent; None if there are none."""
        self.receive_flow = ReceiveFlow(ledger)
        self.send_flow = SendFlow(ledger, self)

    @property
    def ends(self) -> float:
        """Time at which the session expires, on the time axis; infinite if connected or NEVER."""
        if self.departed is None or self.expiry == NEVER:
            return float("inf")
        return self.departed + self.expiry

    def row(self) -> SessionRow:
        departed = None if self.departed is None else int(self.departed * 1000)
        return self.id, self.client, self.expiry, departed, self.incarnation, self.user

    def subscription_row(self, topic_filter: str) -> SubscriptionRow | None:
        item = self.subscriptions.get(topic_filter)
        if item is None:
            return None
        options = item.options
        if self.feed is not None and topic_filter in self.feed.filters:
            options |= RETAINED_TO_COME
            self.feed.noted.add(topic_filter)
        return self.id, topic_filter, options, item.identifier
