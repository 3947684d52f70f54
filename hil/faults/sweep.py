"""Cuts at every point of a QoS 2 exchange, one after the other. Each is counted from a moment at
which nothing is under way, so that the Nth falls N steps into the next exchange.

In: a `[[fault]]` table whose `count` is the number of points. Out: a fault for each, shared out
among the boards. They are the boards' faults, also where the gateway is killed: a board samples
until all of its own have happened. The last fault has happened only if there was no point beyond
it, so that a run that holds has been cut everywhere.
"""

import asyncio
import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind
from hil.faults.board import cut_at, cut_power
from hil.faults.fault import Evidence, Fault
from hil.faults.gateway import restart
from hil.faults.under_test import DeviceUnderTest, SystemUnderTest
from hil.judge.coverage import AT_LINE, AT_SYNC, AT_WRITE
from hil.observe.counters import LOOK_EVERY, wait_until

QUIET_WITHIN = 60.0  # s in which an exchange must have ended with nothing more under way
MET_WITHIN = 180.0  # s in which a step of the gateway must come
MEASURED = 5  # exchanges, the shortest of which counts: a slow machine may run two into one
MANY = 10**9  # steps, which never come
TOLD_S = 0.05  # in which a client has told its message
STILL_S = 0.08  # in which the gateway takes no step, when there is nothing to do
STEPS = {1: AT_WRITE, 2: AT_SYNC, 3: AT_LINE}
"""What the gateway was about to do, or had done, by preload.c."""


class Sweep(Kind):
    part: ClassVar[str] = "board"
    count: int = Field(default=1, ge=1, le=10_000)
    """How many points of the exchange, a cut each; the boards share them."""

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        low, high = self.between
        for first, (device, total) in enumerate(readings.items(), 1):
            for point in range(first, self.count + 1, len(readings)):
                at = max(1, round((low + (high - low) * point / self.count) * (total - 2)))
                steps, torn = self.place(point)
                detail = {"steps": steps, "torn": torn}
                yield Fault(
                    f"{device}/{self.kind}-{point}",
                    self.kind,
                    f"{device} board",
                    self.text,
                    f"sampled {device}",
                    at,
                    detail,
                )

    def place(self, point: int) -> tuple[int, bool]:
        """After how many steps the Nth point is, and whether it is in the middle of the last of
        them.
        """
        return point, False

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        try:
            evidence = await self.cut(fault, system)
            if evidence is None or fault.detail["steps"] < self.place(self.count)[0]:
                return evidence
            await _quiet(system.device(fault))
            steps = min([await self._whole(fault, system) for _ in range(MEASURED)])
        except TimeoutError:
            return None
        text = f"{evidence.text}; a whole exchange has {steps} steps"
        return (
            Evidence(text, {**evidence.data, "whole": steps}, evidence.window)
            if steps <= fault.detail["steps"]
            else None
        )

    async def _whole(self, fault: Fault, system: SystemUnderTest) -> int:
        """How many steps an exchange has that is not cut. Nothing is under way now."""
        begin = await self.steps(fault, system)
        await _quiet(system.device(fault))
        return await self.steps(fault, system) - begin

    @abstractmethod
    async def cut(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        """At the next exchange that begins when nothing is under way. Raises TimeoutError if none
        does.
        """

    @abstractmethod
    async def steps(self, fault: Fault, system: SystemUnderTest) -> int:
        """A count of them that only grows."""


async def _quiet(device: DeviceUnderTest) -> None:
    """Return when the next exchange has ended and nothing is under way: before it, a board that was
    just cut may have nothing under way because it has not started yet, and its start would be taken
    for steps. Raises TimeoutError.
    """
    device.look()
    before = device.journalled

    def over() -> bool:
        device.look()
        return device.journalled > before and not device.waiting

    async with asyncio.timeout(QUIET_WITHIN):
        await wait_until(over)


class BoardSweep(Sweep):
    """Counted from the sample with which an exchange begins, by the board itself."""

    unit: ClassVar[Literal["tx", "eeprom"]]

    async def cut(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        command = cut_at(self.unit, fault.detail["steps"], fault.detail["torn"])
        async with asyncio.timeout(QUIET_WITHIN):
            await _quiet(device)
            while True:
                taken = await device.samples()
                device.look()
                # refused if a sample was taken meanwhile: then something is under way again
                if not device.waiting and await device.strike_next(fault.id, command, taken):
                    break
                await asyncio.sleep(LOOK_EVERY)
        cut = await cut_power(device, fault.id)
        return cut.evidence if cut else None


class BoardPowerCutAtEachByte(BoardSweep):
    """Of those that the board sends: its PUBLISH, its PUBREL, and what the link adds."""

    text: ClassVar[str] = "power cut at a byte of the exchange"
    unit: ClassVar[Literal["tx", "eeprom"]] = "tx"
    kind: Literal["board-power-cut-at-each-byte"]

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"bytes": fault.detail["steps"]}

    async def steps(self, fault: Fault, system: SystemUnderTest) -> int:
        return (await system.device(fault).board.stats()).tx


class BoardPowerCutAtEachWrite(BoardSweep):
    """Of the cells of its EEPROM: in the middle of each write, and after it."""

    text: ClassVar[str] = "power cut at an EEPROM write of the exchange"
    unit: ClassVar[Literal["tx", "eeprom"]] = "eeprom"
    kind: Literal["board-power-cut-at-each-write"]

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"writes": fault.detail["steps"], "torn": fault.detail["torn"]}

    def place(self, point: int) -> tuple[int, bool]:
        return (point + 1) // 2, point % 2 == 1

    async def steps(self, fault: Fault, system: SystemUnderTest) -> int:
        return (await system.device(fault).board.stats()).writes


