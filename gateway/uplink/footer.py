"""A smaller form of a Parquet file.

In: the output of arro3. Out: a file with the same rows that is a kilobyte smaller, because
statistics and page indexes are left out. The same rows give the same bytes, because labels are
sorted.

The footer is one Thrift structure in the compact protocol (Apache Thrift, "Thrift compact protocol
encoding"; its fields are in Apache Parquet's `parquet.thrift`).
"""

import struct
from io import BytesIO
from typing import Any

MAGIC = b"PAR1"

# fields by number
_ROW_GROUPS, _LABELS, _ORDERS = 4, 5, 7
_COLUMNS = 1
_META, _INDEXES = 3, {4, 5, 6, 7}
_COMPRESSED, _DATA_AT, _DICTIONARY_AT = 7, 9, 11
_STATISTICS = {12, 13, 16}
"""Numbers of the fields with statistics: of values, of encodings, and of sizes."""

# types of the protocol
_TRUE, _FALSE, _BYTE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 8, 9, 12
_INTEGERS = {4, 5, 6}
_LONG = 15
"""Value of a half-byte which means that the number itself follows."""

Struct = dict[int, tuple[int, Any]]
"""A Thrift structure: type and value of each field, by field number."""


def slim(data: bytes) -> bytes:
    """Return a Parquet file without statistics and page indexes. data: a file by arro3 with at
    least one row group.
    """
    (length,) = struct.unpack("<I", data[-8:-4])
    footer = _read(BytesIO(data[-8 - length : -8]))
    end = 0
    for _, group in footer[_ROW_GROUPS][1]:
        for _, chunk in group[_COLUMNS][1]:
            meta: Struct = chunk[_META][1]
            begin = min(meta[at][1] for at in (_DATA_AT, _DICTIONARY_AT) if at in meta)
            end = max(end, begin + meta[_COMPRESSED][1])
            chunk[_META] = _STRUCT, {key: meta[key] for key in meta.keys() - _STATISTICS}
            for key in _INDEXES & chunk.keys():
                del chunk[key]
    footer.pop(_ORDERS, None)
    footer[_LABELS] = _LIST, sorted(footer[_LABELS][1], key=lambda label: str(label[1]))
    out = bytearray()
    _write(out, footer)
    return data[:end] + out + struct.pack("<I", len(out)) + MAGIC


def _read(source: BytesIO) -> Struct:
    found: Struct = {}
    number = 0
    while head := source.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else _zigzag(source)
        kind = head & 15
        found[number] = kind, _value(source, kind)
    return found


def _value(source: BytesIO, kind: int) -> Any:
    if kind in (_TRUE, _FALSE):
        return None
    if kind in _INTEGERS:
        return _zigzag(source)
    if kind == _BYTE:
        return source.read(1)
    if kind == _BINARY:
        return source.read(_varint(source))
    if kind == _STRUCT:
        return _read(source)
    if kind == _LIST:
        head = source.read(1)[0]
        size = head >> 4 if head >> 4 != _LONG else _varint(source)
        return [(head & 15, _value(source, head & 15)) for _ in range(size)]
    raise ValueError(f"the footer has a value of the unknown type {kind}")


def _varint(source: BytesIO) -> int:
    value = shift = 0
    while True:
        byte = source.read(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7


def _zigzag(source: BytesIO) -> int:
    value = _varint(source)
    return (value >> 1) ^ -(value & 1)


def _write(out: bytearray, fields: Struct) -> None:
    last = 0
    for number, (kind, value) in sorted(fields.items()):
        step = number - last
        if step < _LONG + 1:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _put_varint(out, number << 1)
        last = number
        _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _put_varint(out, value << 1 ^ value >> 63)
    elif kind == _BYTE:
        out += value
    elif kind == _BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == _STRUCT:
        _write(out, value)
    elif kind == _LIST:
        inner = value[0][0] if value else _STRUCT
        out.append(min(len(value), _LONG) << 4 | inner)
        if len(value) >= _LONG:
            _put_varint(out, len(value))
        for _, item in value:
            _put(out, inner, item)


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
