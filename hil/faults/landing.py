"""Faults of the landing place: away for a while, and a batch that lands twice."""

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hil.counters import wait_until
from hil.faults.base import Evidence, Fault, Kind

if TYPE_CHECKING:
    from hil.rig import Rig

STUCK_WITHIN = 60.0  # s in which there must be a row that cannot land
STUCK_S = 4.0  # for which nothing must land then: twice the age at which a batch is cut (hil/site.py)


class LandingUnwritable(Kind):
    """From one place to another, counted in publications committed by the gateway."""

    text: ClassVar[str] = "landing place unwritable"
    part: ClassVar[str] = "landing"
    kind: Literal["landing-unwritable"]

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"until": min(at + max(2, round(total * rng.uniform(0.1, 0.2))), total)}

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        rig.site.landing.unmount()
        rig.display.say(f"  the landing place is unwritable from {rig.counters['spooled']} publications on", "red")
        await rig.counters.reach("spooled", fault.detail["until"])
        stuck = False
        with suppress(TimeoutError):
            async with asyncio.timeout(STUCK_WITHIN):
                await wait_until(lambda: rig.spool.committed > rig.spool.landed)
            waiting, landed = rig.spool.committed, rig.spool.landed  # a batch that was under way when the place went has landed by now
            await asyncio.sleep(STUCK_S)
            rig.spool.look()
            stuck = waiting > landed == rig.spool.landed
        rig.site.landing.mount()
        evidence = f"rows waited and nothing landed for {STUCK_S:g} s, until {rig.counters['spooled']} publications"
        return Evidence(evidence) if stuck else None


class BatchTwice(Kind):
    """The newest batch lands again under another epoch, as from a gateway whose store was set back."""

    text: ClassVar[str] = "batch landed twice"
    part: ClassVar[str] = "landing"
    lane: ClassVar[str] = "landing copies"
    counter: ClassVar[str] = "landed"
    needs_ingest: ClassVar[bool] = True
    kind: Literal["batch-twice"]

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        await wait_until(lambda: rig.landing.newest)
        origin, newest = next(iter(rig.landing.newest.items()))
        rows = rig.site.landing.repeat(origin, newest, f"{int(fault.id.rpartition('-')[2]):08x}")
        return Evidence(f"batch {newest} with {rows} publications", {"batch": newest, "rows": rows})
