"""Open changes: the contents of the next commit.

In: changes that the flows made in one or more event-loop turns. Out: a `Commit`, plain rows for the
store, made when the writer is free. A message that arrives and is delivered between two commits
leaves no row. A value that changes ten times is written once, which reduces wear of an SD card.

Rules: changes are sealed in order, and a commit holds whole changes only, so everything that one
packet caused is in one transaction. A packet that must wait for the disk waits for the commit's
number (`Connection.send`).
"""

from __future__ import annotations

from typing import Protocol

from gateway.broker.delivery import Delivery
from gateway.broker.marks import Mark
from gateway.broker.publish_run import PublishRun
from gateway.broker.retained import Retained
from gateway.broker.store_rows import (
    AsideRow,
    Commit,
    MessageRow,
    NeighbourRows,
    SessionRow,
    SpoolRow,
    SubscriptionRow,
)
from gateway.broker.will import StoredWill
from gateway.system.usage import Notes


class ReceivedRow(Protocol):
    def row(self) -> bytes: ...


class SentRow(Protocol):
    def row(self) -> tuple[int, bytes, bytes]: ...


class PersistentSession(Protocol):
    """A session, as far as the store needs it."""

    @property
    def id(self) -> int: ...

    @property
    def durable(self) -> bool: ...

    @property
    def receive_flow(self) -> ReceivedRow: ...

    @property
    def send_flow(self) -> SentRow: ...

    def row(self) -> SessionRow: ...

    def subscription_row(self, topic_filter: str) -> SubscriptionRow | None:
        """Return the row of a subscription, or None if the session does not have it any more."""


class Changes:
    """Changes of the state that are not part of a commit yet."""

    __slots__ = (
        "aside",
        "bytes",
        "clock",
        "deliveries",
        "ended",
        "flows",
        "marks",
        "neighbours",
        "number",
        "origins",
        "retained",
        "sessions",
        "spool",
        "subscriptions",
        "trimmed",
        "urgent",
        "wills",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        """Number of the commit that the changes will become."""
        self.urgent = False
        """Whether a client or caller waits for this commit."""
        self.bytes = 0
        """Bytes that these changes take on the disk, roughly: messages, wills and subscriptions."""
        self.clock: int | None = None
        """Start of this boot in µs UTC if it has become known since the last commit, else None."""
        self.sessions: dict[int, PersistentSession] = {}
        self.ended: list[int] = []
        self.trimmed: dict[int, int] = {}
        """Number up to which queue rows are deleted, by session id. Rows from shared subscriptions
        are deleted only after other subscribers have got their messages."""
        self.flows: dict[PersistentSession, None] = {}
        self.subscriptions: dict[tuple[PersistentSession, str], None] = {}
        self.deliveries: list[Delivery] = []
        self.retained: dict[str, Retained | None] = {}
        self.wills: dict[str, StoredWill | None] = {}
        self.marks: dict[Mark, None] = {}
        self.spool: list[SpoolRow] = []
        self.neighbours: NeighbourRows | None = None
        self.origins: Notes = {}
        """Rows about origins of clients. They cause no commit, but go with the next one."""
        self.aside: dict[int, AsideRow | None] = {}
        """Rows of messages that are set aside, by number; None deletes a row."""

    @property
    def empty(self) -> bool:
        return not (
            self.flows
            or self.deliveries
            or self.spool
            or self.sessions
            or self.ended
            or self.trimmed
            or self.subscriptions
            or self.retained
            or self.wills
            or self.marks
            or self.clock
            or self.neighbours
            or self.aside
        )

    def seal(self, boot: int) -> Commit:
        """Return the changes as rows. boot: number of this start of the gateway."""
        commit = Commit(self.number, boot, self.clock)
        commit.ended = self.ended
        commit.trimmed = list(self.trimmed.items())
        commit.sessions = [session.row() for session in self.sessions.values()]
        for session, topic_filter in self.subscriptions:
            if not session.durable:
                continue
            row = session.subscription_row(topic_filter)
            if row is None:
                commit.unsubscribed.append((session.id, topic_filter))
            else:
                commit.subscriptions.append(row)
        for delivery in self.deliveries:
            if delivery.open:
                run = delivery.run
                if not run.written:
                    run.written = True
                    commit.messages.append(_message(run))
                delivery.stored = True
                commit.queue.append(delivery.row())
        commit.flows = [
            (session.id, session.receive_flow.row(), *session.send_flow.row())
            for session in self.flows
            if session.durable
        ]
        commit.retained = [kept.row() for kept in self.retained.values() if kept is not None]
        commit.cleared = [topic for topic, kept in self.retained.items() if kept is None]
        commit.origins = [(*key, *row) for key, row in self.origins.items() if row is not None]
        commit.origins_gone = [key for key, row in self.origins.items() if row is None]
        commit.aside = [row for row in self.aside.values() if row is not None]
        commit.aside_gone = [number for number, row in self.aside.items() if row is None]
        commit.wills = [will.row(client) for client, will in self.wills.items() if will is not None]
        commit.wills_done = [client for client, will in self.wills.items() if will is None]
        commit.marks = [mark.row() for mark in self.marks]
        commit.spool = self.spool
        commit.neighbours = self.neighbours
        return commit


def _message(run: PublishRun) -> MessageRow:
    expires = None if run.expires is None else int(run.expires * 1000)
    return (
        run.message,
        run.topic.name,
        int(run.retain),
        run.count,
        run.properties,
        expires,
        run.body(),
    )
