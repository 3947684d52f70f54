"""Line noise, byte by byte, without I/O. In: the bytes of one direction of a serial line, a rate
and a seed. Out: the bytes that arrive at the far end, and the harms. Rate and seed alone decide
which byte offsets are harmed and how, even if the bytes come in other pieces.
"""

import math
import random
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Harm:
    """A harm. offset: number of bytes sent before it. sent: the byte that was sent, None if it was
    inserted. arrived: the byte that arrived, None if it was lost. length: number of bytes harmed in
    a row; if it is above 1, `sent` and `arrived` are None.
    """

    offset: int
    kind: str
    sent: int | None = None
    arrived: int | None = None
    length: int = 1


class Weather(Protocol):
    """The faults of a line for a whole run. kinds: the kinds of harm that these faults do."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def feed(self, data: bytes, now: float) -> tuple[bytes, list[Harm]]:
        """Return the part of `data` that arrives, and the harms in it in order. now: seconds of a
        clock that never goes back.
        """
        ...


KINDS = ("corrupt", "lose", "insert")


class Noise:
    """Corrupts, loses and inserts bytes. Of every three harms, one is of each kind. rate: share of
    bytes harmed, 0 ≤ rate < 1. The gaps between harms have a geometric distribution.
    """

    def __init__(self, rate: float, seed: str, table: int = 1) -> None:
        """Create the noise. table: number of the fault's table; see `kinds`."""
        if not 0 <= rate < 1:
            raise ValueError(f"the noise rate must be at least 0 and below 1, not {rate}")
        self.kinds = kinds(table)
        self._rate = rate
        self._random = random.Random(seed)
        self._kinds: list[str] = []
        self._offset = 0
        self._next = self._gap()

    def feed(self, data: bytes, now: float = 0.0) -> tuple[bytes, list[Harm]]:
        """Return the bytes that arrive for `data`, and the harms in order. `now` has no effect."""
        out = bytearray()
        harms: list[Harm] = []
        done = 0
        while self._next - self._offset < len(data) - done:
            clean = int(self._next - self._offset)
            out += data[done : done + clean]
            done += clean
            self._offset += clean
            harms.append(self._harm(data[done], out))
            done += 1
            self._offset += 1
            self._next = self._offset + self._gap()
        out += data[done:]
        self._offset += len(data) - done
        return bytes(out), harms

    def _gap(self) -> float:
        """Return the number of clean bytes before the next harm."""
        if self._rate == 0:
            return math.inf
        return math.floor(min(math.log1p(-self._random.random()) / math.log1p(-self._rate), 2**53))

    def _harm(self, byte: int, out: bytearray) -> Harm:
        if not self._kinds:
            self._kinds = self._random.sample(KINDS, len(KINDS))
        kind = self._kinds.pop()
        name = self.kinds[KINDS.index(kind)]
        if kind == "lose":
            return Harm(self._offset, name, byte, None)
        if kind == "corrupt":
            arrived = byte ^ self._random.randrange(1, 256)
            out.append(arrived)
            return Harm(self._offset, name, byte, arrived)
        extra = self._random.randrange(256)
        out += bytes((extra, byte))
        return Harm(self._offset, name, None, extra)


def kinds(table: int) -> tuple[str, ...]:
    """Return the names of a table's harms, such as `lose`; for the second table, `lose.2`."""
    return KINDS if table == 1 else tuple(f"{kind}.{table}" for kind in KINDS)
