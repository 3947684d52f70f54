"""A simulated gateway (world.py): the real `Member`, and the parts of a broker that matter
for it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gateway.site.rules.holder import ALL_CLIENTS, Outcome
from gateway.site.rules.member import Member
from tests.site.sim_holder import Event, MemoryHolder, Record, Session

if TYPE_CHECKING:
    from tests.site.sim_client import Connection
    from tests.site.world import World


class Gateway:
    """A gateway. Its disk outlives its process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.disk: dict[str, Record] = {}
        self.written: set[int] = set()
        self.member: Member | None = None
        self.holder = MemoryHolder(world, name, self.disk, self.written)
        self.connections: dict[str, Connection] = {}
        self.links: dict[str, int] = {}
        """Number of the connection to each other gateway, as this process knows it."""
        self.starts = 0
        self.met: dict[str, int] = {}
        """For each other gateway that has joined: the number of its start at that moment."""
        self.paused = False
        self._resumes = False
        self._waiting: list[Event] = []
        self._armed: float | None = None
        self._ahead = 0.0
        """Offset of the gateway's clock from the world's clock. The offset is a binary fraction, so
        sums are exact.
        """

    @property
    def now(self) -> float:
        """Return the time of the gateway's own clock, which counts from the machine's start."""
        return self.world.now + self._ahead

    def start(self) -> None:
        world = self.world
        self.holder = MemoryHolder(world, self.name, self.disk, self.written)
        others = [name for name in world.names if name != self.name]
        send = partial(world.send, self.name)
        self._armed = None
        self._ahead = world.random.randrange(1024) / 1024
        self.links.clear()
        self.starts += 1
        self.met.clear()
        wake = partial(self._wake, self.starts)
        self.member = Member(self.name, others, self.holder, send, wake, self.now)
        self.run(lambda: None)

    def crash(self) -> None:
        if self.member is None:
            return
        self.member = None
        self.holder.dead = True
        self.paused, self._waiting = False, []
        for connection in self.connections.values():
            connection.lost()
        self.connections.clear()

    def restore(self, copy: dict[str, Record], written: set[int]) -> None:
        """Replace the disk by an older one. All sessions become suspect, and received packet
        identifiers are forgotten. The disk notes that the other members must be told.
        """
        self.disk.clear()
        for client, record in copy.items():
            session = record.session and record.session._replace(received=())
            self.disk[client] = record._replace(session=session, suspect=True, copied=True)
        others = frozenset(self.world.names) - {self.name}
        self.disk[ALL_CLIENTS] = Record(older=others)
        self.world.gone |= self.written - written
        self.written &= written

    def run(self, event: Event) -> None:
        """Run an event in the gateway's thread. While the gateway is paused, the event waits. If
        the gateway is dead, the event never runs.
        """
        if self.paused:
            self._waiting.append(event)
        elif self.member is not None:
            event()
            self.world.check(self)
            if not self._resumes:
                self._check_wake()

    def _check_wake(self) -> None:
        """Check that the simulation will wake the gateway no later than the next call that its
        member has planned.
        """
        if self.member is None:
            return
        contacts = self.member.contacts
        if contacts.timed or contacts.afterwards:
            due = self.now if contacts.afterwards else max(contacts.timed[0][0], self.now)
            woken = self._armed is not None and self._armed <= due
            assert woken, f"{self.name}: woken at {self._armed}, and something is due at {due}"

    def resume(self) -> None:
        self.paused, self._resumes = False, True
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self.run(event)
        self._resumes = False
        self.run(self._advance)

    def _wake(self, start: int, time: float) -> None:
        time = max(time, self.now)
        if time < float("inf") and (self._armed is None or time < self._armed):
            self._armed = time
            self.world.at(time - self._ahead, partial(self._due, start, time))

    def _due(self, start: int, time: float) -> None:
        if start == self.starts and self._armed == time:  # a later timer replaces an earlier one
            self._armed = None
            self.run(self._advance)

    def _advance(self) -> None:
        if self.member is not None:
            self._wake(self.starts, self.member.advance(self.now))

    def is_newest(self, client: str) -> bool:
        return self.member is not None and self.member.is_newest(client, self.now)

    # The broker, as far as it matters here.

    def connect(self, connection: Connection) -> None:
        assert self.member is not None
        client = connection.client.name
        self.disconnect(client)
        self.connections[client] = connection
        if self.member.is_newest(client, self.now):
            kind = "none" if connection.clean else "here"
            epoch = self.holder.records[client].epoch
            self._on_outcome(connection, Outcome(kind, epoch))  # type: ignore[arg-type]
        else:
            done = partial(self._on_outcome, connection)
            connection.waits = True
            self.member.want_session(
                client,
                self.now,
                done,
                connection.clean,
                lambda: self.connections.get(client) is connection,
                self.world.patience,
            )

    def _on_outcome(self, connection: Connection, outcome: Outcome) -> None:
        client = connection.client.name
        self.world.reached[outcome.kind] += 1
        if outcome.kind != "failed" and (
            outcome.kind == "doubt" or outcome.suspect or outcome.silent
        ):
            self.world.mark(client)
        connection.waits = False
        if self.connections.get(client) is not connection:
            return
        if outcome.kind == "failed":
            self.disconnect(client)
            return
        record = self.holder.records.get(client, Record(outcome.epoch))
        session = None if connection.clean or outcome.kind == "none" else record.session
        if (
            outcome.kind == "doubt"
            and session is not None
            and (session.received or outcome.twofold or record.unheard)
        ):
            session = None
        if session is not None and session.number in self.world.expired:
            session = None
        present = session is not None
        late = connection.clean and connection.client.connection is not connection
        if late or (present and outcome.kind == "doubt"):
            connection.client.doubted = self.world.numbers
        unheard = not (present or connection.clean) and (outcome.kind == "doubt" or outcome.suspect)
        session = session or Session(self.world.next_number())
        if present and outcome.kind == "doubt":
            connection.client.went_on = session.number
        record = Record(record.epoch, session, None, record.older, unheard, False, unheard)
        self.world.reached["unheard"] += unheard
        if not (present or unheard):
            self.world.undoubted.add(session.number)
        done = partial(self._accept, connection, present, session.number)
        self.holder.change(client, record, done)

    def _accept(self, connection: Connection, present: bool, number: int) -> None:
        client = connection.client
        if self.connections.get(client.name) is connection:
            connection.open = True
            record = self.holder.records.get(client.name)
            if present and client.connection is connection and record and record.session:
                for identifier, message in record.session.received:
                    known = client.flight.get(identifier, (0, ""))[0] == message
                    assert known, f"{client.name} goes on with the identifier of message {message}"
            self.world.after(self.world.delay(), partial(connection.accepted, present, number))

    def disconnect(self, client: str) -> None:
        connection = self.connections.pop(client, None)
        if connection is not None:
            connection.lost()

    def expire(self, client: str) -> None:
        """End a client's session, as after its Session Expiry Interval."""
        record = self.holder.records.get(client)
        if record and record.session and record.given_to is None and client not in self.connections:
            self.world.expired.add(record.session.number)
            self.world.on_expired(client, record.session.number)
            self.holder.change(client, record._replace(session=None))

    def hear(self, client: str, connection: Connection) -> None:
        """Record a packet of a client, which shows that the client knows of its new session."""
        record = self.holder.records.get(client)
        if self._serves(connection) and record is not None and record.unheard:
            self.holder.change(client, record._replace(suspect=False, unheard=False))

    def publish(self, connection: Connection, identifier: int, message: int) -> None:
        client = connection.client.name
        self.hear(client, connection)
        record = self.holder.records.get(client)
        if not self._serves(connection) or record is None or record.session is None:
            return
        received = dict(record.session.received)
        answer = partial(connection.to_client, "PUBREC", identifier, message)
        if identifier in received:
            assert received[identifier] == message, f"message {message} swallowed, {client}"
            self.holder.commit(lambda: None, answer)
            return
        received[identifier] = message
        session = record.session._replace(received=tuple(received.items()))
        self.world.on_routed(client, message)
        self.holder.commit(partial(self._write, client, message), lambda: None)
        self.holder.change(client, record._replace(session=session), answer)

    def _write(self, client: str, message: int) -> None:
        self.world.check_first(client, message)
        self.written.add(message)

    def release(self, connection: Connection, identifier: int, message: int) -> None:
        client = connection.client.name
        self.hear(client, connection)
        record = self.holder.records.get(client)
        if not self._serves(connection) or record is None or record.session is None:
            return
        assert self.member is not None
        if identifier in dict(record.session.received):
            done = partial(self._released, connection, identifier, message)
            self.holder.release(client, identifier, done)
        else:
            asked = partial(self._released, connection, identifier, message)
            self.member.want_release(
                client, identifier, self.now, lambda known, silent: asked(known)
            )

    def _released(self, c: Connection, identifier: int, message: int, known: bool) -> None:
        if known:
            assert self.world.is_written(message), f"PUBCOMP for message {message}, which is lost"
        c.to_client("PUBCOMP" if known else "0x92", identifier, message)

    def _serves(self, connection: Connection) -> bool:
        return self.connections.get(connection.client.name) is connection and connection.open
