"""Which rows of a micro-batch are new: arithmetic on ranges, on the driver.

In: the chunk headers of a micro-batch and the ranges seen so far. Out: a claim: the ranges that a commit would add, and those that it must
leave out.
Of two chunks that hold the same key, the one with the lower number keeps it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.ingest.ranges import SeenRanges

ChunkRange = tuple[int, str, int, int, int]
"""chunk, device, incarnation, first sequence, last sequence (inclusive)"""


@dataclass(slots=True)
class Claim:
    """rows: how many the chunks hold; seen: how many of them are not new; drop: where these are."""

    rows: int = 0
    seen: int = 0
    pending: SeenRanges = field(default_factory=SeenRanges)
    drop: list[ChunkRange] = field(default_factory=list)

    @property
    def new(self) -> int:
        return self.rows - self.seen


def claim(held: Iterable[ChunkRange], seen: SeenRanges) -> Claim:
    """held: in the order of their chunks."""
    result = Claim()
    for chunk, device, incarnation, first, last in held:
        key, start, end = (device, incarnation), first, last + 1
        result.rows += end - start
        overlap = seen.overlap(key, start, end) + result.pending.overlap(key, start, end)
        if overlap:
            parts = SeenRanges()
            for part in overlap:
                parts.add(key, *part)
            result.seen += len(parts)
            result.drop += [(chunk, device, incarnation, low, high - 1) for _, low, high in parts]
        result.pending.add(key, start, end)
    return result
