"""The sessions of a simulated gateway (world.py): in memory, and on a disk with the content of the
last commit.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gateway.site.rules.holder import NOBODY, Held

if TYPE_CHECKING:
    from tests.site.world import World

Event = Callable[[], None]


class Session(NamedTuple):
    """A session of the model. number: by which the judge distinguishes sessions. received: packet
    identifiers with their messages; a real gateway has only the identifiers.
    """

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
    """A `Holder` with state in memory and on disk, whose commits take time."""

    def __init__(self, world: World, name: str, disk: dict[str, Record], written: set[int]) -> None:
        self.world = world
        self.name = name
        self.disk = disk
        self.written = written
        """Numbers of the messages on this disk."""
        self.records = dict(disk)
        self.dead = False
        self.part_bytes = world.random.choice((8, 1000, 1000))
        self._changes: deque[tuple[Event, Event]] = deque()
        self._committing = False
        self._untold: set[str] = set()
        """Clients without a session. The next record of each becomes suspect."""
        self._coming: dict[str, Record] = {}
        """Records of inbound sessions, and of sessions that are called back, until they are on
        disk.
        """

    def change(self, client: str, record: Record | None, done: Event = lambda: None) -> None:
        """Change memory now, and the disk with the next commit. done: called after that commit."""
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
        """Store a record. It is in memory only when it is on disk, as at a real gateway."""
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
            # a real gateway logs this; a crash may follow before the client gets an answer
            self.world.mark(client)
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
