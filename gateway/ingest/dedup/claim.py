"""Which rows of a micro-batch are new: arithmetic on ranges, on the driver.

In: the chunk headers of a micro-batch and the ranges seen so far. Out: a claim: the ranges that a
commit would add, and those that it must leave out. Of two chunks that hold the same key, the one
with the lower number keeps it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.ingest.dedup.ranges import Ranges, SeenRanges, Span

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


def claim(held: Iterable[tuple[int, Ranges]], seen: SeenRanges) -> Claim:
    """held: chunks by number, in order; the ranges of one do not overlap each other."""
    result = Claim()
    for chunk, ranges in held:
        result.rows += ranges.sequences
        overlaps: defaultdict[int, list[Span]] = defaultdict(list)
        for earlier in (seen, result.pending):
            for index, parts in earlier.overlaps(ranges):
                overlaps[index] += parts
        for index, parts in sorted(overlaps.items()):
            for first, last in _joined(parts):
                result.seen += last - first + 1
                result.drop.append((chunk, *ranges.key(index), first, last))
        result.pending.add(ranges)
    return result


def _joined(parts: list[Span]) -> list[Span]:
    """The same sequences, each once."""
    joined: list[Span] = []
    for first, last in sorted(parts):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined
