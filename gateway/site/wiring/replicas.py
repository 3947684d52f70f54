"""Replication of spools at other gateways of the site (`[site] copies = 2`).

In: rows of this gateway's spool as they are committed, and replicas of other members' spools. Out:
released acknowledgements that waited for a second disk (`gateway/site/moving/replicated.py`); rows
for the member that keeps this gateway's replicas (`replication/sending.py`); the replicas of other
members (`replication/receiving.py`), on a separate shelf (`gateway/store/copies.py`); and, in the
spool of this gateway, rows of a lost member under their original keys.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from gateway.broker.session import Attached
from gateway.broker.spool import ROW_OVERHEAD
from gateway.broker.store_rows import SpoolRow
from gateway.config import SiteSection
from gateway.mqtt.reason import ReasonCode
from gateway.runtime.administration import dismiss
from gateway.runtime.engine import Engine
from gateway.site.moving.neighbours import site_of
from gateway.site.moving.replicated import Replicated
from gateway.site.replication.messages import PIECE_BYTES, Held, Row, Told, decode
from gateway.site.replication.receiving import PART, Keeping, Line, Order
from gateway.site.replication.sending import WAIT_S, Copying
from gateway.store.copies import FILE as SHELF
from gateway.store.copies import Copies, adopted, is_damaged, put_aside
from gateway.store.schema import FILE, connect
from gateway.system.jobs import Job
from gateway.system.logs import printable
from gateway.uplink import copied

log = logging.getLogger(__name__)

TICK_S = 1.0
RETRY_S = 1.0
WORK_S = 60.0
"""Seconds for which a read or write may fail before the failure is reported as a problem."""
_PAGE_ROWS = 1024
_NO_COPY = (
    ReasonCode.QUOTA_EXCEEDED,
    "no other gateway of the site has a copy (site.copies): publish again",
)

T = TypeVar("T")
Open = Callable[[], sqlite3.Connection]


class _Worker:
    """A thread for one database. It repeats each piece of work until the piece succeeds, and then
    begins the next one.
    """

    def __init__(
        self, name: str, subject: str, loop: asyncio.AbstractEventLoop, executor: Executor | None
    ) -> None:
        self.job = Job(name, f"{subject} cannot be read or written", WORK_S)
        self._loop = loop
        self._executor = executor or ThreadPoolExecutor(1, subject)
        self._pieces: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        """Pieces of work; the first one is in progress."""
        self._closed = False

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Queue a piece of work. done: called on the event loop."""
        self._pieces.append((work, done))
        if len(self._pieces) == 1:
            self.job.begin()
            self._begin()

    def _begin(self) -> None:
        if not self._closed:
            self._executor.submit(self._work, self._pieces[0][0])

    def _work(self, work: Callable[[], Any]) -> None:
        try:
            found = work()
        except Exception as error:  # internal errors are logged too
            self._call(self._failed, error)
        else:
            self._call(self._worked, found)

    def _call(self, call: Callable[[Any], None], result: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, result)

    def _worked(self, found: Any) -> None:
        self.job.succeed()
        _, done = self._pieces.popleft()
        if self._pieces:
            self.job.begin()
            self._begin()
        if not self._closed:
            done(found)

    def _failed(self, error: Exception) -> None:
        self.job.fail(error)
        if not self._closed:
            self._loop.call_later(RETRY_S, self._begin)

    async def close(self) -> None:
        """Start no further piece of work, and wait for the current one."""
        self._closed = True
        await asyncio.to_thread(self._executor.shutdown)


class SiteCopies:
    """The replication of spools, from creation to `close`. restored: whether the store is of
    another generation than at the last start. send: sends a frame to a member, or drops it.
    executor, opened: replacements for tests.
    """

    def __init__(
        self,
        engine: Engine,
        section: SiteSection,
        data: Path,
        send: Callable[[str, bytes], None],
        loop: asyncio.AbstractEventLoop,
        *,
        restored: bool,
        executor: Executor | None = None,
        opened: Open | None = None,
    ) -> None:
        self._engine = engine
        self._broker = engine.broker
        self._loop = loop
        self._data = data
        subject = f"the database with copies for other members ({SHELF})"
        self._shelf_worker = _Worker("shelf", subject, loop, executor)
        self._shelf: Copies | None = None
        self._landing = False
        self._logged: set[int] = set()
        """Numbers of the lines (series of spool rows, see `Line`) whose landing here was logged."""
        self._orphaned: set[int] = set()
        """Numbers of the lines that this gateway cannot land, because it has no uplink. Each was
        logged.
        """
        self.landed = 0
        """Number of rows of other members that were brought into this gateway's spool."""
        self._keeping = Keeping(
            self._kept(),
            self,
            send,
            self._has_room,
            section.copies_bytes,
            section.copies_silent_s,
            loop.time(),
        )
        self._own = None
        if section.copies > 1:
            worker = _Worker("copies", "the spool, from which copies are sent,", loop, executor)
            database = (opened or partial(connect, data / FILE))()
            self._own = _Own(
                engine, database, worker, send, loop, restored, section.copies_silent_s
            )
        self._timer = loop.call_later(TICK_S, self._tick)
        self._closed = False

    @property
    def jobs(self) -> list[Job]:
        """The jobs that read and write replicas."""
        own = [] if self._own is None else [self._own.job]
        return [self._shelf_worker.job, *own]

    async def close(self) -> None:
        self._closed = True
        self._timer.cancel()
        if self._own is not None:
            await self._own.close()
        await self._shelf_worker.close()
        if self._shelf is not None:
            self._shelf.close()

    # -- members

    def joined(self, member: str) -> None:
        self._keeping.joined(member, self._loop.time())
        if self._own is not None:
            self._own.copying.joined(member, self._loop.time())

    def link_ended(self, member: str) -> None:
        self._keeping.link_ended(member, self._loop.time())
        if self._own is not None:
            self._own.copying.link_ended(member, self._loop.time())

    def received(self, member: str, frame: bytes) -> None:
        """Handle a frame of a member. Raises SiteError."""
        message = decode(frame)
        if not isinstance(message, Held):
            self._keeping.received(member, message)
        elif self._own is not None:
            self._own.copying.received(member, message, self._loop.time())

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        if self._own is not None:
            self._own.look()
        self._keeping.advance()
        self._land()

    def figures(self) -> dict[str, Any]:
        """Return figures for users. The figures of this gateway's own spool exist only with `copies
        = 2`.
        """
        own = {} if self._own is None else self._own.copying.figures()
        if own and not self._broker.config.spooled:
            own["copies_refusing"] = False  # no topic is spooled
        damaged = 0 if self._shelf is None else self._shelf.damaged
        common = {"copies_landed": self.landed, "copies_damaged": damaged}
        return {**self._keeping.figures(), **common, **own}

    # -- the shelf

    def _open_shelf(self) -> Copies:
        """Return the shelf, and open it first if it is closed. Call this in the worker's thread, or
        before that thread begins.
        """
        if self._shelf is None:
            self._shelf = Copies(self._data)
        return self._shelf

    def _kept(self) -> list[Line]:
        if not (self._data / SHELF).exists():
            return []
        try:
            return self._read_shelf()
        except (sqlite3.DatabaseError, ValueError) as error:
            if not is_damaged(error):
                raise
            if self._shelf is not None:
                self._shelf.close()
                self._shelf = None
            put_aside(self._data, error)
            return []

    def _read_shelf(self) -> list[Line]:
        shelf, lines = self._open_shelf(), {}
        gaps, orphans = shelf.gaps(), shelf.orphans()
        for number, member, last, text_of_state in shelf.lines():
            if number in gaps:
                first, missing = gaps[number]
                text = (
                    "%s: %d copies of rows of %s are gone; that member sends them again if it can"
                )
                log.error(text, self._data / SHELF, missing, printable(member))
                last = first - 1
            lines[number] = Line(number, member, Told.model_validate_json(text_of_state), last)
        if orphans:
            text = (
                "%s: %d copies are deleted: the record that says whose copies they are is gone."
                " Their gateway sends them again if it can"
            )
            log.error(text, self._data / SHELF, sum(orphans.values()))
            shelf.write([], [], {}, list(orphans))
        for number, row, size in shelf.sizes(PART):
            if number in lines:
                lines[number].grow(row, size)
        return list(lines.values())

    def _has_room(self, size: int) -> bool:
        return not self._broker.lacks_room(size)

    def write(self, order: Order, done: Callable[[], None]) -> None:
        """Carry out an order on the shelf, and then call `done` (see `Shelf`)."""
        lines = [
            (line.number, line.member, line.last, line.state.model_dump_json())
            for line in order.lines.values()
        ]
        if not order:
            self._loop.call_soon(done)
            return
        self._shelf_worker.run(
            lambda: self._open_shelf().write(lines, order.rows, order.drops, order.forgotten),
            lambda _: done(),
        )

    # -- copies that land here

    def _land(self) -> None:
        """Bring a page of replicas into the spool, if a line (series of spool rows, see `Line`) is
        to be landed here.
        """
        line = None if self._landing or self._closed else self._keeping.due(self._loop.time())
        if line is None:
            return
        if self._broker.config.uplink is None:  # without an uplink the spool would keep them
            if line.number not in self._orphaned:
                self._orphaned.add(line.number)
                log.warning(
                    "%s: rows that this member has acknowledged and not landed stay in %s: this"
                    " gateway has no [uplink] that lands them. Add one, or land them:"
                    " onceway spool land %s",
                    printable(line.member),
                    SHELF,
                    self._data,
                )
            return
        self._landing = True
        number, first = line.number, line.first
        self._shelf_worker.run(
            lambda: self._open_shelf().page(number, first, _PAGE_ROWS, PIECE_BYTES),
            partial(self._adopt, line),
        )

    def _adopt(self, line: Line, rows: Sequence[Row]) -> None:
        engine, broker = self._engine, self._broker
        if not rows:
            self._adopted(line, line.last, 0)
            return
        size = sum(len(row[5].encode()) + len(row[6]) + ROW_OVERHEAD for row in rows)
        if broker.lacks_room(size) or broker.spool.size + size > broker.spool.limit:
            self._landing = False  # there may be room in a second
            return
        engine.begin()
        found = adopted(line.state.model_dump(), rows)
        with broker.step:
            broker.changes.spool += broker.spool.adopt(cast("list[SpoolRow]", found))
            broker.changes.bytes += size
        done = partial(self._adopted, line, rows[-1][0], len(rows))
        broker.when_on_disk(broker.promise(), done)

    def _adopted(self, line: Line, last: int, count: int) -> None:
        self._landing = False
        if count and line.number not in self._logged:
            self._logged.add(line.number)
            log.warning(
                "%s: this gateway lands rows which that member acknowledged, but has not landed",
                printable(line.member),
            )
        self.landed += count
        self._keeping.landed(line, last)
        self._loop.call_soon(self._land)


