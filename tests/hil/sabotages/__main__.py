"""`python -m tests.hil.sabotages`: every sabotage under every bench that guards its claim, on three
seeds.

In: names of sabotages; none: the whole catalogue. With `--list`, no bench runs, and the table has
the number of sabotages by blind spot and package. Out: a table of noticed sabotages, by bench, in
the terminal and in `build/sabotages/sabotages.md`; exit code 1 if one was missed. Sabotages already
tried on the same tree are not tried again.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.hil.sabotage import CLASSES, ROOT, Judged, Sabotage, catalogue, try_out

SEEDS = (1, 2, 3)
JUDGED = (
    *(f"gateway/{name}" for name in ("broker", "ingest", "links", "site", "store", "uplink")),
    *("gateway/bridge", "gateway/runtime", "firmware"),
)
"""Parts of the product whose sabotages a bench must notice."""
FOLDER = ROOT / "build" / "sabotages"


class Memory:
    """The verdicts on sabotages so far, in a file that survives an interruption."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._tried: dict[str, list[str | None]] = (
            json.loads(path.read_text()) if path.exists() else {}
        )

    def get(self, key: str) -> Judged | None:
        known = self._tried.get(key)
        return Judged(known[0], known[1] or "") if known else None

    def put(self, key: str, judged: Judged) -> None:
        with self._lock:
            self._tried[key] = [judged.verdict, judged.said]
            self._path.write_text(json.dumps(self._tried, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hil.sabotages")
    parser.add_argument("names", nargs="*", help="of the catalogue; all, if none")
    parser.add_argument("--jobs", type=int, default=3, help="so many runs at once (default 3)")
    parser.add_argument(
        "--list", action="store_true", help="only count them, by blind spot and package"
    )
    parser.add_argument(
        "--seeds", type=int, default=len(SEEDS), help="so many seeds, from 1 (default 3)"
    )
    arguments = parser.parse_args()
    known = catalogue()
    if missing := [name for name in arguments.names if name not in known]:
        parser.error(f"no such sabotage: {', '.join(missing)}; there are {', '.join(known)}")
    chosen = [known[name] for name in arguments.names] or list(known.values())
    if arguments.list:
        count(chosen)
        return 0
    seeds = SEEDS[: arguments.seeds]
    missed = show(chosen, try_all(chosen, arguments.jobs, seeds), seeds)
    return 1 if missed else 0


def count(chosen: Sequence[Sabotage]) -> None:
    """Print the number of sabotages by blind spot and package. A dot stands for none."""
    cells = Counter((one.blind, one.patches) for one in chosen)
    packages = sorted({package for _, package in cells} | set(JUDGED))
    table = Table("", *packages, "in all")
    for blind in CLASSES:
        numbers = [cells[blind, package] for package in packages]
        table.add_row(blind, *(str(number or "·") for number in numbers), str(sum(numbers)))
    sums = [sum(cells[blind, package] for blind in CLASSES) for package in packages]
    table.add_row("in all", *map(str, sums), str(len(chosen)))
    console = Console()
    console.width = max(console.width, 200)
    console.print(table)


def try_all(
    chosen: Sequence[Sabotage], jobs: int, seeds: Sequence[int] = SEEDS
) -> dict[tuple[str, str, int], Judged]:
    """Return the verdicts by name, bench and seed. jobs: runs at a time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    memory, state = Memory(FOLDER / "tried.json"), _state()
    cases = [(one, bench, seed) for one in chosen for bench in one.benches for seed in seeds]
    found: dict[tuple[str, str, int], Judged] = {}

    def tried(case: tuple[Sabotage, str, int]) -> None:
        one, bench, seed = case
        content = hashlib.sha256(one.path.read_bytes()).hexdigest()[:12]
        key = f"{state} {content} {one.name} {bench} {seed}"
        judged = memory.get(key)
        if judged is None:
            folder = FOLDER / f"{one.name}-{bench}-{seed}"
            shutil.rmtree(folder, ignore_errors=True)
            judged = try_out(one, bench, seed, folder)
            memory.put(key, judged)
            if judged.verdict == one.verdict:
                shutil.rmtree(folder, ignore_errors=True)
        found[one.name, bench, seed] = judged
        progress.advance(task)

    with Progress() as progress, ThreadPoolExecutor(jobs) as pool:
        task = progress.add_task("sabotages", total=len(cases))
        list(pool.map(tried, cases))
    return found


def show(
    chosen: Sequence[Sabotage],
    found: dict[tuple[str, str, int], Judged],
    seeds: Sequence[int] = SEEDS,
) -> int:
    """Print the table. Return the number of missed sabotages: those with a verdict other than the
    expected one from at least one bench and seed.
    """
    table = Table("sabotage", "breaks the claim", "bench", "caught", "said")
    lines = ["| sabotage | breaks the claim | bench | caught |", "| --- | --- | --- | ---: |"]
    missed = set()
    for one in chosen:
        for bench in one.benches:
            judged = [found[one.name, bench, seed] for seed in seeds]
            caught = sum(result.verdict == one.verdict for result in judged)
            if caught < len(seeds):
                missed.add(one.name)
            count = f"{caught} of {len(seeds)}"
            style = None if caught == len(seeds) else "red"
            said = next((each.said for each in judged if each.verdict != one.verdict), "")
            table.add_row(one.name, one.claim, bench, count, said, style=style)
            lines.append(f"| {one.name} | {one.claim} | `{bench}` | {count} |")
    total = f"{len(chosen) - len(missed)} of {len(chosen)} caught"
    (FOLDER / "sabotages.md").write_text("\n".join([*lines, "", total]) + "\n")
    console = Console()
    console.width = max(console.width, 150)
    console.print(table)
    console.print(total, style="red" if missed else "bold green")
    return len(missed)


def _state() -> str:
    """Return the state of the running code: the commit, and uncommitted changes."""
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT)
    diff = subprocess.check_output(["git", "diff", "HEAD"], cwd=ROOT)
    return hashlib.sha256(head + diff).hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main())
