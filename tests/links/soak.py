"""Random schedules of the reliable link by the hundred thousand: `python -m tests.links.soak
--schedules 100000`.

A run continues where the last one was stopped (`progress.py`); `--minutes` stops it by itself. Each
schedule has a number; `--replay N` runs only schedule N. At the end, a table shows how often each
event happened: if, for example, no session gave up, the soak proves nothing. Exit code 1: a promise
is broken, and the schedule's number is printed, or an event never happened. Exit code 2: schedules
are missing.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TextColumn

from tests.links.progress import Progress
from tests.links.twin import CDevice
from tests.links.world import KEY, Collision, MakeDevice, PythonDevice, World

STEPS = 25
BLOCK = 500
_DURATIONS = (0.0005, 0.003, 0.02, 0.1, 0.7, 3.0)
_SOURCES = ("gateway/links/*.py", "firmware/src/*.[ch]", "tests/links/*.[chp]*")
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
    """Run one schedule, and let both ends settle. Return how often each event happened. Raises
    AssertionError if a promise is broken.
    """
    random = Random(number)
    world = World(
        random,
        make_device,
        baud=random.choice((None, 9600, 115200, 1_000_000)),
        latency=random.choice((0.0, 0.001, 0.03)),
        key=random.choice((KEY, KEY, KEY, None)),
    )
    reached: Counter[str] = Counter()

    def write_up() -> None:
        world.device.write(random.randbytes(random.randint(1, 600)), world.now)

    def write_down() -> None:
        world.gateway.write(random.randbytes(random.randint(1, 600)), world.now)

    def stall() -> None:
        random.choice((world.up, world.down)).stalled_until = world.now + random.choice(_DURATIONS)

    def insert() -> None:
        random.choice((world.up, world.down)).inject(
            random.randbytes(random.randint(1, 300)), world.now
        )

    def replay() -> None:
        reached["replays"] += 1
        world.replay(up=random.random() < 0.5)

    def reboot_device() -> None:
        reached["device reboots"] += 1
        world.reboot_device(keep_incarnation=random.random() < 0.8)

    def reboot_gateway() -> None:
        reached["gateway reboots"] += 1
        world.reboot_gateway()

    # Schedules mostly write. The other actions disturb them.
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
    reached["retransmissions"] = (
        world.device.repeated + world.gateway.link.statistics.retransmissions
    )
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


def _soak(
    progress: Progress, schedules: int, minutes: float | None, make_device: MakeDevice
) -> str | None:
    """Run the missing schedules on all cores, and save the progress. Return the first failure, or
    None.
    """
    run = partial(_run, make_device=make_device)
    end = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    with (
        multiprocessing.Pool() as pool,
        Bar(
            *Bar.get_default_columns(), TextColumn("{task.completed}"), console=Console(stderr=True)
        ) as bar,
    ):
        task = bar.add_task("schedules", total=schedules, completed=progress.done)
        while progress.done < schedules and time.monotonic() < end:
            start = time.monotonic()
            block = range(progress.done, min(progress.done + BLOCK, schedules))
            reached: Counter[str] = Counter()
            for number, found, failure in pool.imap_unordered(run, block, chunksize=10):
                if failure:
                    return f"schedule {number}: {failure}"
                reached += found
                bar.advance(task)
            progress.reached += reached
            progress.done = block.stop
            progress.seconds += time.monotonic() - start
            progress.save()
    return None


def main() -> int:
    """Run the schedules that are missing. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, help="stop then; the next run goes on")
    parser.add_argument("--replay", type=int, metavar="N", help="only schedule N")
    parser.add_argument(
        "--device",
        choices=("python", "c"),
        default="python",
        help="the Python twin, or firmware/src",
    )
    arguments = parser.parse_args()
    make_device: MakeDevice = CDevice if arguments.device == "c" else PythonDevice
    if arguments.replay is not None:
        number, reached, failure = _run(arguments.replay, make_device)
        print(f"schedule {number}: {failure or dict(reached)}")
        return 1 if failure else 0
    progress = Progress.load(f"link-{arguments.device}", _SOURCES)
    if failure := _soak(progress, arguments.schedules, arguments.minutes, make_device):
        print(
            f"{failure}\nAgain: python -m tests.links.soak --device {arguments.device} --replay N",
            file=sys.stderr,
        )
        return 1
    print(
        f"{arguments.device}: {progress.done} of {arguments.schedules} schedules in"
        f" {progress.seconds:.0f} s, no promise broken"
    )
    return _judge(progress.reached, progress.done) or (
        2 if progress.done < arguments.schedules else 0
    )


def _judge(reached: Counter[str], schedules: int) -> int:
    """Print the events. Return 0 if they prove something, else 1."""
    for name, count in reached.items():
        print(f"  {name:20} {count:12,}")
    if reached["undetectable damage"] > 10 + 10 * reached["damaged"] / 65536:
        print("damage passes the CRC more often than chance allows", file=sys.stderr)
        return 1
    missing = [name for name in REACHED if not reached[name]] if schedules >= 1000 else []
    if missing:
        print("never reached: " + ", ".join(missing), file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
