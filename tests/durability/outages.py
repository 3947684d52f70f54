"""Power cuts and kills by the hundred: `python -m tests.durability.outages --cuts 200 --kills 100
--seed 1`.

Each part is a site of its own that goes down a dozen times (`site.py`). Power cuts need root and
loop devices; without, they are left out, and the run says so. The run ends with a table of events,
which shows whether messages were in flight at the cuts. Exit 1 when a promise is broken, with the
seed that shows it (the moments depend on the machine as well: run it a few times).
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
    """Run a number of outages of one kind and return the broken promises."""
    done = 0
    task = asyncio.current_task()
    assert task is not None
    # so that disks are unmounted
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
    # few outages may miss some of it
    never = never if arguments.cuts + arguments.kills >= 50 else []
    if never:
        print(f"never met: {', '.join(never)}", file=sys.stderr)
    return 1 if faults or never else 0


if __name__ == "__main__":
    sys.exit(main())
