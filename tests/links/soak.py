"""Random schedules of the reliable link by the hundred thousand: `python -m tests.links.soak --schedules 100000`.

Each schedule has a number; `--first N --schedules 1` replays one. The run ends with a table of what was reached, so that a soak in which
no session ever gave up, say, does not look like a proof. Exit 1 and the schedule's number when a promise is broken.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from tests.links.twin import CDevice
from tests.links.world import Collision, MakeDevice, PythonDevice, World

STEPS = 25
_DURATIONS = (0.0005, 0.003, 0.02, 0.1, 0.7, 3.0)
_NOISE = (0.0, 0.0, 0.001, 0.01, 0.05)

REACHED = (
    "sessions",
    "retransmissions",
    "damaged",
    "replays",
    "reboots noticed",
    "given up",
    "device reboots",
    "gateway reboots",
    "bytes up",
    "bytes down",
)


def run_schedule(number: int, make_device: MakeDevice = PythonDevice) -> Counter[str]:
    """Run one schedule and let it settle; return what it reached. Raises AssertionError when a promise is broken."""
    random = Random(number)
    world = World(random, make_device, baud=random.choice((None, 9600, 115200, 1_000_000)), latency=random.choice((0.0, 0.001, 0.03)))
    reached: Counter[str] = Counter()

    def write_up() -> None:
        world.device.write(random.randbytes(random.randint(1, 600)), world.now)

    def write_down() -> None:
        world.gateway.write(random.randbytes(random.randint(1, 600)), world.now)

    def stall() -> None:
        random.choice((world.up, world.down)).stalled_until = world.now + random.choice(_DURATIONS)

    def insert() -> None:
        random.choice((world.up, world.down)).inject(random.randbytes(random.randint(1, 300)), world.now)

    def replay() -> None:
        reached["replays"] += 1
        world.replay(up=random.random() < 0.5)

    def reboot_device() -> None:
        reached["device reboots"] += 1
        world.reboot_device(keep_incarnation=random.random() < 0.8)

    def reboot_gateway() -> None:
        reached["gateway reboots"] += 1
        world.reboot_gateway()

    # Writing is what schedules are mostly made of; the rest is what may go wrong meanwhile.
    actions: list[Callable[[], None]] = [
        *[write_up, write_down] * 4,
        lambda: world.set_noise(random.choice(_NOISE)),
        stall,
        insert,
        replay,
        reboot_device,
        reboot_gateway,
        lambda: world.gateway.close(world.now, at_once=random.random() < 0.5),
        lambda: world.device.greet(world.now),
        world.gateway.pause,
        lambda: world.gateway.resume(world.now),
    ]
    try:
        world.advance(0.5)
        for _ in range(STEPS):
            random.choice(actions)()
            world.advance(random.choice(_DURATIONS))
        world.settle()
    except Collision:
        return Counter({"undetectable damage": 1})
    reached["sessions"] = len(world.ledger.at_device)
    reached["retransmissions"] = world.device.repeated + world.gateway.link.statistics.retransmissions
    reached["damaged"] = world.up.damaged + world.down.damaged
    reached["reboots noticed"] = sum("rebooted" in reason for reason in world.ledger.reasons)
    reached["given up"] = sum("no acknowledgement" in reason for reason in world.ledger.reasons)
    reached["bytes up"] = sum(len(stream.received) for stream in world.ledger.up.values())
    reached["bytes down"] = sum(len(stream.received) for stream in world.ledger.down.values())
    return reached


def _run(number: int, make_device: MakeDevice) -> tuple[int, Counter[str], str | None]:
    try:
        return number, run_schedule(number, make_device), None
    except AssertionError as error:
        return number, Counter(), str(error) or "assertion without a text"


def main() -> int:
    """Run the schedules on all cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--device", choices=("python", "c"), default="python", help="the Python twin, or firmware/src")
    arguments = parser.parse_args()
    reached: Counter[str] = Counter()
    start = time.monotonic()
    done = 0
    with multiprocessing.Pool() as pool:
        numbers = range(arguments.first, arguments.first + arguments.schedules)
        run = partial(_run, make_device=CDevice if arguments.device == "c" else PythonDevice)
        for number, found, failure in pool.imap_unordered(run, numbers, chunksize=50):
            if failure:
                print(f"schedule {number}: {failure}", file=sys.stderr)
                return 1
            reached += found
            done += 1
            if done % 5000 == 0:
                print(f"{done} of {arguments.schedules}", file=sys.stderr)
    print(f"{arguments.schedules} schedules in {time.monotonic() - start:.0f} s, no promise broken")
    for name, count in reached.items():
        print(f"  {name:20} {count:12,}")
    if reached["undetectable damage"] > 10 + 10 * reached["damaged"] / 65536:
        print("damage passes the CRC more often than chance allows", file=sys.stderr)
        return 1
    missing = [name for name in REACHED if not reached[name]] if arguments.schedules >= 1000 else []
    if missing:
        print("never reached: " + ", ".join(missing), file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
