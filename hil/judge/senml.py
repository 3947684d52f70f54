"""Decodes payloads, and computes the content that they must have. The formats are those of
firmware/examples/sensor. In: SenML-CBOR (RFC 8428), or the 8 bytes of a board's journal from which
the board makes a payload (its *source*). Out: records with all base fields resolved.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import cbor2

from hil.formats.senml import (
    BASE_NAME,
    BASE_SUM,
    BASE_TIME,
    BASE_UNIT,
    BASE_VALUE,
    DATA,
    FLAG,
    LABELS,
    NAME,
    RELATIVE,
    SUM,
    TEXT,
    TIME,
    UNIT,
    VALUE,
)

FULL_SCALE = 5.0  # V, reference of the Uno's ADC
ADC_STEPS = 1024
CLOCK_UNKNOWN = 0x8000_0000  # bit of a journalled time that counts seconds since the board's start
ERA = 0x6000_0000  # journalled times below this are from 2038 on
TIME_ERROR = "tu"  # by how many seconds the time may be wrong
STATUS = 0xFF  # kind of a source; others are ADC channels
BOOT = "boot"  # the first record of a status
BOOT_MASK = 0x3FFF
"""Mask of the part of a boot number that a status message has. The journal has no room for more."""
# records of a status with the state of link and board when it is sent, not when it was journalled
LINK_COUNTS = ("bad", "again", "worn", "life", "aside", "denied")


class Record(NamedTuple):
    """A record. name: device and quantity, e.g. `uno-1:adc0`. value: a number, or None. time: in
    UTC seconds, or None. unit: None if there is none.
    """

    name: str
    value: float | None
    time: float | None
    unit: str | None = None
    error: int | None = None
    """Seconds by which the time may be wrong; None if not stated."""
    relative: bool = False
    """Whether the time is relative to the arrival."""
    text: str | None = None
    flag: bool | None = None
    data: str | None = None
    """Data in hexadecimal digits."""
    sum: float | None = None

    @property
    def content(self) -> str:
        """Return the value, or else the sum, as a short text for people."""
        if self.value is not None:
            return f"{self.value:g}"
        return str(next((x for x in (self.text, self.flag, self.data) if x is not None), self.sum))


def decode(payload: bytes) -> tuple[Record, ...] | None:
    """Return the records of a payload; None if the payload is not SenML."""
    try:
        records, name, unit, time = [], "", None, None
        base_value, base_sum = 0.0, 0.0
        for fields in _maps(payload):
            name, time = fields.get(BASE_NAME, name), fields.get(BASE_TIME, time)
            unit = fields.get(BASE_UNIT, unit)
            base_value = _finite(fields.get(BASE_VALUE, base_value))
            base_sum = _finite(fields.get(BASE_SUM, base_sum))
            at = fields.get(TIME, None if time is None else 0)
            at = at if time is None else time + at
            if not fields.keys() & {VALUE, TEXT, FLAG, DATA, SUM}:
                return None
            records.append(
                Record(
                    name + fields.get(NAME, ""),
                    _number(fields.get(VALUE), base_value),
                    at,
                    fields.get(UNIT, unit),
                    fields.get(TIME_ERROR),
                    at is not None and at < RELATIVE,
                    fields.get(TEXT),
                    fields.get(FLAG),
                    fields[DATA].hex() if DATA in fields else None,
                    _number(fields.get(SUM), base_sum),
                )
            )
        return tuple(records)
    except (
        cbor2.CBORDecodeError,
        AttributeError,
        LookupError,
        OverflowError,
        TypeError,
        ValueError,
    ):
        return None


def _maps(payload: bytes) -> Iterable[Mapping[Any, Any]]:
    if not payload.startswith(b"["):
        stream = BytesIO(payload)
        found: Iterable[Mapping[Any, Any]] = cbor2.CBORDecoder(stream).decode()
        if stream.tell() != len(payload):
            raise ValueError("bytes after the end")
        return found
    return [{LABELS[label]: value for label, value in one.items()} for one in json.loads(payload)]


def _number(value: Any, base: float) -> float | None:
    """Return a 64-bit float with the base added. Without a base, a zero keeps its sign."""
    if value is None:
        return None
    return _finite(_finite(value) + base) if base else _finite(value)


def _finite(value: Any) -> float:
    """Return a number. Raises ValueError for infinity, NaN and Booleans (RFC 8428, section 4.3)."""
    if isinstance(value, bool) or not math.isfinite(number := float(value)):
        raise ValueError(f"{value} is not a number")
    return number


def is_status(source: bytes) -> bool:
    return source[6] == STATUS


def start(source: bytes) -> tuple[int, int]:
    """Return number and cause of a start, from the source of its status message."""
    return int.from_bytes(source[4:6]), source[7]


def expected(device: str, source: bytes) -> tuple[Record, ...]:
    """Return the expected records of a journalled source, without LINK_COUNTS. source: time:u32
    value:u16 kind:u8 detail:u8, in big-endian order.
    """
    seconds, value, kind, detail = (
        int.from_bytes(source[:4]),
        int.from_bytes(source[4:6]),
        source[6],
        source[7],
    )
    time = None if seconds & CLOCK_UNKNOWN else seconds | (seconds < ERA) << 31
    if is_status(source):
        return (Record(f"{device}:{BOOT}", value, time), Record(f"{device}:cause", detail, time))
    error = None if time is None else error_of(kind)
    volts = value * FULL_SCALE / ADC_STEPS
    reading = Record(f"{device}:adc{kind & 7}", volts, time, "V", error)
    return (reading, Record(f"{device}:missed", detail, time)) if detail else (reading,)


def error_of(kind: int) -> int | None:
    """Return the possible error, in seconds, that a reading states for its time; None if it states
    none. kind: the byte `kind` of the reading's source.
    """
    code = kind >> 3
    return (2 + (code - 1) % 2) << (code - 1) // 2 if code else None


def of_link(record: Record) -> bool:
    """Whether a record describes the link, and so may change each time it is sent."""
    return record.name.rpartition(":")[2] in LINK_COUNTS


def says(found: Sequence[Record] | None, wanted: Sequence[Record]) -> bool:
    """Return whether a payload has the journalled content. Two additions are allowed: a time, which
    a board adds once its clock is set, and records about the link.
    """
    if found is None:
        return False
    own = [record for record in found if not of_link(record)]
    if not _fits([record for record in found if of_link(record)], own):
        return False
    return len(own) == len(wanted) and all(
        one == other or (other.time is None and _untimed(one) == other)
        for one, other in zip(own, wanted, strict=True)
    )


def _untimed(record: Record) -> Record:
    """Return the record as it was before its time was computed: without time and error."""
    return record._replace(time=None, error=None if record.unit else record.error)


def _fits(of_link: Sequence[Record], own: Sequence[Record]) -> bool:
    """Return whether the records about the link are right: they are in a status, each at most once,
    with its device and time, and their values are not negative.
    """
    if not of_link:
        return True
    device, _, name = own[0].name.rpartition(":") if own else ("", "", "")
    names = [record.name for record in of_link]
    return (
        name == BOOT
        and len(set(names)) == len(names)
        and all(
            record.name.rpartition(":")[0] == device
            and (record.value or 0) >= 0
            and record.unit is None
            and record.error is None
            and record.time == own[0].time
            for record in of_link
        )
    )
