"""Virtual time. In: calls, each with its time. Out: the same calls in their order, without
waiting.
"""

import asyncio
import heapq
from collections.abc import Callable
from functools import partial

_NEVER_RUN = asyncio.new_event_loop()
"""An event loop that is never run. Futures cannot be made without a loop."""


class Time:
    """Simulated time, and the calls that are due. now: seconds since the run began."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    @property
    def ns(self) -> int:
        return round(self.now * 1e9)

    def at(self, when: float, call: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._calls, (max(when, self.now), self._count, call))

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        self.at(self.now + seconds, call)

    def run(self, until: float) -> None:
        calls = self._calls
        while calls and calls[0][0] <= until:
            self.now, _, call = heapq.heappop(calls)
            call()
        self.now = until


class Timer:
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """The event loop of a gateway from one start to the next death, which drops all pending calls.
    Each file descriptor belongs to a `Port` (line.py), which calls its reader itself.
    """

    def __init__(self, time: Time) -> None:
        self._time = time
        self.dead = False
        self.readers: dict[int, Callable[[], object]] = {}

    def time(self) -> float:
        return self._time.now

    def call_at(self, when: float, call: Callable[..., object], *args: object) -> Timer:
        timer = Timer(partial(call, *args))
        self._time.at(when, partial(self._ring, timer))
        return timer

    def call_later(self, delay: float, call: Callable[..., object], *args: object) -> Timer:
        return self.call_at(self._time.now + delay, call, *args)

    def call_soon(self, call: Callable[..., object], *args: object) -> Timer:
        return self.call_at(self._time.now, call, *args)

    call_soon_threadsafe = call_soon

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.Future(loop=_NEVER_RUN)

    def add_reader(self, fd: int, call: Callable[..., object], *args: object) -> None:
        self.readers[fd] = partial(call, *args)

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def remove_writer(self, fd: int) -> None:
        """Do nothing, because a port accepts all bytes at once."""

    def _ring(self, timer: Timer) -> None:
        if not self.dead and timer.call is not None:
            timer.call()
