"""A broker on the real engine, without sockets, threads or real time, and clients that speak to it
in packets.

`World` stands for the event loop, the writer's thread, the store (SQLite in memory, with the real
schema) and the power supply. Work that is ready is done at once, one call after the other. Commits
are, too, unless `world.slow_disk` is set: then they wait for `world.commit()`.
"""

import asyncio
import sqlite3
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from gateway.access.peer import DeviceIdentity, Peer
from gateway.access.rules import ByAcl, Policy, Refusal, SlowCheck
from gateway.broker.broker import Broker
from gateway.broker.connection import Connection
from gateway.broker.core import Core
from gateway.broker.delivery import Load, Order
from gateway.broker.neighbours import Neighbours, alone
from gateway.broker.store_rows import Commit, Recovered
from gateway.config import (
    AclSection,
    Config,
    DeliverySection,
    LimitsSection,
    QueueSection,
    QuotaSection,
    SiteSection,
    SpoolSection,
    UplinkSection,
)
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from gateway.mqtt.properties import Properties, PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.stream import PacketStream
from gateway.runtime.administration import dismiss, end_session
from gateway.runtime.clock import Clock
from gateway.runtime.engine import GATHER_S, Engine
from gateway.site.moving.neighbours import SiteNeighbours
from gateway.store.apply import apply
from gateway.store.move_rows import had_site
from gateway.store.queue_reads import collect, load
from gateway.store.recovery import recover
from gateway.store.row_checks import SpoolChecks
from gateway.store.schema import prepare
from gateway.store.times import CommitTimes
from gateway.store.uptime import save_axis
from gateway.system.causes import FULL
from gateway.system.jobs import Job

P = TypeVar("P", bound=Packet)
UPLINK = UplinkSection(landing="file:///landing")
"""Section [uplink], with which the broker has a spool."""
FOREVER: Properties = {PropertyId.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}


class Anonymous(ByAcl):
    """Access rules that accept every client if `allowed` is true, and otherwise none."""

    def __init__(self, allowed: bool = True) -> None:
        self._allowed = allowed

    def refuses_connect(
        self, connection: Connection, packet: Connect
    ) -> Refusal | SlowCheck | None:
        return (
            None if self._allowed else (ReasonCode.NOT_AUTHORIZED, "accepts no anonymous clients")
        )

    def holds(self, connection: Connection) -> bool:
        return True


_NEVER_RUN = asyncio.new_event_loop()
"""A loop for futures, because they need one. No code waits for these futures."""


class Timer:
    """A timer of `Loop`. delay: seconds."""

    def __init__(self, delay: float, call: Callable[[], None]) -> None:
        self.delay = delay
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self._call = None

    def __call__(self) -> None:
        if self._call is not None:
            self._call()


class Loop:
    """The event loop's clock and its scheduled calls, without a selector. now: seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._ready: deque[Callable[[], None]] = deque()
        self._later: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        self._ready.append(partial(call, *args))

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, call: Callable[..., object], *args: object) -> Timer:
        timer = Timer(delay, partial(call, *args))
        self._later.append(timer)
        return timer

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.Future(loop=_NEVER_RUN)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock. All timers become due, even those whose time is after the new time."""
        self.now += seconds
        later, self._later = self._later, []
        self._ready += later

    def run(self, moment: float = GATHER_S) -> None:
        """Run all ready calls, and the calls that become ready meanwhile. moment: timers with at
        most this delay, in seconds, also run.
        """
        while True:
            while self._ready:
                self._ready.popleft()()
            self._ready += [timer for timer in self._later if timer.delay <= moment]
            self._later = [timer for timer in self._later if timer.delay > moment]
            if not self._ready:
                return


@dataclass
class Disk:
    """The free space of a simulated disk, with the attributes of `Space`."""

    room: int = sys.maxsize
    backlog: int = sys.maxsize
    short: bool = False


