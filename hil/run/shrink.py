"""The fewest faults that still make a run fail.

In: a plan that failed, and a way to try a part of it. Out: a plan of which no fault can be left
out. The search is Zeller's ddmin: leave out halves, then quarters, and so on, as long as what is
left fails.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from hil.bench.bench import Bench
from hil.bench.plan import Plan
from hil.faults import Fault

T = TypeVar("T")


def shrink(things: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of `things` for which `fails` holds, and of which nothing single can be left out.
    `things` themselves must fail.
    """
    left = list(things)
    parts = 2
    while left:
        size = max(1, -(-len(left) // parts))
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            if fails(rest):
                left, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                return left
            parts = min(len(left), 2 * parts)
    return left


def part(bench: Bench, plan: Plan, faults: Sequence[Fault]) -> tuple[Bench, Plan]:
    """The same run with these faults only. What stands on the lines for the whole run goes with its
    last fault, and so do commands.
    """
    kinds = {(fault.kind, fault.table) for fault in faults}
    left = [kind for kind in bench.fault if (kind.kind, kind.table) in kinds]
    commands = bench.commands if bench.commands and (bench.commands.kind, 1) in kinds else None
    # what [nemesis] asked for is drawn, and stands among the tables
    update = {"fault": left, "commands": commands, "nemesis": None}
    return bench.model_copy(update=update), replace(plan, faults=tuple(faults))
