"""The report of a benchmark: a table for people, and figures in build/bench.json for programs.

In: a list of Figure. Out: the table on standard output, and build/bench.json, `{figure: {value,
unit, peer, goal, met}}`, where figures of other benchmarks stay. `keep` copies the figures to
last.json beside this file, from which `make docs` writes the figures in the guides.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import ge, gt, le, lt
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parents[2] / "build" / "bench.json"
KEPT = Path(__file__).with_name("last.json")
_RELATIONS = {"≥": ge, "≤": le, ">": gt, "<": lt}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. goal: a relation (≥, ≤, >, <) and a number, such as `≤ 0.8`, or a
    multiple of the peer's value, such as `≥ 2.4 × peer`; None: no goal. peer: the same figure of
    the peer, in the same unit and run.
    """

    name: str
    value: float
    unit: str
    goal: str | None = None
    peer: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached. None: there is no goal, or it needs a peer that did
        not run.
        """
        if self.goal is None:
            return None
        relation, bound, *of_peer = self.goal.split(" ", 2)
        if of_peer and self.peer is None:
            return None
        return bool(
            _RELATIONS[relation](
                self.value, float(bound.replace(",", "")) * (self.peer or 0.0 if of_peer else 1.0)
            )
        )


def main(measure: Callable[[Path], list[Figure]]) -> NoReturn:
    """Run a benchmark as a program: measure in a folder of its own, and report. The exit code is 1
    if a goal is missed.
    """
    with scratch() as folder:
        sys.exit(not report(measure(folder)))


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder under build/, which is on a disk. /tmp may be in memory, where an fsync takes
    no time.
    """
    RESULTS.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=RESULTS.parent) as folder:
        yield Path(folder)


def report(figures: list[Figure], results: Path = RESULTS) -> bool:
    """Merge `figures` into `results`, and print them. Return False if a goal is missed."""
    _merge(figures, results)
    table = Table("figure", "value", "unit", "peer", "goal", "met")
    for number in (1, 3):
        table.columns[number].justify = "right"
    for figure in figures:
        met = {None: "", True: "[green]yes[/green]", False: "[red]no[/red]"}[figure.met]
        table.add_row(
            figure.name,
            _short(figure.value),
            figure.unit,
            _short(figure.peer),
            figure.goal or "",
            met,
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return all(figure.met is not False for figure in figures)


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def _merge(figures: list[Figure], results: Path) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(results.read_text()) if results.exists() else {}
    for figure in figures:
        known[figure.name] = {
            "value": figure.value,
            "unit": figure.unit,
            "peer": figure.peer,
            "goal": figure.goal,
            "met": figure.met,
        }
    new = results.with_suffix(".new")
    new.write_text(json.dumps(known, indent=2, ensure_ascii=False, sort_keys=True) + "\n")
    os.replace(new, results)


def keep(results: Path = RESULTS, kept: Path = KEPT) -> None:
    """Copy values, units and the peer's values from `results` to `kept`. Raises OSError if there
    are no results.
    """
    known = json.loads(kept.read_text()) if kept.exists() else {}
    for name, figure in json.loads(results.read_text()).items():
        parts = ("value", "unit") if figure["peer"] is None else ("value", "unit", "peer")
        known[name] = {part: figure[part] for part in parts}
    rows = [
        f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(known[name], ensure_ascii=False)}"
        for name in sorted(known)
    ]
    kept.write_text("{\n" + ",\n".join(rows) + "\n}\n")
