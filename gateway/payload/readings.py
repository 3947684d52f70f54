"""The readings in a board's publication.

In: a payload in SenML (RFC 8428), the board that sent it, and the time of receipt. Out: readings,
whose names do not repeat the name of the board. The quality of a reading says how certain its time
is.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from gateway.payload.senml import NotSenml, Record, decode, time_errors

Quality = Literal["synchronised", "reckoned", "unknown"]
"""Certainty of a time. synchronised: the board sent UTC. reckoned: the board sent an age, which is
subtracted from the time of receipt. unknown: the board sent no time, so the time is that of the
receipt, or is missing."""
_NOT_IN_TOPICS = "/+#"
_LONGEST_NAME = 128
_LONGEST_UNIT = 32
_LONGEST_TEXT = 256

DEVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,22}")
"""Pattern of the names that provisioning gives: each fits one level of a topic. Other senders may
use other names.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one board."""

    name: str
    """Name, fit for one level of a topic."""
    value: float | str | bool
    unit: str | None
    """Unit as in SenML (RFC 8428, section 12.1), such as Cel."""
    time: int | None
    """µs since 1970; None if neither board nor gateway knows the time."""
    quality: Quality
    time_error_s: int | None = None
    """Possible error of the board's clock in seconds, if the board sends it (`firmware/README.md`).
    """
    received: int | None = None
    """Time of receipt in µs since 1970; None while the gateway's clock is not known."""
    status: bool = False
    """Whether the reading describes the board itself, not a measurement."""

    def public(self) -> dict[str, Any]:
        """Return the reading as JSON fields for other programs: value, unit, time in ISO 8601,
        quality, time_error_s.
        """
        shown: dict[str, Any] = {"value": self.value}
        if self.unit is not None:
            shown["unit"] = self.unit
        shown |= {"time": iso(self.time), "quality": self.quality}
        if self.time_error_s is not None:
            shown["time_error_s"] = self.time_error_s
        return shown


def iso(us: int | None) -> str | None:
    """Return `2026-01-01T00:00:00Z` for µs since 1970, None for None."""
    if us is None:
        return None
    moment = datetime.fromtimestamp(us / 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}Z"


def readings(device: str, topic: str, payload: bytes, received: int | None) -> list[Reading]:
    """Return all values of a publication in order; an empty list if it is not SenML. Records
    without a value, or with a name that is too long, are skipped. received: µs since 1970.
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
    """Return the value of a record, a text only up to _LONGEST_TEXT characters. Return None if the
    record has only bytes or a sum.
    """
    if record.text is not None:
        return record.text[:_LONGEST_TEXT]
    return record.flag if record.value is None else record.value


def _level(device: str, name: str) -> str:
    """Return the name without a leading device name. Each of `/`, `+` and `#` becomes `_`."""
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
