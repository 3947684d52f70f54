"""Faults at the far ends. At the landing place: an outage, batches that land twice, damaged or
changed, and a batch number that is taken. At the other end of the bridge: a restart of the broker.
In: the landing place, the other broker. Out: evidence, and an event in the history for a copy with
other payloads.
"""

import asyncio
import hashlib
import random
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from hil.faults.base import Kind, Seconds
from hil.faults.fault import Evidence, Fault
from hil.faults.landing_place import Copy
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import comes, wait_until
from hil.observe.table import count

ASIDE_EVERY = 1.0  # s between looks at the other tables
# time without a batch: twice the age at which a batch is cut (hil/programs/site.py)
STUCK_S = 4.0
FORGERIES: tuple[Copy, ...] = ("unsigned", "forged", "altered")


class LandingUnwritable(Kind):
    """The landing place refuses writes from one number of committed publications to another."""

    text: ClassVar[str] = "landing place unwritable"
    part: ClassVar[str] = "landing"
    looked: ClassVar[bool] = True
    kind: Literal["landing-unwritable"]

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"until": min(at + max(2, round(total * rng.uniform(0.1, 0.2))), total)}

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        system.site.landing.unmount()
        system.say(
            f"after {system.counters['spooled']} publications the landing place is unwritable"
        )
        await system.counters.reach("spooled", fault.detail["until"])
        stuck = await comes(lambda: system.spool.committed > system.spool.landed)
        # a batch on its way at the start of the outage has landed by now
        waiting, landed = system.spool.committed, system.spool.landed
        await asyncio.sleep(STUCK_S)
        system.spool.look()
        stuck = stuck and waiting > landed == system.spool.landed
        system.site.landing.mount()
        evidence = (
            f"rows waited and nothing landed for {STUCK_S:g} s, until {system.counters['spooled']}"
            " publications"
        )
        return Evidence(evidence) if stuck else None


class BatchCopy(Kind):
    """The newest batch lands again, as the first batch of another epoch."""

    part: ClassVar[str] = "landing"
    lane: ClassVar[str] = "landing copies"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    counter: ClassVar[str] = "landed"
    needs_ingest: ClassVar[bool] = True

    async def land(
        self, fault: Fault, system: SystemUnderTest, harm: Copy = "same"
    ) -> tuple[int, int]:
        """Land the copy. Return the number of the copied batch, and its number of rows. A reworded
        copy lands twice, as the second batch of an epoch and then as the first one.
        """
        await wait_until(lambda: system.landing.newest)
        origin, newest = next(iter(system.landing.newest.items()))
        copy = _feed_of_copy(fault, origin)
        land = partial(system.site.landing.repeat, origin, newest, copy.partition("/")[2])
        if harm == "reworded":
            # the table must have the first payloads before the copy lands
            await wait_until(lambda: system.progress.batches().get(origin, 0) >= newest)
            system.history.add("landing", "reworded", origin=copy)
            land(harm, 2)
            await asyncio.sleep(STUCK_S)  # the ingest must wait for the first batch meanwhile
        return newest, land(harm)

    async def put_aside(
        self, fault: Fault, system: SystemUnderTest, table: Path, rows: int, last: int = 1
    ) -> bool:
        """Wait at most PATIENCE seconds until `table` (quarantine or conflicts) has at least `rows`
        rows, or the ingest has read the copy, up to batch `last`. Return whether the table has the
        rows.
        """

        def ingested() -> bool:
            origin = next(iter(system.landing.newest))
            return system.progress.batches().get(_feed_of_copy(fault, origin), 0) >= last

        await comes(lambda: ingested() or count(table) >= rows, ASIDE_EVERY)
        return count(table) >= rows


def _feed_of_copy(fault: Fault, origin: str) -> str:
    epoch = hashlib.sha256(fault.id.encode()).hexdigest()[:8]
    return f"{origin.partition('/')[0]}/{epoch}"


class BatchTwice(BatchCopy):
    """The newest batch lands again in another epoch, as from a gateway whose store was restored."""

    text: ClassVar[str] = "batch landed twice"
    kind: Literal["batch-twice"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        batch, rows = await self.land(fault, system)
        return Evidence(f"batch {batch} with {rows} publications", {"batch": batch, "rows": rows})


class NumberTaken(Kind):
    """A cloned card, with the gateway's name, epoch and key, lands other bytes under the number
    that the uplink uses next. The uplink must leave them alone, and continue in another epoch. The
    gateway's next start then forgets its sessions.
    """

    text: ClassVar[str] = "batch number taken by a clone"
    part: ClassVar[str] = "landing"
    lane: ClassVar[str] = "landing copies"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    counter: ClassVar[str] = "landed"
    kind: Literal["number-taken"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        await wait_until(lambda: system.spool.origin in system.landing.newest)
        origin, landed = system.spool.origin, system.spool.landed
        number, content = system.site.landing.take_number(origin, system.landing.newest[origin])
        system.landing.leave_out(origin, number, content)
        if not await comes(lambda: system.spool.landed > landed):
            return None
        return Evidence(
            f"a clone took batch number {number} of {origin}, and later publications landed",
            {"batch": number, "rows": system.spool.landed - landed},
        )


class BatchDamaged(BatchCopy):
    """The newest batch lands again, and the copy is damaged on the disk: the ingest must put the
    copy into quarantine and continue.
    """

    text: ClassVar[str] = "batch damaged at rest"
    kind: Literal["batch-damaged"]

    def harm(self, fault: Fault) -> Copy:
        return "damaged"

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        before = count(system.site.folder.quarantine)
        harm = self.harm(fault)
        batch, rows = await self.land(fault, system, harm)
        if not await self.put_aside(fault, system, system.site.folder.quarantine, before + 1):
            return None
        return Evidence(
            f"a {harm} copy of batch {batch} with {rows} publications is in quarantine",
            {"batch": batch, "rows": rows},
        )


class BatchForged(BatchDamaged):
    """A program without the gateway's key lands other payloads for the keys of the newest batch,
    under each of FORGERIES in turn. The ingest must put these batches into quarantine.
    """

    text: ClassVar[str] = "batch forged"
    kind: Literal["batch-forged"]  # type: ignore[assignment]

    def harm(self, fault: Fault) -> Copy:
        return FORGERIES[int(fault.id.rpartition("-")[2]) % len(FORGERIES)]


class BatchReworded(BatchCopy):
    """The newest batch lands again with other payloads for the same keys: the ingest must keep the
    first payloads, and set the others aside. This happens twice, as the second and then as the
    first batch of one epoch, as if the first came late: the ingest must wait for it.
    """

    text: ClassVar[str] = "batch landed again with other payloads"
    kind: Literal["batch-reworded"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        before = count(system.site.folder.conflicts)
        batch, rows = await self.land(fault, system, "reworded")
        conflicts = system.site.folder.conflicts
        if not await self.put_aside(fault, system, conflicts, before + 2 * rows, 2):
            return None
        return Evidence(
            f"batch {batch} with {rows} publications, whose second payloads were set aside",
            {"batch": batch, "rows": rows},
        )


class OtherBrokerRestart(Kind):
    """SIGTERM to the other broker, which writes its sessions and retained messages to disk, and a
    start after some seconds. Meanwhile retained messages change at the gateway only.
    """

    text: ClassVar[str] = "other broker restarted"
    part: ClassVar[str] = "other broker"
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    gateways: ClassVar[Literal["any", "one", "several"]] = "one"
    kind: Literal["other-broker-restart"]
    seconds: Seconds = Field(default=2.0, gt=0, le=60)
    """Time without the other broker, in seconds."""

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        broker = system.other_broker
        assert broker is not None  # noqa: S101 - the bench has checked that there is one
        code = await broker.stop()
        await asyncio.sleep(self.seconds)
        await broker.start()
        return None if code else Evidence(f"away for {self.seconds:g} s")
