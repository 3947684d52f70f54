"""Finds a small set of faults that still makes a run fail. In: a plan that failed, and a function
that tries a part of it. Out: a plan in which every fault is needed. The search is Zeller's ddmin:
leave out halves, then quarters, and so on, while the rest fails.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from hil.bench.bench import Bench
from hil.bench.plan import Plan
from hil.faults import Fault

T = TypeVar("T")


def shrink(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return a part of `items` for which `fails` returns true and in which every element is
    needed. `fails` must return true for all of `items`.
    """
    needed = list(items)
    parts = 2
    while needed:
        size = max(1, -(-len(needed) // parts))
        for start in range(0, len(needed), size):
            rest = needed[:start] + needed[start + size :]
            if fails(rest):
                needed, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                return needed
            parts = min(len(needed), 2 * parts)
    return needed


def part(bench: Bench, plan: Plan, faults: Sequence[Fault]) -> tuple[Bench, Plan]:
    """Return the same run with these faults only. The bench keeps a [[fault]] table if a fault of
    this table remains, and [commands] if a command remains.
    """
    kinds = {(fault.kind, fault.table) for fault in faults}
    kinds_left = [kind for kind in bench.fault if (kind.kind, kind.table) in kinds]
    commands = bench.commands if bench.commands and (bench.commands.kind, 1) in kinds else None
    # the faults of [nemesis] are drawn already, and are among the tables
    update = {"fault": kinds_left, "commands": commands, "nemesis": None}
    return bench.model_copy(update=update), replace(plan, faults=tuple(faults))
