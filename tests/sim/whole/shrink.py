"""The smallest plan that still fails. In: a plan that does. Out: the same with as few of its faults
as do.

Each subset is tried once: the same plan goes the same way each time, so there is nothing that a
second try could show.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

from tests.sim.whole.plan import Plan


def shrunk(plan: Plan, fails: Callable[[Plan], object]) -> Plan:
    """Return the first plan that fails, by its number of faults; `plan` itself if no smaller one
    fails.
    """
    for size in range(len(plan.faults)):
        for faults in combinations(plan.faults, size):
            if fails(smaller := replace(plan, faults=faults)):
                return smaller
    return plan