class _Own:
    """The spool of this gateway itself, with the methods that `Copying` needs (`Spool`)."""

    def __init__(
        self,
        engine: Engine,
        database: sqlite3.Connection,
        worker: _Worker,
        send: Callable[[str, bytes], None],
        loop: asyncio.AbstractEventLoop,
        restored: bool,
        silent_s: float,
    ) -> None:
        self._engine = engine
        self._silent_s = silent_s
        self._refusing_since = 0.0
        self._broker = broker = engine.broker
        self._database = database
        self._worker = worker
        self.job = worker.job
        self._loop = loop
        last = broker.spool.next - 1
        self._first = broker.spool.next
        """Id of the first spool row since this start."""
        if restored or copied.line(database) is None:
            copied.draw_line(database, self._first)
        self._number = copied.numbered(database, last)
        """Number of rows without identity that were committed so far: the sequence of the newest
        one (`messages.Row`).
        """
        self._known = -1, 0
        """The last row that `read` has returned: its id, and the sequence of the last row without
        identity up to it. See `copied.rows`.
        """
        self._looking = False
        self._clock: int | None = None
        """Start of this boot in µs UTC, as it was first known; later corrections are not sent. None
        while the clock is not known.
        """
        self._replicated = Replicated(self._committed, last if broker.spool.size else 0)
        site_of(broker).second_disk = self._replicated
        state = self._spool_state(copied.landed(database, last))
        self.copying = Copying(self, send, state, last, loop.time())

    async def close(self) -> None:
        await self._worker.close()
        self._database.close()

    def _spool_state(self, found: dict[str, Any]) -> Told:
        if self._clock is None:
            self._clock = self._broker.utc_start
        return Told(keep=False, boot=self._broker.spool.boot, clock=self._clock, **found)

    def look(self) -> None:
        """Check which rows have landed, and advance the replication. Called each second."""
        if self._looking:
            self.copying.advance(self._loop.time())
            return
        self._looking = True
        last = self.copying.last
        self._worker.run(lambda: copied.landed(self._database, last), self._looked)

    def _looked(self, found: dict[str, Any]) -> None:
        self._looking = False
        self.copying.looked(self._spool_state(found), self._loop.time())

    def _committed(self, rows: Sequence[SpoolRow]) -> None:
        found = copied.with_numbers(list(rows), self._number)
        self._number += sum(row[1] is None for row in rows)
        self.copying.committed(found, self._loop.time())

    # -- a `Spool`

    def read(self, after: int, before: int, done: Callable[[Sequence[Row], bool], None]) -> None:
        known, database = self._known, self._database

        def read(found: tuple[list[Any], bool, tuple[int, int]]) -> None:
            rows, whole, self._known = found
            done(rows, whole)

        self._worker.run(
            lambda: copied.rows(database, after, before, _PAGE_ROWS, PIECE_BYTES, known), read
        )

    def safe(self, row: int) -> None:
        self._engine.commits.spool_is_safe(row)

    def refuse(self, refuses: bool) -> None:
        self._replicated.refusing = refuses
        self._refusing_since = self._loop.time()
        if not self._broker.config.spooled:
            return
        if refuses:
            log.warning(
                "in the last %d s no other member of the site has accepted copies: publications for"
                " the spool are refused until a member does (site.copies)",
                WAIT_S,
            )
        else:
            log.warning(
                "another member accepts copies again, or the uplink has landed the spool:"
                " publications for the spool are accepted again (site.copies)"
            )

    def send_away(self) -> None:
        """End the connections of clients that wait until their messages are replicated. Boards and
        the gateway's own clients stay connected, keep their messages, and wait. A client with an
        unfinished QoS 2 message stays for `copies_silent_s`: at another gateway its session may
        become suspect, and the client may then publish the message twice. After that time, the
        message has usually landed.
        """
        broker, waits = self._broker, self._broker.waits.copied
        waiting = {holder for holders in waits.values() for holder in holders}
        patient = self._loop.time() - self._refusing_since < self._silent_s

        def has_waited(item: Attached) -> bool:
            session = item.session
            if (
                item not in waiting
                or session is None
                or item.peer.device
                or item.policy.never_moves
            ):
                return False
            return not (patient and session.receive_flow.received)

        dismiss(self._engine, has_waited, *_NO_COPY)
        for holders in waits.values():
            holders[:] = [holder for holder in holders if holder in broker.connections]

    def begin_line(self, done: Callable[[Told], None]) -> None:
        log.error("another member has rows of this spool that this disk has lost, and lands them")
        database, first, last = self._database, self._first, self.copying.last

        def work() -> dict[str, Any]:
            copied.draw_line(database, first)
            return copied.landed(database, last)

        self._worker.run(work, lambda found: done(self._spool_state(found)))
