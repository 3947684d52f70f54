"""State that all connections share: sessions, subscriptions, retained messages, spool."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

from gateway.access.rules import Acl
from gateway.broker.delivery import NeededRows
from gateway.broker.effects import Effects
from gateway.broker.ledger import Ledger
from gateway.broker.marks import Marks
from gateway.broker.neighbours import Neighbours
from gateway.broker.pauses import Pauses
from gateway.broker.retained import RetainedMessages
from gateway.broker.router import Router
from gateway.broker.session import Attached, Session
from gateway.broker.spool import Spool
from gateway.broker.store_rows import Recovered
from gateway.broker.will import StoredWill
from gateway.config import Config
from gateway.system.causes import FULL
from gateway.system.fights import Fights
from gateway.system.log_throttle import LogThrottle
from gateway.system.usage import Accounts, Origins, Shared


class Core(Ledger):
    def __init__(
        self,
        config: Config,
        state: Recovered,
        neighbours: Callable[[Core, Recovered], Neighbours],
    ) -> None:
        super().__init__(state.now, config.limits, NeededRows(state.next_message, state.references))
        self.config = config
        self.started = state.now
        self.utc_start: int | None = None
        """Start of this boot in µs UTC, None while the clock is not known."""
        self.registered: Callable[[str], bool] = lambda client: False
        """Whether a client identifier is reserved for a board. Set by the registry's reader."""
        self.acl = Acl(config.acl, self.is_board, config.owns_identifier)
        self.router = Router(
            config.spooled,
            config.limits.topic_levels,
            self.may_read,
            config.limits.memory_bytes,
            copies=config.delivery.overlapping == "each",
        )
        self.retained = RetainedMessages()
        self.retained.shared = config.site is not None
        self.marks = Marks(state.marks)
        self.spool = Spool(config.spool_bytes, state.next_spool, state.boot, state.spool)
        self.spool.lowest = state.lowest_spool or self.spool.lowest
        self.spool.limit_to(config.spool_bytes, config.spool.devices_share)
        self.accounts = Accounts(config.quota_of)
        self.origins = Origins()
        self.aside: dict[str, dict[int, int]] = {}
        """Sizes in bytes of messages that bridges have set aside, by bridge and number."""
        for number, bridge, size in state.aside:
            self.aside.setdefault(bridge, {})[number] = size
        self.next_aside = max((number for number, _, _ in state.aside), default=0) + 1
        self.log_throttle = LogThrottle(lambda: self.now)
        self.fights = Fights(lambda: self.now)
        self.pauses = Pauses()
        """The pauses of publishers whose publications were refused for now."""
        self.put_off = 0
        """Bytes of publications that wait for the end of their client's pause."""
        self.sessions: dict[str, Session] = {}
        """Sessions by client identifier."""
        self.by_id: dict[int, Session] = {}
        """Sessions by number. Some stand in for a session at another gateway (`Role`)."""
        self.connections: dict[Attached, None] = {}
        self.nameless: dict[Attached, None] = {}
        """Connections without an accepted CONNECT, the oldest first."""
        self.listeners: Counter[str] = Counter()
        """Number of connected clients, by listener."""
        self.wills: dict[str, StoredWill] = {}
        """Wills of disconnected clients."""
        self.will_use = Shared()
        """Bytes of all wills by origin, including wills of connected clients."""
        self.attached = Shared()
        """Number of connected clients, by origin."""
        self.effects = Effects()
        self.turn_is_over: Callable[[], bool] = lambda: False
        """Whether this turn has taken long enough, so that the rest of a client's bytes waits for
        the next turn. Set by the broker's caller."""
        self.neighbours = neighbours(self, state)
        self._next_session = state.next_session
        self.disk_lack = ""
        """Reason why the disk accepts no messages; empty while the disk accepts messages."""
        self.disk_room = sys.maxsize
        """Bound on the total size of messages in the open changes, in bytes."""

    def is_board(self, client: str) -> bool:
        """Whether a client without a user is a board: registered, or on a serial line or radio."""
        if self.registered(client):
            return True
        session = self.sessions.get(client)
        connection = session.connection if session is not None else None
        return connection is not None and connection.peer.device is not None

    def may_read(self, session: Session, topic: str) -> bool:
        return session.role.may_read(self.acl, session, topic)

    def next_session(self) -> int:
        self._next_session += 1
        return self._next_session - 1

    def give(self, session: Session, origin: str) -> None:
        """Count a new session, except that of a board, in the totals of its user and its origin."""
        if not session.incarnation:
            session.account = self.accounts.of(session.user)
            session.account.sessions += 1
            if (found := self.origins.of(origin)) is not None:
                session.origin = found
                found.sessions += 1

    def lacks_room(self, size: int) -> str:
        """Return the reason why the disk cannot accept `size` more bytes, or ""."""
        return self.disk_lack or FULL.reason * (self.changes.bytes + size > self.disk_room)

    @property
    def monotonic(self) -> int:
        """Time since the gateway started, in µs."""
        return int((self.now - self.started) * 1_000_000)

    @property
    def utc(self) -> int | None:
        """Present time in µs since 1970 (UTC), None while the clock is not known."""
        return None if self.utc_start is None else self.utc_start + self.monotonic
