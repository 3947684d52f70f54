"""The keys of a batch in few bytes: `onceway where` searches them after the rows have left the
spool.

In: (device, incarnation, sequence) of each row. Out: a blob, zlib over JSON `[[device, incarnation,
[first, last, first, last, …]], …]`. Sequences of a device are mostly consecutive, so a batch of 500
readings of 50 devices takes about 700 bytes.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator


def pack(keys: Iterable[tuple[str, int, int]]) -> bytes:
    sequences: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for device, incarnation, sequence in keys:
        sequences[device, incarnation].append(sequence)
    return zlib.compress(
        json.dumps(
            [[*who, _ranges(found)] for who, found in sequences.items()], separators=(",", ":")
        ).encode()
    )


def _ranges(sequences: list[int]) -> list[int]:
    """Return sorted, joined ranges as one flat list: first, last, first, last, …"""
    bounds: list[int] = []
    for sequence in sorted(sequences):
        if bounds and sequence <= bounds[-1] + 1:
            bounds[-1] = sequence
        else:
            bounds += (sequence, sequence)
    return bounds


def incarnations(blob: bytes, device: str, sequence: int) -> Iterator[int]:
    """Yield the incarnations of `device` that have `sequence` in this batch."""
    for name, incarnation, bounds in json.loads(zlib.decompress(blob)):
        if name == device and any(
            bounds[i] <= sequence <= bounds[i + 1] for i in range(0, len(bounds), 2)
        ):
            yield incarnation
