"""Sets of sequences, stored as ranges for each (device, incarnation). No I/O.

In: ranges of consecutive sequences, many at once, as columns. Out: the parts of these ranges that
were seen before.

Devices count upwards, so nearly every new range begins after the last range of its key. The last
range of each key is stored as two numbers, so numpy handles all such ranges at once. Only the few
keys with gaps have earlier ranges, in a flat, sorted list of boundaries [start, end, start, end,
…], each end exclusive. A number is inside a range if its insertion index in that list is odd.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Key = tuple[str, int]
"""(device, incarnation)"""

Packed = bytes
"""A `Key` as bytes: the incarnation in eight bytes, then the device in UTF-8. It takes a third of
the tuple's memory.
"""

Span = tuple[int, int]
"""First and last sequence, both inclusive."""

RANGES = pa.schema(
    [
        ("device", pa.string()),
        ("incarnation", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)

_NONE = np.iinfo(np.int64).min
"""Value for a key without a sequence. It is below every sequence."""


def pack(devices: Any, incarnations: Any) -> list[Packed]:
    """Return the packed keys for a column of device names and a column of incarnations (int64)."""
    numbers = np.ascontiguousarray(incarnations.to_numpy(), np.int64)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(8), len(numbers), [None, pa.py_buffer(numbers)]
    )
    text = devices.combine_chunks() if isinstance(devices, pa.ChunkedArray) else devices
    keys: list[Packed] = pc.binary_join_element_wise(
        fixed.cast(pa.binary()), text.cast(pa.binary()), b""
    ).to_pylist()
    return keys


def unpack(key: Packed) -> Key:
    return key[8:].decode(), int.from_bytes(key[:8], sys.byteorder, signed=True)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of sequences, as columns of equal length. keys: see `Packed`. first, last: int64
    arrays, both inclusive.
    """

    keys: list[Packed]
    first: Any
    last: Any

    @classmethod
    def of(cls, table: pa.Table | pa.RecordBatch) -> "Ranges":
        """Return ranges from the columns of `RANGES`."""
        keys = pack(table["device"], table["incarnation"])
        return cls(keys, table["first"].to_numpy(), table["last"].to_numpy())

    def table(self) -> pa.Table:
        """Return the ranges in the columns of `RANGES`."""
        devices, incarnations = zip(*map(unpack, self.keys), strict=True) if self.keys else ((), ())
        return pa.table(
            dict(zip(RANGES.names, (devices, incarnations, self.first, self.last), strict=True)),
            RANGES,
        )

    def key(self, index: int) -> Key:
        return unpack(self.keys[index])

    def __iter__(self) -> Iterator[tuple[Key, int, int]]:
        return zip(map(unpack, self.keys), self.first.tolist(), self.last.tolist(), strict=True)

    @property
    def sequences(self) -> int:
        """Number of sequences. A sequence in two ranges counts twice."""
        return int((self.last - self.first).sum()) + len(self.keys)


class SeenRanges:
    """A set of sequences for each key.

    Adding a range takes constant time if it begins after all other ranges of its key. Otherwise it
    takes O(n) time in the number of the key's ranges.
    """

    def __init__(self) -> None:
        self._places: dict[Packed, int] = {}
        self._first, self._last = np.full((2, 1), _NONE)  # always longer than `_places`
        self._below: dict[int, list[int]] = {}

    def add(self, ranges: Ranges) -> None:
        """Add ranges, which may overlap each other and the set."""
        places = self._places_of(ranges.keys)
        alone = np.bincount(places, minlength=len(self._last))[places] == 1
        after = alone & (ranges.first > self._last[places])
        apart = after & (ranges.first - 1 > self._last[places])
        for place in places[apart & (self._last[places] != _NONE)].tolist():
            self._below.setdefault(place, []).extend(
                (int(self._first[place]), int(self._last[place]) + 1)
            )
        self._first[places[apart]] = ranges.first[apart]
        self._last[places[after]] = ranges.last[after]
        for index in np.flatnonzero(~after).tolist():
            self._merge(int(places[index]), int(ranges.first[index]), int(ranges.last[index]) + 1)

    def overlaps(self, ranges: Ranges) -> Iterator[tuple[int, list[Span]]]:
        """Yield (index, parts) for each range of `ranges` that overlaps the set. index: position in
        `ranges`. parts: the parts of the range that are in the set, in ascending order.
        """
        places = np.fromiter(
            (self._places.get(key, -1) for key in ranges.keys), np.int64, len(ranges.keys)
        )
        for index in np.flatnonzero(ranges.first <= self._last[places]).tolist():
            parts = self._inside(
                int(places[index]), int(ranges.first[index]), int(ranges.last[index])
            )
            if parts:
                yield index, parts

    def as_ranges(self) -> Ranges:
        """Return all ranges. The ranges of one key are in ascending order."""
        keys = list(self._places)
        low = [
            (keys[place], start, end - 1)
            for place, bounds in self._below.items()
            for start, end in _pairs(bounds)
        ]
        below, first, last = zip(*low, strict=True) if low else ((), (), ())
        first, last = (
            np.r_[np.array(some, np.int64), rest[: len(keys)]]
            for some, rest in ((first, self._first), (last, self._last))
        )
        return Ranges([*below, *keys], first, last)

    def __len__(self) -> int:
        """Return the number of sequences of all keys."""
        return self.as_ranges().sequences

    @property
    def devices(self) -> int:
        return len(self._places)

    def _places_of(self, keys: list[Packed]) -> Any:
        """Return the index of each key in `_first` and `_last`. A new key gets the next index."""
        places = self._places
        found = np.fromiter(
            (places.setdefault(key, len(places)) for key in keys), np.int64, len(keys)
        )
        if len(places) >= len(self._last):
            more = np.full(2 * len(places) - len(self._last), _NONE)
            self._first, self._last = np.append(self._first, more), np.append(self._last, more)
        return found

    def _merge(self, place: int, start: int, end: int) -> None:
        """Add the sequences `start` to `end - 1` of the key with the index `place`."""
        bounds = self._below.pop(place, [])
        if self._last[place] != _NONE:
            bounds += (int(self._first[place]), int(self._last[place]) + 1)
        lower, upper = bisect_left(bounds, start), bisect_right(bounds, end)
        bounds[lower:upper] = [start] * (lower % 2 == 0) + [end] * (upper % 2 == 0)
        self._last[place], self._first[place] = bounds.pop() - 1, bounds.pop()
        if bounds:
            self._below[place] = bounds

    def _inside(self, place: int, first: int, last: int) -> list[Span]:
        """Return the parts of the range `first` to `last` (inclusive) that the set has for the key
        with the index `place`.
        """
        bounds = self._below.get(place, [])
        lower, upper = bisect_right(bounds, first), bisect_left(bounds, last + 1)
        parts = _pairs([first] * (lower % 2) + bounds[lower:upper] + [last + 1] * (upper % 2))
        newest = max(first, int(self._first[place])), min(last, int(self._last[place]))
        return [(start, end - 1) for start, end in parts] + [newest] * (newest[0] <= newest[1])


def _pairs(bounds: list[int]) -> Iterable[tuple[int, int]]:
    return zip(bounds[::2], bounds[1::2], strict=True)
