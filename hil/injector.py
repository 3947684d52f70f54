"""Carrying out the plan: each fault waits for its place, breaks what it names, and enters the history with the evidence that it happened.

In: a plan, counts that grow, hands on devices and site. Out: `happened` events. What was broken is started again after a moment,
as systemd or the mains would. A fault that could not be carried out within its bound has no such event, and the checker says so.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from hil.checkpoint import IngestProgress
from hil.counters import Counters, wait_until
from hil.device import OFF_S, Device
from hil.display import Display
from hil.history import History
from hil.hops import LandingHop, SpoolHop
from hil.noise import KINDS
from hil.plan import CUTS, NOISE, OUTAGE, REPEAT, Fault, Plan
from hil.site import Site

DOWN_S = 0.5  # from a kill to the next start
CUT_WITHIN = 60.0  # s in which an armed cut must come
STUCK_WITHIN = 60.0  # s in which an unwritable landing place must have stopped a batch
CLOSE_LOOK_EVERY = 0.002  # s, for a moment that is over soon


class Injector:
    """Carries out one plan. Run `board` of each device and all of `faults` at once."""

    def __init__(
        self,
        plan: Plan,
        counters: Counters,
        history: History,
        display: Display,
        site: Site,
        devices: list[Device],
        spool: SpoolHop,
        landing: LandingHop,
        progress: IngestProgress,
    ) -> None:
        self._plan = plan
        self._counters = counters
        self._history = history
        self._display = display
        self._site = site
        self._devices = devices
        self._spool = spool
        self._landing = landing
        self._progress = progress

    def announce(self) -> None:
        """Enter the whole plan in the history, so that the checker can miss what does not happen."""
        for fault in self._plan.faults:
            self._history.add("rig", "planned", fault=fault.id, kind=fault.kind, counter=fault.counter, at=fault.at, detail=fault.detail)

    def faults(self) -> list[Coroutine[Any, Any, None]]:
        """One for each line, and one for each part of the site that breaks."""
        return [*map(self._noise, self._devices), self._gateway(), self._outages(), self._repeats(), self._uplink(), self._ingest()]

    async def board(self, device: Device) -> None:
        """Cut its power as planned, and stop its sampling at the planned number of readings."""
        for fault in self._plan.of(device.name, *CUTS):
            await self._counters.reach(fault.counter, fault.at)
            await self._cut(device, fault)
        await wait_until(lambda: device.look() >= self._plan.readings[device.name], CLOSE_LOOK_EVERY)
        await device.stop_sampling()
        self._display.say(f"  {device.name} has sampled {device.look()} readings and samples no more")

    async def _cut(self, device: Device, fault: Fault) -> None:
        """Cut until it has hit what was planned: a cut for an exchange that fell outside of one is made again."""
        while True:
            events = await device.board.subscribe()
            if "after_tx" in fault.detail:
                await device.board.cut("tx", fault.detail["after_tx"])
            else:
                await device.board.cut("eeprom", fault.detail["after_eeprom"], torn=fault.detail["torn"])
            try:
                cut = await events.wait_for("cut", CUT_WITHIN)
            except TimeoutError:
                await device.board.cancel()
                return
            finally:
                events.close()
            device.look()
            waiting = device.waiting()
            await asyncio.sleep(OFF_S)
            await device.board.power(True)
            if waiting or "after_tx" not in fault.detail:
                evidence = f"{waiting} publication(s) not done" + (", EEPROM write torn" if cut.details.get("writing") else "")
                self._happened(device.name, fault, evidence, cycle=cut.cycle, tx=cut.details["tx"], writes=cut.details["writes"])
                return

    async def _noise(self, device: Device) -> None:
        for fault in self._plan.of(device.name, NOISE):
            await wait_until(lambda: all(device.harmed[kind] for kind in KINDS))
            self._happened(device.name, fault, "first bytes corrupted, lost and inserted", **device.harmed)

    async def _gateway(self) -> None:
        for fault in self._plan.of("gateway"):
            await self._counters.reach(fault.counter, fault.at)
            await self._kill(fault, "gateway")
            await self._site.start_gateway()

    async def _uplink(self) -> None:
        for fault in self._plan.of("uplink"):
            await self._counters.reach(fault.counter, fault.at)
            await self._kill(fault, "uplink")
            await self._site.start_uplink()

    async def _kill(self, fault: Fault, name: str) -> None:
        child = self._site.running[name]
        await child.kill()
        self._happened(name, fault, f"process {child.pid} killed at {self._counters['spooled']} readings in the store")
        await asyncio.sleep(DOWN_S)

    async def _outages(self) -> None:
        for fault in self._plan.of("landing", OUTAGE):
            await self._counters.reach(fault.counter, fault.at)
            self._site.landing.unmount()
            landed = self._spool.landed
            self._display.say(f"  the landing place is unwritable from {self._counters['spooled']} readings on", "red")
            await self._counters.reach("spooled", fault.detail["until"])
            stuck = False
            with suppress(TimeoutError):
                async with asyncio.timeout(STUCK_WITHIN):
                    await wait_until(lambda: self._spool.unlanded)
                    stuck = self._spool.landed == landed
            self._site.landing.mount()
            if stuck:
                self._happened("landing", fault, f"a batch was stuck, nothing landed until {self._counters['spooled']} readings")

    async def _repeats(self) -> None:
        for number, fault in enumerate(self._plan.of("landing", REPEAT), 1):
            await self._counters.reach(fault.counter, fault.at)
            origin, newest = next(iter(self._landing.newest.items()))
            rows = self._site.landing.repeat(origin, newest, f"{number:08x}")
            self._happened("landing", fault, f"batch {newest} with {rows} readings", rows=rows)

    async def _ingest(self) -> None:
        """Kill it in a micro-batch, at the planned step; one that ended just before the kill is no hit, and the next is tried."""
        for fault in self._plan.of("ingest"):
            await self._counters.reach(fault.counter, fault.at)
            hit = False
            while not hit:
                await self._step(fault.detail["step"])
                child = self._site.running["ingest"]
                await child.kill()
                hit = self._progress.in_batch
                if hit:
                    number, appends = self._progress.begun, self._progress.appends
                    self._happened(
                        "ingest", fault, f"process {child.pid} killed in micro-batch {number}", micro_batch=number, appends=appends
                    )
                await asyncio.sleep(DOWN_S)
                await self._site.start_ingest()

    async def _step(self, step: str) -> None:
        """Return when a micro-batch that begins from now on has come to this step."""
        progress = self._progress
        files, appends = progress.data_files(), progress.appends
        if step == "appended":
            await wait_until(lambda: progress.appends > appends, CLOSE_LOOK_EVERY)
        else:
            await wait_until(lambda: progress.in_batch and progress.data_files() - files, CLOSE_LOOK_EVERY)

    def _happened(self, target: str, fault: Fault, evidence: str, **data: Any) -> None:
        self._history.add(target, "happened", fault=fault.id, kind=fault.kind, evidence=evidence, **data)
        self._display.fault(f"{fault}: {evidence}")
