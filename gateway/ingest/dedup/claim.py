"""The new rows of a micro-batch, found on the driver by arithmetic on ranges of sequences.

In: the ranges in each chunk of a micro-batch (`sink/merged_batches.py`), and the ranges in the
table. Out: a claim, which has the ranges that a commit would add, and the duplicates that it must
leave out. If two chunks contain the same key (device, incarnation, sequence), the chunk with the
lower number keeps it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.ingest.dedup.ranges import Ranges, SeenRanges, Span

ChunkRange = tuple[int, str, int, int, int]
"""(chunk number, device, incarnation, first sequence, last sequence), both sequences inclusive"""


@dataclass(slots=True)
class Claim:
    """The result of `claim` for a micro-batch. rows: number of rows in its chunks. seen: number of
    duplicates among them. pending: ranges that the commit adds to the table. drop: ranges of the
    duplicates.
    """

    rows: int = 0
    seen: int = 0
    pending: SeenRanges = field(default_factory=SeenRanges)
    drop: list[ChunkRange] = field(default_factory=list)

    @property
    def new(self) -> int:
        return self.rows - self.seen


def claim(chunks: Iterable[tuple[int, Ranges]], seen: SeenRanges) -> Claim:
    """Return the claim for chunks. chunks: number and ranges of each chunk, by ascending number;
    the ranges of one chunk do not overlap. seen: ranges in the table.
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
    """Return the union of ranges, sorted and without overlaps."""
    joined: list[Span] = []
    for first, last in sorted(parts):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined
