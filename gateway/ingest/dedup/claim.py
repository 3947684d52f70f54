"""New rows of a micro-batch: arithmetic on ranges, on the driver.

In: the chunk headers of a micro-batch and the ranges seen so far. Out: a claim: the ranges that a
commit would add, and those that it must leave out. If two chunks hold the same key, the one with
the lower number keeps it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.ingest.dedup.ranges import Ranges, SeenRanges, Span

ChunkRange = tuple[int, str, int, int, int]
"""chunk, device, incarnation, first sequence, last sequence (inclusive)"""


@dataclass(slots=True)
class Claim:
    """The result for a micro-batch. rows: number of rows in the chunks; seen: number of duplicates
    among them; drop: their positions.
    """

    rows: int = 0
    seen: int = 0
    pending: SeenRanges = field(default_factory=SeenRanges)
    drop: list[ChunkRange] = field(default_factory=list)

    @property
    def new(self) -> int:
        return self.rows - self.seen


def claim(chunks: Iterable[tuple[int, Ranges]], seen: SeenRanges) -> Claim:
    """Return the claim for chunks. chunks: number and ranges of each, in order; the ranges of
    one chunk do not overlap.
    """
    result = Claim()
    for chunk, ranges in chunks:
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
    """Return the same sequences, each once."""
    joined: list[Span] = []
    for first, last in sorted(parts):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined
