"""Faults of the ingest, which is a Spark job."""

import hashlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar, Literal

from hil.faults.base import Kind, Shares
from hil.faults.fault import Evidence, Fault
from hil.faults.gateway import restart
from hil.faults.loop_disk import LoopDisk, missing
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import PATIENCE, comes, wait_until
from hil.observe.ingest_progress import IngestProgress

STEPS = {
    "its offset is noted": "*/checkpoint/offsets/[0-9]*",
    "its rows are written": "*/publications/part-*.parquet",
    "its readings are written": "*/publications_readings/part-*.parquet",
    "its rows are appended": "*/publications/_delta_log/*.json",
    "its readings are appended": "*/publications_readings/_delta_log/*.json",
    "its counts are saved": "*/publications/_onceway/report.json",
    "its end is noted": "*/checkpoint/commits/[0-9]*",
}
"""Steps of a micro-batch, in order, by the file that each makes (gateway/ingest/README.md, and
Spark's checkpoint). The patterns leave out temporary files and checksums, which may appear after a
step."""
JOB = "stream.py"
"""Script of the job. The script gets the signals, because launchers handle them differently."""
SECOND = "second ingest"


class IngestFault(Kind):
    """A fault of the ingest. It always happens after the first append, because the number of
    appends depends on the machine's speed. A faulty ingest would repeat this append.
    """

    part: ClassVar[str] = "ingest"
    counter: ClassVar[str] = "appends"
    no_place: ClassVar[str] = "comes after the first append"
    needs_ingest: ClassVar[bool] = True

    def places(self, rng: random.Random, total: int) -> Iterator[tuple[int, int]]:
        for number in range(1, self.count + 1):
            yield number, 1


class IngestKill(IngestFault):
    """A kill between two steps of a micro-batch: the process is held before the second step and
    killed. The seed sets this step for the first fault. Each later fault takes the step two places
    further.
    """

    text: ClassVar[str] = "kill -9 of the ingest in a micro-batch"
    machine_of: ClassVar[str] = "ingest"
    kind: Literal["ingest-kill"]

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        steps = list(STEPS)
        for number, fault in enumerate(super().faults(seed, readings)):
            yield replace(fault, detail={"before": steps[(seed + 2 * number) % len(steps)]})

    def aim(self, fault: Fault) -> dict[str, Any]:
        return {"window": f"before {fault.detail['before']}"}

    def disk(self, system: SystemUnderTest) -> LoopDisk | None:
        """Return the disk that loses its power when the process is killed; None if no disk does."""
        return None

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        machine, step = system.site.machine("ingest"), fault.detail["before"]
        before = machine["held"]
        machine.hold_before(STEPS[step])
        await wait_until(lambda: machine["held"] > before)
        begun, appends = system.progress.begun, system.progress.appends
        machine["hold"] = 0
        made = machine.found
        killed = await restart(system, "ingest", system.site.start_ingest, self.disk(system))
        measured: dict[str, Any] = {**killed.data, "micro_batch": begun, "appends": appends}
        window = f"before {step_of(made)}"
        return Evidence(
            f"process {killed.data['pid']} killed {window}, at micro-batch {begun} and append"
            f" {appends}",
            {**measured, "hit": {"window": window}, "file": made},
            window,
        )


class CentrePowerCut(IngestKill):
    """The ingest is killed while it is stopped between two steps. The tables and the checkpoint,
    on a disk of their own, lose unsynced data.
    """

    text: ClassVar[str] = "power cut of the centre"
    kind: Literal["centre-power-cut"]  # type: ignore[assignment]

    def impossible(self) -> str | None:
        return missing()

    def disk(self, system: SystemUnderTest) -> LoopDisk | None:
        return system.site.centre_disk


def step_of(path: str) -> str:
    """Return the step (STEPS) of a micro-batch that makes this file; "nothing" if none does."""
    return next((step for step, pattern in STEPS.items() if fnmatch(path, pattern)), "nothing")


class CheckpointLost(IngestFault):
    """Spark's checkpoint is lost; the ingest must continue from the content of the table."""

    text: ClassVar[str] = "checkpoint of the ingest lost"
    bounded: ClassVar[bool] = True
    kind: Literal["checkpoint-lost"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        # the first append may be of another ingest
        await wait_until(lambda: system.progress.ended >= 0)
        ended = -1

        async def start() -> None:
            nonlocal ended
            ended = system.progress.ended
            shutil.rmtree(system.site.folder.checkpoint)
            await system.site.start_ingest()

        await restart(system, "ingest", start)
        return Evidence(
            f"a checkpoint of {ended + 1} micro-batches removed", {"micro_batches": ended + 1}
        )


class IngestStop(IngestFault):
    """The job gets SIGTERM, saves its ranges and ends. Before it starts again, each batch of one
    feed lands once more, in an epoch of its own, as if the store of the gateway had been restored.
    The next job must recognise the publications by the saved ranges; it reads no rows of the table.
    """

    text: ClassVar[str] = "ingest stopped; batches of a feed land again before it starts"
    bounded: ClassVar[bool] = True
    kind: Literal["ingest-stop"]

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        site, progress = system.site, system.progress
        async with site.process_lock:
            # another fault may have just started the job, so that it does not handle signals yet
            await wait_until(lambda: system.landing.newest and progress.batches())
            feed = next(iter(system.landing.newest))  # the gateway's own: others are copies
            await wait_until(lambda: feed in progress.batches())
            before = snapshots(site.folder.table)
            child = site.running["ingest"]
            child.check()  # a program that ended by itself is not stopped here
            code = await child.finish(JOB, PATIENCE)
            saved = sorted(snapshots(site.folder.table) - before)
            newest = progress.batches()[feed]
            copies, rows = set(), 0
            for batch in range(1, newest + 1):
                epoch = hashlib.sha256(f"{fault.id} {batch}".encode()).hexdigest()[:8]
                copies.add(f"{feed.partition('/')[0]}/{epoch}")
                rows += site.landing.repeat(feed, batch, epoch)
            await site.start_ingest()
        ingested = await comes(lambda: copies <= progress.batches().keys())
        if code != 0 or not saved or not ingested:
            return None
        return Evidence(
            f"process {child.pid} saved {saved[-1]} and ended; the next process read {newest}"
            f" batches with {rows} publications again",
            {"pid": child.pid, "snapshot": saved[-1], "batches": newest, "rows": rows},
        )


def snapshots(table: Path) -> set[str]:
    """Return the names of the files in which the ingest has saved the ranges that it has seen."""
    return {path.name for path in (table / "_onceway").glob("seen-*.parquet")}


class IngestTwice(Kind):
    """A second ingest, with its own checkpoint, works on the table for one micro-batch."""

    text: ClassVar[str] = "two ingests at once"
    part: ClassVar[str] = "ingest"
    lane: ClassVar[str] = "second ingest"
    looked: ClassVar[bool] = True
    needs_ingest: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    kind: Literal["ingest-twice"]
    between: Shares = (0.05, 0.2)

    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        checkpoint = system.site.folder.checkpoint.with_name("second checkpoint")
        await system.site.start_ingest(SECOND, checkpoint)
        second, progress = (
            system.site.running[SECOND],
            IngestProgress(checkpoint, system.site.folder.table),
        )
        try:
            ended = await comes(lambda: progress.ended >= 0)
        finally:
            await second.stop()
        if not ended:
            return None
        ingested = sum(progress.batches().values())
        return Evidence(
            f"process {second.pid} has read {ingested} batches as well",
            {"pid": second.pid, "batches": ingested},
        )
