"""The speed of this machine. Tests multiply their bounds of processor time by it, which are given
for one reference machine.

Out: how many times slower this machine is, at least 1.
"""

import time
from functools import cache

_STEPS = 1_000_000
_REFERENCE_S = 0.025
"""Seconds that `_work` takes on the machine for which the bounds are given."""


@cache
def slowness() -> float:
    """Return how many times slower this machine is than the reference machine, at least 1. Take the
    fastest of several attempts, because other processes may delay some of them.
    """
    return max(1.0, min(_work() for _ in range(5)) / _REFERENCE_S)


def _work() -> float:
    begin, total = time.process_time(), 0
    for step in range(_STEPS):
        total += step * step
    return time.process_time() - begin
