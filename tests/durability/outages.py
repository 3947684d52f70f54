"""Run hundreds of power cuts and kills: `python -m tests.durability.outages --cuts 200 --kills 100
--seed 1`.

The run consists of sites (`site.py`) that each have a dozen outages. Power cuts need root and loop
devices. Without these, the program reports that it leaves power cuts out. At the end, a table shows
for example whether messages were in flight at the outages. The exit code is 1 if a promise is
broken; the output then has the seed. The moments also depend on the machine, so a seed may need
several runs to show a fault again.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from hil.faults.loop_disk import LoopDisk, missing
from tests.durability.site import Site

PART = 12


async def run(kind: str, times: int, seed: int, reached: Counter[str]) -> list[str]:
    """Run `times` outages of one kind. Return a text for each broken promise. reached: gets the
    counts of the events of this run.
    """
    done = 0
    task = asyncio.current_task()
    assert task is not None
    # SIGTERM must still unmount the disks
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    def progress() -> None:
        nonlocal done
        done += 1
        if done % 4 == 0:
            print(f"{kind}: {done} of {times}", file=sys.stderr)

    for first in range(0, times, PART):
        with tempfile.TemporaryDirectory() as name:
            folder, count = Path(name), min(PART, times - first)
            if kind == "power cuts":
                with closing(LoopDisk(folder / "disk")) as disk:
                    site = Site(disk.mount / "data", seed + first)
                    await site.outages(count, disk, progress)
            else:
                site = Site(folder / "data", seed + first)
                await site.outages(count, None, progress)
        reached += site.table()
        if site.faults:
            return [f"seed {seed + first}: {fault}" for fault in site.faults]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.cuts and (reason := missing()):
        print(f"power cuts are left out: {reason}", file=sys.stderr)
        arguments.cuts = 0
    started = time.monotonic()
    reached: Counter[str] = Counter()
    faults: list[str] = []
    for kind, times in (("power cuts", arguments.cuts), ("kills", arguments.kills)):
        try:
            faults += asyncio.run(run(kind, times, arguments.seed, reached))
        except asyncio.CancelledError:
            faults.append("stopped before its end")
            break
    print(f"seed {arguments.seed}, {time.monotonic() - started:.0f} s")
    for name, count in reached.items():
        print(f"  {name:42} {count:10,}")
    print(f"  {'broken promises':42} {len(faults):10,}")
    for fault in faults[:20]:
        print(fault, file=sys.stderr)
    never = [
        name
        for name in ("in the middle of a publication", "while the gateway started", "log not empty")
        if not reached[name]
    ]
    # a short run may miss some of these events
    never = never if arguments.cuts + arguments.kills >= 50 else []
    if never:
        print(f"never met: {', '.join(never)}", file=sys.stderr)
    return 1 if faults or never else 0


if __name__ == "__main__":
    sys.exit(main())
