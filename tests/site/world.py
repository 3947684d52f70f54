"""A site in memory, on virtual time: gateways with disks, links that delay, break and are cut, and
clients that roam, publish at QoS 2 and judge the answers.


In: a seeded `Random`, and the events to simulate. Out: AssertionError when a promise of
gateway/site/docs/session-moves.md is broken. Each gateway runs the real `Member`. The holder of a
gateway has a memory, and a disk with the contents of the last commit.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from gateway.site.rules.contact import START_S
from gateway.site.rules.holder import ALL_CLIENTS, NOBODY, Held, Outcome
from gateway.site.rules.member import Member
from gateway.site.rules.messages import Beat, decode

Event = Callable[[], None]


class Session(NamedTuple):
    """A session of the model. number: tells sessions apart, for the judge. received: packet
    identifiers with their messages, which no real gateway knows."""

    number: int
    received: tuple[tuple[int, int], ...] = ()

    def parts(self, size: int) -> list[bytes]:
        raw = json.dumps(self).encode()
        return [raw[begin : begin + size] for begin in range(0, len(raw), size)]

    @staticmethod
    def from_parts(parts: Sequence[bytes]) -> Session:
        number, received = json.loads(b"".join(parts))
        return Session(number, tuple((identifier, message) for identifier, message in received))


class Record(NamedTuple):
    epoch: int = 0
    session: Session | None = None
    given_to: str | None = None
    older: frozenset[str] = NOBODY
    suspect: bool = False
    copied: bool = False
    unheard: bool = False

    @property
    def held(self) -> Held:
        return Held(*self._replace(session=self.session is not None)[:-1])


class MemoryHolder:
    """A `Holder`: state in memory and on disk, and commits that take their time."""

    def __init__(self, world: World, name: str, disk: dict[str, Record], written: set[int]) -> None:
        self.world = world
        self.name = name
        self.disk = disk
        self.written = written
        """Messages on this disk."""
        self.records = dict(disk)
        self.dead = False
        self.part_bytes = world.random.choice((8, 1000, 1000))
        self._changes: deque[tuple[Event, Event]] = deque()
        self._committing = False
        self._untold: set[str] = set()
        """Clients without a session whose next record is suspect."""
        self._coming: dict[str, Record] = {}
        """Sessions that come, or come back, and are not on the disk yet."""

    def change(self, client: str, record: Record | None, done: Event = lambda: None) -> None:
        """Memory changes now, the disk with the next commit."""
        if record is not None and record.session is None and not record.older:
            record = record if record.unheard else None
        _put(self.records, client, record)
        self.commit(partial(_put, self.disk, client, record), done)

    def commit(self, write: Event, done: Event) -> None:
        self._changes.append((write, done))
        if not self._committing:
            self._committing = True
            self.world.after(self.world.commit_s(), self._commit)

    def _commit(self) -> None:
        if self.dead:
            return
        self._committing = False
        changes, self._changes = self._changes, deque()
        if self.world.crash_at_commit(self.name):
            return
        for write, _ in changes:
            write()
        if self.world.crash_at_commit(self.name):
            return
        for _, done in changes:
            if not self.dead:
                self.world.gateways[self.name].run(done)

    def record(self, client: str) -> Held | None:
        record = self.records.get(client)
        return None if record is None else record.held

    def on_disk(self, done: Event) -> None:
        if self._changes or self._committing:
            self.commit(lambda: None, done)
        else:
            done()

    def give(self, client: str, to: str, done: Callable[[Sequence[bytes] | None], None]) -> None:
        record = self.records.get(client)
        if record is None or record.session is None:
            done(None)
            return
        self.world.gateways[self.name].disconnect(client)
        if record.unheard:
            self.mark_twofold(client)
            record = self.records[client]
            assert record.session is not None
        parts = record.session.parts(self.part_bytes)
        if record.given_to == to:
            self.on_disk(partial(done, parts))
        else:
            self.change(client, record._replace(given_to=to), partial(done, parts))

    def take(
        self,
        client: str,
        epoch: int,
        older: frozenset[str],
        suspect: bool,
        parts: Sequence[bytes],
        done: Callable[[str | None], None],
    ) -> None:
        record = Record(epoch, Session.from_parts(parts), None, older, suspect)
        self._bring(client, record, partial(done, None))

    def _bring(self, client: str, record: Record, done: Event) -> None:
        """Bring a record to memory once it is on disk, as in a real gateway."""
        self._coming[client] = record

        def arrive() -> None:
            came = self._coming.pop(client)
            _put(self.disk, client, came)
            _put(self.records, client, came)

        self.commit(arrive, done)

    def stand(self, client: str, epoch: int, older: frozenset[str], done: Event) -> None:
        record = self.records.get(client, Record())
        self.world.reached["called back"] += record.given_to is not None
        if record.session is None:
            self.world.mark(client)  # the log line; a crash may follow before the client hears
        stands = record._replace(epoch=epoch, older=older, given_to=None, copied=False)
        if client in self._untold and record.session is None:
            stands = stands._replace(suspect=True, unheard=True)
        self._untold.discard(client)
        if record.given_to is None:
            self.change(client, stands, done)
        else:
            self._bring(client, stands, done)

    def end(self, client: str, below: int, done: Event) -> None:
        record = self.records.get(client)
        if record is not None and record.epoch < below:
            self.world.on_ended(client, record)
            self.world.gateways[self.name].disconnect(client)
            self.change(client, None, done)
        else:
            self.on_disk(done)

    def mark_suspect(self, client: str, done: Event) -> None:
        record = self.records.get(client)
        if record is None or record.session is None:
            self._untold.add(client)
        if record is None:
            done()
            return
        gateway = self.world.gateways[self.name]
        if client in gateway.connections and not gateway.connections[client].waits:
            gateway.disconnect(client)
        self.world.mark(client)
        self.change(client, record._replace(suspect=True), done)

    def mark_twofold(self, client: str) -> None:
        record = self.records.get(client)
        if record is not None and record.session is not None and not record.session.received:
            session = record.session._replace(received=((0xFFFF, 0),))
            self.change(client, record._replace(session=session))
            self.world.reached["twofold"] += 1

    def mark_all_suspect(self, done: Event) -> None:
        for client, record in list(self.records.items()):
            if record.session is not None:
                self.change(client, record._replace(suspect=True))
        for client, record in self._coming.items():
            self._coming[client] = record._replace(suspect=True)
        self.on_disk(done)

    def confirmed(self, client: str, member: str) -> None:
        if (record := self.records.get(client)) is not None:
            self.change(client, record._replace(older=record.older - {member}))

    def release(self, client: str, identifier: int, done: Callable[[bool], None]) -> None:
        record = self.records.get(client)
        received = dict(record.session.received) if record and record.session else {}
        known = received.pop(identifier, None) is not None
        if record is not None and record.session is not None and known:
            session = record.session._replace(received=tuple(received.items()))
            self.change(client, record._replace(session=session), partial(done, True))
        else:
            done(False)

    def older_at(self, member: str) -> Iterable[str]:
        return [client for client, record in self.records.items() if member in record.older]

    def unsettled(self) -> Iterable[str]:
        return [
            client
            for client, record in self.records.items()
            if record.given_to is not None or record.suspect
        ]


def _put(records: dict[str, Record], client: str, record: Record | None) -> None:
    if record is None:
        records.pop(client, None)
    else:
        records[client] = record


class Gateway:
    """A gateway with its own disk, which outlives the process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.disk: dict[str, Record] = {}
        self.written: set[int] = set()
        self.member: Member | None = None
        self.holder = MemoryHolder(world, name, self.disk, self.written)
        self.connections: dict[str, Connection] = {}
        self.links: dict[str, int] = {}
        """The connection to each other one, as far as the process knows."""
        self.starts = 0
        self.met: dict[str, int] = {}
        """Number of the last start that the process has met, by member."""
        self.paused = False
        self._resumes = False
        self._waiting: list[Event] = []
        self._armed: float | None = None
        self._ahead = 0.0
        """Offset of the gateway's clock from the world's. The number is a binary fraction, so sums
        lose nothing."""

    @property
    def now(self) -> float:
        """Return the time by its own clock, which counts from the machine's start."""
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
        """The disk is an older one: the store forgets received identifiers, trusts nothing, and has
        to tell the others."""
        self.disk.clear()
        for client, record in copy.items():
            session = record.session and record.session._replace(received=())
            self.disk[client] = record._replace(session=session, suspect=True, copied=True)
        others = frozenset(self.world.names) - {self.name}
        self.disk[ALL_CLIENTS] = Record(older=others)
        self.world.gone |= self.written - written
        self.written &= written

    def run(self, event: Event) -> None:
        """Do something in the thread of this gateway, unless it is paused or dead."""
        if self.paused:
            self._waiting.append(event)
        elif self.member is not None:
            event()
            self.world.check(self)
            if not self._resumes:
                self._check_wake()

    def _check_wake(self) -> None:
        """Check that each planned call will be made at its time."""
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
        """End a client's session: Session Expiry Interval."""
        record = self.holder.records.get(client)
        if record and record.session and record.given_to is None and client not in self.connections:
            self.world.expired.add(record.session.number)
            self.world.on_expired(client, record.session.number)
            self.holder.change(client, record._replace(session=None))

    def hear(self, client: str, connection: Connection) -> None:
        """Note a packet of a client: it knows that its session is new."""
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


