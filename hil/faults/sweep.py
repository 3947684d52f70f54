"""Cuts at every point of a QoS 2 exchange, one after the other. The count for each cut begins while
no exchange is open, so that the Nth cut falls N steps into the next exchange.

In: a `[[fault]]` table whose `count` is the number of points. Out: a fault for each point,
distributed over the boards. These faults count as faults of boards, even if they kill the gateway:
a board samples until all its faults have happened. The last fault counts as happened only if the
exchange has no further point. So a run with the verdict *holds* was cut at every point.
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

QUIET_WITHIN = 60.0  # s until an exchange must have ended while no other is open
MET_WITHIN = 180.0  # s until a step of the gateway must come
MEASURED = 5  # exchanges; the shortest counts, because two may overlap on a slow machine
MANY = 10**9  # steps, never reached
TOLD_S = 0.05  # time for a client to report its message
STILL_S = 0.08  # time without a step of an idle gateway
STEPS = {1: AT_WRITE, 2: AT_SYNC, 3: AT_LINE}
"""Kinds of the gateway's steps, by their numbers in preload.c."""


class Sweep(Kind):
    part: ClassVar[str] = "board"
    count: int = Field(default=1, ge=1, le=10_000)
    """Number of points in an exchange. At each point, the power of one board is cut once."""

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
        """Return a point's step number, and whether the cut is in the middle of the step."""
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
        """Let the next exchange run uncut. Return its number of steps. No exchange may be open."""
        begin = await self.steps(fault, system)
        await _quiet(system.device(fault))
        return await self.steps(fault, system) - begin

    @abstractmethod
    async def cut(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        """Make the cut in the next exchange that begins while no other exchange is open. Raises
        TimeoutError.
        """

    @abstractmethod
    async def steps(self, fault: Fault, system: SystemUnderTest) -> int:
        """Return the number of steps so far, which never decreases."""


async def _quiet(device: DeviceUnderTest) -> None:
    """Wait until the next exchange has ended and no other exchange is open. (A board that is just
    starting has no open exchange, but its start would count as steps.) Raises TimeoutError.
    """
    device.look()
    before = device.journalled

    def over() -> bool:
        device.look()
        return device.journalled > before and not device.waiting

    async with asyncio.timeout(QUIET_WITHIN):
        await wait_until(over)


class BoardSweep(Sweep):
    """A sweep whose steps the board counts, beginning with the sample that starts an exchange."""

    unit: ClassVar[Literal["tx", "eeprom"]]

    async def cut(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        device = system.device(fault)
        command = cut_at(self.unit, fault.detail["steps"], fault.detail["torn"])
        async with asyncio.timeout(QUIET_WITHIN):
            await _quiet(device)
            while True:
                samples = await device.samples()
                device.look()
                # refused if a sample was taken in the meantime: then an exchange is open again
                if not device.waiting and await device.strike_next(fault.id, command, samples):
                    break
                await asyncio.sleep(LOOK_EVERY)
        cut = await cut_power(device, fault.id)
        return cut.evidence if cut else None


class BoardPowerCutAtEachByte(BoardSweep):
    """A power cut at each byte that the board sends: PUBLISH, PUBREL, and the bytes of the link."""

    text: ClassVar[str] = "power cut at a byte of the exchange"
    unit: ClassVar[Literal["tx", "eeprom"]] = "tx"
    kind: Literal["board-power-cut-at-each-byte"]

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"bytes": fault.detail["steps"]}

    async def steps(self, fault: Fault, system: SystemUnderTest) -> int:
        return (await system.device(fault).board.stats()).tx


class BoardPowerCutAtEachWrite(BoardSweep):
    """A power cut at each write to the EEPROM: in the middle of it, and after it."""

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
    """A kill at each step of the gateway in an exchange of a board or client. A step is the moment
    before a write to the gateway's disk, a line or a connection, or after a sync. The count starts
    while no exchange is open, and includes only steps of this exchange. The boards and clients of
    `on`, by default all, take turns: each kill is in an exchange of the next one.
    """

    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    text: ClassVar[str] = "kill -9 of the gateway at a step of the exchange"
    part: ClassVar[str] = "gateway"
    machine_of: ClassVar[str] = "gateway"
    needs_traffic: ClassVar[bool] = True
    kind: Literal["gateway-kill-at-each-step"]
    count: int = Field(default=1, ge=1, le=10_000)
    """Number of kills: one at each of the first `count` steps of an exchange."""
    on: list[str] = Field(default=[])
    """Boards and clients during whose exchanges the gateway is killed, in turn; all by default."""

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
                point,  # the faults happen in the order of their points, without a wait
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
            child.resume()  # this step belongs to another exchange

    async def _begun(self, fault: Fault, system: SystemUnderTest) -> None:
        """Wait until an exchange begins, so that steps are counted from its first one."""
        machine, child = system.site.machine("gateway"), system.site.running["gateway"]
        made, points = _journalled(system), fault.detail["steps"]
        while True:
            machine.count_steps(points)
            if child.paused:
                child.resume()
            await wait_until(lambda: machine["steps"] < points, LOOK_EVERY / 10)
            await asyncio.sleep(TOLD_S)
            _journalled(system)  # a ledger settles the last entry of the previous look
            if _journalled(system) > made:
                return

    async def _whole(self, fault: Fault, system: SystemUnderTest) -> int:
        """Return the number of steps of an uncut exchange: the average if exchanges overlap."""
        machine = system.site.machine("gateway")
        await _all_quiet(fault, system)
        begin, made = machine["steps"], _journalled(system)
        await _all_quiet(fault, system)
        return math.ceil((begin - machine["steps"]) / (_journalled(system) - made))


def _journalled(system: SystemUnderTest, fault: Fault | None = None) -> int:
    """Return the number of publications so far. If a fault is given, count only its target's."""
    names = [fault.target] if fault else list(system.publishers)
    for name in names:
        system.publishers[name].look()
    return sum(system.publishers[name].journalled for name in names)


async def _all_quiet(fault: Fault, system: SystemUnderTest, behind_others: bool = False) -> int:
    """Wait until the target has ended an exchange, no exchange is open, and the gateway takes no
    further step. (Such a step would count in the next exchange. A target that has ended no exchange
    may still be starting.) Return the target's number of publications. behind_others: wait instead
    for an exchange of another target, or for two of this target. If two boards have the same
    interval, their exchanges may always come in the same order.
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
        if machine["steps"] <= 0:  # below 0 if two threads took the last step at once
            machine["steps"] = MANY
        seen = machine["steps"], _journalled(system)
        await asyncio.sleep(STILL_S)
        if over() and seen == (machine["steps"], _journalled(system)):
            return _journalled(system, fault)
