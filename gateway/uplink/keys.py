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
            [[*origin, _ranges(found)] for origin, found in sequences.items()],
            separators=(",", ":"),
        ).encode()
    )


def _ranges(sequences: list[int]) -> list[int]:
    """Return the ranges of consecutive sequences as one flat, sorted list: first, last, first,
    last, …
    """
    bounds: list[int] = []
    for sequence in sorted(sequences):
        if bounds and sequence <= bounds[-1] + 1:
            bounds[-1] = sequence
        else:
            bounds += (sequence, sequence)
    return bounds


def unpack(blob: object) -> list[tuple[str, int, list[int]]] | None:
    """Return (device, incarnation, bounds) for each incarnation in a batch. bounds: the first and
    the last sequence of each range. None if the blob is missing or damaged.
    """
    try:
        found = json.loads(zlib.decompress(blob))  # type: ignore[arg-type]
        return [
            (str(device), int(incarnation), list(map(int, bounds)))
            for device, incarnation, bounds in found
        ]
    except (TypeError, ValueError, RecursionError, zlib.error):
        return None


def incarnations(blob: object, device: str, sequence: int) -> Iterator[int]:
    """Yield the incarnations of `device` that have `sequence` in a batch. blob: the batch's packed
    keys.
    """
    for name, incarnation, bounds in unpack(blob) or ():
        if name == device and any(
            first <= sequence <= last
            for first, last in zip(bounds[::2], bounds[1::2], strict=False)
        ):
            yield incarnation
