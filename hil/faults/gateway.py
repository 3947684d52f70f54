"""Faults of the gateway's machine and its processes."""

import asyncio
from typing import TYPE_CHECKING, ClassVar, Literal

from hil.faults.base import Evidence, Fault, Kind

if TYPE_CHECKING:
    from hil.rig import Rig

DOWN_S = 0.5  # from a kill to the next start; systemd waits a second


class GatewayKill(Kind):
    text: ClassVar[str] = "kill -9 of the gateway"
    part: ClassVar[str] = "gateway"
    kind: Literal["gateway-kill"]

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        evidence = await kill(rig, "gateway")
        await rig.site.start_gateway()
        return evidence


class UplinkKill(Kind):
    text: ClassVar[str] = "kill -9 of the uplink"
    part: ClassVar[str] = "uplink"
    kind: Literal["uplink-kill"]

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        evidence = await kill(rig, "uplink")
        await rig.site.start_uplink()
        return evidence


async def kill(rig: "Rig", name: str) -> Evidence:
    child = rig.site.running[name]
    await child.kill()
    evidence = Evidence(f"process {child.pid} killed at {rig.counters['spooled']} publications in the store", {"pid": child.pid})
    await asyncio.sleep(DOWN_S)
    return evidence
