"""Finds the smallest set of faults that still makes a run fail. In: a plan that failed, and a
function that tries a part of it. Out: a plan in which every fault is needed. The search is Zeller's
ddmin: leave out halves, then quarters, and so on, while the rest fails.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from hil.bench.bench import Bench
from hil.bench.plan import Plan
from hil.faults import Fault

T = TypeVar("T")


def shrink(things: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return a part of `things` for which `fails` returns true and in which every element is
    needed. `fails` must return true for all of `things`.
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
    """Return the same run with these faults only. A fault of the whole run goes with the last one
    of its table, and so do commands.
    """
    kinds = {(fault.kind, fault.table) for fault in faults}
    left = [kind for kind in bench.fault if (kind.kind, kind.table) in kinds]
    commands = bench.commands if bench.commands and (bench.commands.kind, 1) in kinds else None
    # the faults of [nemesis] are drawn already, and stand among the tables
    update = {"fault": left, "commands": commands, "nemesis": None}
    return bench.model_copy(update=update), replace(plan, faults=tuple(faults))
