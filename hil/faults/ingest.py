"""Faults of the Spark job."""

import asyncio
import random
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hil.counters import wait_until
from hil.faults.base import Evidence, Fault, Kind

if TYPE_CHECKING:
    from hil.rig import Rig

STEPS = ("data files written", "appended")
LOOK_EVERY = 0.002  # s: these moments are over soon
DOWN_S = 0.5


class IngestKill(Kind):
    """In a micro-batch, at a step drawn for it; one that ended just before the kill is no hit, and the next is tried."""

    text: ClassVar[str] = "kill -9 of the ingest in a micro-batch"
    part: ClassVar[str] = "ingest"
    counter: ClassVar[str] = "appends"
    needs_ingest: ClassVar[bool] = True
    kind: Literal["ingest-kill"]

    def places(self, rng: random.Random, total: int) -> Iterator[tuple[int, int]]:
        """Early appends: how many there will be depends on the speed of the machine, and one more must come after the last place."""
        for number in range(1, self.count + 1):
            yield number, number - 1

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        return {"step": rng.choice(STEPS)}

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        while True:
            await self._step(fault.detail["step"], rig)
            child = rig.site.running["ingest"]
            await child.kill()
            hit, number = rig.progress.in_batch, rig.progress.begun
            await asyncio.sleep(DOWN_S)
            await rig.site.start_ingest()
            if hit:
                measured = {"micro_batch": number, "appends": rig.progress.appends, "step": fault.detail["step"]}
                return Evidence(f"process {child.pid} killed in micro-batch {number}, {fault.detail['step']}", measured)

    async def _step(self, step: str, rig: "Rig") -> None:
        """Return when a micro-batch that begins from now on has come to this step."""
        progress = rig.progress
        files, appends = progress.data_files(), progress.appends
        if step == "appended":
            await wait_until(lambda: progress.appends > appends, LOOK_EVERY)
        else:
            await wait_until(lambda: progress.in_batch and progress.data_files() - files, LOOK_EVERY)


class CheckpointLost(Kind):
    """Spark's checkpoint is gone, and the ingest begins with the first batch of each feed again."""

    text: ClassVar[str] = "checkpoint of the ingest lost"
    part: ClassVar[str] = "ingest"
    counter: ClassVar[str] = "appends"
    needs_ingest: ClassVar[bool] = True
    kind: Literal["checkpoint-lost"]

    def places(self, rng: random.Random, total: int) -> Iterator[tuple[int, int]]:
        """When there is an append that could be repeated."""
        for number in range(1, self.count + 1):
            yield number, 1

    async def inject(self, fault: Fault, rig: "Rig") -> Evidence | None:
        child = rig.site.running["ingest"]
        await child.kill()
        ended = rig.progress.ended
        shutil.rmtree(rig.site.folder.checkpoint)
        await asyncio.sleep(DOWN_S)
        await rig.site.start_ingest()
        return Evidence(f"a checkpoint of {ended + 1} micro-batches removed", {"micro_batches": ended + 1}) if ended >= 0 else None
