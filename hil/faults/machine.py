"""Faults of the simulated machine on which a program runs: disk and clock of the gateway, and the
landing place's answers to the uplink.
"""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind, Milliseconds, Seconds, Unit
from hil.faults.fault import Evidence, Fault
from hil.faults.preload import Machine
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import comes, wait_until

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0  # s
SIZES = ((1.5, 4.0), (4.0, MINUTE), (MINUTE, HOUR), (HOUR, DAY), (DAY, 30 * DAY), (DAY, 30 * DAY))
"""Ranges of clock jumps, in seconds. A program may be right in one range or direction only. The
last two are for jumps forward and back. A smaller jump could not be seen in the times of receipt,
so none is drawn."""
APART_S = 2.0
"""Shortest time between two clock jumps, in seconds. In between, the gateway must read the right
time once: after a jump that it does not believe, its time continues from there.
"""
CENTURY = 100 * 365 * 24  # hours
MET_WITHIN = 180.0  # s until the program must have met the fault of its machine


class MachineFault(Kind):
    """A fault of the machine. It begins at its place in the plan, and ends after `seconds`, but not
    before a call of the program has met it (hil/faults/preload.py) or MET_WITHIN has passed.
    """

    part: ClassVar[str] = "gateway"
    looked: ClassVar[bool] = True
    switch: ClassVar[str]
    met: ClassVar[str]
    """Name of a counter in the machine: how often the program has met the fault."""
    seconds: Seconds = Field(default=3.0, gt=0, le=60)
    """Shortest duration in seconds. The fault begins at its place in the plan."""

    def value(self, fault: Fault) -> int:
        """Return the value to which `switch` is set during the fault."""
        return 1

    def measured(self, fault: Fault, since: int, until: int) -> dict[str, int]:
        """Return further values for the evidence. since, until: start and end of the fault, in
        monotonic nanoseconds.
        """
        return {"value": self.value(fault)}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        assert self.machine_of  # noqa: S101
        machine = system.site.machine(self.machine_of)
        before = machine[self.met]
        machine[self.switch] = self.value(fault)
        since = time.monotonic_ns()
        try:
            await asyncio.sleep(self.seconds)
            with suppress(TimeoutError):
                async with asyncio.timeout(MET_WITHIN):
                    await wait_until(lambda: machine[self.met] > before)
        finally:
            until = time.monotonic_ns()
            machine[self.switch] = 0
        times = machine[self.met] - before
        data = {"times": times, **self.measured(fault, since, until)}
        return Evidence(f"{self.met} {times} times", data) if times else None


class DiskFull(MachineFault):
    """Every write below the gateway's data folder fails with ENOSPC."""

    text: ClassVar[str] = "disk full"
    machine_of: ClassVar[str] = "gateway"
    switch: ClassVar[str] = "full"
    met: ClassVar[str] = "refused"
    kind: Literal["disk-full"]


class DiskSlow(MachineFault):
    """Every fsync below the gateway's data folder takes longer."""

    text: ClassVar[str] = "slow fsync"
    machine_of: ClassVar[str] = "gateway"
    switch: ClassVar[str] = "slow_ms"
    met: ClassVar[str] = "slowed"
    kind: Literal["disk-slow"]
    ms: Milliseconds = Field(default=800, ge=1, le=10_000)
    """Added time per fsync."""

    def value(self, fault: Fault) -> int:
        return self.ms


