"""Faults of the landing place: away for a while, and a batch that lands twice, or damaged."""

import asyncio
import hashlib
import random
from contextlib import suppress
from typing import Any, ClassVar, Literal

from hil.faults.base import Kind
from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import wait_until
from hil.observe.table import count

STUCK_WITHIN = 60.0  # s in which there must be a row that cannot land
QUARANTINED_WITHIN = 180.0  # s in which the ingest must have come up and found a damaged batch
QUARANTINE_EVERY = 1.0  # s between looks at the quarantine
# for which nothing must land then: twice the age at which a batch is cut (hil/programs/site.py)
STUCK_S = 4.0


class LandingUnwritable(Kind):
    """From one place to another, counted in publications committed by the gateway."""

    text: ClassVar[str] = "landing place unwritable"
    part: ClassVar[str] = "landing"
    looked: ClassVar[bool] = True
    kind: Literal["landing-unwritable"]

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"until": min(at + max(2, round(total * rng.uniform(0.1, 0.2))), total)}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        system.site.landing.unmount()
        system.say(
            f"the landing place is unwritable from {system.counters['spooled']} publications on"
        )
        await system.counters.reach("spooled", fault.detail["until"])
        stuck = False
        with suppress(TimeoutError):
            async with asyncio.timeout(STUCK_WITHIN):
                await wait_until(lambda: system.spool.committed > system.spool.landed)
            # a batch that was under way when the place went has landed by now
            waiting, landed = (
                system.spool.committed,
                system.spool.landed,
            )
            await asyncio.sleep(STUCK_S)
            system.spool.look()
            stuck = waiting > landed == system.spool.landed
        system.site.landing.mount()
        evidence = (
            f"rows waited and nothing landed for {STUCK_S:g} s, until {system.counters['spooled']}"
            " publications"
        )
        return Evidence(evidence) if stuck else None


class BatchCopy(Kind):
    """The newest batch lands again as the first of another epoch."""

    part: ClassVar[str] = "landing"
    lane: ClassVar[str] = "landing copies"
    looked: ClassVar[bool] = True
    counter: ClassVar[str] = "landed"
    needs_ingest: ClassVar[bool] = True
    damaged: ClassVar[bool] = False

    async def land(self, fault: Fault, system: SystemUnderTest) -> tuple[int, int]:
        """Return the number of the batch copied, and of its rows."""
        await wait_until(lambda: system.landing.newest)
        origin, newest = next(iter(system.landing.newest.items()))
        epoch = hashlib.sha256(fault.id.encode()).hexdigest()[:8]
        return newest, system.site.landing.repeat(origin, newest, epoch, damaged=self.damaged)


class BatchTwice(BatchCopy):
    """As from a gateway whose store was set back."""

    text: ClassVar[str] = "batch landed twice"
    kind: Literal["batch-twice"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        batch, rows = await self.land(fault, system)
        return Evidence(f"batch {batch} with {rows} publications", {"batch": batch, "rows": rows})


class BatchDamaged(BatchCopy):
    """The copy is damaged at rest: the ingest must put it into quarantine and go on."""

    text: ClassVar[str] = "batch damaged at rest"
    kind: Literal["batch-damaged"]
    damaged: ClassVar[bool] = True

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        quarantine = system.site.folder.quarantine
        before = count(quarantine)
        batch, rows = await self.land(fault, system)
        try:
            async with asyncio.timeout(QUARANTINED_WITHIN):
                await wait_until(lambda: count(quarantine) > before, QUARANTINE_EVERY)
        except TimeoutError:
            return None
        return Evidence(
            f"a copy of batch {batch} with {rows} publications is in quarantine",
            {"batch": batch, "rows": rows},
        )
