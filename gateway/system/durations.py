"""Durations as people type them, in seconds: `30s`, `5m`, `1h`, `90d`."""

import re

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> float:
    """Return a duration such as `5m` in seconds. Raises ValueError for any other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time; write for example 30s or 5m")
    return float(match[1]) * _UNITS[match[2]]
