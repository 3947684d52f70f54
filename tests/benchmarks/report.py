"""What every benchmark ends with: its figures as a table for people, and merged into build/bench.json for everything else.

In: a list of Figure. Out: a table on standard output; build/bench.json, `{figure: {value, unit, peer, goal, met}}`, where
figures of other benchmarks stay as they are. Benchmarks are scripts (`python tests/benchmarks/bench_codec.py`), so they say `from report
import Figure, report`.
"""

import json
import os
import sys
from dataclasses import dataclass
from operator import ge, gt, le, lt
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parents[2] / "build" / "bench.json"
_RELATIONS = {"≥": ge, "≤": le, ">": gt, "<": lt}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. goal: a relation and a number, e.g. `≤ 0.8` (also ≥, <, >); None for a figure that is only watched.
    peer: the same figure of the program compared with, in the same unit and run."""

    name: str
    value: float
    unit: str
    goal: str | None = None
    peer: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.goal is None:
            return None
        relation, _, bound = self.goal.partition(" ")
        return bool(_RELATIONS[relation](self.value, float(bound.replace(",", ""))))


def report(figures: list[Figure], results: Path = RESULTS) -> bool:
    """Merge `figures` into `results` and print them. False when a goal is missed."""
    _merge(figures, results)
    table = Table("figure", "value", "unit", "peer", "goal", "met")
    for number in (1, 3):
        table.columns[number].justify = "right"
    for figure in figures:
        met = {None: "", True: "[green]yes[/green]", False: "[red]no[/red]"}[figure.met]
        peer = "" if figure.peer is None else f"{figure.peer:,.4g}"
        table.add_row(figure.name, f"{figure.value:,.4g}", figure.unit, peer, figure.goal or "", met)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return all(figure.met is not False for figure in figures)


def _merge(figures: list[Figure], results: Path) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(results.read_text()) if results.exists() else {}
    for figure in figures:
        known[figure.name] = {"value": figure.value, "unit": figure.unit, "peer": figure.peer, "goal": figure.goal, "met": figure.met}
    new = results.with_suffix(".new")
    new.write_text(json.dumps(known, indent=2, ensure_ascii=False, sort_keys=True) + "\n")
    os.replace(new, results)
