"""When Python looks for objects that only refer to each other.

It looks through all objects whenever their number has grown by a quarter: 0.25 µs for each, a tenth
of a second for 400,000, and for who has many sessions several times in a start's rush. The gateway
makes hardly any such objects (a test counts them), so it looks through the young ones as usual, and
through all of them every ten minutes; never through those that were there when it began to serve.
"""

import asyncio
import gc

_YOUNG = 5000
"""Objects made between two looks at those."""
_MIDDLE = 10
"""Of these looks between two at what they have left."""
_NEVER = 1_000_000_000
_EVERY_S = 600.0


class Garbage:
    """From its creation until `close`."""

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
