"""Topics and payloads.

In: the arguments of `publish`. Out: a topic, and the payload. A number, a truth value or a text
becomes SenML in JSON (RFC 8428), with the time of the measurement. Bytes stay as they are.
"""

import json
import math
import re
import time

from onceway_publisher.errors import Unreadable
from onceway_publisher.packets import LONGEST_TEXT

EARLIEST = 2**28
"""Smallest time that SenML does not treat as relative to now, in seconds since 1970."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-:./_]*")

Value = float | int | bool | str | bytes


def checked_topic(topic: str) -> str:
    """Return the topic unchanged. Raises Unreadable if no message can have it (MQTT 5, section
    4.7).
    """
    if not isinstance(topic, str):
        raise Unreadable(f"the topic {topic!r} is not text")
    try:
        size = len(topic.encode())
    except UnicodeEncodeError as error:
        raise Unreadable(f"the topic {topic!r} is not Unicode text") from error
    if not topic or set(topic) & set("+#\0") or size > LONGEST_TEXT or topic[0] == "$":
        raise Unreadable(
            f"{topic[:100]!r} is not a topic of a message: a topic has 1 to {LONGEST_TEXT} bytes,"
            " has no + or #, and does not begin with $"
        )
    return topic


def payload(
    topic: str, value: Value, unit: str | None, name: str | None, at: float | None
) -> bytes:
    """Return a payload. name: name of the SenML record, by default the last level of the topic. at:
    time of the measurement in seconds since 1970, by default now. Raises Unreadable for an invalid
    argument.
    """
    if isinstance(value, bytes):
        if unit is not None or name is not None or at is not None:
            raise Unreadable("bytes are published as they are: leave out unit, name and time")
        return value
    name = name if name is not None else topic.rpartition("/")[2]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Unreadable(
            f"{name!r} is not a valid name of a value (RFC 8428): give `name`, of letters, digits"
            " and -:./_"
        )
    record: dict[str, object] = {"n": name}
    if unit is not None:
        if not isinstance(unit, str):
            raise Unreadable(f"the unit {unit!r} is not text")
        record["u"] = unit
    at = time.time() if at is None else at
    if not _is_finite(at):
        raise Unreadable(f"{at!r} is not a time in seconds since 1970")
    if at >= EARLIEST:  # a machine without a clock says nothing rather than 1970
        record["t"] = round(at, 3)
    if isinstance(value, bool):
        record["vb"] = value
    elif isinstance(value, str):
        record["vs"] = value
    elif _is_finite(value):
        record["v"] = value
    else:
        raise Unreadable(f"{value!r} is not a number, text, truth value or bytes")
    try:
        return json.dumps([record], ensure_ascii=False, separators=(",", ":")).encode()
    except (UnicodeEncodeError, ValueError) as error:
        raise Unreadable(f"the value cannot be written as JSON: {error}") from error


def _is_finite(value: object) -> bool:
    """Whether a value is a number that the table's double can hold: neither NaN nor too large."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False
