"""The state of the uplink, which is a separate process.

In: the data directory. Out: an `UplinkState` from the gateway's database, read in a thread, because
the gateway's event loop never waits for a disk.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import OncewayError
from gateway.system.lock import holder
from gateway.uplink.spool import OUTAGE, Spool, Totals

PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class UplinkState:
    """The uplink at one moment. running: whether the process runs. cut: number of the newest batch.
    landed: number of the newest batch that has landed. landed_at: when this batch landed, in µs
    UTC; None before the first batch. error: reason of the outage, in the uplink's words.
    """

    running: bool
    outage: bool
    cut: int
    landed: int
    landed_at: int | None
    totals: Totals
    error: str | None = None


def read(folder: Path) -> UplinkState | None:
    """Read the uplink's state. Return None if the database cannot be read."""
    try:
        with Spool(folder, to_read=True) as spool:
            (cut, _), (landed, landed_at) = spool.last_cut(), spool.last_landed()
            running = holder(folder / "uplink.lock") is not None
            outage = spool.get(OUTAGE)
            error = str(json.loads(outage).get("error")) if outage else None
            return UplinkState(
                running, outage is not None, cut, landed, landed_at, spool.totals(), error
            )
    except OncewayError:
        return None


class UplinkReader:
    """Reads the uplink's state in a thread, one read at a time. If the disk hangs, only one thread
    hangs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reading: asyncio.Task[UplinkState | None] | None = None

    async def state(self) -> UplinkState | None:
        """Return the state, or None if it could not be read within PATIENCE_S."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(read, self._folder))
        done, _ = await asyncio.wait([self._reading], timeout=PATIENCE_S)
        return self._reading.result() if done else None
