"""One run of a bench: start all programs, run the plan, wait until all hops are empty, judge. In: a
bench, its plan, an empty folder. Out: configuration, databases, batches, table, logs and history in
the folder, and the judge's result. A run that cannot continue, because a program ended by itself or
the rig failed, is judged like any other, with the cause in its history.
"""

import asyncio
import os
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from gateway import __version__
from hil.bench.bench import Bench
from hil.bench.plan import Plan
from hil.devices.by_air import DeviceByAir
from hil.devices.client import Client
from hil.devices.commander import Commander
from hil.devices.other_broker import OtherBroker
from hil.devices.real_board import RealBoard
from hil.devices.real_by_air import RealBoardByAir
from hil.devices.sensor import SensorBoard
from hil.devices.simulated import SimulatedDevice
from hil.devices.sketch import SketchedBoard
from hil.devices.subscriber import Subscriber, walk
from hil.faults.base import Kind
from hil.faults.gateway import GatewayPowerCut, LandingPowerCut
from hil.faults.ingest import CentrePowerCut
from hil.faults.loop_disk import LoopDisk, kept, missing
from hil.formats.topics import SHARE
from hil.judge.checker import Result, check
from hil.observe.counters import wait_until
from hil.observe.folder import Folder
from hil.observe.history import History, read
from hil.programs.air import AirOfRun
from hil.programs.prepared import Joining, age
from hil.programs.process import Children, children, free_port, own_address
from hil.programs.settings import batch_limits, make_folders, write_config
from hil.programs.site import Member, Site, services
from hil.run.display import Display, Notes
from hil.run.injector import Injector
from hil.run.system import Device, System
from hil.run.watch import LOOK_EVERY, Watch

STAGES = ("flash and provision", "start", "readings under faults", "empty the hops", "check")
CLOSE_LOOK_EVERY = 0.002  # s, so that a board takes no reading more than planned
SUBSCRIBED_WITHIN = 60.0  # s until each subscriber must have its subscription
MOST_READINGS = 3  # times the plan, for a session that must be long (`[air]` turns)
OBEYED_WITHIN = 60.0  # s until a board must have obeyed, at the end


