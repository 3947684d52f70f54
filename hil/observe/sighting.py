"""A publication as it is seen at a hop, in the history's words."""

from collections.abc import Mapping
from typing import Any

KEY = ("device", "incarnation", "sequence")
COLUMNS = ("client", "topic", "received", "boot", "monotonic")
"""What else stands in its row, at each hop. received: µs UTC, and monotonic: µs."""


def sighting(row: Mapping[str, Any], origin: str, **more: Any) -> dict[str, Any]:
    """row: with all columns, `spool_id` and `payload` as well."""
    return {
        **{name: row[name] for name in (*KEY, *COLUMNS)},
        "origin": origin,
        "position": row["spool_id"],
        "payload": row["payload"].hex(),
        **more,
    }