class MemoryWriter:
    """A `Writer` without a thread. The world decides when it works. It does its work in the order
    of the calls.
    """

    def __init__(
        self,
        world: "World",
        folder: Path,
        done: Callable[[int], None],
        failed: Callable[[sqlite3.Error], None],
        landed: Callable[[int, None], None],
    ) -> None:
        self.times = CommitTimes()
        self.jobs: list[Job] = []
        self.space = world.disk
        self._world = world
        self._checks = SpoolChecks()
        self._done = done
        self._work: deque[Commit | Callable[[], None]] = deque()

    def submit(self, commit: Commit) -> None:
        self._work.append(commit)

    def carry_out(self, order: Order, answer: Callable[[Order, Any], None]) -> None:
        database = self._world.database

        def read() -> None:
            rows: Any
            try:
                rows = (
                    load(database, order) if isinstance(order, Load) else collect(database, order)
                )
            except Exception as error:
                rows = error
            answer(order, rows)

        self._work.append(read)

    def look_for_landed(self) -> None: ...

    def look_for_space(self) -> None: ...

    def work(self, commits: bool) -> bool:
        """Do the writer's next piece of work. Return False if no work remains, or if the next piece
        is a commit and `commits` is false.
        """
        if not self._work or (isinstance(self._work[0], Commit) and not commits):
            return False
        work = self._work.popleft()
        if isinstance(work, Commit):
            apply(self._world.database, work, self._checks)
            self._world.commits.append(work.number)
            self._world.on_commit()
            self._done(work.number)
        else:
            work()
        return True


class Passwords(Executor):
    """An executor that compares passwords at once."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
        call(*args, **more)


class NoBatteryClock(Clock):
    """The clock of a machine without a battery. known: µs since 1970; None: the time of day is
    unknown.
    """

    known: int | None = None

    def utc(self) -> int | None:
        return self.known


class Client:
    """The client's end of a connection, and the broker's `Transport` for it.

    received: packets, in order. closed: the connection has ended. deaf: received bytes are not
    parsed. reads: whether bytes from the broker are read at once; otherwise they stay `unsent`.
    paused: the broker does not read; bytes that are sent meanwhile are `waiting`.
    """

    high_water = 256 * 1024

    def __init__(
        self, world: "World", peer: Peer, policy: Policy, version: Version, answers: bool
    ) -> None:
        self.world = world
        self.peer = peer
        self.version = version
        self.reads = True
        self.paused = False
        self.waiting: deque[bytes] = deque()
        self._unread: list[bytes] = []
        self.answers = answers
        self.received: list[Packet] = []
        self.raw = b""
        self.closed = False
        self.deaf = False
        self._link = world.engine.accept(policy)(self)  # closes it if the engine is broken
        self.connection = next(reversed(world.broker.connections))
        self._stream = PacketStream(1 << 28, version, Side.SERVER)
        self._next_id = 0

    # -- towards the broker

    def bring(self, data: bytes) -> None:
        """Send bytes. The broker processes them in the world's next turn. If the broker does not
        read this client, the bytes wait in the link.
        """
        if self.paused:
            self.waiting.append(data)
        else:
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        self._link.receive(data)
        assert self.connection.closing != "internal error", "see the log"

    def send_bytes(self, data: bytes) -> None:
        self.bring(data)
        self.world.turn()

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def publish(
        self, topic: str, payload: bytes | str = b"", qos: int = 0, packet_id: int = 0, **more: Any
    ) -> int:
        """Send PUBLISH. Return its packet identifier: by default the next free one, 0 at QoS 0."""
        if qos and not packet_id:
            packet_id = self._next_id = self._next_id + 1
        self.send(
            Publish(
                topic,
                payload.encode() if isinstance(payload, str) else payload,
                qos,
                packet_id,
                **more,
            )
        )
        return packet_id

    def subscribe(self, *filters: str | Subscription, qos: int = 2, **properties: Any) -> Suback:
        wanted = [
            item if isinstance(item, Subscription) else Subscription(item, qos) for item in filters
        ]
        self.send(
            Subscribe(
                1,
                wanted,
                {PropertyId[name.upper()]: value for name, value in properties.items()} or None,
            )
        )
        (answer,) = self.take_all(Suback)
        return cast(Suback, answer)

    def unsubscribe(self, *filters: str) -> Unsuback:
        self.send(Unsubscribe(1, list(filters)))
        (answer,) = self.take_all(Unsuback)
        return cast(Unsuback, answer)

    def disconnect(self, *args: Any) -> None:
        self.send(Disconnect(*args))

    def drop(self) -> None:
        """Break the network connection."""
        self.break_line()
        self.world.turn()

    def break_line(self) -> None:
        """Break the network connection. The broker processes that in the world's next turn."""
        self._link.lost("the test cut the line")
        self.closed = True
        self.world.clients.pop(self.connection, None)

    def read_a_little(self) -> None:
        """Read one written piece. The broker is not told that it may write again."""
        self._arrive(self._unread.pop(0))

    def read_on(self) -> None:
        """Read all written bytes, and tell the broker that it may write again."""
        unread, self._unread = self._unread, []
        for data in unread:
            self._arrive(data)
        self._link.writable()
        self.world.turn()

    # -- from the broker

    @property
    def unsent(self) -> int:
        return sum(map(len, self._unread))

    undelivered = unsent

    def write(self, data: bytes) -> None:
        if self.reads:
            self.world.loop.call_soon(self._arrive, data)
        else:
            self._unread.append(data)

    def close(self) -> None:
        self.closed = True
        self.world.clients.pop(self.connection, None)

    def abort(self) -> None:
        self._unread.clear()
        self.close()

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        self.world.loop.call_soon(self._bring_next)

    def _bring_next(self) -> None:
        if self.waiting and not self.paused and not self.closed:
            self._receive(self.waiting.popleft())
            self.world.loop.call_soon(self._bring_next)

    def _arrive(self, data: bytes) -> None:
        self.raw += data
        if self.deaf:
            return
        self._stream.feed(data)
        packets = list(self._stream)
        self.received += packets
        for packet in packets if self.answers else ():
            self._answer(packet)

    def _answer(self, packet: Packet) -> None:
        match packet:
            case Publish(qos=1, packet_id=number):
                self.send(Puback(number))
            case Publish(qos=2, packet_id=number):
                self.send(Pubrec(number))
            case Pubrec(packet_id=number, reason=reason) if reason < 0x80:
                self.send(Pubrel(number))
            case Pubrel(packet_id=number):
                self.send(Pubcomp(number))

    def take(self, kind: type[P]) -> P:
        """Remove and return the first received packet, which must be of this kind."""
        assert self.received, f"no {kind.__name__} came"
        packet = self.received.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    def take_all(self, kind: type[P] | None = None) -> list[Any]:
        """Remove and return all received packets, or all of one kind."""
        taken = [packet for packet in self.received if kind is None or isinstance(packet, kind)]
        self.received = [packet for packet in self.received if packet not in taken]
        return taken

    @property
    def payloads(self) -> list[bytes]:
        """Payloads of the received PUBLISH packets that have not been taken."""
        return [packet.payload for packet in self.received if isinstance(packet, Publish)]


