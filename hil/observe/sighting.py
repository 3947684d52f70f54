"""A publication seen at a hop, with the keys of the history."""

from collections.abc import Mapping
from typing import Any

KEY = ("device", "incarnation", "sequence")
COLUMNS = ("client", "topic", "received", "boot", "monotonic")
"""Other columns of the publication's row, at each hop. received: µs UTC. monotonic: µs."""


def sighting(row: Mapping[str, Any], origin: str, **more: Any) -> dict[str, Any]:
    """Return the sighting of a row. row: with all columns, `spool_id` and `payload` as well."""
    return {
        **{name: row[name] for name in (*KEY, *COLUMNS)},
        "origin": origin,
        "position": row["spool_id"],
        "payload": row["payload"].hex(),
        **more,
    }
