"""Sums over many runs, in rows. In: reports as JSON, by the row to which they belong. Out: a table
for people, in a terminal and as Markdown.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from hil.judge.checker import Result
from hil.judge.coverage import guarded
from hil.judge.publication import Outcome

BOARD_CUTS = (
    "power cut",
    "power cut in an exchange",
    "power cut at a byte of the exchange",
    "power cut at an EEPROM write of the exchange",
)
GATEWAY_CUTS = (
    "kill -9 of the gateway",
    "kill -9 of the gateway at a step of the exchange",
    "power cut of the gateway",
)
OTHER = ("phantom", "out of order", "unknown")
COLUMNS = (
    *("runs", "hold", "board cuts", "gateway cuts", "faults"),
    *("readings", "lost", "doubled", "altered", "other"),
)
ALL = "all"
TABLE_WIDTH = 160  # characters; names and figures would be cut off in fewer

Sums = dict[str, dict[str, Any]]
"""Sums by row and column. The last row, ALL, has the totals."""


def sums(reports: Iterable[tuple[str, dict[str, Any]]]) -> Sums:
    """Return a row for each name, and the row ALL. reports: pairs of a row's name and a report."""
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    everything = []
    for name, report in reports:
        rows[name].append(report)
        everything.append(report)
    return {**{name: totals(of_row) for name, of_row in rows.items()}, ALL: totals(everything)}


def totals(reports: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the totals of some runs, by column of COLUMNS, and the worst delay. The column `other`
    counts publications that are phantom, out of order or unknown (OTHER).
    """
    sums: Counter[str] = Counter()
    worst = 0.0
    for one in reports:
        happened = Counter(one["faults"]["happened"])
        outcomes = one["outcomes"]
        sums += Counter(
            {
                "runs": 1,
                "hold": one["verdict"] == "holds",
                "board cuts": sum(count for kind, count in happened.items() if kind in BOARD_CUTS),
                "gateway cuts": sum(
                    count for kind, count in happened.items() if kind in GATEWAY_CUTS
                ),
                "faults": happened.total(),
                "readings": one["readings"]["produced"],
                "lost": outcomes["lost"],
                "doubled": outcomes["duplicate"],
                "altered": outcomes["altered"],
                "other": sum(outcomes.get(name, 0) for name in OTHER),
            }
        )
        worst = max(worst, one["delay_s"]["p100"] or 0.0)
    return {**{name: sums[name] for name in COLUMNS}, "worst delay (s)": round(worst, 1)}


def hits(reports: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return how often faults hit each window in all runs, by kind of fault."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in reports:
        for kind, windows in one.get("coverage", {}).items():
            counts[kind].update(windows)
    return {kind: dict(windows) for kind, windows in counts.items()}


def coverage_markdown(hit: Mapping[str, Mapping[str, int]]) -> str:
    """Return the table of windows as Markdown; "" if no fault has a window."""
    rows = [f"| {' | '.join(map(str, row))} |\n" for row in guarded(hit)]
    head = "| fault | window | times hit | guards |\n| --- | --- | ---: | --- |\n"
    return head + "".join(rows) if rows else ""


def side_by_side(results: Mapping[str, Result]) -> Sums:
    return {
        name: {
            "verdict": result.verdict,
            "readings": result.produced,
            "arrived": result.rows,
            "lost": result.count(Outcome.LOST),
            "doubled": result.count(Outcome.DUPLICATE),
            "altered": result.count(Outcome.ALTERED),
            "other": sum(result.count(Outcome(name)) for name in OTHER),
        }
        for name, result in results.items()
    }


def show(console: Console, found: Sums) -> None:
    """Print the table in its full width, even if the terminal is narrower."""
    console.width = max(console.width, TABLE_WIDTH)
    drawn = Table("", *next(iter(found.values())))
    for name, row in found.items():
        drawn.add_row(name, *map(str, row.values()), style="bold" if name == ALL else None)
    console.print(drawn)


def markdown(found: Sums) -> str:
    lines = [["", *found[ALL]], ["---", *["---:"] * len(found[ALL])]]
    lines += [[name, *map(str, row.values())] for name, row in found.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
