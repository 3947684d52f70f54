"""Measure which branches of the product the tests take, package by package (`make coverage`).

In: options of pytest; without options, all tests of `make test` run, in Python and C, except those
that measure time. Out: a table on the terminal, and `build/coverage/holes.txt` with each line and
branch that no test takes. The exit code is 1 if a test fails. With all tests, it is also 1 if a
package is below its goal in GOALS. coverage.py counts Python, also in processes that the tests
start. gcov counts C in the library's own tests on this machine.
"""

import gzip
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "coverage"
FIRMWARE = FOLDER / "firmware"
GOALS = dict.fromkeys(
    [f"gateway/{name}" for name in ("broker", "mqtt", "links", "store", "uplink", "ingest")], 95.0
)
"""Goal for each package: percentage of branches that the tests take."""

TIMEOUT_S = 1800
"""Time limit of a test, in seconds. Counting makes Python several times as slow."""


@dataclass(slots=True)
class Counted:
    """Counts of a package. branches: number of branches. taken: number of branches that a test
    takes. holes: lines and branches that no test takes.
    """

    branches: int = 0
    taken: int = 0
    holes: list[str] = field(default_factory=list)

    @property
    def percent(self) -> float:
        return 100 * self.taken / self.branches if self.branches else 100.0


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    options = sys.argv[1:]
    failed = _run_python(options)
    found = defaultdict(Counted)
    of_python(json.loads((FOLDER / "python.json").read_text()), found)
    if not options:
        failed |= _run_c()
        of_c(read_gcov(FIRMWARE / "tests"), found)
    below = show(found)
    return failed if options else failed | below


def _run_python(options: list[str]) -> int:
    slowly = f"--timeout={TIMEOUT_S}"
    environment = {**os.environ, "COVERAGE_FILE": str(FOLDER / "data"), "PYTEST_ADDOPTS": slowly}

    def coverage(*argv: str) -> int:
        command = [sys.executable, "-m", "coverage", *argv]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode

    coverage("erase")
    failed = coverage("run", "-m", "tests", *options)
    coverage("combine", "--quiet")
    coverage("json", "--quiet", "-o", str(FOLDER / "python.json"))
    return failed


def _run_c() -> int:
    argv = ["make", "-s", "-C", "firmware", f"BUILD={FIRMWARE}", "SANITIZE=--coverage", "test"]
    return subprocess.run(argv, cwd=ROOT, check=False).returncode


def read_gcov(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield gcov's report of each object file in a folder."""
    for counts in sorted(folder.rglob("*.gcda")):
        argv = ["gcov", "--json-format", "--branch-probabilities", "--branch-counts", counts.name]
        subprocess.run(argv, cwd=counts.parent, check=True, capture_output=True)
        told = counts.parent / f"{counts.stem}.gcov.json.gz"
        if told.exists():
            yield json.loads(gzip.decompress(told.read_bytes()))


def of_python(told: dict[str, Any], found: dict[str, Counted]) -> None:
    """Add the counts of Python files. told: coverage.py's report as JSON."""
    for name, file in sorted(told["files"].items()):
        counted, sums = found["/".join(name.split("/")[:2])], file["summary"]
        counted.branches += sums["num_branches"]
        counted.taken += sums["covered_branches"]
        counted.holes += [f"{name}:{line}" for line in file["missing_lines"]]
        counted.holes += [
            f"{name}:{begin} never goes on to {'the end' if end < 0 else end}"
            for begin, end in file["missing_branches"]
            if begin not in file["missing_lines"]
        ]


def of_c(told: Iterator[dict[str, Any]], found: dict[str, Counted]) -> None:
    """Add the counts of C files. told: gcov's reports. A branch counts as taken if at least one
    report has it as taken.
    """
    taken: dict[tuple[str, int, int], bool] = defaultdict(bool)
    ran: dict[tuple[str, int], bool] = defaultdict(bool)
    for report in told:
        for file in report["files"]:
            path = Path(file["file"])
            if path.parent.name != "src":
                continue
            for line in file["lines"]:
                at = f"src/{path.name}", line["line_number"]
                ran[at] |= bool(line["count"])
                for number, branch in enumerate(line["branches"]):
                    taken[*at, number] |= bool(branch["count"])
    counted = found["firmware/src"]
    counted.branches, counted.taken = len(taken), sum(taken.values())
    counted.holes += [
        f"firmware/{file}:{line}" for (file, line), did in sorted(ran.items()) if not did
    ]
    counted.holes += [
        f"firmware/{file}:{line} never takes its branch {number + 1}"
        for (file, line, number), did in sorted(taken.items())
        if ran[file, line] and not did
    ]


def show(found: dict[str, Counted]) -> int:
    """Print the table. Return 1 if a package is below its goal, else 0."""
    table = Table("package", "branches", "taken", "percent", "goal")
    low = 0
    for package, counted in sorted(found.items()):
        goal = GOALS.get(package, 0.0)
        below = counted.percent < goal
        low |= below
        numbers = str(counted.branches), str(counted.taken), f"{counted.percent:.1f}"
        table.add_row(
            package, *numbers, f"{goal:g}" if goal else "", style="red" if below else None
        )
    holes = FOLDER / "holes.txt"
    holes.write_text("".join(f"{hole}\n" for one in found.values() for hole in one.holes))
    Console().print(table)
    print(f"what no test reaches: {holes.relative_to(ROOT)}")
    return int(low)


if __name__ == "__main__":
    sys.exit(main())
