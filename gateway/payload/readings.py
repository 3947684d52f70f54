"""What a board's publication says, reading by reading.

In: a payload in SenML (RFC 8428), the board that sent it, and when it came. Out: readings whose
names do not repeat the board, with the words that the table has for the certainty of a time.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from gateway.payload.senml import NotSenml, Record, decode, time_errors

Quality = Literal["synchronised", "reckoned", "unknown"]
"""Of a time: the board told UTC; it told how long ago, counted from the receipt; it told none, and
the time is that of the receipt, or none at all.
"""
_NOT_IN_TOPICS = "/+#"
_LONGEST_NAME = 128
_LONGEST_UNIT = 32
_LONGEST_TEXT = 256

DEVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,22}")
"""As provisioning gives them: fit for one level of a topic. Strangers may say others."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one board."""

    name: str
    """Fit for one level of a topic."""
    value: float | str | bool
    unit: str | None
    """As in SenML (RFC 8428, section 12.1), such as Cel."""
    time: int | None
    """µs since 1970; None when neither board nor gateway knows it."""
    quality: Quality
    time_error_s: int | None = None
    """By how much the board's clock may be wrong, if it says so (`firmware/README.md`)."""
    received: int | None = None
    """µs since 1970 when the gateway took it; None while its clock is not known."""
    status: bool = False
    """It says how the board is, not what it measures."""

    def public(self) -> dict[str, Any]:
        """What programs get: value, unit, time in ISO 8601, quality, time_error_s."""
        shown: dict[str, Any] = {"value": self.value}
        if self.unit is not None:
            shown["unit"] = self.unit
        shown |= {"time": iso(self.time), "quality": self.quality}
        if self.time_error_s is not None:
            shown["time_error_s"] = self.time_error_s
        return shown


def iso(us: int | None) -> str | None:
    """`2026-01-01T00:00:00Z`, of µs since 1970."""
    if us is None:
        return None
    moment = datetime.fromtimestamp(us / 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}Z"


def readings(device: str, topic: str, payload: bytes, received: int | None) -> list[Reading]:
    """All values of a publication in order; none when it is no SenML. What has no name that is fit
    for a topic, or no value, is passed over. received: µs since 1970.
    """
    try:
        records = decode(payload)
    except NotSenml:
        return []
    errors = time_errors(payload, len(records))
    status = topic.endswith("/status")
    found = []
    for record, error in zip(records, errors, strict=True):
        value = _value(record)
        name = _level(device, record.name)
        if value is not None and len(name) <= _LONGEST_NAME:
            found.append(
                Reading(
                    name,
                    value,
                    None if record.unit is None else record.unit[:_LONGEST_UNIT],
                    *_time(record, received),
                    error,
                    received,
                    status,
                )
            )
    return found


def _value(record: Record) -> float | str | bool | None:
    """None for bytes and for sums, which are no values of their own."""
    if record.text is not None:
        return record.text[:_LONGEST_TEXT]
    return record.flag if record.value is None else record.value


def _level(device: str, name: str) -> str:
    """The name without the device that it begins with, as the table has it."""
    rest = name.removeprefix(device)
    if rest != name and rest[:1] in (":", "/") and len(rest) > 1:
        name = rest[1:]
    return "".join("_" if letter in _NOT_IN_TOPICS else letter for letter in name)


def _time(record: Record, received: int | None) -> tuple[int | None, Quality]:
    us = round(record.time * 1_000_000)
    if not record.relative:
        return us, "synchronised"
    if received is None:
        return None, "unknown"
    return received + us, "reckoned" if us else "unknown"