class GatewayKillAtEachStep(Kind):
    """Of those that the gateway takes in an exchange of a board or client: before each write to its
    disk and to a line or connection, and after each sync. Counted from a moment when nobody has
    anything under way; steps of somebody else's exchange do not count. The boards and clients of
    `on`, or all, share the points.
    """

    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    text: ClassVar[str] = "kill -9 of the gateway at a step of the exchange"
    part: ClassVar[str] = "gateway"
    machine_of: ClassVar[str] = "gateway"
    needs_traffic: ClassVar[bool] = True
    kind: Literal["gateway-kill-at-each-step"]
    count: int = Field(default=1, ge=1, le=10_000)
    """How many steps of the exchange, a kill at each."""
    on: list[str] = Field(default=[])
    """The boards and clients that share the points; all, if none is named."""

    def breaks(self, device: str) -> bool:
        return not self.on or device in self.on

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        names = [name for name in readings if self.breaks(name)]
        for point in range(1, self.count + 1):
            name = names[point % len(names)]
            yield Fault(
                f"{name}/{self.kind}-{point}",
                self.kind,
                self.part,
                self.text,
                "spooled",
                point,  # in order; before it there is nothing to wait for
                {"steps": point},
            )

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"steps": fault.detail["steps"]}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        machine, child = system.site.machine("gateway"), system.site.running["gateway"]
        try:
            async with asyncio.timeout(MET_WITHIN):
                await self._halt(fault, system)
        except TimeoutError:
            machine["steps"] = 0
            child.resume()
            return None
        window, stood = STEPS[machine["step"]], machine["stood"]
        system.spool.look()
        seen = await restart(system, "gateway", system.site.start_gateway)
        data = {**seen.data, "hit": {"steps": stood}}
        evidence = Evidence(f"stopped {window}, {seen.text}", data, window)
        if fault.detail["steps"] < self.count:
            return evidence
        try:
            async with asyncio.timeout(MET_WITHIN):
                whole = min([await self._whole(fault, system) for _ in range(MEASURED)])
        except TimeoutError:
            return None
        text = f"{evidence.text}; a whole exchange has {whole} steps"
        data = {**evidence.data, "whole": whole}
        return Evidence(text, data, window) if whole <= self.count else None

    async def _halt(self, fault: Fault, system: SystemUnderTest) -> None:
        """Stop the gateway at the Nth step of an exchange of the fault's target."""
        child = system.site.running["gateway"]
        for behind_others in itertools.cycle((False, True)):
            before = await _all_quiet(fault, system, behind_others)
            await self._begun(fault, system)
            await wait_until(lambda: child.paused, LOOK_EVERY / 10)
            await asyncio.sleep(TOLD_S)
            if _journalled(system, fault) > before:
                return
            child.resume()  # somebody else's

    async def _begun(self, fault: Fault, system: SystemUnderTest) -> None:
        """Count from the first step of somebody's exchange on, not from one that the gateway takes
        by itself.
        """
        machine, child = system.site.machine("gateway"), system.site.running["gateway"]
        made, points = _journalled(system), fault.detail["steps"]
        while True:
            machine.count_steps(points)
            if child.paused:
                child.resume()
            await wait_until(lambda: machine["steps"] < points, LOOK_EVERY / 10)
            await asyncio.sleep(TOLD_S)
            _journalled(system)  # a ledger settles what the look before has found last
            if _journalled(system) > made:
                return

    async def _whole(self, fault: Fault, system: SystemUnderTest) -> int:
        """How many steps an exchange has that is not cut: of those that run into one another, its
        share.
        """
        machine = system.site.machine("gateway")
        await _all_quiet(fault, system)
        begin, made = machine["steps"], _journalled(system)
        await _all_quiet(fault, system)
        return math.ceil((begin - machine["steps"]) / (_journalled(system) - made))


def _journalled(system: SystemUnderTest, fault: Fault | None = None) -> int:
    """Publications of a fault's target, or of all, so far."""
    names = [fault.target] if fault else list(system.publishers)
    for name in names:
        system.publishers[name].look()
    return sum(system.publishers[name].journalled for name in names)


async def _all_quiet(fault: Fault, system: SystemUnderTest, behind_others: bool = False) -> int:
    """Return when the target has ended an exchange, nobody has anything under way, and the gateway
    takes no step any more: what it does behind an exchange would be taken for the next one. Before
    it has ended one, a target that was just cut may have nothing under way because it has not
    started yet. Returns how many publications the target has made. behind_others: return behind an
    exchange of somebody else, or else the second one of the target. Of two boards with one interval
    the same one may always be the next.
    """
    machine = system.site.machine("gateway")
    before, of_all = _journalled(system, fault), _journalled(system)

    def over() -> bool:
        of_both = _journalled(system) - of_all
        made = _journalled(system, fault) - before
        ended = made > 1 or of_both > made if behind_others else made > 0
        return ended and not any(one.waiting for one in system.publishers.values())

    while True:
        await wait_until(over)
        if machine["steps"] <= 0:  # below, if two threads took the last step at once
            machine["steps"] = MANY
        seen = machine["steps"], _journalled(system)
        await asyncio.sleep(STILL_S)
        if over() and seen == (machine["steps"], _journalled(system)):
            return _journalled(system, fault)
