"""SenML (RFC 8428): a payload in CBOR or JSON in, its resolved records out.

Resolved (section 4.6) means that base fields are applied, so each record stands for itself. A
violation of the standard is an error with a reason. The labels of CBOR are those of section 6.
"""

import binascii
import json
import math
import re
from base64 import urlsafe_b64decode
from io import BytesIO
from typing import Any, NamedTuple

from cbor2 import CBORDecoder, loads

PAYLOAD_LIMIT = 65536
"""Longest payload that is decoded, in bytes."""

VERSION = 10
RELATIVE = 2**28
"""Times below this value are relative to now, in seconds (RFC 8428, section 4.5.3)."""

TIME_ERROR, LONGEST_TIME_ERROR = "tu", 2**31
"""TIME_ERROR: label of the possible error of a record's time, in seconds, an extension of Onceway
(`firmware/README.md`). LONGEST_TIME_ERROR: upper bound of this error, exclusive.
"""

EARLIEST, LATEST = -62_135_596_800, 253_402_300_799
"""Earliest and latest time that is accepted, in seconds since 1970: the years 1 to 9999."""

NAME, UNIT, VALUE, TEXT, FLAG, SUM, TIME, UPDATE, DATA = range(9)
BASE_VERSION, BASE_NAME, BASE_TIME, BASE_UNIT, BASE_VALUE, BASE_SUM = range(-1, -7, -1)
LABELS = {
    "n": NAME,
    "u": UNIT,
    "v": VALUE,
    "vs": TEXT,
    "vb": FLAG,
    "s": SUM,
    "t": TIME,
    "ut": UPDATE,
    "vd": DATA,
}
LABELS |= {
    "bver": BASE_VERSION,
    "bn": BASE_NAME,
    "bt": BASE_TIME,
    "bu": BASE_UNIT,
    "bv": BASE_VALUE,
    "bs": BASE_SUM,
}
"""The labels of JSON, each with its number in CBOR."""

_SPELT = {number: label for label, number in LABELS.items()}
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-:./_]*")


class NotSenml(Exception):
    """The payload is not valid SenML. The text is the reason."""


class Record(NamedTuple):
    """One resolved record. time: seconds since 1970 UTC, or relative to now if `relative`. At most
    one of value, text, flag and data is set.
    """

    name: str
    unit: str | None
    value: float | None
    text: str | None
    flag: bool | None
    data: bytes | None
    sum: float | None
    time: float
    relative: bool


def decode(payload: bytes) -> list[Record]:
    """Return the records of a payload in order. Raises NotSenml."""
    if len(payload) > PAYLOAD_LIMIT:
        raise NotSenml(f"longer than {PAYLOAD_LIMIT} bytes")
    start = payload[:1]
    if start in (b"[", b" ", b"\n", b"\t", b"\r"):
        return _resolve(_from_json(payload))
    if _is_cbor_array(payload):
        return _resolve(_from_cbor(payload))
    raise NotSenml("neither a JSON nor a CBOR array" if payload else "empty")


def time_errors(payload: bytes, count: int) -> list[int | None]:
    """Return for each record by how many seconds its time may be wrong (`tu`); None for a record
    without a valid `tu`, and for each record of a JSON payload. payload: a payload that `decode`
    has accepted. count: number of records.
    """
    if not _is_cbor_array(payload) or b"\x62tu" not in payload:
        return [None] * count
    errors = [
        _seconds(record.get(TIME_ERROR))
        for record in loads(payload)
        if any(not isinstance(label, int) or label >= 0 for label in record)
    ]
    return errors if len(errors) == count else [None] * count


def _is_cbor_array(payload: bytes) -> bool:
    return b"\x80" <= payload[:1] <= b"\x9f"


def _seconds(error: Any) -> int | None:
    return error if type(error) is int and 0 <= error < LONGEST_TIME_ERROR else None


