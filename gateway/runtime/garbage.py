"""Tuning of Python's garbage collector for objects that refer to each other.

By default the collector visits all objects whenever their number has grown by a quarter. A visit
takes 0.25 µs for each object: a tenth of a second for 400,000, several times during a start with
many sessions. The gateway makes hardly any objects that refer to each other (a test counts them).
So the collector visits young objects as usual and all objects every ten minutes, but never objects
that existed when the gateway began to serve.
"""

import asyncio
import gc

_YOUNG = 5000
"""Number of new objects after which the collector visits the young generation."""
_MIDDLE = 10
"""The middle generation is visited once for this many visits of the young generation."""
_NEVER = 1_000_000_000
_EVERY_S = 600.0


class Garbage:
    """The tuned garbage collector, from creation until `close`."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_EVERY_S, self._look)

    def _look(self) -> None:
        gc.collect()
        self._timer = self._loop.call_later(_EVERY_S, self._look)

    def close(self) -> None:
        self._timer.cancel()
        gc.set_threshold(*self._before)
        gc.unfreeze()
