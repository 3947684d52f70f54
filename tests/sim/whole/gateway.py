"""A gateway of the run: the real broker, engine and serial ports, and the real store in memory.

In: bytes at its ports, frames of other members, and the moments at which it dies. Out: bytes,
frames, and rows of its spool. A commit takes some milliseconds, and commits are made one after the
other. A commit is stored as a whole or not at all. SQLite promises that; tests/durability and
tests/service/test_power_cut.py check it on a real file system. So a gateway dies before a commit or
after it, and its store has all earlier commits.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from copy import copy
from pathlib import Path
from random import Random
from tempfile import gettempdir
from threading import Event
from typing import Any, cast
from unittest.mock import patch

from gateway.access.rules import Policy
from gateway.boards.admission import DeviceAccess, Registry
from gateway.boards.reports import Boards
from gateway.broker.broker import Broker
from gateway.broker.delivery import Load, Order
from gateway.broker.spool import Oldest
from gateway.broker.store_rows import Commit
from gateway.config import Config, GatewaySection, SerialSection, SiteSection, UplinkSection
from gateway.links.greeter import Greeter
from gateway.links.serial_port import SerialPort
from gateway.runtime.clock import Clock
from gateway.runtime.engine import Engine
from gateway.site.moving.neighbours import SiteNeighbours
from gateway.store import generation
from gateway.store.queue_reads import collect, load
from gateway.store.recovery import recover
from gateway.store.row_checks import SpoolChecks
from gateway.store.schema import prepare
from gateway.store.times import CommitTimes
from gateway.store.uptime import Uptime
from gateway.store.writer import RETRY_S, Writer
from gateway.system.jobs import Job
from tests.broker.harness import Anonymous, Disk, Passwords
from tests.sim.whole.clock import Loop, Time
from tests.sim.whole.line import Line, Port

UTC = 1_700_000_000
"""Unix time at the beginning of the run, in seconds."""
NOWHERE = Path("/nonexistent")
"""A data folder that does not exist: all data are in memory."""
_BAUD = 115200
_RECEIVE_MAXIMUM = 20


class _Clock(Clock):
    """A clock that knows the time of day from the start on, by the run's virtual time."""

    def __init__(self, time: Time) -> None:
        super().__init__(trust=True)
        self._time = time

    def utc(self) -> int:
        return UTC * 1_000_000 + self._time.ns // 1000


class _Writer(Writer):
    """A writer without a thread. A failed commit is tried again after a pause."""

    def __init__(
        self,
        gateway: "Gateway",
        done: Callable[[int], None],
        failed: Callable[[Exception], None],
        landed: Callable[[int, Oldest | None], None],
    ) -> None:
        self.times = CommitTimes()
        self.jobs: list[Job] = []
        self._counting = Job("landed", "the landed rows of the spool are not counted", 3600.0)
        self._checks = SpoolChecks()
        # the folder in which the writer looks for the cause of an error
        self._folder = Path(gettempdir())
        self.space = Disk()  # type: ignore[assignment]
        self._gateway = gateway
        self._loop = gateway.loop
        self._database = gateway.database
        self._done = done
        self._failed = failed
        self._landed = landed
        self._stopping = Event()
        self._stopping.set()
        self._busy_since = None
        self._work: deque[Commit | Callable[[], None]] = deque()

    def submit(self, commit: Commit) -> None:
        self._add(commit)

    def carry_out(self, order: Order, answer: Callable[[Order, Any], None]) -> None:
        read = load if isinstance(order, Load) else collect
        self._add(lambda: answer(order, read(self._gateway.database, order)))  # type: ignore[operator]

    def look_for_landed(self) -> None:
        self._add(lambda: self._look(self._database))

    def look_for_space(self) -> None: ...

    def _add(self, work: Commit | Callable[[], None]) -> None:
        self._work.append(work)
        if len(self._work) == 1:
            self._begin()

    def _begin(self) -> None:
        takes = self._gateway.commit_s() if isinstance(self._work[0], Commit) else 0.0
        self._loop.call_later(takes, self._do)

    def _do(self) -> None:
        work = self._work[0]
        if not isinstance(work, Commit):
            work()
        elif self._gateway.dies("before") or not self._write(work):
            self._loop.call_later(RETRY_S, self._do)
            return
        elif not self._gateway.dies("behind"):
            self._done(work.number)
        self._work.popleft()
        if self._work:
            self._begin()


