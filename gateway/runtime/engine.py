"""The broker on an event loop: turns, writes and commits.

In: transports of all links, and the store's writer. Out: the outgoing packets of a connection, one
write per turn; each commit as soon as the writer is free and something waits for it, with all
changes since the last one; every second, the work that is due. Messages need no task, future or
system call of their own.

Rule: orders to read from the store are handed over before the next commit, never after it: a commit
may delete the rows to be read.

No turn is long. Input that does not fit into a turn's time is handled in later turns, alternating
with other clients (`put_off`). Meanwhile the gateway does not read from a client that has sent much
of this input.

An exception in a call for one connection ends that connection (`fault`). Any other exception may
have left shared state half changed: it ends the engine (`fail`), before the next commit or write
(`gateway/broker/README.md`, "Where an exception ends").
"""

import asyncio
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from gateway.access.logins import Logins
from gateway.access.rules import Ask, Policy, Refusal
from gateway.access.trusted import TRUSTED, Trusted
from gateway.broker import dispatch
from gateway.broker.broker import Broker
from gateway.broker.connection import Connection
from gateway.broker.delivery import Order
from gateway.broker.refusals import blame
from gateway.broker.session import Attached, State
from gateway.broker.spool import Oldest
from gateway.errors import OncewayError
from gateway.links.transport import Accept, Receiver, Transport
from gateway.mqtt.packets import Connect
from gateway.mqtt.reason import ReasonCode
from gateway.runtime.client_link import ClientLink
from gateway.runtime.clock import Clock
from gateway.runtime.output import Output
from gateway.runtime.sys_topics import SystemTopics
from gateway.store.times import CommitTimes
from gateway.store.writer import Writer, is_damage
from gateway.system.causes import FULL, cause
from gateway.system.jobs import Job
from gateway.system.logs import about

log = logging.getLogger(__name__)

TICK_S = 1.0
_TURN_S = 0.02
"""Time, in seconds since its start, after which a turn handles no further input."""
GATHER_S = 0.001
"""Longest time, in seconds, for which a turn waits for the next input of clients whose
acknowledgements a commit has released.
"""
_MANY_CLIENTS = 4
"""A turn is extended if a commit has released acknowledgements of at least this many clients."""


def _stops() -> OncewayError:
    return OncewayError("the gateway stops after an internal error", hint="Look at its log")


class Engine:
    """The part that runs `broker` on the event loop, with the time from `clock` and commits to the
    store in `folder`. Created inside the running loop.

    failed: callback, called once if the process has to end because shared state may be half
    changed. loop, writer, asker: replacements for tests.
    """

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        folder: Path,
        *,
        failed: Callable[[], None] = lambda: None,
        loop: asyncio.AbstractEventLoop | None = None,
        writer: Callable[..., Writer] = Writer,
        asker: Executor | None = None,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self._failed = failed
        self.broken = False
        """Whether shared state may be half changed. If so, no input is accepted, and no output or
        commit is written.
        """
        self._loop = loop or asyncio.get_running_loop()
        self._links: dict[Attached, ClientLink] = {}
        self.in_turn = False
        """Whether a turn has begun: its time is set, and ready input is being handled."""
        self._turn_ends = 0.0
        self._put_off: deque[ClientLink] = deque()
        self._catching_up = False
        self.awaited = 0
        """Number of clients that are likely to send soon, for which the turn waits a short time."""
        self.gathering: asyncio.TimerHandle | None = None
        """Timer for the end of the wait for `awaited` clients; None while there is no wait."""
        self.output = Output(self, self._loop)
        self.system = SystemTopics(broker)
        self.commits = Commits(self, folder, writer, self._loop)
        trusted = Trusted(folder / TRUSTED if asker is None else None)
        self._logins = Logins(self._loop, partial(self.do, self._check_answered), asker, trusted)
        self._ticked = self._loop.time()
        self._timer = self._loop.call_later(TICK_S, self.do, self._tick)
        broker.set_clock(clock.utc_start(self._loop.time()))
        broker.turn_is_over = self._turn_is_over

    @property
    def jobs(self) -> list[Job]:
        """The background jobs of store and logins."""
        return [*self.commits.jobs, *self._logins.jobs]

    @property
    def stalled_s(self) -> float:
        """Seconds since the work that is due every second was last finished."""
        return self._loop.time() - self._ticked

    def accept(self, policy: Policy) -> Accept:
        """Return the function that a listener with this policy calls for each new connection."""

        def accept(transport: Transport) -> Receiver:
            self.begin()
            connection = Connection(self.broker, transport.peer, policy)
            link = self._links[connection] = ClientLink(self, transport, connection)
            if self.broken:
                link.abort()
            return link

        return accept

    # -- exceptions

    def fail(self, error: BaseException | None, doing: str) -> None:
        """Stop the engine, because shared state may be half changed. From now on the engine accepts
        no input and writes no output or commit; the process ends, and starts again from the store.
        """
        if self.broken:
            return
        self.broken, self.in_turn, self.awaited = True, False, 0
        log.critical(
            "internal error while %s: the state in memory may be inconsistent. Nothing more is"
            " committed or acknowledged; the gateway stops, and starts again from its store",
            doing,
            exc_info=error,
        )
        self.commits.fail()
        self._failed()

    def fault(
        self, connection: Attached, error: Exception, doing: str, unfinished: int = 0
    ) -> None:
        """Handle an exception of a call for one connection.

        The connection ends: with a DISCONNECT if possible, or without one at its second exception.
        If an unfinished step has left shared state half changed, the engine fails. unfinished:
        number of unfinished steps before the call.
        """
        broker = self.broker
        if self.broken or broker.step.unfinished != unfinished:
            self.fail(error, doing)
            return
        self.begin()
        link = self._links.get(connection)
        if connection.state is State.CLOSED and link is not None:
            self.forget(connection)
            blame(broker, connection, error, doing)
            with suppress(Exception):
                link.abort()
            return
        self.do(connection.fail, error, doing)
        self.do(broker.settle)

    def serve(
        self, connection: Attached, doing: str, call: Callable[..., object], *args: object
    ) -> None:
        """Make a call for one connection. An exception in the call ends the connection (`fault`).
        doing: words for the log, after "while", such as "writing its output".
        """
        if self.broken:
            return
        before = self.broker.step.unfinished
        try:
            call(*args)
        except Exception as error:
            self.fault(connection, error, doing, before)

    def do(self, call: Callable[..., object], *args: object) -> None:
        """Run a part of a turn. An exception in it ends the engine."""
        if self.broken:
            return
        try:
            call(*args)
        except Exception as error:
            self.fail(error, f"running {getattr(call, '__name__', 'a part of its turn')}")

    def fail_unfinished(self) -> None:
        """Stop the engine. Call this if a part of the gateway has left a step unfinished."""
        error = self.broker.step.error
        self.fail(error, "another part of the gateway changed shared state")

    def begin(self) -> None:
        """Begin a turn: set the time, and schedule the end of the turn after the input that is
        ready.
        """
        if self.broken:
            return
        self.broker.now = self._loop.time() + self.clock.offset
        if not self.in_turn:
            self.in_turn = True
            self._turn_ends = time.monotonic() + _TURN_S
            if self.gathering is None:
                self._loop.call_soon(self.do, self._end_turn)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function later. The function must make its calls for one connection through
        `serve`.
        """
        self._loop.call_later(seconds, call)

    def _turn_is_over(self) -> bool:
        return time.monotonic() > self._turn_ends

    def forget(self, connection: Attached) -> None:
        link = self._links.pop(connection, None)
        if link is not None:
            link.discard()

    def _end_turn(self) -> None:
        self.in_turn = False
        broker = self.broker
        if broker.step.unfinished:
            self.fail_unfinished()
            return
        if broker.to_send or broker.dirty or broker.effects.faults:
            self.write()
        if broker.feeding or broker.effects.waiting:
            broker.go_on()
        if broker.feeding or broker.effects.waiting or broker.dirty or broker.to_send:
            self.begin()
        if broker.orders or broker.questions:
            self.order()
        if broker.changes.urgent and self.gathering is None:
            # the commit then includes input that reaches the sockets meanwhile
            self._loop.call_soon(self.do, self.commits.commit)

    def put_off(self, link: ClientLink) -> None:
        """Postpone input of a client for which this turn has no more time. The input is handled
        after the input of all other clients.
        """
        self._put_off.append(link)
        if not self._catching_up:
            self._catching_up = True
            self._loop.call_soon(self.do, self._catch_up)

    def _catch_up(self) -> None:
        self._catching_up = False
        self.begin()
        waiting, self._put_off = self._put_off, deque()
        while waiting and not self._turn_is_over():
            link = waiting.popleft()
            self.serve(link.connection, "handling the rest of its input", link.go_on)
        for link in waiting:
            self.put_off(link)
        self._put_off.rotate(len(waiting))

    def gather(self, clients: int) -> None:
        """Extend the turn after a commit has released acknowledgements of this many clients.

        If the clients are many, each is likely to send something soon. A turn and a commit cost
        about the same for one message as for a hundred, so a short wait saves turns and commits.
        """
        if clients < _MANY_CLIENTS or self.commits.stopped:
            self.commits.commit()
        else:
            self.awaited = clients
            self.gathering = self._loop.call_later(GATHER_S, self.do, self._end_gathering)

    def hear(self) -> None:
        """Note that a client has sent something while the turn waits for `awaited` clients
        (`gather`).
        """
        self.awaited -= 1
        if not self.awaited:
            self._end_gathering()

    def _end_gathering(self) -> None:
        self.awaited = 0
        if self.gathering is not None:
            self.gathering.cancel()
            self.gathering = None
            self._loop.call_soon(self.do, self._end_turn)

    def write(self) -> None:
        broker = self.broker
        if broker.to_send:
            broker.send()
        if broker.effects.faults:
            broker.settle()
        dirty, broker.dirty = broker.dirty, []
        for connection in dirty:
            if self.broken:
                return
            try:
                self._write_to(connection)
            except Exception as error:
                connection.dirty = False
                self.fault(connection, error, "writing its output")
        if self.output.bytes > broker.limits.memory_bytes:
            self.output.drop_slowest_links()
        if broker.dirty:
            self.begin()

    def _write_to(self, connection: Attached) -> None:
        data = connection.take()
        link = self._links.get(connection)
        if link is None:
            return
        if data:
            link.write(data)
        while connection.dirty:
            link.write(connection.take())
        if connection.closing is not None:
            log.info(
                "%s: closed: %s",
                connection.name,
                connection.closing,
                extra=about(**connection.about, reason=connection.closing),
            )
            link.close()
            self.forget(connection)
        elif connection.full and not link.stuck:
            link.resume()

    def order(self) -> None:
        questions, self.broker.questions = self.broker.questions, []
        for question in questions:
            asker = cast("Connection", question.connection)
            self.serve(asker, "checking its login", self._logins.ask, question)
        orders, self.broker.orders = self.broker.orders, []
        for order in orders:
            self.commits.carry_out(order)

    def _check_answered(self, order: Ask, refusal: Refusal | None) -> None:
        self.begin()
        connection = cast("Connection", order.connection)
        self.serve(connection, "answering its CONNECT", dispatch.answered, order, refusal)
        self._read_from(connection)

    def placed(self, connection: Connection, packet: Connect, refusal: Refusal | None) -> None:
        """Continue a CONNECT after the peer gateways have answered the session lookup."""
        self.do(self._placed, connection, packet, refusal)

    def _placed(self, connection: Connection, packet: Connect, refusal: Refusal | None) -> None:
        self.begin()
        self.serve(
            connection, "answering its CONNECT", dispatch.placed, connection, packet, refusal
        )
        self._read_from(connection)

    def _read_from(self, connection: Connection) -> None:
        link = self._links.get(connection)
        if link is not None:
            self.serve(connection, "resuming its input", link.throttle)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self.do, self._tick)
        self.begin()
        self.broker.set_clock(self.clock.utc_start(self._loop.time()))
        self.output.see_progress()
        self.broker.advance()
        self.system.advance()
        self.commits.tick()
        self._ticked = self._loop.time()

    async def stop(self) -> None:
        """Disconnect every client, write everything to disk, and stop. After `fail`, nothing is
        sent, and only commits that the writer already has are written.
        """
        self._timer.cancel()
        self._end_gathering()
        self.do(self._disconnect_all)
        self._logins.stop()
        await self.commits.stop()

    def _disconnect_all(self) -> None:
        self.hang_up(
            list(self.broker.connections),
            ReasonCode.SERVER_SHUTTING_DOWN,
            "the gateway is shutting down",
        )
        self.order()

    def hang_up(self, connections: Iterable[Attached], reason: ReasonCode, text: str) -> None:
        """End connections from the gateway's side. Each DISCONNECT is written at once."""
        self.begin()
        for connection in connections:
            self.broker.hang_up(connection, reason, text)
        self.broker.settle()
        self.write()


class Commits:
    """The commits of an engine, and its reads from the store."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        writer: Callable[..., Writer],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._engine = engine
        self._broker = engine.broker
        self._folder = folder
        self._loop = loop
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self._held_back: list[ClientLink] = []
        """Links from which the gateway does not read until the next commit is on disk."""
        self.stopped = False
        self._writing = 0
        """Number of the commit that the writer has, 0 for none."""
        self._submitted = 0.0
        self._writer = writer(
            folder, done=self._from_writer, failed=self._on_failure, landed=self._on_landed
        )
        self._see_space()

    @property
    def times(self) -> CommitTimes:
        """Durations of the commits so far."""
        return self._writer.times

    @property
    def jobs(self) -> list[Job]:
        """The background jobs of the store."""
        return self._writer.jobs

    @property
    def wait_s(self) -> float:
        """Seconds for which the current commit has waited for the disk; 0 if there is no commit."""
        engine = self._engine
        return self._loop.time() + engine.clock.offset - self._submitted if self._writing else 0.0

    @property
    def stalled_s(self) -> float:
        """Seconds without progress of the store's writer."""
        return self._writer.stalled_s

    # -- calls that wait for a commit

    async def kept(self) -> None:
        """Wait until all changes are on disk. Raises OncewayError if the engine fails."""
        if self._engine.broken:
            raise _stops()
        number = self._writing if self._broker.changes.empty else self._broker.promise()
        if number:
            on_disk = self._loop.create_future()
            self._awaited.append((number, on_disk))
            await on_disk

    @property
    def has_backlog(self) -> bool:
        """Whether too many bytes wait for the disk, so the gateway stops reading from publishers.
        False if the disk is full: then publishers are read, and refused.
        """
        return (
            not self._broker.disk_lack and self._broker.changes.bytes > self._writer.space.backlog
        )

    def hold_back(self, link: ClientLink) -> None:
        """Stop reading from a publisher until the next commit is on disk."""
        link.hold_back()
        self._held_back.append(link)

    def fail(self) -> None:
        """Fail all calls that wait for a commit, because the engine fails."""
        for _, on_disk in self._awaited:
            if not on_disk.done():
                on_disk.set_exception(_stops())

    # -- reads

    def carry_out(self, order: Order) -> None:
        """Let the writer carry out a read from the store. The broker gets the rows later."""
        self._writer.carry_out(order, self._from_store)

    def _from_store(self, order: Order, rows: Any) -> None:
        self._loop.call_soon_threadsafe(self._engine.do, self._read, order, rows)

    def _read(self, order: Order, rows: Any) -> None:
        self._engine.begin()
        if not isinstance(rows, Exception):
            self._broker.take_read(order, rows)
        elif not self._broker.take_unread(order, rows):
            self._engine.fail(rows, "reading the store")

    # -- writes

    def commit(self, sweep: bool = False) -> None:
        """Submit the changes since the last commit if something waits for them and no commit is in
        progress. sweep: submit them even if nothing waits.
        """
        broker = self._broker
        if not (broker.changes.urgent or sweep):
            return
        if self._writing or self.stopped or self._engine.broken:
            return
        if broker.step.unfinished:
            self._engine.fail_unfinished()
            return
        if broker.changes.empty and not sweep:
            number, waits = broker.changes.number, broker.waits
            if number in waits.uncommitted or number in waits.copied:
                broker.seal()
                self._on_disk(number)
                self._engine.write()
            return
        self._see_space(broker.changes.bytes)
        if broker.orders or broker.questions:
            self._engine.order()
        commit = broker.seal(sweep)
        self._writing = commit.number
        self._submitted = broker.now
        self._writer.submit(commit)

    def _from_writer(self, number: int) -> None:
        self._loop.call_soon_threadsafe(self._engine.do, self._written, number)

    def _written(self, number: int) -> None:
        self._writing = 0
        self._broker.now = self._loop.time() + self._engine.clock.offset
        clients = self._on_disk(number)
        self._engine.write()
        if self._broker.orders or self._broker.questions:
            self._engine.order()
        if clients >= _MANY_CLIENTS or self._broker.changes.urgent:
            self._engine.gather(clients)

    def spool_is_safe(self, row: int) -> None:
        """Release acknowledgements that wait for spool rows up to `row`, which are now on two disks
        or landed.
        """
        self._engine.do(self._spool_is_safe, row)

    def _spool_is_safe(self, row: int) -> None:
        self._engine.begin()
        clients = self._broker.spool_is_safe(row)
        self._engine.write()
        if self._engine.gathering is None:
            self._engine.gather(clients)

    def sweep(self) -> None:
        """Commit the changes for which no client waits, and delete unneeded rows. If there is no
        such work, do nothing.
        """
        self._engine.do(self._sweep)

    def _sweep(self) -> None:
        if self._broker.idle_work:
            self.commit(sweep=True)

    def _on_disk(self, number: int) -> int:
        clients = self._broker.on_disk(number)
        self._see_space()
        while self._awaited and self._awaited[0][0] <= number:
            _, on_disk = self._awaited.pop(0)
            if not on_disk.done():
                on_disk.set_result(None)
        if self._held_back:
            self._read_on()
        return clients

    def _read_on(self) -> None:
        held_back, self._held_back = self._held_back, []
        for link in held_back:
            self._engine.serve(link.connection, "resuming its input", link.read_on)

    def _see_space(self, under_way: int = 0) -> None:
        """Tell the broker how much room the disk had at the writer's last commit, less the bytes
        given to the writer since then. under_way: bytes of the messages that were given to it.
        """
        space = self._writer.space
        self._broker.disk_lack = FULL.reason if space.short else ""
        self._broker.disk_room = max(0, space.room - under_way)

    def _on_failure(self, error: Exception) -> None:
        if is_damage(error) or not isinstance(error, sqlite3.Error | OSError):
            self._loop.call_soon_threadsafe(self._engine.fail, error, "writing a commit")
            return
        why = cause(error, self._folder).reason
        self._loop.call_soon_threadsafe(self._engine.do, self._refuse, why)

    def _refuse(self, lack: str) -> None:
        self._broker.disk_lack = lack
        self._read_on()

    def _on_landed(self, lowest: int, oldest: Oldest | None) -> None:
        self._loop.call_soon_threadsafe(self._engine.do, self._broker.spool.landed, lowest, oldest)

    # -- each second, and the end

    def tick(self) -> None:
        """Do the work that is due every second."""
        if self._broker.spool.size:
            self._writer.look_for_landed()
        if not self._writing:
            self._see_space()
            self._writer.look_for_space()
        self._sweep()

    async def stop(self) -> None:
        """Write all changes to disk, and stop the writer. After `Engine.fail`, the writer only
        writes the commits that it already has.
        """
        engine = self._engine
        self.stopped = True
        engine.do(self._submit_rest)
        stop, now, utc = self._writer.stop, self._broker.now, engine.clock.utc()
        await self._loop.run_in_executor(None, stop, now, utc)

    def _submit_rest(self) -> None:
        self._writer.submit(self._broker.seal(sweep=True))