class ClockJump(MachineFault):
    """The gateway's wall clock jumps, forward or back, and later jumps back to the right time."""

    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    text: ClassVar[str] = "clock jump"
    machine_of: ClassVar[str] = "gateway"
    switch: ClassVar[str] = "clock_ns"
    met: ClassVar[str] = "shifted"
    needs_traffic: ClassVar[bool] = True
    kind: Literal["clock-jump"]
    seconds: Seconds = Field(default=6.0, ge=5, le=60)  # a gateway may keep the old clock that long
    hours: Annotated[float | None, Unit("h")] = Field(default=None, gt=0, le=CENTURY)
    """Size of the jump. Default: random, in turn up to 4 s, a minute, an hour, a day, 30 days
    forward, 30 days back.
    """

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        begin = random.Random(f"{seed}/{self.kind}/size").randrange(len(SIZES))
        for number, fault in enumerate(super().faults(seed, readings), begin):
            low, high = SIZES[number % len(SIZES)]
            rng = random.Random(f"{seed}/{fault.id}/size")
            size = self.hours * 3600 if self.hours else low * (high / low) ** rng.random()
            far = {4: {"sign": 1}, 5: {"sign": -1}}.get(number % len(SIZES), {})
            yield replace(fault, detail={**fault.detail, "seconds": size, **far})

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"sign": rng.choice((-1, 1))}

    def value(self, fault: Fault) -> int:
        return int(fault.detail["sign"] * fault.detail["seconds"] * 1000) * 10**6

    def measured(self, fault: Fault, since: int, until: int) -> dict[str, int]:
        return {"shift": self.value(fault), "since": since, "until": until}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        evidence = await super().inject(fault, system)
        await asyncio.sleep(APART_S)
        return evidence


class ClockUnknown(Kind):
    """A machine without a battery clock. Its clock starts with the time of the last shutdown, and
    the kernel calls the clock unsynchronised. The network sets the clock later. For a gateway with
    trust_clock = false.
    """

    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    text: ClassVar[str] = "start without the time of day"
    part: ClassVar[str] = "gateway"
    looked: ClassVar[bool] = True
    machine_of: ClassVar[str] = "gateway"
    kind: Literal["clock-unknown"]
    behind_h: Annotated[float, Unit("h")] = Field(default=100.0, ge=0, le=CENTURY)
    """Hours by which the clock is slow until the network has set it."""
    synchronised: bool = False
    """Whether the kernel calls the slow clock synchronised. The gateway has run with the right time
    before, so it must not believe the clock.
    """

    def prepare(self, machine: Machine) -> None:
        machine["unknown"] = int(not self.synchronised)
        machine["clock_ns"] = -int(self.behind_h * 3600) * 10**9

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        machine = system.site.machine("gateway")
        asked = "shifted" if self.synchronised else "asked"
        before = machine[asked]
        machine["clock_ns"] = machine["unknown"] = 0
        # a gateway that knows that its clock is synchronised does not ask again
        again = self.synchronised or await comes(lambda: machine["asked"] > before)
        if not before or not again:
            return None
        return Evidence(f"the gateway asked {before} times for the time", {"times": before})


class LandingFault(MachineFault):
    """The landing place does not work as it should, while the uplink runs."""

    part: ClassVar[str] = "landing"
    machine_of: ClassVar[str] = "uplink"

    def measured(self, fault: Fault, since: int, until: int) -> dict[str, int]:
        return {"value": self.value(fault), "since": since, "until": until}


class LandingSlow(LandingFault):
    """The landing place confirms late that a file is on its disk."""

    text: ClassVar[str] = "landing place slow"
    switch: ClassVar[str] = "slow_ms"
    met: ClassVar[str] = "slowed"
    kind: Literal["landing-slow"]
    ms: Milliseconds = Field(default=1500, ge=1, le=10_000)
    """Delay of each confirmation."""

    def value(self, fault: Fault) -> int:
        return self.ms


class LandingRefuses(LandingFault):
    """The landing place is reachable, but refuses all writes (ENOSPC)."""

    text: ClassVar[str] = "landing place refuses"
    switch: ClassVar[str] = "full"
    met: ClassVar[str] = "refused"
    kind: Literal["landing-refuses"]


class UploadCut(LandingFault):
    """Half of an upload arrives, then the connection is dead (EIO) for some seconds."""

    text: ClassVar[str] = "upload cut half-way"
    switch: ClassVar[str] = "cut"
    met: ClassVar[str] = "halved"
    kind: Literal["upload-cut"]
