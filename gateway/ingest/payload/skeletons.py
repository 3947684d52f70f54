"""Bulk decoding of payloads that differ only in their texts and numbers.

In: a column of payloads. Out: the records, as columns, of all payloads that are SenML in CBOR with
one plain record.

A kind of sensor sends the same fields in the same order, so thousands of payloads have one
skeleton: the same bytes except for the contents of some fields at fixed positions. numpy reads such
a field of all payloads as one column. That takes a twentieth of the time in which
`gateway/payload/senml.py` decodes the payloads one by one. Any other payload is left to
`gateway/payload/senml.py`, which implements the whole standard and gives reasons.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gateway.payload.senml import (
    BASE_NAME,
    BASE_TIME,
    EARLIEST,
    LATEST,
    NAME,
    TIME,
    UNIT,
    VALUE,
)

FEWEST = 16
"""Smallest number of payloads of one length for which bulk decoding is faster."""

SKELETONS = 8
"""Largest number of skeletons that are tried among payloads of one length."""

_TEXTS = (BASE_NAME, NAME, UNIT)
_NUMBERS = (BASE_TIME, TIME, VALUE)
_LABELS = {label if label >= 0 else 0x1F - label: label for label in (*_TEXTS, *_NUMBERS)}
"""SenML labels, by the byte that encodes them in CBOR."""

_NUMBER_TYPES = {
    0x18: "u1",
    0x19: ">u2",
    0x1A: ">u4",
    0x1B: ">u8",
    0xF9: ">f2",
    0xFA: ">f4",
    0xFB: ">f8",
}
"""numpy types of numbers, by the first byte of a number in CBOR (RFC 8949, section 3)."""

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_STARTS_NAME = np.isin(np.arange(256), np.frombuffer(_LETTERS.encode(), np.uint8))
_IN_NAME = np.isin(np.arange(256), np.frombuffer(f"{_LETTERS}-:./_".encode(), np.uint8))
"""For each byte, whether a name may contain it: RFC 8428, section 4.5.1."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Records as columns, one record per payload. positions: indices of the payloads. unit: None if
    the payloads have no unit. time: see `senml.Record.time`.
    """

    positions: Any
    name: pa.Array
    unit: pa.Array | None
    value: Any
    time: Any


@dataclass(slots=True)
class Skeleton:
    """The form that many payloads share. fixed: mask of the bytes that are the same in all of them.
    texts: position of each text, by label. numbers: position and numpy type of each number, by
    label.
    """

    fixed: Any
    texts: dict[int, slice] = field(default_factory=dict)
    numbers: dict[int, tuple[slice, str]] = field(default_factory=dict)


def find(payloads: pa.Array) -> Iterator[Plain]:
    """Decode the payloads that can be decoded in bulk. Yield their records, one result for each
    group of alike payloads. The remaining payloads are in no result, and need another decoder.
    payloads: binary, without nulls.
    """
    if not len(payloads):
        return
    lengths = np.diff(
        np.frombuffer(payloads.buffers()[1], np.int32)[
            payloads.offset : payloads.offset + len(payloads) + 1
        ]
    )
    for length, count in zip(*np.unique(lengths, return_counts=True), strict=True):
        rest = np.flatnonzero(lengths == length)
        for _ in range(SKELETONS if length and count >= FEWEST else 0):
            if len(rest) < FEWEST:
                break
            same = payloads if len(rest) == len(payloads) else payloads.take(pa.array(rest))
            begin = int(np.frombuffer(same.buffers()[1], np.int32)[same.offset])
            table = np.frombuffer(same.buffers()[2], np.uint8)[
                begin : begin + len(rest) * length
            ].reshape(-1, length)
            skeleton = scan(table[0].tobytes())
            alike = (
                np.ones(1, bool)
                if skeleton is None
                else (table[:, skeleton.fixed] == table[0, skeleton.fixed]).all(axis=1)
            )
            if skeleton is not None:
                yield _read(table[alike], skeleton, rest[alike])
            rest = rest[1:] if skeleton is None else rest[~alike]


def scan(payload: bytes) -> Skeleton | None:
    """Return the skeleton of a payload. None if the payload is not a SenML pack in CBOR with one
    record of plain fields.
    """
    found = Skeleton(np.ones(len(payload), bool))
    try:
        if payload[0] != 0x81 or not 0xA1 <= payload[1] <= 0xB7:
            return None
        position = 2
        for _ in range(payload[1] & 0x1F):
            if (foreign := _skipped_number(payload, position)) is not None:
                found.fixed[foreign] = False
                position = foreign.stop
                continue
            label, head = _LABELS.get(payload[position]), payload[position + 1]
            begin = position + 2
            if label is None or label in found.texts or label in found.numbers:
                return None
            if label in _TEXTS and 0x60 <= head <= 0x77:
                place = found.texts[label] = slice(begin, begin + (head & 0x1F))
            elif label in _NUMBERS and head in _NUMBER_TYPES:
                place = slice(begin, begin + np.dtype(_NUMBER_TYPES[head]).itemsize)
                found.numbers[label] = place, _NUMBER_TYPES[head]
            else:
                return None
            found.fixed[place] = False
            position = place.stop
    except IndexError:
        return None
    return found if position == len(payload) and VALUE in found.numbers else None


def _skipped_number(payload: bytes, position: int) -> slice | None:
    """Return the position of the number after a non-standard label at `position`, such as a board's
    "tu". Such a number is skipped. Return None if there is no such label, if the label ends with
    `_`, so that a reader must understand it, or if no number follows.
    """
    if not 0x61 <= payload[position] <= 0x77:
        return None
    end = position + 1 + (payload[position] & 0x1F)
    label, head = payload[position + 1 : end], payload[end]
    if not label.isascii() or label.endswith(b"_"):
        return None
    if head < min(_NUMBER_TYPES):
        return slice(end + 1, end + 1)
    if head not in _NUMBER_TYPES:
        return None
    return slice(end + 1, end + 1 + np.dtype(_NUMBER_TYPES[head]).itemsize)


def _read(table: Any, skeleton: Skeleton, positions: Any) -> Plain:
    """Return the records in payloads of one skeleton. table: one row of bytes per payload. Payloads
    that `gateway/payload/senml.py` might refuse are left out.
    """
    nothing = slice(0, 0)
    name = np.concatenate(
        [table[:, skeleton.texts.get(label, nothing)] for label in (BASE_NAME, NAME)], axis=1
    )
    value = _numbers(table, skeleton, VALUE)
    with np.errstate(invalid="ignore"):
        time = _numbers(table, skeleton, TIME) + _numbers(table, skeleton, BASE_TIME)
    good = np.isfinite(value) & (time >= EARLIEST) & (time <= LATEST) & _IN_NAME[name].all(axis=1)
    good &= _STARTS_NAME[name[:, 0]] if name.shape[1] else False
    unit = table[:, skeleton.texts[UNIT]] if UNIT in skeleton.texts else None
    if unit is not None:
        good &= (unit < 0x80).all(axis=1)
    return Plain(
        positions[good],
        _strings(name[good]),
        None if unit is None else _strings(unit[good]),
        value[good],
        time[good],
    )


def _numbers(table: Any, skeleton: Skeleton, label: int) -> Any:
    if label not in skeleton.numbers:
        return np.zeros(len(table))
    place, kind = skeleton.numbers[label]
    return np.ascontiguousarray(table[:, place]).view(kind)[:, 0].astype(np.float64)


def _strings(table: Any) -> pa.Array:
    """Return each row of a table of ASCII bytes as one text."""
    count, width = table.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(table))
    )