class Gateway:
    """A gateway of the run. registry: the device registry that all gateways share. store: a
    serialised database. site: None if the gateway is alone.
    """

    def __init__(
        self,
        time: Time,
        name: str,
        registry: Registry,
        store: bytes,
        site: SiteSection | None,
        seed: str,
    ) -> None:
        self.time = time
        self.name = name
        self.random = Random(seed)
        self.disk_s = 0.004
        """Longest duration that a commit may draw, in seconds."""
        self.load(store)
        self.shelf = sqlite3.connect(":memory:", isolation_level=None)
        """The database with copies of other members' spools."""
        self.site = site
        uplink = UplinkSection(landing="file:///landing")
        self._config = Config(gateway=GatewaySection(name=name), site=site, uplink=uplink)
        self.restored = False
        """Whether the present start of the gateway had a restored store."""
        self.gone = False
        """Whether the gateway and its disk are lost, so that it never starts again."""
        self.failing = False
        """Whether the disk refuses all commits."""
        self.committed: Callable[[Gateway], object] = lambda _: None
        self.started: Callable[[Gateway], object] = lambda _: None
        self.lines: dict[str, Line] = {}
        """The lines that are plugged in at this gateway, by board."""
        self._registry = registry
        self._machine = 0
        """Number of power cuts of the machine."""
        self._dies_in = 0
        """Number of commits until the gateway dies."""
        self._dies_how: str | None = None
        self._dies_with_it = False
        self.died: Callable[[Gateway, str], object] = lambda gateway, how: None
        self.loop = Loop(time)
        self.loop.dead = True

    @property
    def alive(self) -> bool:
        return not self.loop.dead

    def start(self) -> None:
        """Start from the content of the store."""
        if self.alive or self.gone:
            return
        self.loop = loop = Loop(self.time)
        config = self._config
        clock = _Clock(self.time)
        self.restored = generation.why_other_generation(self.database, NOWHERE) is not None
        state = recover(
            self.database,
            clock.utc(),
            config.limits.inflight,
            Uptime(f"{self._machine}", self.time.now),
            forget=self.restored,
        )
        self.broker = broker = Broker(config, state, SiteNeighbours)
        clock.start(broker.now, loop.time())
        self.engine = Engine(
            broker,
            clock,
            NOWHERE,
            loop=cast(asyncio.AbstractEventLoop, loop),
            writer=lambda folder, done, failed, landed: _Writer(self, done, failed, landed),
            asker=Passwords(),
        )
        broker.turn_is_over = lambda: False  # so that the load of the machine has no effect
        registry = copy(self._registry)
        registry.boards = Boards(NOWHERE)
        access = DeviceAccess(registry, stranger=False)
        policy = Policy(access, SerialSection(port="x").receive_maximum)
        greeter = Greeter(
            broker.spool.boot,
            utc=lambda: clock.utc() / 1_000_000,
            admit=access.greets,
            key=access.key,
        )
        self._new_port: Callable[[str], SerialPort] = lambda path: SerialPort(
            path, _BAUD, "serial", self.engine.accept(policy), greeter
        )
        self.accept = self.engine.accept(Policy(Anonymous(), _RECEIVE_MAXIMUM))
        self._ports: dict[str, SerialPort] = {}
        self._opened = 0
        self.started(self)
        for name in self.lines:
            self._open(name)

    def load(self, store: bytes) -> None:
        """Replace the store. The gateway must not run."""
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.deserialize(store)
        prepare(self.database, self.name)

    def die(self, how: str = "", *, machine: bool = False) -> None:
        """End this life of the gateway. machine: whether the machine loses its power, so that the
        gateway cannot know how long it was off.
        """
        if self.alive:
            self.loop.dead = True
            self._machine += machine
            self._dies_how = None
            self.fail(False)
            self.died(self, how)

    def die_at(self, commits: int, how: str | None, *, machine: bool = False) -> None:
        """Plan the gateway's death at a commit. commits: number of this commit, counted from now.
        how: "before" the commit is on disk, or "behind" it, before any answer; None: do not die.
        """
        self._dies_in, self._dies_how, self._dies_with_it = commits, how, machine

    # -- ports

    def plug(self, name: str, line: Line) -> None:
        self.lines[name] = line
        if self.alive:
            self._open(name)

    def unplug(self, name: str) -> None:
        del self.lines[name]
        if self.alive:
            self._ports[name].close("the serial port is gone")

    def _open(self, name: str) -> None:
        self._opened += 1
        tty = Port(self.loop, self._opened, self.lines[name])
        with (
            patch("asyncio.get_running_loop", lambda: self.loop),
            patch("gateway.links.serial_port.Tty", lambda path, baud: tty),
        ):
            if name not in self._ports:
                self._ports[name] = self._new_port(name)
            self._ports[name].open()

    # -- disk

    def commit_s(self) -> float:
        return self.random.random() * self.disk_s

    def fail(self, fails: bool) -> None:
        """Let the disk refuse all commits, or (False) accept them again."""
        self.failing = fails
        for database in (self.database, self.shelf):
            database.execute(f"PRAGMA query_only={fails:d}")

    def dies(self, how: str) -> bool:
        """Die if this is the planned moment. Return whether the gateway has died. how: the moment:
        "before" a commit, or "behind" it, when the commit is stored.
        """
        if how == "before":
            self._dies_in -= self._dies_in > 0
        else:
            self.committed(self)
        if self._dies_in or self._dies_how != how:
            return False
        self.die(f" {how} a commit", machine=self._dies_with_it)
        return True
