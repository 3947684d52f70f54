"""Faults of the gateway's processes, and of the machine under the gateway."""

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from hil.counters import wait_until
from hil.faults.base import Evidence, Fault, Kind

if TYPE_CHECKING:
    from hil.rig import Rig

DOWN_S = 0.5  # from a kill to the next start; systemd waits a second
MET_WITHIN = 30.0  # s in which the gateway must have met what is wrong with its machine


class GatewayKill(Kind):
    text: ClassVar[str] = "kill -9 of the gateway"
    part: ClassVar[str] = "gateway"
    kind: Literal["gateway-kill"]

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        evidence = await kill(rig, "gateway")
        await rig.site.start_gateway()
        return evidence


class GatewayPause(Kind):
    """SIGSTOP, and SIGCONT after some seconds: a machine that hangs. Links and sessions time out meanwhile, or do not."""

    text: ClassVar[str] = "gateway paused"
    part: ClassVar[str] = "gateway"
    kind: Literal["gateway-pause"]
    seconds: float = Field(default=3.0, gt=0, le=60)

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        child = rig.site.running["gateway"]
        child.pause()
        await asyncio.sleep(DOWN_S)  # a commit under way is through
        rig.spool.look()
        before = rig.spool.committed
        await asyncio.sleep(self.seconds)
        rig.spool.look()
        paused, after = child.paused, rig.spool.committed
        child.resume()
        return Evidence(f"nothing committed for {self.seconds:g} s", {"pid": child.pid}) if paused and after == before else None


class UplinkKill(Kind):
    text: ClassVar[str] = "kill -9 of the uplink"
    part: ClassVar[str] = "uplink"
    kind: Literal["uplink-kill"]

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        evidence = await kill(rig, "uplink")
        await rig.site.start_uplink()
        return evidence


class MachineFault(Kind):
    """Something is wrong with the machine for some seconds, beginning at a place. It happened when the gateway met it (hil/machine.py)."""

    part: ClassVar[str] = "gateway"
    switch: ClassVar[str]
    counter_of: ClassVar[str]
    seconds: float = Field(default=3.0, gt=0, le=60)

    def value(self, fault: Fault) -> int:
        """What the switch is set to."""
        return 1

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        machine = rig.site.machine
        before = machine[self.counter_of]
        machine[self.switch] = self.value(fault)
        try:
            await asyncio.sleep(self.seconds)
            with suppress(TimeoutError):
                async with asyncio.timeout(MET_WITHIN):
                    await wait_until(lambda: machine[self.counter_of] > before)
        finally:
            machine[self.switch] = 0
        met = machine[self.counter_of] - before
        return Evidence(f"{self.counter_of} {met} times", {"times": met, "value": self.value(fault)}) if met else None


class DiskFull(MachineFault):
    """Every write below the gateway's data folder fails with ENOSPC."""

    text: ClassVar[str] = "disk full"
    switch: ClassVar[str] = "full"
    counter_of: ClassVar[str] = "refused"
    kind: Literal["disk-full"]


class DiskSlow(MachineFault):
    """Every fsync below the gateway's data folder takes so many milliseconds more."""

    text: ClassVar[str] = "slow fsync"
    switch: ClassVar[str] = "slow_ms"
    counter_of: ClassVar[str] = "slowed"
    kind: Literal["disk-slow"]
    ms: int = Field(default=800, ge=1, le=10_000)

    def value(self, fault: Fault) -> int:
        return self.ms


class ClockJump(MachineFault):
    """The gateway's clock of the day jumps, forward or back, and jumps home again."""

    text: ClassVar[str] = "clock jump"
    switch: ClassVar[str] = "clock_ns"
    counter_of: ClassVar[str] = "shifted"
    kind: Literal["clock-jump"]
    hours: float = Field(default=24 * 30, gt=0)

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"sign": rng.choice((-1, 1))}

    def value(self, fault: Fault) -> int:
        return int(fault.detail["sign"] * self.hours * 3600) * 10**9


async def kill(rig: "Rig", name: str) -> Evidence:
    child = rig.site.running[name]
    await child.kill()
    evidence = Evidence(f"process {child.pid} killed at {rig.counters['spooled']} publications in the store", {"pid": child.pid})
    await asyncio.sleep(DOWN_S)
    return evidence
