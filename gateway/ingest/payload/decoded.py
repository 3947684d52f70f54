"""Payloads as columns: their SenML readings, or the reason why there are none.

In: Arrow columns of devices, payloads and times of receipt. Out: per payload a list of readings and
a reason; exactly one of the two is null.

Importing this module creates no Arrow array, because the first Arrow array of a process imports
pandas, which takes half a second. A start of the ingest has five processes, and only one of them
decodes.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.ingest.payload import skeletons
from gateway.ingest.payload.names import without_device
from gateway.payload.faults import FAULT, GOOD, OTHER_FAULT, QUALITIES
from gateway.payload.senml import RELATIVE, NotSenml, Record, decode

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
        ("time_certainty", pa.string()),
        ("time_stated", pa.string()),
        ("quality", pa.string()),
    ]
)

SYNCHRONISED, RECKONED, UNKNOWN = "synchronised", "reckoned", "unknown"
"""Certainty of a reading's time. SYNCHRONISED: the payload has the time in UTC. RECKONED: the
payload has the reading's age at the receipt, and the time of receipt is known. UNKNOWN: the payload
has no time (RFC 8428, section 4.5.3), or only an age and the time of receipt is unknown.
"""
_CERTAINTIES = (SYNCHRONISED, RECKONED, UNKNOWN)

_MICRO = 1_000_000

EARLIEST, LATEST = 946_684_800 * _MICRO, 4_102_444_800 * _MICRO
"""The years 2000 to 2099, in µs since 1970: LATEST is the first time after them. A time outside
these years comes from a wrong clock. The text of such a time is stored in `time_stated`, and `time`
is null: a single such value in `time` would make pandas refuse a whole table, and make a file's
statistics useless for queries by day.
"""

_BEGIN = datetime(1970, 1, 1)


def columns(device: Any, payload: Any, received: Any) -> tuple[pa.Array, pa.Array]:
    """Return two columns: the readings of each payload (list of READING), and the reason why a
    payload is undecodable (string). device: strings. payload: binary. received: timestamps in µs,
    null where unknown.
    """
    payload, received = _whole(payload), _whole(received).cast(pa.int64())
    # for each payload: the number of its readings, and their start in `parts`
    counts, first = np.zeros((2, len(payload)), np.int64)
    parts, done = [], 0
    for plain in skeletons.find(payload):
        parts.append(_plain_readings(plain, received))
        counts[plain.positions] = 1
        first[plain.positions] = np.arange(done, done := done + len(plain.positions))
    rest = np.flatnonzero(counts == 0)
    packs, reasons = _one_by_one(payload.take(pa.array(rest)))
    parts.append(_readings(packs, received.take(pa.array(rest)).to_pylist()))
    counts[rest] = [len(pack) for pack in packs]
    first[rest] = done + np.cumsum(counts[rest]) - counts[rest]
    offsets = np.r_[0, np.cumsum(counts)]
    order = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], counts)
    undecodable = np.full(len(payload), None, object)
    undecodable[rest] = reasons
    why = pa.array(undecodable, pa.string())
    readings = _named(
        pa.concat_arrays(parts).take(pa.array(order)),
        _whole(device).take(pa.array(np.repeat(np.arange(len(payload)), counts))),
    )
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), readings, mask=why.is_valid()
    ), why


def _one_by_one(payloads: pa.Array) -> tuple[list[list[Record]], list[str | None]]:
    """Return the records of each payload, and the reason why it is undecodable, or None."""
    packs: list[list[Record]] = []
    reasons: list[str | None] = []
    for one in payloads.to_pylist():
        try:
            packs.append(decode(one))
            reasons.append(None)
        except NotSenml as error:
            packs.append([])
            reasons.append(str(error))
    return packs, reasons


def _named(readings: pa.StructArray, device: pa.Array) -> pa.StructArray:
    """Return readings with names that do not repeat the device, and with their quality."""
    name, *others, _ = readings.flatten()
    name = without_device(name, device)
    quality = _quality(name, readings.field("value"))
    return pa.StructArray.from_arrays([name, *others, quality], fields=list(READING))


def _quality(name: pa.Array, value: pa.Array) -> pa.Array:
    """Return the quality of each reading: `good`, or, for a record `NAME.fault` with a number, the
    fault with this number.
    """
    qualities, numbers = pa.array(QUALITIES), pa.array(range(len(QUALITIES)), pa.float64())
    faults = pc.fill_null(qualities.take(pc.index_in(value, numbers)), OTHER_FAULT)
    is_fault = pc.and_(pc.fill_null(pc.ends_with(name, FAULT), False), value.is_valid())
    return pc.if_else(is_fault, faults, GOOD)


def _readings(packs: list[list[Record]], received: list[int | None]) -> pa.StructArray:
    records = list(chain.from_iterable(packs))
    fields: list[Any] = list(zip(*records, strict=True)) if records else [()] * 9
    times = [
        _absolute(record, at) for pack, at in zip(packs, received, strict=True) for record in pack
    ]
    times, stated = _bounded(pa.array(times, pa.int64()))
    unjudged = [None] * len(records)
    certainties = [
        _certainty(record, at) for pack, at in zip(packs, received, strict=True) for record in pack
    ]
    arrays = [
        pa.array(values, field.type)
        for values, field in zip(
            [*fields[:7], times.to_pylist(), certainties, stated, unjudged], READING, strict=True
        )
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(READING))


def _plain_readings(plain: skeletons.Plain, received: pa.Array) -> pa.StructArray:
    count = len(plain.positions)
    at = received.take(pa.array(plain.positions))
    time = np.rint(plain.time * _MICRO).astype(np.int64)
    relative = plain.time < RELATIVE
    time += np.where(relative, at.fill_null(0).to_numpy(), 0)
    no_receipt = at.is_null().to_numpy(zero_copy_only=False)
    certainty = relative.astype(np.int8) + (relative & (no_receipt | (plain.time == 0)))
    times, stated = _bounded(pa.array(time, mask=relative & no_receipt))
    known = {
        "name": plain.name,
        "unit": plain.unit,
        "value": pa.array(plain.value),
        "time": times.cast(READING.field("time").type),
        "time_stated": stated,
        "time_certainty": pa.array(_CERTAINTIES).take(pa.array(certainty)),
    }
    arrays = [
        pa.nulls(count, field.type) if known.get(field.name) is None else known[field.name]
        for field in READING
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(READING))


def _bounded(times: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return two columns: the times in µs since 1970, with null in place of invalid ones; and the
    invalid times as text (RFC 3339), with null in place of valid ones.
    """
    possible = pc.and_(pc.greater_equal(times, EARLIEST), pc.less(times, LATEST))
    if pc.all(possible, skip_nulls=True).as_py() is not False:
        return times, pa.nulls(len(times), pa.string())
    odd = pc.if_else(possible, None, times).to_pylist()
    stated = [None if at is None else in_words(at) for at in odd]
    return pc.if_else(possible, times, None), pa.array(stated, pa.string())


def in_words(at: int) -> str:
    """Return a time in µs since 1970 in the format of RFC 3339."""
    return f"{(_BEGIN + timedelta(microseconds=at)).isoformat()}Z"


def add_readings(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the columns of publications with `readings` in place of `payload`. For Spark's
    mapInArrow.
    """
    for batch in batches:
        readings, _ = columns(batch["device"], batch["payload"], batch["received"])
        yield batch.drop_columns(["payload"]).append_column("readings", readings)


def _absolute(record: Record, received: int | None) -> int | None:
    """Return the time of a record in µs since 1970; None for a relative time and an unknown time of
    receipt.
    """
    if not record.relative:
        return round(record.time * _MICRO)
    return None if received is None else received + round(record.time * _MICRO)


def _certainty(record: Record, received: int | None) -> str:
    if not record.relative:
        return SYNCHRONISED
    return UNKNOWN if received is None or record.time == 0 else RECKONED


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
