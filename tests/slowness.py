"""A bound on processor time is for some machine; a slower one gets more of it.

Out: how many times slower than that machine this one is, at the least 1.
"""

import time
from functools import cache

_STEPS = 1_000_000
_REFERENCE_S = 0.025
"""Duration of `_work` on the machine where the bounds were measured."""


@cache
def slowness() -> float:
    """Return the best of some attempts, so that other processes on the machine do not count."""
    return max(1.0, min(_work() for _ in range(5)) / _REFERENCE_S)


def _work() -> float:
    begin, total = time.process_time(), 0
    for step in range(_STEPS):
        total += step * step
    return time.process_time() - begin