def _from_json(payload: bytes) -> Any:
    try:
        pack = json.loads(payload, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise NotSenml(f"not JSON: {str(error)[:100]}") from error
    return [_numbered(record) if isinstance(record, dict) else record for record in pack]


def _numbered(record: dict[str, Any]) -> dict[Any, Any]:
    """Return a JSON record with the labels of CBOR. The content of `vd` is decoded to bytes."""
    if "vd" in record:
        record["vd"] = _from_base64(record["vd"])
    return {LABELS.get(label, label): content for label, content in record.items()}


def _no_number(text: str) -> float:
    raise NotSenml(f"{text} is not a number of JSON")


def _from_base64(text: object) -> bytes:
    if not isinstance(text, str) or _BASE64URL.fullmatch(text) is None:
        raise NotSenml("vd is not base64url")
    try:
        return urlsafe_b64decode(f"{text}{'=' * (-len(text) % 4)}")
    except binascii.Error as error:
        raise NotSenml("vd is not base64url") from error


def _from_cbor(payload: bytes) -> Any:
    stream = BytesIO(payload)
    try:
        pack = CBORDecoder(stream, max_depth=4).decode()
    except (
        Exception
    ) as error:  # whatever the decoder makes of hostile bytes, it is the payload's fault
        raise NotSenml(f"not CBOR: {str(error)[:100]}") from error
    if stream.tell() != len(payload):
        raise NotSenml("bytes after the end")
    return pack


def _resolve(pack: Any) -> list[Record]:
    base: dict[int, Any] = {}
    records = []
    for position, record in enumerate(pack):
        try:
            if not isinstance(record, dict):
                raise NotSenml("no map")
            resolved = _resolve_one(record, base)
        except NotSenml as error:
            raise NotSenml(f"record {position}: {error}") from error
        if resolved is not None:
            records.append(resolved)
    return records


def _resolve_one(record: dict[Any, Any], base: dict[int, Any]) -> Record | None:
    """Return the resolved record, or None for a record that only sets base fields."""
    if _only_sets_base(record, base):
        return None
    field = record.get
    if base:
        _check_version(base.get(BASE_VERSION, VERSION))
    name = _name(field(NAME), base)
    value, text = _number(field(VALUE), VALUE), _text(field(TEXT), TEXT)
    flag, data = _flag(field(FLAG)), _data(field(DATA))
    total = _with_base(_number(field(SUM), SUM), SUM, base, BASE_SUM)
    values = (value is not None) + (text is not None) + (flag is not None) + (data is not None)
    if values > 1 or (values == 0 and total is None):
        raise NotSenml("more than one value" if values else "no value")
    if value is not None:
        value = _with_base(value, VALUE, base, BASE_VALUE)
    time = _number(field(TIME), TIME) or 0.0
    if BASE_TIME in base:
        time += _number(base[BASE_TIME], BASE_TIME) or 0.0
    if not EARLIEST <= time <= LATEST:
        raise NotSenml("the time is out of range")
    unit = _text(field(UNIT), UNIT)
    if unit is None and BASE_UNIT in base:
        unit = _text(base[BASE_UNIT], BASE_UNIT)
    return Record(name, unit, value, text, flag, data, total, time, time < RELATIVE)


def _only_sets_base(record: dict[Any, Any], base: dict[int, Any]) -> bool:
    """Copy a record's base fields into `base`. Return whether the record has no other fields."""
    only_base = True
    for label, content in record.items():
        if type(label) is not int:
            _check_foreign(label)
        elif label < 0:
            base[label] = content
            continue
        only_base = False
    return only_base


def _name(own: Any, base: dict[int, Any]) -> str:
    name = _text(own, NAME) or ""
    if BASE_NAME in base:
        name = (_text(base[BASE_NAME], BASE_NAME) or "") + name
    if _NAME.fullmatch(name) is None:
        raise NotSenml("the name has characters that are not allowed" if name else "no name")
    return name


def _flag(flag: Any) -> bool | None:
    if flag is not None and not isinstance(flag, bool):
        raise NotSenml("vb is not a boolean")
    return flag


def _data(data: Any) -> bytes | None:
    if data is not None and not isinstance(data, bytes):
        raise NotSenml("vd is not of type bytes")
    return data


def _with_base(
    own: float | None, label: int, base: dict[int, Any], base_label: int
) -> float | None:
    if base_label not in base:
        return own
    return _finite((own or 0.0) + (_number(base[base_label], base_label) or 0.0), label)


def _check_version(version: object) -> None:
    if type(version) is not int or not 0 < version <= VERSION:
        raise NotSenml(f"version {str(version)[:20]} is not known")


def _check_foreign(label: object) -> None:
    """Raise NotSenml for a non-standard label that must be understood, because it ends in `_`
    (section 4.4). All other non-standard labels are ignored.
    """
    if not isinstance(label, str):
        raise NotSenml("a label is neither text nor a number")
    if label.endswith("_"):
        raise NotSenml(f"label {label[:20]} must be understood, but is not known here")


def _text(text: Any, label: int) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise NotSenml(f"{_SPELT[label]} is not text")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise NotSenml(f"{_SPELT[label]} has half a surrogate pair")
    return text


def _number(number: Any, label: int) -> float | None:
    if number is None:
        return None
    if type(number) is not float:
        if isinstance(number, (bool, str, bytes)):
            raise NotSenml(f"{_SPELT[label]} is not a number")
        try:
            number = float(number)
        except (TypeError, ValueError, OverflowError) as error:
            raise NotSenml(f"{_SPELT[label]} is not a number") from error
    return _finite(number, label)


def _finite(number: float, label: int) -> float:
    if not math.isfinite(number):
        raise NotSenml(f"{_SPELT[label]} is not finite")
    return number
