"""Counts at each hop, for tasks that wait for a count. A fault's place is a count (readings,
commits, batches), never a time. In: counts from the observers. Out: wake-ups of tasks that wait for
a count, and the counts for the display.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

LOOK_EVERY = 0.02  # s
PATIENCE = 600.0
"""Longest wait in seconds for a change in a program, on a busy machine. Without any progress, the
run gives up earlier (`stall_s` of the bench).
"""


class Counters:
    """Named counts that only grow."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._waiting: list[tuple[str, int, asyncio.Event]] = []

    def __getitem__(self, name: str) -> int:
        return self._counts.get(name, 0)

    def set(self, name: str, value: int) -> None:
        """Set a count. It never goes back: a lower value is ignored."""
        self._counts[name] = max(value, self[name])
        for waiting in [item for item in self._waiting if item[0] == name and item[1] <= value]:
            waiting[2].set()
            self._waiting.remove(waiting)

    async def reach(self, name: str, value: int) -> None:
        if self[name] >= value:
            return
        reached = asyncio.Event()
        self._waiting.append((name, value, reached))
        await reached.wait()


async def wait_until(true: Callable[[], object], every: float = LOOK_EVERY) -> None:
    """Wait until `true()` is true; check every `every` seconds. Use this for the files of other
    processes, which cannot wake the rig.
    """
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(every)


async def comes(true: Callable[[], object], every: float = LOOK_EVERY) -> bool:
    """Wait until `true()` is true, at most PATIENCE seconds. Return whether it became true."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await wait_until(true, every)
            return True
    return False
