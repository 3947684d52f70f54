"""Which sequences were seen, per (device, incarnation), as ranges. Pure Python, no I/O.

In: ranges of consecutive sequences. Out: which parts of a range were seen before.

A set of integers is kept as a flat, sorted list of boundaries [start, end, start, end, …], each end exclusive. The index of a number in
that list tells by its parity whether the number is inside. Devices count upwards, so nearly every list holds two numbers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Key = tuple[str, int]
"""(device, incarnation)"""

Span = tuple[int, int]
"""start, and the end that does not belong to it any more"""


class SeenRanges:
    """Sets of sequences by key. Adding costs O(log n) at the end of a key's list, O(n) in its middle."""

    def __init__(self) -> None:
        self._bounds: dict[Key, list[int]] = {}

    def add(self, key: Key, start: int, end: int) -> None:
        """Add start … end - 1."""
        bounds = self._bounds.get(key)
        if bounds is None:
            self._bounds[key] = [start, end]
        elif start > bounds[-1]:
            bounds += (start, end)
        else:
            left, right = bisect_left(bounds, start), bisect_right(bounds, end)
            bounds[left:right] = [start] * (left % 2 == 0) + [end] * (right % 2 == 0)

    def overlap(self, key: Key, start: int, end: int) -> list[Span]:
        """The parts of start … end - 1 that are in the set, in order."""
        bounds = self._bounds.get(key)
        if bounds is None or start >= bounds[-1]:
            return []
        left, right = bisect_right(bounds, start), bisect_left(bounds, end)
        inside = [start] * (left % 2) + bounds[left:right] + [end] * (right % 2)
        return list(zip(inside[::2], inside[1::2], strict=True))

    def update(self, other: "SeenRanges") -> None:
        for key, start, end in other:
            self.add(key, start, end)

    def __iter__(self) -> Iterator[tuple[Key, int, int]]:
        """Every range as key, start, end."""
        for key, bounds in self._bounds.items():
            for start, end in zip(bounds[::2], bounds[1::2], strict=True):
                yield key, start, end

    def __len__(self) -> int:
        """The number of sequences."""
        return sum(end - start for _, start, end in self)

    @property
    def devices(self) -> int:
        return len(self._bounds)
