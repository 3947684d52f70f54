"""The broker on an event loop: turns, writes and commits.

In: transports of all links, and the store's writer. Out: the outgoing packets of a connection, one
write per turn; each commit as soon as the writer is free and something waits for it, with all
changes since the last one; every second, the work that is due. No message needs a task, a future or
a system call of its own.

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
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

from gateway.access.logins import Logins
from gateway.access.trusted import TRUSTED, Trusted
from gateway.broker import dispatch
from gateway.broker.access import Ask, Policy, Refusal
from gateway.broker.broker import Broker
from gateway.broker.connection import Connection
from gateway.broker.delivery import Order
from gateway.broker.peer import State
from gateway.broker.refusals import blame
from gateway.broker.session import Attached
from gateway.broker.spool import Oldest
from gateway.errors import OncewayError
from gateway.links.transport import Accept, Receiver, Transport
from gateway.mqtt.packets import Connect
from gateway.mqtt.reason import ReasonCode
from gateway.runtime.client_link import MANY, ClientLink
from gateway.runtime.clock import Clock
from gateway.store.times import CommitTimes
from gateway.store.writer import Writer, is_damage
from gateway.system.causes import FULL, cause
from gateway.system.jobs import Job
from gateway.system.logs import about

log = logging.getLogger(__name__)

_MOST_NAMES = 5
"""Largest number of clients that a log line names."""
TICK_S = 1.0
_TURN_S = 0.02
"""Time in seconds after which a turn begins no new input."""
_FEED_S = 0.005
"""Time for large payloads in a turn; the rest of the turn is for input."""
GATHER_S = 0.001
"""Seconds by which a turn is extended for clients whose acknowledgements a commit has released."""
_MANY_CLIENTS = 4
"""Smallest number of released clients for which a turn is extended."""


def _stops() -> OncewayError:
    return OncewayError("the gateway stops after an internal error", hint="Look at its log")


class Engine:
    """The driver of `broker`, with the time from `clock` and a writer on `folder`. Created inside
    the running loop.

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
        self._held_back: list[ClientLink] = []
        self._slow: dict[ClientLink, None] = {}
        self._unsent = 0
        """Bytes that wait in links, each payload once."""
        self._hungry: dict[ClientLink, None] = {}
        """Links whose transports get more of their waiting output."""
        self._feeding = False
        self._payloads: dict[int, int] = {}
        """Number of links that hold a payload, by its `id`."""
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self.in_turn = False
        """Whether a turn has begun: its time is set, and ready input is being handled."""
        self._turn_ends = 0.0
        self._put_off: deque[ClientLink] = deque()
        self._catching_up = False
        self.awaited = 0
        """Number of clients that are likely to send soon: the turn lasts until they have."""
        self._gathering: asyncio.TimerHandle | None = None
        """Timer for the end of that wait; None while there is no wait."""
        self._stopped = False
        self._writing = 0
        self._submitted = 0.0
        self._folder = folder
        self._writer = writer(
            folder, done=self._from_writer, failed=self._on_failure, landed=self._on_landed
        )
        self._see_space()
        trusted = Trusted(folder / TRUSTED if asker is None else None)
        self._logins = Logins(self._loop, partial(self._do, self._check_answered), asker, trusted)
        self._ticked = self._loop.time()
        self._timer = self._loop.call_later(TICK_S, self._do, self._tick)
        broker.set_clock(clock.utc_start(self._loop.time()))
        broker.turn_is_over = self._turn_is_over

    @property
    def commit_times(self) -> CommitTimes:
        """Durations of the commits so far."""
        return self._writer.times

    @property
    def jobs(self) -> list[Job]:
        """The background jobs of store and logins."""
        return [*self._writer.jobs, *self._logins.jobs]

    @property
    def commit_waits_s(self) -> float:
        """Seconds for which the current commit has waited for the disk; 0 without one."""
        return self.clock.axis(self._loop.time()) - self._submitted if self._writing else 0.0

    @property
    def stalled_s(self) -> float:
        """Seconds since the work that is due every second was last finished."""
        return self._loop.time() - self._ticked

    @property
    def writer_stalled_s(self) -> float:
        """Seconds without progress of the store's writer."""
        return self._writer.stalled_s

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
        for _, on_disk in self._awaited:
            if not on_disk.done():
                on_disk.set_exception(_stops())
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
        self._do(connection.fail, error, doing)
        self._do(broker.settle)

    def serve(
        self, connection: Attached, doing: str, call: Callable[..., object], *args: object
    ) -> None:
        """Make a call for one connection. doing: for the log, as a clause behind "while"."""
        if self.broken:
            return
        before = self.broker.step.unfinished
        try:
            call(*args)
        except Exception as error:
            self.fault(connection, error, doing, before)

    def _do(self, call: Callable[..., object], *args: object) -> None:
        """Run a part of a turn. An exception in it ends the engine."""
        if self.broken:
            return
        try:
            call(*args)
        except Exception as error:
            self.fail(error, f"the engine ran {getattr(call, '__name__', 'a part of its turn')}")

    def _is_whole(self) -> bool:
        """Whether no part of the gateway has left a step unfinished."""
        step = self.broker.step
        if step.unfinished:
            self.fail(step.error, "work on shared state was done by another part of the gateway")
        return not self.broken

    def begin(self) -> None:
        """Begin a turn: set the time, and schedule the end of the turn behind the input that is
        ready.
        """
        if self.broken:
            return
        self.broker.now = self.clock.axis(self._loop.time())
        if not self.in_turn:
            self.in_turn = True
            self._turn_ends = time.monotonic() + _TURN_S
            if self._gathering is None:
                self._loop.call_soon(self._do, self._end_turn)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function later. The function must make its calls for one connection through
        `serve`.
        """
        self._loop.call_later(seconds, call)

    def _turn_is_over(self) -> bool:
        return time.monotonic() > self._turn_ends

    def dismiss(self, whom: Callable[[Attached], bool], reason: ReasonCode, text: str) -> None:
        """End connections from the gateway's side. Their DISCONNECT is written at once, and one log
        line says how many connections there are.
        """
        self._do(self._dismiss, whom, reason, text)

    def _dismiss(self, whom: Callable[[Attached], bool], reason: ReasonCode, text: str) -> None:
        found = {item: item.name for item in self.broker.connections if whom(item)}
        if found:
            more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
            names = ", ".join(islice(found.values(), _MOST_NAMES))
            log.warning("connections closed: %d, %s: %s%s", len(found), text, names, more)
        self._dismiss_now(found.__contains__, reason, text)

    def _dismiss_now(self, whom: Callable[[Attached], bool], reason: ReasonCode, text: str) -> None:
        self.begin()
        for connection in list(self.broker.connections):
            if whom(connection):
                self.broker.hang_up(connection, reason, text)
        self.broker.settle()
        self._write()

    async def end_session(self, client: str) -> bool:
        """End a session and its connection for an administrator, and wait until that is on disk.
        Return False if there is no such session.
        """
        self.begin()
        broker = self.broker
        session = broker.sessions.get(client)
        if session is None:
            return False
        with broker.step:
            broker.effects.end(
                session, ReasonCode.ADMINISTRATIVE_ACTION, "an administrator ended the session"
            )
        self._do(broker.settle)
        await self.kept()
        return True

    async def forget_received(self, client: str) -> None:
        """Forget the identifiers that a session has received and its client has not released, and
        wait until that is on disk. The client has started again and uses them for other messages.
        """
        self.begin()
        session = self.broker.sessions.get(client)
        if session is not None:
            with self.broker.step:
                session.receive_flow.drop()
                self.broker.changes.flows[session] = None
            await self.kept()

    async def kept(self) -> None:
        """Wait until all changes are on disk. Raises OncewayError if the engine fails."""
        if self.broken:
            raise _stops()
        number = self._writing if self.broker.changes.empty else self.broker.promise()
        if number:
            on_disk = self._loop.create_future()
            self._awaited.append((number, on_disk))
            await on_disk

    @property
    def has_backlog(self) -> bool:
        """Whether too many bytes wait for the disk to read on from publishers. If the disk is full,
        publishers are read anyway, and refused.
        """
        return not self.broker.disk_lack and self.broker.changes.bytes > self._writer.space.backlog

    def hold_back(self, link: ClientLink) -> None:
        """Stop reading from a publisher until a commit is on disk."""
        link.hold_back()
        self._held_back.append(link)

    def note_unsent(self, link: ClientLink, unsent: int) -> None:
        """Note the number of bytes that wait in a link."""
        unsent = unsent if unsent > MANY else 0
        self._unsent += unsent - link.unsent
        link.unsent = unsent
        if unsent or link.waiting:
            self._slow[link] = None
        else:
            self._slow.pop(link, None)

    def feed_later(self, link: ClientLink) -> None:
        """Feed a link's transport, in turn with others: the system takes time to copy."""
        self._hungry[link] = None
        if not self._feeding:
            self._feeding = True
            self._loop.call_soon(self._do, self._feed)

    def _feed(self) -> None:
        self._feeding = False
        self.begin()
        ends = time.monotonic() + _FEED_S
        for link in list(self._hungry):
            if time.monotonic() > ends:
                break
            del self._hungry[link]
            self.serve(link.connection, "it is written to", link.feed)
        for link in self._hungry:
            self.feed_later(link)

    def hold(self, payload: memoryview) -> None:
        """Note that a link holds a payload, or a part of it, until `release`."""
        key = id(payload.obj)
        if key not in self._payloads:
            self._payloads[key] = 0
            self._unsent += len(payload.obj)  # type: ignore[arg-type]
        self._payloads[key] += 1

    def release(self, payload: memoryview) -> None:
        """Note that a link holds a payload no longer."""
        key = id(payload.obj)
        self._payloads[key] -= 1
        if not self._payloads[key]:
            del self._payloads[key]
            self._unsent -= len(payload.obj)  # type: ignore[arg-type]

    def forget(self, connection: Attached) -> None:
        link = self._links.pop(connection, None)
        if link is not None:
            link.discard()

    def _end_turn(self) -> None:
        self.in_turn = False
        if not self._is_whole():
            return
        self._write()
        if self.broker.go_on():
            self.begin()
        self._order()
        if self.broker.changes.urgent and self._gathering is None:
            # include input that reaches the sockets until then
            self._loop.call_soon(self._do, self._commit_urgent)

    def put_off(self, link: ClientLink) -> None:
        """Postpone input of a client that has sent more than a turn has time for. The input is
        handled behind that of all other clients.
        """
        self._put_off.append(link)
        if not self._catching_up:
            self._catching_up = True
            self._loop.call_soon(self._do, self._catch_up)

    def _catch_up(self) -> None:
        self._catching_up = False
        self.begin()
        waiting, self._put_off = self._put_off, deque()
        while waiting and not self._turn_is_over():
            link = waiting.popleft()
            self.serve(link.connection, "the rest of its bytes is taken", link.go_on)
        for link in waiting:
            self.put_off(link)
        self._put_off.rotate(len(waiting))

    def _gather(self, clients: int) -> None:
        """Extend the turn after a commit has released acknowledgements of this many clients.

        If there are many, each is likely to send at once. A turn and a commit cost about the same
        for one message as for a hundred, so a short wait pays.
        """
        if clients < _MANY_CLIENTS or self._stopped:
            self._commit_urgent()
        else:
            self.awaited = clients
            self._gathering = self._loop.call_later(GATHER_S, self._do, self._end_gathering)

    def hear(self) -> None:
        """Note input from one of the clients that this turn waits for."""
        self.awaited -= 1
        if not self.awaited:
            self._end_gathering()

    def _end_gathering(self) -> None:
        self.awaited = 0
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
            self._loop.call_soon(self._do, self._end_turn)

    def _commit_urgent(self) -> None:
        self._commit(self.broker.changes.urgent)

    def _write(self) -> None:
        broker = self.broker
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
                self.fault(connection, error, "it is written to")
        if self._unsent > broker.limits.memory_bytes:
            self._drop_slowest_links()
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

    def _drop_slowest_links(self) -> None:
        """Drop the links with the most unsent bytes, because the total of all links is too
        large.
        """
        most = self.broker.limits.memory_bytes
        for link in list(self._slow):
            self.serve(link.connection, "it is asked what it holds", link.look)
        for link in sorted(self._slow, key=lambda link: link.unsent + link.waiting, reverse=True):
            if self._unsent <= most - most // 8:
                break
            self.serve(link.connection, "it is given up", link.give_up)
        self.broker.settle()

    def _order(self) -> None:
        questions, self.broker.questions = self.broker.questions, []
        for question in questions:
            asker = cast("Connection", question.connection)
            self.serve(asker, "it is found out who it is", self._logins.ask, question)
        orders, self.broker.orders = self.broker.orders, []
        for order in orders:
            self._writer.carry_out(order, self._from_store)

    def _check_answered(self, order: Ask, refusal: Refusal | None) -> None:
        self.begin()
        connection = cast("Connection", order.connection)
        self.serve(connection, "its CONNECT is answered", dispatch.answered, order, refusal)
        self._read_from(connection)

    def placed(self, connection: Connection, packet: Connect, refusal: Refusal | None) -> None:
        """Continue a CONNECT after the peer gateways have answered the session lookup."""
        self._do(self._placed, connection, packet, refusal)

    def _placed(self, connection: Connection, packet: Connect, refusal: Refusal | None) -> None:
        self.begin()
        self.serve(
            connection, "its CONNECT is answered", dispatch.placed, connection, packet, refusal
        )
        self._read_from(connection)

    def _read_from(self, connection: Connection) -> None:
        """Read on after a CONNECT is answered."""
        link = self._links.get(connection)
        if link is not None:
            self.serve(connection, "it is read from again", link.throttle)

    def _from_store(self, order: Order, rows: Any) -> None:
        self._loop.call_soon_threadsafe(self._do, self._read, order, rows)

    def _read(self, order: Order, rows: Any) -> None:
        self.begin()
        if not isinstance(rows, Exception):
            self.broker.take_read(order, rows)
        elif not self.broker.take_unread(order, rows):
            self.fail(rows, "the store was read")

    def _commit(self, wanted: bool, sweep: bool = False) -> None:
        broker = self.broker
        if self._writing or self._stopped or not wanted or not self._is_whole():
            return
        if broker.changes.empty and not sweep:
            number = broker.changes.number
            if broker.waits.has_packets(number):
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
        self._loop.call_soon_threadsafe(self._do, self._written, number)

    def _written(self, number: int) -> None:
        self._writing = 0
        self.broker.now = self.clock.axis(self._loop.time())
        clients = self._on_disk(number)
        self._write()
        self._order()
        self._gather(clients)

    def spool_is_safe(self, row: int) -> None:
        """Release acknowledgements that waited for the spool: its rows up to this one are on a
        second disk, or have landed.
        """
        self._do(self._spool_is_safe, row)

    def _spool_is_safe(self, row: int) -> None:
        self.begin()
        clients = self.broker.spool_is_safe(row)
        self._write()
        if self._gathering is None:
            self._gather(clients)

    def sweep(self) -> None:
        """Write changes that no client waits for, and delete unneeded rows."""
        self._do(self._sweep)

    def _sweep(self) -> None:
        self._commit(self.broker.idle_work, sweep=self.broker.idle_work)

    def _on_disk(self, number: int) -> int:
        clients = self.broker.on_disk(number)
        self._see_space()
        while self._awaited and self._awaited[0][0] <= number:
            _, on_disk = self._awaited.pop(0)
            if not on_disk.done():
                on_disk.set_result(None)
        self._read_on()
        return clients

    def _read_on(self) -> None:
        held_back, self._held_back = self._held_back, []
        for link in held_back:
            self.serve(link.connection, "it is read from again", link.read_on)

    def _see_space(self, under_way: int = 0) -> None:
        """Take over the state of the disk after the writer's last commit. under_way: bytes of
        messages submitted since then.
        """
        space = self._writer.space
        self.broker.disk_lack = FULL.what if space.short else ""
        self.broker.disk_room = max(0, space.room - under_way)

    def _on_failure(self, error: Exception) -> None:
        if is_damage(error) or not isinstance(error, sqlite3.Error | OSError):
            self._loop.call_soon_threadsafe(self.fail, error, "a commit was written")
            return
        self._loop.call_soon_threadsafe(self._do, self._refuse, cause(error, self._folder).what)

    def _refuse(self, lack: str) -> None:
        self.broker.disk_lack = lack
        self._read_on()

    def _on_landed(self, lowest: int, oldest: Oldest | None) -> None:
        self._loop.call_soon_threadsafe(self._do, self.broker.spool.landed, lowest, oldest)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._do, self._tick)
        self.begin()
        self.broker.set_clock(self.clock.utc_start(self._loop.time()))
        for link in list(self._slow):
            self.serve(link.connection, "it is asked what it has taken", link.see_progress)
        self.broker.advance()
        if self.broker.spool.size:
            self._writer.look_for_landed()
        if not self._writing:
            self._see_space()
            self._writer.look_for_space()
        self._sweep()
        self._ticked = self._loop.time()

    async def stop(self) -> None:
        """Disconnect every client, write everything to disk, and stop. After `fail`, nothing is
        sent, and only commits that the writer already has are written.
        """
        self._timer.cancel()
        self._end_gathering()
        self._do(self._disconnect_all)
        self._stopped = True
        self._logins.stop()
        self._do(self._submit_rest)
        await self._loop.run_in_executor(None, self._writer.stop, self.broker.now, self.clock.utc())

    def _disconnect_all(self) -> None:
        reason, text = ReasonCode.SERVER_SHUTTING_DOWN, "the gateway is shutting down"
        self._dismiss_now(lambda connection: True, reason, text)
        self._order()

    def _submit_rest(self) -> None:
        self._writer.submit(self.broker.seal(sweep=True))
