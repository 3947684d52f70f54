"""Ranges of sequences in rows.

In: rows in any order, each with a device, an incarnation and a sequence, which together are its
key. Out: the ranges, and the first row of each key. The code runs in Spark's tasks, so this module
does not import Spark.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from gateway.ingest.dedup.ranges import RANGES, Ranges, SeenRanges

GATHERED = 1_000_000
"""Number of rows that a task gathers before it turns them into ranges. If it turned fewer rows at a
time, more ranges would result.
"""

AT_ONCE = 50_000
"""Largest number of ranges in one record batch for the driver. On the driver, each range takes a
few hundred bytes of memory.
"""


def ranges_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find the ranges of all rows in the batches of one task. Yield them in the columns of
    `RANGES`.
    """
    ranges = SeenRanges()
    for rows in _gathered(batches):
        ranges.add(Ranges.of(find_ranges(rows)[1]))
    yield from ranges.as_ranges().table().to_batches(max_chunksize=AT_ONCE)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        gathered.append(batch)
        count += batch.num_rows
        if count >= GATHERED:
            yield pa.Table.from_batches(gathered)
            gathered, count = [], 0
    if count:
        yield pa.Table.from_batches(gathered)


def find_ranges(rows: pa.Table) -> tuple[Any, pa.RecordBatch]:
    """Return the positions of the first row of every key, in order, and the ranges of these keys,
    in the columns of `RANGES`.
    """
    order, fresh, starts = in_order(rows)
    begin = np.flatnonzero(starts)
    end = np.r_[begin[1:], len(order)] - 1
    first, last = pa.array(order[begin]), pa.array(order[end])
    ranges = pa.record_batch(
        [
            rows["device"].combine_chunks().take(first),
            rows["incarnation"].combine_chunks().take(first),
            rows["sequence"].combine_chunks().take(first),
            rows["sequence"].combine_chunks().take(last),
        ],
        schema=RANGES,
    )
    return np.sort(order[fresh]), ranges


def in_order(rows: pa.Table) -> tuple[Any, Any, Any]:
    """Sort rows by key, and rows with one key by arrival. Return three arrays, with one element per
    sorted row: its position in `rows`, whether it is the first row of its key, and whether it is
    the first row of a range.
    """
    devices = rows["device"].combine_chunks().dictionary_encode()
    code = devices.indices.to_numpy(zero_copy_only=False)
    incarnation, sequence = rows["incarnation"].to_numpy(), rows["sequence"].to_numpy()
    order = np.lexsort((sequence, incarnation, code))  # stable: equal keys stay in order of arrival
    code, incarnation, sequence = code[order], incarnation[order], sequence[order]
    same_set = (code[1:] == code[:-1]) & (incarnation[1:] == incarnation[:-1])
    distance = np.diff(sequence)
    fresh = np.r_[True, ~(same_set & (distance == 0))]
    starts = np.r_[True, ~(same_set & (distance <= 1))]
    return order, fresh, starts