class Connection:
    def __init__(self, world: World, client: Client, gateway: Gateway, clean: bool) -> None:
        self.world = world
        self.client = client
        self.gateway = gateway
        self.clean = clean
        self.open = False
        """The gateway has accepted it."""
        self.waits = False
        """Whether it waits to learn where its session is."""
        self._arrival = dict.fromkeys(("client", "gateway"), 0.0)
        """Time at which the newest packet arrives at each end: TCP keeps their order."""

    def lost(self) -> None:
        self.open = False
        self.world.after(self.world.delay(), partial(self.client.on_lost, self))

    def accepted(self, present: bool, number: int) -> None:
        if self.client.connection is self:
            self.client.on_connack(present, number)

    def to_client(self, kind: str, identifier: int, message: int) -> None:
        self._to("client", partial(self.client.on_packet, self, kind, identifier, message))

    def to_gateway(self, act: Event) -> None:
        self._to("gateway", partial(self.gateway.run, act))

    def _to(self, end: str, arrive: Event) -> None:
        at = max(self._arrival[end], self.world.now + self.world.delay())
        self._arrival[end] = at
        self.world.at(at, arrive)


class Client:
    """One client of the site: at one gateway at a time."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.connection: Connection | None = None
        self.accepted = False
        self.session: int | None = None
        """The session that it believes to have."""
        self.flight: dict[int, tuple[int, str]] = {}
        """Message and its last report, by packet identifier."""
        self.marked = False
        """Whether the client was told at some time that its session is suspect."""
        self.doubted = 0
        """The last message before its session went on in doubt, ended by a late Clean Start, or was
        replaced by one of whose beginning it has not heard."""
        self.went_on = 0
        """Number of the last session that went on in doubt, 0 for none."""
        self.cleans = False
        """Whether it has discarded its state, and no gateway has accepted it after that."""

    def connect(self, gateway: str, clean: bool = False) -> None:
        self.leave()
        # until it is accepted: a client that has discarded its state cannot go on with a session
        self.cleans = clean = clean or self.cleans
        to = self.world.gateways[gateway]
        connection = self.connection = Connection(self.world, self, to, clean)
        if clean:
            self.session = None
            self.flight.clear()  # its side of the session ends, too [MQTT-3.1.2-4]

        def arrive() -> None:
            if to.member is None:
                connection.lost()  # nobody listens there
            else:
                to.run(lambda: to.connect(connection))

        self.world.after(self.world.delay(), arrive)

    def leave(self, notice: bool = True) -> None:
        """notice: the gateway hears of it."""
        connection, accepted = self.connection, self.accepted
        self.connection, self.accepted = None, False
        if connection is not None and connection.clean and not accepted:
            self.marked = True  # the end that it has asked for may come at any time
        if connection is not None and notice:
            gateway = connection.gateway

            def gone() -> None:
                if gateway.connections.get(self.name) is connection:
                    del gateway.connections[self.name]

            connection.to_gateway(gone)

    def on_lost(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection, self.accepted = None, False

    def on_connack(self, present: bool, number: int) -> None:
        self.accepted, self.cleans = True, False
        if present:
            known = self.session in (number, None) or self.marked
            assert known, f"{self.name} is told that session {number} is its session {self.session}"
            if self.session != number and number in self.world.undoubted:
                # it missed the Session Present 0 of its beginning, as it may at one broker
                flight = [message for message, _ in self.flight.values()]
                self.doubted = max((self.doubted, *flight))
        else:
            lost = self.session is not None and not self.marked
            assert not lost, f"{self.name} has lost its session {self.session}"
            self.flight.clear()
        self.session = number
        for identifier in self.flight:
            self._say(identifier)

    def publish(self) -> None:
        """Go on with an exchange, or begin one, with the lowest identifier that is free."""
        if self.connection is None or not self.accepted or len(self.flight) > 2:
            return
        identifier = next(one for one in range(1, 5) if one not in self.flight)
        self.flight[identifier] = (self.world.next_number(), "PUBLISH")
        self._say(identifier)

    def _say(self, identifier: int) -> None:
        connection = self.connection
        if connection is not None and self.accepted:
            message, said = self.flight[identifier]
            gateway = connection.gateway
            act = gateway.publish if said == "PUBLISH" else gateway.release
            connection.to_gateway(partial(act, connection, identifier, message))

    def on_packet(self, connection: Connection, kind: str, identifier: int, message: int) -> None:
        said = self.flight.get(identifier)
        if connection is not self.connection or said is None or said[0] != message:
            return
        self.world.reached[kind] += 1
        if kind == "PUBREC" and said[1] == "PUBLISH":
            assert self.world.is_written(message), f"PUBREC for message {message}, which is lost"
            self.flight[identifier] = (message, "PUBREL")
            if self.world.random.random() < self.world.eager:
                self._say(identifier)
        elif kind in ("PUBCOMP", "0x92") and said[1] == "PUBREL":
            del self.flight[identifier]


class Link:
    """A link between two members: frames in order, each direction with its own delay."""

    def __init__(self, ends: tuple[str, str]) -> None:
        self.ends = ends
        self.number = 0
        """Number of the connection."""
        self.sees: dict[str, int] = dict.fromkeys(ends, 0)
        """The connection that each end believes to have, 0 for none."""
        self.cut = False
        self.dials = 0
        """Number of the last plan to dial."""
        self.held: list[Event] = []
        """Frames that a cut holds back."""
        self.frames: dict[str, deque[bytes]] = {end: deque() for end in ends}
        """Frames on their way to each end."""
        self.clear = dict.fromkeys(ends, 0.0)
        """Time at which the last frame to each end arrives."""


class World:
    def __init__(self, random: Random, members: int = 3, clients: int = 1) -> None:
        self.random = random
        self.now = 100.0
        self.reached: Counter[str] = Counter()
        self.names = tuple("abcde"[:members])
        self.crashes = 0.0
        """Chance that a commit is the last thing that a gateway does."""
        self.breaks = 0.0
        """Chance that a connection breaks behind a frame, which comes or not. Beats are spared."""
        self.commit_max = 0.02
        self.eager = 0.7
        self.patience = START_S
        """Seconds that clients can wait for members that may be starting."""
        self.line_s = 0.0
        """Additional delay of each frame between members, in seconds."""
        self.numbers = 0
        self.routed: Counter[int] = Counter()
        self.gone: set[int] = set()
        """Messages of disks that were replaced by older ones."""
        self.expired: set[int] = set()
        """Sessions that are over by the clock, wherever they are."""
        self.undoubted: set[int] = set()
        """Sessions that truly began with a Session Present 0."""
        self.bytes = 0
        self.spy: Callable[[str, str, bytes], None] | None = None
        self._events: list[tuple[float, int, Event]] = []
        self._count = 0
        self.links = {
            (one, other): Link((one, other))
            for one in self.names
            for other in self.names
            if one < other
        }
        self.gateways = {name: Gateway(self, name) for name in self.names}
        self.clients = [Client(self, f"client-{number}") for number in range(clients)]
        for name in self.names:
            self.start(name)

    # Time.

    def at(self, when: float, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, event))

    def after(self, seconds: float, event: Event) -> None:
        self.at(self.now + seconds, event)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    def delay(self) -> float:
        return self.random.choice((0.0005, 0.002, 0.01))

    def commit_s(self) -> float:
        return self.random.random() * self.commit_max

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    # Gateways and links.

    def start(self, name: str) -> None:
        if self.gateways[name].member is None:
            self.gateways[name].start()
            for link in self.links.values():
                if name in link.ends:
                    self._dial(link, self.delay())

    def crash(self, name: str, *, stopped: bool = False) -> None:
        """stopped: the others hear that the member stops."""
        if self.gateways[name].member is not None:
            self.reached["crash"] += 1
            self.gateways[name].crash()
            for link in self.links.values():
                if name in link.ends:
                    link.sees[name] = 0
                    self.break_link(link, stopped=stopped)

    def crash_at_commit(self, name: str) -> bool:
        if self.random.random() < self.crashes:
            self.reached["crash at a commit"] += 1
            self.crash(name)
            self.after(self.random.random() * 2, partial(self.start, name))
            return True
        return False

    def link(self, one: str, other: str) -> Link:
        return self.links[min(one, other), max(one, other)]

    def _dial(self, link: Link, seconds: float) -> None:
        """Dial once, in place of an earlier plan."""
        link.dials += 1
        self.after(seconds, partial(self._connect, link, link.dials))

    def _connect(self, link: Link, dial: int) -> None:
        """Make a connection, if both ends live and nothing is in between."""
        if dial != link.dials:
            return
        one, other = (self.gateways[end] for end in link.ends)
        if link.cut or one.member is None or other.member is None or any(link.sees.values()):
            self._dial(link, 0.2)
            return
        self.numbers += 1
        link.number = number = self.numbers
        for end in link.ends:
            link.sees[end] = number
            link.clear[end] = self.now
            self.after(self.delay(), partial(self._tell, link, end, number, True))

    def _tell(self, link: Link, end: str, number: int, up: bool, stopped: bool = False) -> None:
        gateway = self.gateways[end]
        other = link.ends[link.ends[0] == end]

        def tell() -> None:
            if gateway.member is None:
                return
            if up and link.sees[end] == number:
                gateway.links[other] = number
                run = self.gateways[other].starts
                begun = gateway.met.get(other) != run
                gateway.met[other] = run
                gateway.member.joined(other, gateway.now, begun)
            elif not up:
                gateway.links[other] = 0
                gateway.member.link_ended(other, gateway.now, stopped)

        gateway.run(tell)

    def break_link(self, link: Link, within: float = 0.01, stopped: bool = False) -> None:
        """The connection is gone; each end notices for itself."""
        number, link.number = link.number, 0
        link.held.clear()
        for frames in link.frames.values():
            frames.clear()
        if not number:
            return
        for end in link.ends:
            notice = partial(self._notice, link, end, number, stopped)
            self.after(self.random.random() * within, notice)

    def _notice(self, link: Link, end: str, number: int, stopped: bool) -> None:
        if link.sees[end] == number:
            self._tell(link, end, number, False, stopped)
            link.sees[end] = 0
        if not any(link.sees.values()):
            self._dial(link, 0.2)

    def cut(self, one: str, other: str, notice: float = 2.0) -> None:
        """Cut the link between two members. If the link stays cut, its connection breaks after a
        while.
        """
        link = self.link(one, other)
        if not link.cut:
            self.reached["cut"] += 1
            link.cut = True
            number = link.number

            def give_up() -> None:
                if link.cut and link.number == number:
                    self.break_link(link, within=notice)

            self.after(self.random.random() * notice, give_up)

    def heal(self, one: str, other: str) -> None:
        link = self.link(one, other)
        link.cut = False
        held, link.held = link.held, []
        for event in held:
            event()

    def send(self, sender: str, receiver: str, frame: bytes) -> None:
        link = self.link(sender, receiver)
        number = self.gateways[sender].links.get(receiver, 0)
        self.bytes += len(frame)
        if self.spy is not None:
            self.spy(sender, receiver, frame)
        if not number or number != link.number:
            return
        link.frames[receiver].append(frame)
        event = partial(self._carry, link, sender, receiver, number)
        if link.cut:
            link.held.append(event)
        else:
            event()
        if (
            self.breaks
            and not isinstance(decode(frame), Beat)
            and self.random.random() < self.breaks
        ):
            self.reached["broken off"] += 1
            self.after(self.random.random() * 0.03, partial(self._break_off, link, number))

    def _break_off(self, link: Link, number: int) -> None:
        if link.number == number:
            self.break_link(link)

    def _carry(self, link: Link, sender: str, receiver: str, number: int) -> None:
        """One frame arrives later, the one whose turn it is then."""
        # after the news of the connection, which takes up to 10 ms
        earliest = self.now + 0.01 + self.delay() + self.line_s
        link.clear[receiver] = max(link.clear[receiver], earliest)
        arrive = partial(self._arrive, link, sender, receiver, number)
        self.at(link.clear[receiver], arrive)

    def _arrive(self, link: Link, sender: str, receiver: str, number: int) -> None:
        if link.cut and link.number == number:
            link.held.append(partial(self._carry, link, sender, receiver, number))
        elif link.number == number:
            frame, gateway = link.frames[receiver].popleft(), self.gateways[receiver]

            def receive() -> None:
                if gateway.member is not None and link.sees[receiver] == number:
                    gateway.member.received(sender, frame, gateway.now)

            gateway.run(receive)

    # The rules of the judge.

    def mark(self, client: str) -> None:
        next(one for one in self.clients if one.name == client).marked = True

    def on_expired(self, client: str, number: int) -> None:
        """The client's clock says the same: it discards its state [MQTT-4.1.0-2]."""
        one = next(one for one in self.clients if one.name == client)
        if one.session == number:
            one.session = None
            one.flight.clear()

    def on_ended(self, client: str, record: Record) -> None:
        """Note the end of a session that perhaps continued in doubt at another member."""
        one = next(one for one in self.clients if one.name == client)
        if record.session is not None and one.went_on == record.session.number:
            one.doubted = self.numbers

    def on_routed(self, client: str, message: int) -> None:
        self.routed[message] += 1

    def check_first(self, client: str, message: int) -> None:
        """A message goes to one disk, once: a client that is told Session Present 0 discards it. A
        message from before a session went on in doubt may come twice (docs/limitations.md), and one
        from before a Clean Start that its client has given up.
        """
        doubted = next(one for one in self.clients if one.name == client).doubted
        first = message <= doubted or not self.is_written(message)
        assert first, f"{client}: message {message} is there twice"

    def is_written(self, message: int) -> bool:
        """Whether it is on some disk, or was before that disk was replaced by an older one."""
        return message in self.gone or any(
            message in gateway.written for gateway in self.gateways.values()
        )

    def check(self, changed: Gateway) -> None:
        """Check that at most one gateway considers its session of a client the newest."""
        for client in changed.holder.records:
            for gateway in self.gateways.values():
                if gateway is changed or gateway.paused or client not in gateway.holder.records:
                    continue
                assert not (changed.is_newest(client) and gateway.is_newest(client)), (
                    f"{client} has its newest session at {changed.name} and {gateway.name}"
                )

    def places(self, client: str) -> list[tuple[str, Record]]:
        return [
            (name, gateway.holder.records[client])
            for name, gateway in self.gateways.items()
            if client in gateway.holder.records
        ]

    def settle(self, seconds: float = 10.0) -> None:
        """Heal all links, and let the site become quiet. Then each client's session is in one place
        at most.
        """
        self.crashes, self.breaks, self.commit_max = 0.0, 0.0, 0.02
        for gateway in self.gateways.values():
            if gateway.paused:
                gateway.resume()
            self.start(gateway.name)
        for link in self.links.values():
            self.heal(*link.ends)
        self.run(seconds)
        for name, record in self.places(ALL_CLIENTS):
            raise AssertionError(f"{name} has not told all that it was restored: {record}")
        for client in self.clients:
            places = self.places(client.name)
            sessions = [name for name, record in places if record.session is not None]
            assert len(sessions) <= 1, f"{client.name} is in several places: {places}"
            for name, record in places:
                over = record.session is None and not record.unheard
                assert not over, f"{client.name} is over at {name}: {record}"
                assert record.given_to is None, f"{client.name} is given away at {name}: {record}"
                assert not record.older, f"{name} still has others end {client.name}: {record}"
