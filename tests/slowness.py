"""Bounds of processor time are given for one machine. Slower machines get more time.

Out: how many times slower this machine is, at least 1.
"""

import time
from functools import cache

_STEPS = 1_000_000
_REFERENCE_S = 0.025
"""Seconds that `_work` takes on the machine for which the bounds are given."""


@cache
def slowness() -> float:
    """Return the factor, from the best of several attempts: other processes may delay some
    of them.
    """
    return max(1.0, min(_work() for _ in range(5)) / _REFERENCE_S)


def _work() -> float:
    begin, total = time.process_time(), 0
    for step in range(_STEPS):
        total += step * step
    return time.process_time() - begin