class Run:
    """A run of a bench. Use: `await Run(…).go()`, once."""

    def __init__(self, bench: Bench, plan: Plan, folder: Folder, display: Display) -> None:
        self._bench = bench
        self._plan = plan
        self._folder = folder
        self._display = display
        self._history = History(folder.history)
        self._watch = Watch(bench, folder, self._history, display)
        self._notes = Notes(self._history, display, services(bench))
        self._commander = Commander()
        self._clients: list[Client] = []
        self._subscribers: list[Subscriber] = []
        self._air: AirOfRun | None = None
        self._other: OtherBroker | None = None
        self._other_port = free_port() if bench.bridge else None
        self._ports = dict.fromkeys(bench.gateways, self._commander.port)
        """Port of each gateway's listener, by the gateway's name."""
        self._web = {name: own_address() for name in bench.gateways}  # of their metrics
        self._joining: Joining | None = None
        if bench.gateway:
            self._ports = {name: free_port() for name in bench.gateways}
            self._joining = Joining(bench.gateways)

    async def go(self) -> Result:
        """Run the bench and judge its history, which has all events of programs and rig. A run that
        the user ends has no result. Raises OncewayError for a bench whose settings the gateway
        refuses.
        """
        self._history.add(
            "rig",
            "run",
            version=__version__,
            bench=self._bench.model_dump(),
            plan=self._plan.to_json(),
            gateway=names if (names := self._bench.names_of_gateways)[1:] else names[0],
            **batch_limits(self._bench),
        )
        self._note_clock()
        try:
            for name, port in self._ports.items():
                write_config(
                    self._folder.of(name),
                    list(self._plan.readings),
                    self._bench,
                    port if self._bench.listens else None,
                    self._joining.links.seen_by(name) if self._joining else None,
                    self._other_port,
                    self._web[name],
                )
            with self._notes.noting():
                await self._carry_out()
            with self._display.stage("check"):
                with self._notes.noting():
                    self._watch.read_ends()
                self._note_clock()
                self._history.add("rig", "end")
                return check(read(self._folder.history))
        finally:
            self._history.close()

    async def _carry_out(self) -> None:
        with (
            self._disk(self._folder.data, GatewayPowerCut) as disk,
            self._disk(self._folder.landing, LandingPowerCut) as landing_disk,
            self._disk(self._folder.table.parent, CentrePowerCut) as centre_disk,
        ):
            for name in self._bench.gateways:
                make_folders(self._folder.of(name))
            async with children(self._folder.logs) as programs:
                site = Site(self._folder, self._bench, programs, (disk, landing_disk, centre_disk))
                if self._bench.air:
                    self._air = AirOfRun(
                        self._bench, self._bench.air, self._folder, programs, self._history
                    )
                if self._bench.bridge and self._other_port:
                    self._other = self._watch.other_broker = OtherBroker(
                        self._bench.bridge,
                        self._other_port,
                        self._plan.seed,
                        self._folder,
                        programs,
                        site.running,
                        self._history,
                    )
                devices = [self._device(name, programs) for name in self._plan.readings]
                self._clients = [
                    Client(
                        name,
                        table,
                        self._plan.seed,
                        programs,
                        self._history,
                        self._bench.homes[name],
                    )
                    for name, table in self._bench.clients.items()
                ]
                first: dict[str, Subscriber] = {}
                for name, table in self._bench.subscribers.items():
                    others = first.get(table.filter) if table.filter.startswith(SHARE) else None
                    one = Subscriber(name, table, programs, self._history, others)
                    self._subscribers.append(one)
                    first.setdefault(table.filter, one)
                self._watch.clients, self._watch.subscribers = self._clients, self._subscribers
                if self._air:
                    for device in devices:
                        if isinstance(device, DeviceByAir):
                            self._air.listen(device.name, device.key, device.heard)
                        elif isinstance(device, RealBoardByAir):
                            device.tap = self._air.listen(device.name, device.key, device.heard)
                try:
                    await self._drive(site, devices, programs)
                finally:
                    self._commander.stop()
                    await asyncio.gather(*(device.stop() for device in devices))

    def _device(self, name: str, programs: Children) -> Device:
        if self._bench.air and name in self._bench.real and name in self._bench.by_air:
            return RealBoardByAir(
                name,
                self._bench.by_air[name],
                self._bench.air,
                self._folder,
                self._bench,
                programs,
                self._history,
                self._commander,
            )
        if name in self._bench.real:
            return RealBoard(
                name, self._folder, self._bench, programs, self._history, self._commander
            )
        if self._bench.air and name in self._bench.by_air:
            return DeviceByAir(
                name,
                self._bench.by_air[name],
                self._bench.air,
                self._folder,
                self._bench,
                programs,
                self._history,
            )
        kind = SketchedBoard if name in self._bench.sketches else SimulatedDevice
        kind = SensorBoard if name in self._bench.sensors else kind
        return kind(name, self._folder, self._bench, programs, self._history)

    def _note_clock(self) -> None:
        """Record the relation of the wall clock and the clock of the history, both in ns."""
        self._history.add("rig", "clock", time.monotonic_ns(), utc=time.time_ns())

    def _disk(self, folder: Path, cut: type[Kind]) -> AbstractContextManager[LoopDisk | None]:
        """Mount a disk at `folder` if a fault of kind `cut` needs it and this machine can do it."""
        cuts = any(isinstance(kind, cut) for kind in self._bench.fault) and not missing()
        return kept(folder) if cuts else nullcontext()

    async def _drive(self, site: Site, devices: list[Device], programs: Children) -> None:
        if self._air:
            await self._air.start()
        with self._display.stage("flash and provision"):
            if self._bench.until == "table":
                await site.start_ingest()  # Spark starts slowly
            # unlike gather, this ends the other tasks before it raises the error of one
            cores = asyncio.Semaphore(os.cpu_count() or 1)
            async with asyncio.TaskGroup() as tasks:
                for device in devices:
                    tasks.create_task(self._set_up(device, cores))
        with self._display.stage("start"):
            if self._other:
                await self._other.start()
            for device in devices:
                await device.connect()
                await device.hold()
            if self._joining:
                await self._joining.start(site)
            else:
                [alone] = site.members.values()
                if self._bench.used_store:
                    await self._use_store(site, alone)
                await alone.start_gateway()
            for member in site.members.values():
                await member.start_uplink()
        self._watch.devices = devices
        await walk(self._bench, self._commander.port, programs, self._history)
        async with asyncio.TaskGroup() as tasks:
            await self._under_faults(tasks, site, devices, programs)

    async def _use_store(self, site: Site, alone: Member) -> None:
        """Let the gateway create its store. Then set the next row number and batch number. A
        gateway that has known the time gets its wrong clock only after this.
        """
        machine = alone.machine("gateway") if self._bench.has_known_time else {"clock_ns": 0}
        wrong, machine["clock_ns"] = machine["clock_ns"], 0
        await alone.start_gateway()
        await site.running["gateway"].stop()
        machine["clock_ns"] = wrong
        await alone.command("uplink", "claim")
        age(alone.folder.database, self._bench.first_row, self._bench.first_batch)
        self._watch.spools[alone.name].begin_behind(self._bench.first_row - 1)

    async def _under_faults(
        self, tasks: asyncio.TaskGroup, site: Site, devices: list[Device], programs: Children
    ) -> None:
        first = site.members[self._bench.gateways[0]]
        system = System(
            self._watch.counters,
            self._history,
            self._display,
            first,
            {device.name: device for device in devices},
            self._watch.spools[first.name],
            self._watch.landing,
            self._watch.progress,
            self._commander,
            {client.name: client for client in self._clients},
            site.members,
            self._watch.spools,
            self._other,
        )
        injector = Injector(self._plan, self._bench.kinds, system)
        injector.announce()
        if self._bench.commands or self._bench.real:
            self._commander.start()
        for subscriber in self._subscribers:
            await subscriber.start(
                self._other.port if self._other and subscriber.far else self._commander.port
            )
        subscribing = [tasks.create_task(one.follow()) for one in self._subscribers]
        async with asyncio.timeout(SUBSCRIBED_WITHIN):
            await asyncio.gather(*(one.until_subscribed() for one in self._subscribers))
        wires = [tasks.create_task(device.follow_wire()) for device in devices]
        wires += [tasks.create_task(self._air.follow())] if self._air else []
        wires += [tasks.create_task(self._joining.links.follow())] if self._joining else []
        always = [
            tasks.create_task(watch)
            for watch in (
                self._watch.follow(site),
                self._watch.follow_table(),
                self._watch.follow_usage(site),
            )
        ]
        if self._other:
            await self._other.start_changes(self._commander.port)
            wires.append(tasks.create_task(self._other.follow()))
            await self._other.go(self._folder.data.absolute() / "bridges" / "there.agreed")
        boards = {f"{device.name} board" for device in devices}
        await injector.arm()
        faults = [tasks.create_task(injector.run(lane)) for lane in injector.lanes.keys() - boards]
        await asyncio.sleep(0)  # each task begins to wait for its place
        self._history.add("rig", "armed", held=[device.name for device in devices if device.idle])
        for device in devices:
            if device.name not in self._bench.by_air:
                await device.release()
        by_air = tasks.create_task(self._release_by_air(devices))
        for client in self._clients:
            await client.start(self._ports)
        clients = [tasks.create_task(client.follow()) for client in self._clients]
        with self._display.stage("readings under faults"):
            sampling = [tasks.create_task(self._sample(device, injector)) for device in devices]
            under_way = (by_air, *sampling, *clients)
            await self._watch.until(lambda: all(task.done() for task in under_way))
        with self._display.stage("empty the hops"):
            await self._watch.until(
                lambda: (
                    self._watch.empty()
                    and (
                        all(task.done() for task in faults)
                        or (self._watch.idle() and not injector.awaited)
                    )
                )
            )
        for task in (*always, *faults, *sampling):
            task.cancel()
        site.check()
        await walk(self._bench, self._commander.port, programs, self._history, after=True)
        if self._other:
            await self._other.end_changes()
        await self._watch.note_figures(site, self._web)
        for error in await site.stop():
            self._notes.note(error)
        await asyncio.gather(*(source.disconnect() for source in self._watch.sources))
        if self._air:
            await self._air.stop()
        if self._joining:
            await self._joining.links.stop()
        await asyncio.gather(*(subscriber.disconnect() for subscriber in self._subscribers))
        await asyncio.gather(*wires, *clients, *subscribing)

    async def _release_by_air(self, devices: list[Device]) -> None:
        for device in devices:
            if self._bench.air and device.name in self._bench.by_air:
                await device.release()
                await asyncio.sleep(self._bench.air.apart_s)

    async def _set_up(self, device: Device, cores: asyncio.Semaphore) -> None:
        """Start and provision a device as soon as a core is free. A boot loader listens only for a
        second, and many boards on few cores would delay each other for longer.
        """
        async with cores:
            await device.start()
            await device.provision()
        self._display.say(f"  {device.name} flashed and provisioned")

    async def _sample(self, device: Device, injector: Injector) -> None:
        """Let a device sample, and run the faults of its board. Stop when the device has the
        planned number of readings, no later fault waits for publications, and one session was long
        enough (`has_turns`, MOST_READINGS). Stop, too, if the board breaks the rules of its ledger.
        """
        faults = asyncio.create_task(injector.run(f"{device.name} board"))
        planned = self._plan.readings[device.name]

        def enough() -> bool:
            count = device.look()
            return count >= planned and (device.has_turns or count >= MOST_READINGS * planned)

        try:
            await wait_until(
                lambda: (
                    device.contradictions
                    or (
                        faults.done()
                        and (faults.exception() or (enough() and not injector.waiting_for_traffic))
                    )
                ),
                CLOSE_LOOK_EVERY,
            )
            if faults.done():
                faults.result()  # raises its error
        finally:
            faults.cancel()
            # wait until the task has ended its own programs
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
