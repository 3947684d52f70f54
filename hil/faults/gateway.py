"""Faults of the gateway's processes, and of the power under them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind
from hil.faults.fault import Evidence, Fault
from hil.faults.loop_disk import missing
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import wait_until

DOWN_S = 0.5  # from a kill to the next start; systemd waits a second


class GatewayKill(Kind):
    text: ClassVar[str] = "kill -9 of the gateway"
    part: ClassVar[str] = "gateway"
    kind: Literal["gateway-kill"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        return await restart(system, "gateway", system.site.start_gateway)


class GatewayPause(Kind):
    """SIGSTOP, and SIGCONT after some seconds: a machine that hangs. Links and sessions time out
    meanwhile, or do not.
    """

    text: ClassVar[str] = "gateway paused"
    part: ClassVar[str] = "gateway"
    kind: Literal["gateway-pause"]
    seconds: float = Field(default=3.0, gt=0, le=60)

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        child = system.site.running["gateway"]
        child.pause()
        await asyncio.sleep(DOWN_S)  # a commit under way is through
        system.spool.look()
        before = system.spool.committed
        await asyncio.sleep(self.seconds)
        system.spool.look()
        paused, after = child.paused, system.spool.committed
        child.resume()
        return (
            Evidence(f"nothing committed for {self.seconds:g} s", {"pid": child.pid})
            if paused and after == before
            else None
        )


class UplinkKill(Kind):
    text: ClassVar[str] = "kill -9 of the uplink"
    part: ClassVar[str] = "uplink"
    kind: Literal["uplink-kill"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        return await restart(system, "uplink", system.site.start_uplink)


class GatewayPowerCut(Kind):
    """Gateway and uplink are gone, and start again on what the disk under their data holds: what
    only the kernel had is gone, too.
    """

    text: ClassVar[str] = "power cut of the gateway"
    part: ClassVar[str] = "gateway"
    kind: Literal["gateway-power-cut"]

    def impossible(self) -> str | None:
        return missing()

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        site = system.site
        assert site.disk is not None  # noqa: S101
        async with site.hands:
            victims = [site.running[name] for name in ("gateway", "uplink")]
            for child in victims:
                child.check()  # what has died by itself is not killed by us
                child.pause()
            await wait_until(lambda: all(child.paused for child in victims))
            written = contents(site.folder.data)
            copy = await asyncio.to_thread(site.disk.freeze)
            for child in victims:
                await child.kill()
            site.disk.restart(copy)  # at once, so that nothing of ours is open on it
            lost = [
                name
                for name, data in contents(site.folder.data).items()
                if written.get(name) != data
            ]
            place = system.counters["spooled"]
            await asyncio.sleep(DOWN_S)
            await site.start_gateway()
            await site.start_uplink()
        text = (
            f"started on the disk's copy at {place} publications in the store; {len(lost)} file(s)"
            " were older on it"
        )
        return Evidence(text, {"older": sorted(lost)})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def restart(
    system: SystemUnderTest, name: str, start: Callable[[], Awaitable[None]]
) -> Evidence:
    """kill -9, and a new start a little later."""
    async with system.site.hands:
        child = system.site.running[name]
        child.check()  # what has died by itself is not killed by us
        await child.kill()
        evidence = Evidence(
            f"process {child.pid} killed at {system.counters['spooled']} publications in the store",
            {"pid": child.pid},
        )
        await asyncio.sleep(DOWN_S)
        await start()
        return evidence
