"""Payloads as columns: what SenML says in them, and why not where it says nothing.

In: Arrow columns of payloads and of times of receipt. Out: per payload a list of readings and a reason; exactly one of the two is null.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from gateway.ingest.senml import NotSenml, Record, decode

READING = pa.struct(
    [
        ("name", pa.string()),
        ("unit", pa.string()),
        ("value", pa.float64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("data", pa.binary()),
        ("sum", pa.float64()),
        ("time", pa.timestamp("us", "UTC")),
    ]
)

_MICRO = 1_000_000


def columns(payload: Any, received: Any) -> tuple[pa.Array, pa.Array]:
    """payload: binary; received: timestamps in µs, nulls where unknown. Returns (readings: list of READING, undecodable: string)."""
    packs: list[list[Record]] = []
    reasons: list[str | None] = []
    for one in payload.to_pylist():
        try:
            packs.append(decode(one))
            reasons.append(None)
        except NotSenml as error:
            packs.append([])
            reasons.append(str(error))
    offsets = [0]
    for pack in packs:
        offsets.append(offsets[-1] + len(pack))
    records = list(chain.from_iterable(packs))
    fields: list[Any] = list(zip(*records, strict=True)) if records else [()] * 9
    times = [_absolute(record, at) for pack, at in zip(packs, received.cast(pa.int64()).to_pylist(), strict=True) for record in pack]
    arrays = [pa.array(values, field.type) for values, field in zip([*fields[:7], times], READING, strict=True)]
    flat = pa.StructArray.from_arrays(arrays, fields=list(READING))
    undecodable = pa.array(reasons, pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, mask=undecodable.is_valid()), undecodable


def add_readings(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of (key, payload, received) → rows of (key, readings)."""
    for batch in batches:
        readings, _ = columns(batch["payload"], batch["received"])
        yield pa.RecordBatch.from_arrays([*batch.columns[:3], readings], [*batch.schema.names[:3], "readings"])


def _absolute(record: Record, received: int | None) -> int | None:
    """Microseconds since 1970; None for a time relative to an unknown one."""
    if not record.relative:
        return round(record.time * _MICRO)
    return None if received is None else received + round(record.time * _MICRO)
