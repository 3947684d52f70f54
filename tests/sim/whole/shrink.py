"""The search for the smallest plan that still fails.

In: a plan that fails. Out: the same plan with as few of its faults as possible. Each subset is
tried once, because the same plan always has the same result.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

from tests.sim.whole.plan import Plan


def shrunk(plan: Plan, fails: Callable[[Plan], object]) -> Plan:
    """Return the failing plan with the fewest faults. If no smaller plan fails, this is `plan`
    itself.
    """
    for size in range(len(plan.faults)):
        for faults in combinations(plan.faults, size):
            if fails(smaller := replace(plan, faults=faults)):
                return smaller
    return plan
