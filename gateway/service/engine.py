"""The broker on an event loop: turns, writes and commits.

In: carriers of all links, and the store's writer. Out: each turn's outgoing packets of a connection
in one write; each commit as soon as the writer is free and somebody waits for it, with everything
that arrived meanwhile; every second what has come due. Nothing here costs a task, a future or a
system call per message.

Rule: what the broker asks the store to read is handed over before the next commit, never after it:
a commit may delete what is to be read.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from gateway.broker import handshake
from gateway.broker.access import Refusal
from gateway.broker.broker import Broker, Policy
from gateway.broker.connection import Connection
from gateway.broker.handshake import Ask
from gateway.broker.paging import Order, answer
from gateway.broker.spool import Oldest
from gateway.links.carrier import Accept, Carrier, Receiver
from gateway.logs import about
from gateway.mqtt.reason import ReasonCode
from gateway.service.clock import Clock
from gateway.service.logins import Logins
from gateway.store.times import CommitTimes
from gateway.store.writer import Writer

log = logging.getLogger(__name__)

TICK_S = 1.0


class _Link:
    """One connection between its carrier and the broker (a `Receiver`)."""

    __slots__ = ("_carrier", "_connection", "_engine")

    def __init__(self, engine: "Engine", carrier: Carrier, connection: Connection) -> None:
        self._engine = engine
        self._carrier = carrier
        self._connection = connection

    def receive(self, data: bytes) -> None:
        engine = self._engine
        engine.begin()
        try:
            self._connection.receive(data)
        except Exception:
            log.exception(
                "%s: connection closed after an internal error",
                self._connection.name,
                extra=about(**self._connection.about),
            )
            self._connection.lost("internal error")
            self._carrier.abort()
        if engine.has_backlog:
            engine.hold_back(self._carrier)

    def lost(self, reason: str) -> None:
        self._engine.begin()
        self._connection.lost(reason)
        self._engine.forget(self._connection)

    def writable(self) -> None:
        self._engine.begin()
        self._connection.resume_sending()


class Engine:
    """Drives `broker` with the time from `clock` and keeps its promises with a writer on `folder`.
    Made inside the running loop. loop, writer, asker: other ones, for tests.
    """

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        folder: Path,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        writer: Callable[..., Writer] = Writer,
        asker: Executor | None = None,
    ) -> None:
        self.broker = broker
        self._clock = clock
        self._loop = loop or asyncio.get_running_loop()
        self._carriers: dict[Connection, Carrier] = {}
        self._held_back: list[Carrier] = []
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self._turn = False
        self._stopped = False
        self._writing = 0
        self._submitted = 0.0
        self._writer = writer(
            folder, done=self._from_writer, failed=self._on_failure, landed=self._on_landed
        )
        self._see_space()
        self._logins = Logins(self._loop, self._found_out, asker)
        self._ticked = self._loop.time()
        self._timer = self._loop.call_later(TICK_S, self._tick)
        broker.set_clock(clock.utc_start(self._loop.time()))

    @property
    def commit_times(self) -> CommitTimes:
        """How long commits took so far."""
        return self._writer.times

    @property
    def commit_waits_s(self) -> float:
        """For how long the commit that is under way has waited for the disk; 0 when there is
        none.
        """
        return self._clock.axis(self._loop.time()) - self._submitted if self._writing else 0.0

    @property
    def stalled_s(self) -> float:
        """Seconds since what comes due each second was last done to its end."""
        return self._loop.time() - self._ticked

    @property
    def writer_stalled_s(self) -> float:
        """For how long the store's writer has made no progress."""
        return self._writer.stalled_s

    def accept(self, policy: Policy) -> Accept:
        """What a listener with this policy calls for each new connection."""

        def accept(carrier: Carrier) -> Receiver:
            self.begin()
            connection = self.broker.open(carrier.peer, policy)
            self._carriers[connection] = carrier
            return _Link(self, carrier, connection)

        return accept

    def begin(self) -> None:
        """Something comes in: set the time, and end the turn when all that is ready has been
        taken.
        """
        self.broker.now = self._clock.axis(self._loop.time())
        if not self._turn:
            self._turn = True
            self._loop.call_soon(self._end_turn)

    def dismiss(self, whom: Callable[[Connection], bool], reason: ReasonCode, text: str) -> None:
        """End connections from our side; their goodbye is written at once."""
        self.begin()
        for connection in list(self.broker.connections):
            if whom(connection):
                connection.disconnect(reason, text)
        self.broker.settle()
        self._write()

    async def end_session(self, client: str) -> bool:
        """End a session and its connection because a person wants it; returns when that is on disk.
        False: there is none.
        """
        self.begin()
        broker = self.broker
        session = broker.sessions.get(client)
        if session is None:
            return False
        broker.effects.end(
            session, ReasonCode.ADMINISTRATIVE_ACTION, "an administrator ended the session"
        )
        broker.settle()
        if not broker.changes.empty:
            on_disk = self._loop.create_future()
            self._awaited.append((broker.promise(), on_disk))
            await on_disk
        return True

    @property
    def has_backlog(self) -> bool:
        """Whether enough waits for the disk. When it takes no messages, publishers are read all the
        same: they are refused.
        """
        return not self.broker.disk_full and self.broker.changes.bytes > self._writer.space.backlog

    def hold_back(self, carrier: Carrier) -> None:
        """Read nothing more from a publisher until a commit is through."""
        carrier.pause_reading()
        self._held_back.append(carrier)

    def forget(self, connection: Connection) -> None:
        self._carriers.pop(connection, None)

    def _end_turn(self) -> None:
        self._turn = False
        self._write()
        if self.broker.go_on():
            self._turn = True
            self._loop.call_soon(self._end_turn)
        self._order()
        if self.broker.changes.urgent:
            self._loop.call_soon(self._commit_urgent)  # what is at the sockets by then goes with it

    def _commit_urgent(self) -> None:
        self._commit(self.broker.changes.urgent)

    def _write(self) -> None:
        broker = self.broker
        dirty, broker.dirty = broker.dirty, []
        limit = broker.limits.outgoing_bytes
        for connection in dirty:
            data = connection.take()
            carrier = self._carriers.get(connection)
            if carrier is None:
                continue
            if data:
                carrier.write(data)
            if connection.closing is not None:
                log.info(
                    "%s: closed: %s",
                    connection.name,
                    connection.closing,
                    extra=about(**connection.about, reason=connection.closing),
                )
                self.forget(connection)
                carrier.close()
            elif carrier.unsent > limit:
                connection.full = True

    def _order(self) -> None:
        orders, self.broker.orders = self.broker.orders, []
        for order in orders:
            if isinstance(order, Ask):
                self._logins.ask(order)
            else:
                self._writer.carry_out(order, self._from_store)

    def _found_out(self, order: Ask, refusal: Refusal | None) -> None:
        self.begin()
        handshake.answer(self.broker, order, refusal)

    def _from_store(self, order: Order, rows: Any) -> None:
        self._loop.call_soon_threadsafe(self._read, order, rows)

    def _read(self, order: Order, rows: Any) -> None:
        self.begin()
        answer(self.broker, order, rows)

    def _commit(self, wanted: bool, sweep: bool = False) -> None:
        broker = self.broker
        if self._writing or self._stopped or not wanted:
            return
        if broker.changes.empty and not sweep:
            number = broker.changes.number
            if broker.is_waited_for(number):
                broker.seal()
                self._on_disk(number)
                self._write()
            return
        self._see_space(broker.changes.bytes)
        self._order()
        commit = broker.seal(sweep)
        self._writing = commit.number
        self._submitted = broker.now
        self._writer.submit(commit)

    def _from_writer(self, number: int) -> None:
        self._loop.call_soon_threadsafe(self._written, number)

    def _written(self, number: int) -> None:
        self._writing = 0
        self.broker.now = self._clock.axis(self._loop.time())
        self._on_disk(number)
        self._write()
        self._order()
        self._commit_urgent()

    def sweep(self) -> None:
        """Bring to disk what nobody waits for, and delete what is no longer needed there."""
        self._commit(self.broker.idle_work, sweep=self.broker.idle_work)

    def _on_disk(self, number: int) -> None:
        self.broker.on_disk(number)
        self._see_space()
        while self._awaited and self._awaited[0][0] <= number:
            _, on_disk = self._awaited.pop(0)
            if not on_disk.done():
                on_disk.set_result(None)
        self._read_on()

    def _read_on(self) -> None:
        held_back, self._held_back = self._held_back, []
        for carrier in held_back:
            carrier.resume_reading()

    def _see_space(self, under_way: int = 0) -> None:
        """What the writer has seen when it had written the last commit. under_way: bytes of
        messages on their way to it since.
        """
        space = self._writer.space
        self.broker.disk_full, self.broker.disk_room = space.short, max(0, space.room - under_way)

    def _on_failure(self, error: Exception) -> None:
        self._loop.call_soon_threadsafe(self._refuse)

    def _refuse(self) -> None:
        self.broker.disk_full = True
        self._read_on()

    def _on_landed(self, lowest: int, oldest: Oldest | None) -> None:
        self._loop.call_soon_threadsafe(self.broker.spool.landed, lowest, oldest)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self.begin()
        self.broker.set_clock(self._clock.utc_start(self._loop.time()))
        self.broker.advance()
        if self.broker.spool.size:
            self._writer.look_for_landed()
        if not self._writing:
            self._see_space()
            self._writer.look_for_space()
        self.sweep()
        self._ticked = self._loop.time()

    async def stop(self) -> None:
        """Say goodbye to every client, bring everything to disk, and stop."""
        self._timer.cancel()
        self.begin()
        for connection in list(self.broker.connections):
            connection.disconnect(ReasonCode.SERVER_SHUTTING_DOWN, "the gateway is shutting down")
        self.broker.settle()
        self._write()
        self._order()
        self._stopped = True
        self._logins.stop()
        self._writer.submit(self.broker.seal(sweep=True))
        await self._loop.run_in_executor(
            None, self._writer.stop, self.broker.now, self._clock.utc()
        )
