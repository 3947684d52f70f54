"""A serial line of the run, from a board's port to the port of its gateway.

In: bytes from both ends, and faults of the line. Out: the bytes that arrive, damaged by the rig's
own noise, and the events of the rig's tap. Bytes keep their order. A line that is cut loses its
bytes; a line that is held delays them.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from hil.wire.noise import Noise
from hil.wire.tap import Tap
from tests.sim.whole.clock import Loop, Time

_DELAYS = (0.0, 0.0, 0.0, 0.002, 0.015)
"""Additional delays of the line in seconds, as an adapter's buffers cause them."""


class End(Protocol):
    @property
    def there(self) -> bool: ...

    def receive(self, data: bytes) -> None: ...


class Line:
    """A serial line that can damage bytes. tell: called with each event of the tap. seed: decides
    all damage.
    """

    def __init__(
        self, time: Time, key: bytes, tell: Callable[[dict[str, Any]], object], seed: str
    ) -> None:
        self._time = time
        self.tap = Tap(tell, lambda: key)
        self._random = Random(seed)
        self._noise = {way: Noise(0.0, seed + way) for way in ("up", "down")}
        self._free_at = {"up": 0.0, "down": 0.0}
        self._ends: dict[str, End] = {}
        self._cut_until = 0.0
        self._held_until = 0.0
        self._laid = 0
        """Number of calls of `lay`. Bytes that were sent before the last call are lost."""

    def lay(self, way: str, end: End) -> None:
        """Connect `end` as the receiver of one direction. From now on, bytes of this direction go
        to it. All bytes on their way, in both directions, are lost.
        """
        self._ends[way] = end
        self._laid += 1

    def noise(self, rate: float, seed: str) -> None:
        self._noise = {way: Noise(rate, seed + way) for way in self._noise}

    def cut(self, seconds: float) -> None:
        self._cut_until = max(self._cut_until, self._time.now + seconds)

    def hold(self, seconds: float) -> None:
        self._held_until = self._time.now + seconds

    def mend(self) -> None:
        self.noise(0.0, "")
        self._cut_until = self._held_until = 0.0

    def send(self, way: str, data: bytes) -> None:
        self.tap.feed(way, data)
        if self._time.now < self._cut_until:
            return
        arriving, _ = self._noise[way].feed(data)
        at = max(self._time.now + self._random.choice(_DELAYS), self._free_at[way])
        at = self._free_at[way] = max(at, self._held_until)
        self._time.at(at, partial(self._arrive, way, arriving, self._laid))

    def _arrive(self, way: str, data: bytes, laid: int) -> None:
        end = self._ends[way]
        if laid == self._laid and end.there:
            self.tap.arrived(way, data)
            end.receive(data)


class Port:
    """The gateway's end of a line: a `Tty` without a terminal. It exists while it is open."""

    def __init__(self, loop: Loop, fd: int, line: Line) -> None:
        self.fd = fd
        self._loop = loop
        self._line = line
        self._came = b""
        line.lay("up", self)

    @property
    def there(self) -> bool:
        return not self._loop.dead and self.fd in self._loop.readers

    def receive(self, data: bytes) -> None:
        self._came += data
        self._loop.readers[self.fd]()

    def read(self, length: int) -> bytes:
        data, self._came = self._came[:length], self._came[length:]
        return data

    def write(self, data: bytes) -> int:
        self._line.send("down", data)
        return len(data)

    def close(self) -> None:
        """Do nothing, because the event loop has removed the reader."""
