"""The whole system, seed by seed: `python -m tests.sim.whole.soak --seeds 100000`.

A run continues where the last one was stopped; with `--minutes` it stops by itself. `--replay SEED`
runs one seed alone. If a seed fails, its plan is shrunk to the fewest faults with which it still
fails. At the end, a table shows how often each event happened: if, for example, no gateway died,
the soak proves nothing. Exit code 1: a seed failed, or an event never happened. Exit code 2: seeds
are missing.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from hashlib import sha256

from hil.judge.checker import Verdict
from tests.links.progress import Progress
from tests.sim.whole.board import libraries
from tests.sim.whole.faults import run
from tests.sim.whole.plan import Plan, draw
from tests.sim.whole.shrink import shrunk

BLOCK = 500
LIFE = 20
"""Tasks of a worker (ten seeds each) before a new one replaces it. The store of a gateway that died
is never freed: its connection and the SQL functions of the connection hold each other, 2 MB a seed.
"""
SOURCES = (
    "gateway/**/*.py",
    "firmware/src/*.[ch]",
    "firmware/examples/sensor/*.[ch]",
    "hil/**/*.py",
    "tests/sim/whole/*.[cp]*",
)
REACHED = (
    "board died",
    "board died in a write",
    "board moved",
    "board swapped",
    "client moved",
    "commits",
    "disk failed",
    "disk slow",
    "gateway died",
    "gateway died before a commit",
    "gateway died behind a commit",
    "gateway gone for good",
    "gateways cut off",
    "line cut",
    "line held",
    "messages retained",
    "noise on a line",
    "publications",
    "rows landed for another gateway",
    "sessions gone on with",
    "sessions begun",
    "store restored",
)


def judge(plan: Plan) -> tuple[Counter[str], str, str]:
    """Run a plan. Return counts of its events, the errors ("" if all holds), and a fingerprint of
    its history.
    """
    try:
        world = run(plan)
        result = world.judge()
        unlike = world.unlike()
    except Exception as error:
        return Counter(), f"{type(error).__name__}: {error}", ""
    seen = sha256("".join(event.to_line() for event in world.truth.events).encode()).hexdigest()
    if result.verdict is Verdict.HOLDS and not unlike:
        return world.reached, "", seen
    return world.reached, f"{result.summary()}: {'; '.join([*result.reasons, *unlike])}", seen


def story(plan: Plan, wrong: str) -> str:
    """Return a description of a plan that fails and, if there is one, of a smaller plan that fails,
    too. wrong: the fault that the judge found in `plan`.
    """
    smaller = shrunk(plan, lambda plan: judge(plan)[1])
    text = f"{plan}\n  {wrong}"
    if smaller is not plan:
        text += f"\nshrunk to {len(smaller.faults)} faults:\n{smaller}\n  {judge(smaller)[1]}"
    return f"{text}\nAgain: python -m tests.sim.whole.soak --replay {plan.seed}"


def _judged(seed: int) -> tuple[int, Counter[str], str, float]:
    begin = time.process_time()
    reached, wrong, _ = judge(draw(seed))
    return seed, reached, wrong, time.process_time() - begin


def _soak(progress: Progress, seeds: int, minutes: float) -> str:
    """Run the missing seeds on all cores. Return the description of the first seed that fails, or
    "".
    """
    end = time.monotonic() + 60 * minutes
    libraries()  # compiled once for all workers
    with multiprocessing.Pool(maxtasksperchild=LIFE) as pool:
        while progress.done < seeds and time.monotonic() < end:
            block = range(progress.done, min(progress.done + BLOCK, seeds))
            reached: Counter[str] = Counter()
            for seed, found, wrong, seconds in pool.imap_unordered(_judged, block, chunksize=10):
                if wrong:
                    return story(draw(seed), wrong)
                reached += found
                progress.seconds += seconds
            progress.reached += reached
            progress.done = block.stop
            progress.save()
    return ""


def _first(seeds: int) -> int:
    for seed in range(seeds):
        _, wrong, _ = judge(draw(seed))
        if wrong:
            print(f"seed {seed}: {wrong}")
            return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop then")
    parser.add_argument("--first", action="store_true", help="only say which seed fails first")
    parser.add_argument("--replay", type=int, metavar="SEED", help="only this one")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        plan = draw(arguments.replay)
        reached, wrong, seen = judge(plan)
        print(story(plan, wrong) if wrong else f"{plan}\n  holds: {dict(reached)}", seen, sep="\n")
        return bool(wrong)
    if arguments.first:
        return _first(arguments.seeds)
    progress = Progress.load("whole", SOURCES)
    if text := _soak(progress, arguments.seeds, arguments.minutes):
        print(text, file=sys.stderr)
        return 1
    pace = progress.done / max(progress.seconds, 1e-9) * 60
    done = f"{progress.done:,} of {arguments.seeds:,} seeds, none failed"
    print(f"{done}; {pace:,.0f} in a minute of one core")
    for name in sorted(progress.reached):
        print(f"  {name:36} {progress.reached[name]:12,}")
    if missing := [name for name in REACHED if not progress.reached[name]]:
        print("never reached: " + ", ".join(missing), file=sys.stderr)
        return 1
    return 2 if progress.done < arguments.seeds else 0


if __name__ == "__main__":
    sys.exit(main())
