"""One run of a bench: start everything, let the plan break it, wait until all hops are empty,
judge.

In: a bench, its plan, an empty folder. Out: configuration, databases, batches, table, logs and
history in it, and the checker's result. A run that cannot go on, because a program ended by itself
or the rig broke, is judged like any other, with the cause in its history.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from gateway import __version__
from gateway.errors import OncewayError
from hil.bench.bench import Bench
from hil.bench.plan import Plan
from hil.devices.client import Client
from hil.devices.commander import Commander
from hil.devices.real_board import RealBoard
from hil.devices.simulated import SimulatedDevice
from hil.devices.subscriber import Subscriber
from hil.faults.gateway import GatewayPowerCut
from hil.faults.loop_disk import LoopDisk, kept, missing
from hil.judge.checker import Result, check
from hil.observe.counters import Counters, wait_until
from hil.observe.errors import note_errors
from hil.observe.folder import Folder
from hil.observe.history import READINGS, History, read
from hil.observe.ingest_progress import IngestProgress
from hil.observe.landing import LandingHop
from hil.observe.resources import note_usage
from hil.observe.spool import SpoolHop
from hil.observe.table import TableHop
from hil.programs.process import Children, EndedError, children
from hil.programs.site import SERVICES, Site, make_folders, site_name, write_config
from hil.run.display import Display
from hil.run.injector import Injector
from hil.run.system import Device, System

STAGES = ("flash and provision", "start", "readings under faults", "empty the hops", "check")
SHOWN = {
    "table": ("journalled", "spooled", "landed", "in the table"),
    "batch": ("journalled", "spooled", "landed"),
}
LOOK_EVERY = 0.05  # s between looks at all hops
CLOSE_LOOK_EVERY = 0.002  # s, so that a board takes no reading more than planned
TABLE_EVERY = 0.5  # s between looks at the table
USAGE_EVERY = 1.0  # s between looks at what these use:
MEASURED = ("gateway", "uplink")
SUBSCRIBED_WITHIN = 60.0  # s in which each subscriber must have been granted what it asked for
OBEYED_WITHIN = 60.0  # s in which a board must have obeyed, when all else is done
# s without movement after which, with all hops empty, no fault will find its place any more
IDLE_S = 10.0


class Run:
    """Use: `await Run(…).go()`, once."""

    def __init__(self, bench: Bench, plan: Plan, folder: Folder, display: Display) -> None:
        self._bench = bench
        self._plan = plan
        self._folder = folder
        self._display = display
        self._history = History(folder.history)
        self._counters = Counters()
        self._spool = SpoolHop(folder.database, self._history)
        self._landing = LandingHop(folder.landing, self._history)
        self._table = TableHop(folder.table, folder.readings, self._history)
        self._progress = IngestProgress(folder.checkpoint, folder.table)
        self._ingest_log = folder.logs / "ingest.log"
        self._commander = Commander()
        self._devices: list[Device] = []  # those that may have something to say
        self._clients: list[Client] = []
        self._subscribers: list[Subscriber] = []
        self._moved_at = time.monotonic()
        self._moved: tuple[int, ...] = ()

    async def go(self) -> Result:
        """Whatever happens to the programs and to the rig is in the history that is judged; only
        who ends the run gets no result.

        Raises ConfigError for a bench whose settings the gateway refuses.
        """
        self._history.add(
            "rig",
            "run",
            version=__version__,
            bench=self._bench.model_dump(),
            plan=self._plan.to_json(),
            gateway=site_name(self._bench),
        )
        self._note_clock()
        try:
            write_config(
                self._folder,
                list(self._plan.readings),
                self._bench,
                self._commander.port if self._bench.listens else None,
            )
            with self._noting():
                await self._carry_out()
            with self._display.stage("check"):
                with self._noting():
                    self._read_ends()
                self._note_clock()
                self._history.add("rig", "end")
                return check(read(self._folder.history))
        finally:
            self._history.close()

    async def _carry_out(self) -> None:
        with self._disk() as disk:
            make_folders(self._folder)
            async with children(self._folder.logs) as programs:
                site = Site(self._folder, self._bench, programs, disk)
                devices = [self._device(name, programs) for name in self._plan.readings]
                self._clients = [
                    Client(name, table, self._plan.seed, programs, self._history)
                    for name, table in self._bench.clients.items()
                ]
                self._subscribers = [
                    Subscriber(name, table, programs, self._history)
                    for name, table in self._bench.subscribers.items()
                ]
                try:
                    await self._drive(site, devices)
                finally:
                    self._commander.stop()
                    await asyncio.gather(*(device.stop() for device in devices))

    def _device(self, name: str, programs: Children) -> Device:
        if name in self._bench.real:
            return RealBoard(
                name, self._folder, self._bench, programs, self._history, self._commander
            )
        return SimulatedDevice(name, self._folder, self._bench, programs, self._history)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Enter what ended the block in the history, and go on behind it."""
        try:
            yield
        except* Exception as group:
            for error in _leaves(group):
                self._note(error)

    def _note_clock(self) -> None:
        """How the clock of the day stands to the one that the history goes by."""
        self._history.add("rig", "clock", time.monotonic_ns(), utc=time.time_ns())

    def _note(self, error: Exception) -> None:
        if isinstance(error, EndedError) and error.name in SERVICES:
            self._history.add(error.name, "ended", how=error.how, last_words=error.last_words)
        else:
            words = error.last_words if isinstance(error, EndedError) else []
            # a mistake in the rig: whoever mends it wants to know where
            if not isinstance(error, OncewayError):
                words = "".join(traceback.format_exception(error)).splitlines()
            self._history.add("rig", "broken", why=_told(error), last_words=words)
        self._display.say(f"  {_told(error)}", "red")

    def _disk(self) -> AbstractContextManager[LoopDisk | None]:
        """Under the gateway's data, if the bench cuts its power and this machine can."""
        cut = any(isinstance(kind, GatewayPowerCut) for kind in self._bench.fault) and not missing()
        return kept(self._folder.data) if cut else nullcontext()

    async def _drive(self, site: Site, devices: list[Device]) -> None:
        with self._display.stage("flash and provision"):
            if self._bench.until == "table":
                await site.start_ingest()  # Spark takes a while to come up
            # which, unlike gather, ends the others before it raises what one of them has
            async with asyncio.TaskGroup() as tasks:
                for device in devices:
                    tasks.create_task(self._set_up(device))
        with self._display.stage("start"):
            for device in devices:
                await device.connect()
                await device.hold()
            await site.start_gateway()
            await site.start_uplink()
        self._devices = devices
        async with asyncio.TaskGroup() as tasks:
            await self._under_faults(tasks, site, devices)

    async def _under_faults(
        self, tasks: asyncio.TaskGroup, site: Site, devices: list[Device]
    ) -> None:
        system = System(
            self._counters,
            self._history,
            self._display,
            site,
            {device.name: device for device in devices},
            self._spool,
            self._landing,
            self._progress,
            self._commander,
            {client.name: client for client in self._clients},
        )
        injector = Injector(self._plan, self._bench.kinds, system)
        injector.announce()
        if self._bench.commands or self._bench.board:
            self._commander.start()
        for subscriber in self._subscribers:
            await subscriber.start(self._commander.port)
        subscribing = [tasks.create_task(one.follow()) for one in self._subscribers]
        async with asyncio.timeout(SUBSCRIBED_WITHIN):
            await asyncio.gather(*(one.until_subscribed() for one in self._subscribers))
        wires = [tasks.create_task(device.follow_wire()) for device in devices]
        always = [
            tasks.create_task(watch)
            for watch in (self._watch(site, devices), self._watch_table(), self._watch_usage(site))
        ]
        boards = {f"{device.name} board" for device in devices}
        await injector.arm()
        faults = [tasks.create_task(injector.run(lane)) for lane in injector.lanes.keys() - boards]
        await asyncio.sleep(0)  # each of them has begun
        self._history.add("rig", "armed", held=[device.name for device in devices if device.held])
        for device in devices:
            await device.release()
        for client in self._clients:
            await client.start(self._commander.port)
        clients = [tasks.create_task(client.follow()) for client in self._clients]
        with self._display.stage("readings under faults"):
            sampling = [tasks.create_task(self._sample(device, injector)) for device in devices]
            await self._until(lambda: all(task.done() for task in (*sampling, *clients)))
        with self._display.stage("empty the hops"):
            await self._until(
                lambda: (
                    self._empty(devices)
                    and (
                        all(task.done() for task in faults)
                        or (self._still() > IDLE_S and not injector.awaited)
                    )
                )
            )
        for task in (*always, *faults, *sampling):
            task.cancel()
        site.check()
        for error in await site.stop():
            self._note(error)
        await asyncio.gather(*(source.disconnect() for source in self._sources(devices)))
        await asyncio.gather(*(subscriber.disconnect() for subscriber in self._subscribers))
        await asyncio.gather(*wires, *clients, *subscribing)

    def _sources(self, devices: list[Device]) -> list[Device | Client]:
        """Who publishes."""
        return [*devices, *self._clients]

    async def _set_up(self, device: Device) -> None:
        await device.start()
        await device.provision()
        self._display.say(f"  {device.name} flashed and provisioned")

    async def _sample(self, device: Device, injector: Injector) -> None:
        """Let a device sample, with the faults of its board, until it has the planned number of
        readings and nothing is to come that needs more of them, or it breaks the rules of its
        ledger: such a board may never come to the end.
        """
        faults = asyncio.create_task(injector.run(f"{device.name} board"))
        planned = self._plan.readings[device.name]
        try:
            await wait_until(
                lambda: (
                    device.contradictions
                    or (
                        faults.done()
                        and (
                            faults.exception()
                            or (device.look() >= planned and not injector.thirsty)
                        )
                    )
                ),
                CLOSE_LOOK_EVERY,
            )
            if faults.done():
                faults.result()  # raises what it raised
        finally:
            faults.cancel()
            # what it has started it ends, before all programs are ended
            await asyncio.wait([faults])
        with suppress(TimeoutError):
            async with asyncio.timeout(OBEYED_WITHIN):
                await wait_until(
                    lambda: device.look() and device.obeyed >= self._plan.commands(device.name),
                    LOOK_EVERY,
                )
        await device.stop_sampling()
        self._display.say(
            f"  {device.name} has sampled {device.look()} readings and samples no more"
        )

    async def _watch(self, site: Site, devices: list[Device]) -> None:
        """Look at all hops again and again, wake the faults, and see that nothing has died by
        itself.
        """
        while True:
            site.check()
            for device in devices:
                self._counters.set(f"sampled {device.name}", device.look())
            self._counters.set(
                "journalled", sum(source.journalled for source in self._sources(devices))
            )
            self._spool.look()
            self._counters.set("spooled", self._spool.committed)
            self._counters.set("landed", self._spool.landed)
            self._landing.look()
            self._counters.set("appends", self._progress.appends)
            self._display.counts({name: self._counters[name] for name in SHOWN[self._bench.until]})
            self._note_movement(devices)
            await asyncio.sleep(LOOK_EVERY)

    async def _watch_usage(self, site: Site) -> None:
        while True:
            for name in MEASURED:
                note_usage(self._history, name, site.running[name].pid)
            await asyncio.sleep(USAGE_EVERY)

    async def _watch_table(self) -> None:
        """Apart from the rest, since a look at the table takes long."""
        while True:
            self._counters.set("in the table", await asyncio.to_thread(self._table.rows))
            await asyncio.sleep(TABLE_EVERY)

    def _note_movement(self, devices: list[Device]) -> None:
        waiting = sum(source.waiting for source in self._sources(devices))
        counts = [self._counters[name] for name in SHOWN["table"]]
        # Spark is slow to come up, but not silent
        said = self._ingest_log.stat().st_size if self._ingest_log.exists() else 0
        received = sum(subscriber.received for subscriber in self._subscribers)
        moved = (waiting, received, self._progress.begun, self._progress.ended, said, *counts)
        if moved != self._moved:
            self._moved, self._moved_at = moved, time.monotonic()

    async def _until(self, done: Callable[[], bool]) -> None:
        """Wait until `done()`, or give up after nothing has moved for the bench's stall_s: what is
        missing is for the checker to say.
        """
        self._moved_at = time.monotonic()
        await wait_until(lambda: done() or self._still() > self._bench.stall_s)
        if not done():
            self._history.add("rig", "stalled")
            self._display.say(
                f"  nothing has moved for {self._bench.stall_s:.0f} s: going on to the check", "red"
            )

    def _still(self) -> float:
        """Seconds since something moved."""
        return time.monotonic() - self._moved_at

    def _empty(self, devices: list[Device]) -> bool:
        """Whether every publication has left its board, every row has landed, and every batch has
        been taken by the ingest.
        """
        if self._bench.until == "table" and not self._progress.started:
            return False  # Spark has yet to come up
        on_the_way = (
            any(device.waiting for device in devices)
            or self._spool.landed < self._spool.committed
            or any(subscriber.owed(self._clients, devices) for subscriber in self._subscribers)
        )
        taken = self._progress.taken() if self._bench.until == "table" else self._landing.newest
        return not on_the_way and all(
            taken.get(feed, 0) >= newest for feed, newest in self._landing.newest.items()
        )

    def _read_ends(self) -> None:
        """The truth and the claim, whole, now that nothing runs any more."""
        told = [device.close_ledgers() for device in self._devices]
        told += [client.close() for client in self._clients]
        for subscriber in self._subscribers:
            subscriber.close()
        if all(told):
            self._history.add("board", "complete")
        for program in ("gateway", "uplink"):
            note_errors(self._history, program, self._folder.logs / f"{program}.log")
        self._spool.close()
        self._landing.look()
        self._landing.look_again()
        if self._bench.until == "table":
            self._landing.look_what_waits(self._progress.taken())
        self._table.read()
        for hop in ("batch", "table", READINGS):
            self._history.add(hop, "complete")


def _told(error: Exception) -> str:
    """In one line."""
    if isinstance(error, EndedError):
        return error.what
    return (
        " ".join(str(error).split())
        if isinstance(error, OncewayError)
        else f"{type(error).__name__}: {error}"
    )


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """The errors of a group, and of the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
