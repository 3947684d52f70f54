"""Bursts of interference (the Gilbert-Elliott model): long good stretches, and short bad stretches
in which half of the bytes change. In: the bytes of one direction, the mean lengths of good and bad
stretches in bytes, a seed. Out: the bytes that arrive, and one harm per burst. The same seed gives
bursts at the same offsets, however the bytes are split into pieces.
"""

import math
import random

from hil.wire.noise import Harm

HIT = 0.5  # share of changed bytes in a burst


class Bursts:
    """Bursts of interference in one direction of a line. gap, length: mean distance between bursts
    and mean length of a burst, in bytes, at least 1. Both have a geometric distribution.
    """

    kinds = ("burst",)

    def __init__(self, gap: float, length: float, seed: str) -> None:
        if gap < 1 or length < 1:
            raise ValueError(
                f"a gap and a burst are at least one byte long on average, not {gap} and {length}"
            )
        self._means = {False: gap, True: length}
        self._random = random.Random(seed)
        self._offset = 0
        self._bad = False
        self._until = self._stretch()

    def feed(self, data: bytes, now: float) -> tuple[bytes, list[Harm]]:
        out = bytearray()
        harms = []
        for byte in data:
            while self._offset == self._until:
                self._bad = not self._bad
                self._until += self._stretch()
                if self._bad:
                    harms.append(Harm(self._offset, "burst", length=self._until - self._offset))
            hit = self._bad and self._random.random() < HIT
            out.append(byte ^ self._random.randrange(1, 256) if hit else byte)
            self._offset += 1
        return bytes(out), harms

    def _stretch(self) -> int:
        mean = self._means[self._bad]
        return (
            1
            if mean == 1
            else 1 + math.floor(math.log1p(-self._random.random()) / math.log1p(-1 / mean))
        )