class World:
    """A broker with its clients and its store. clients: the connected clients. commits: numbers of
    the commits on disk. reads_reasons: whether the broker may expect that clients read the reason
    codes of PUBACK and PUBREC.
    """

    def __init__(
        self,
        *,
        receive_maximum: int = 1024,
        spool_bytes: int = 1 << 30,
        queue: list[QueueSection] | None = None,
        acl: list[AclSection] | None = None,
        quota: list[QuotaSection] | None = None,
        devices_share: float = 0.0,
        overlapping: Literal["once", "each"] = "once",
        site: SiteSection | None = None,
        moves: bool = False,
        uplink: bool = True,
        reads_reasons: bool = True,
        **limits: int,
    ) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        prepare(self.database, "test")
        self.config = Config(
            limits=LimitsSection(**limits),
            spool=SpoolSection(
                topics=["spool/#"], max_bytes=spool_bytes, devices_share=devices_share
            ),
            quota=quota or [],
            delivery=DeliverySection(overlapping=overlapping),
            queue=queue or [],
            acl=acl or [],
            site=site,
            uplink=UPLINK if uplink else None,
        )
        self.policy = Policy(Anonymous(), receive_maximum, reads_reasons=reads_reasons)
        self.moves = moves
        self.slow_disk = False
        self._turning = False
        self.commits: list[int] = []
        self.on_commit: Callable[[], None] = lambda: None
        self.clients: dict[Connection, Client] = {}
        self.disk = Disk()
        self.loop = Loop()
        self.clock = NoBatteryClock(trust=False)
        self.start()

    def start(self) -> None:
        """Start a gateway with the content of the store."""
        self.loop = Loop()
        config = self.config
        state = recover(self.database, None, config.limits.inflight, by_user=config.shares_spool)
        neighbours: Callable[[Core, Recovered], Neighbours] = alone
        if self.moves or config.site is not None or had_site(state):
            neighbours = SiteNeighbours
        self.broker = Broker(config, state, neighbours)
        self.clock.start(self.broker.now, self.loop.time())
        self.engine = Engine(
            self.broker,
            self.clock,
            Path(),
            loop=cast(asyncio.AbstractEventLoop, self.loop),
            writer=self._make_writer,  # type: ignore[arg-type]
            asker=Passwords(),
        )
        self.broker.turn_is_over = lambda: False  # so that the load of the machine has no effect

    def _make_writer(self, *args: Any, **more: Any) -> MemoryWriter:
        self._writer = MemoryWriter(self, *args, **more)
        return self._writer

    def connect(
        self,
        client_id: str = "",
        *,
        version: Version = Version.V5,
        clean: bool = True,
        answers: bool = False,
        device: DeviceIdentity | None = None,
        properties: Properties | None = None,
        policy: Policy | None = None,
        **more: Any,
    ) -> Client:
        """Return a client that has sent CONNECT. Its first received packet is CONNACK."""
        client = self.open(version, answers=answers, device=device, policy=policy)
        client.send(Connect(client_id, version, clean, properties=properties, **more))
        return client

    def accepted(self, client_id: str = "", **more: Any) -> Client:
        """Connect a client, and take its CONNACK, which must accept it."""
        client = self.connect(client_id, **more)
        connack = client.take(Connack)
        assert connack.reason == 0, connack
        return client

    def durable(
        self,
        client_id: str,
        *,
        clean: bool = False,
        properties: Properties | None = None,
        **more: Any,
    ) -> Client:
        """Return an accepted client whose session outlives its connections."""
        return self.accepted(
            client_id, clean=clean, properties=FOREVER | (properties or {}), **more
        )

    def absent(self, *client_ids: str, topic: str = "t") -> None:
        """Create sessions with a subscription to a topic, and disconnect their clients."""
        for client_id in client_ids:
            client = self.durable(client_id)
            client.subscribe(topic)
            client.drop()

    def open(
        self,
        version: Version = Version.V5,
        *,
        answers: bool = False,
        device: DeviceIdentity | None = None,
        policy: Policy | None = None,
        listener: str = "test",
        address: str = "memory",
    ) -> Client:
        """Open a connection without a CONNECT."""
        peer = Peer(listener, address, device)
        client = Client(self, peer, policy or self.policy, version, answers)
        self.clients[client.connection] = client
        return client

    def turn(self, moment: float = GATHER_S) -> None:
        """Run until no work remains. Within a turn, a second call does nothing. moment: as in
        `Loop.run`.
        """
        if self._turning:
            return
        self._turning = True
        try:
            self.loop.run(moment)
            while self._writer.work(commits=not self.slow_disk):
                self.loop.run(moment)
        finally:
            self._turning = False

    def commit(self) -> None:
        """Commit all changes, and release the packets that waited for the commit."""
        slow, self.slow_disk = self.slow_disk, False
        self.turn()
        self.engine.commits.sweep()
        self.turn()
        self.slow_disk = slow

    def dismiss(self, client: Client, reason: ReasonCode) -> None:
        """End a connection from the broker's side."""
        connection = client.connection
        dismiss(self.engine, lambda item: item is connection, reason, "the test wants it")
        self.turn()

    def end_session(self, client_id: str) -> None:
        """End a session as an administrator."""
        ending = end_session(self.engine, client_id)
        with suppress(StopIteration):
            ending.send(None)  # it waits for the disk
        self.turn()

    def disk_full(self, short: bool) -> None:
        """Simulate a full disk. short: whether the store has no room for messages from now on."""
        self.disk.short = short
        self.broker.disk_lack = FULL.reason if short else ""

    def sleep(self, seconds: float) -> None:
        """Advance the clock, run all timers, and commit all changes unless the disk is slow."""
        self.loop.pass_time(seconds)
        self.turn()
        if not self.slow_disk:
            self.commit()

    def power_cut(self) -> None:
        """Drop uncommitted changes and all connections, then start the gateway again."""
        for client in self.clients.values():
            client.closed = True
        self.clients.clear()
        save_axis(self.database, int(self.broker.now * 1000), None)
        self.start()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.database.execute(query).fetchall()
