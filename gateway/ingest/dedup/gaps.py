"""Missing sequences. In: the seen ranges. Out: the gaps between them, by device."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.ingest.dedup.ranges import Key, SeenRanges


@dataclass(frozen=True, slots=True)
class DeviceGaps:
    """The missing sequences of one incarnation of a device. gaps: first and last missing sequence
    of each gap. missing: number of missing sequences.
    """

    device: str
    incarnation: int
    missing: int
    gaps: list[tuple[int, int]]


def gaps(seen: SeenRanges) -> Iterator[DeviceGaps]:
    """Yield the incarnations with missing sequences, those with the most missing ones first."""
    found: defaultdict[Key, list[tuple[int, int]]] = defaultdict(list)
    before: dict[Key, int] = {}
    for key, first, last in seen.as_ranges():
        if key in before:
            found[key].append((before[key] + 1, first - 1))
        before[key] = last
    devices = (
        DeviceGaps(*key, sum(last - first + 1 for first, last in holes), holes)
        for key, holes in found.items()
    )
    return iter(sorted(devices, key=lambda one: (-one.missing, one.device, one.incarnation)))
