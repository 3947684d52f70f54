"""A publication as it is seen at a hop, in the history's words."""

from typing import Any

KEY = ("device", "incarnation", "sequence")


def sighting(key: list[Any], origin: str, position: int, payload: bytes) -> dict[str, Any]:
    return {
        **dict(zip(KEY, key, strict=True)),
        "origin": origin,
        "position": position,
        "payload": payload.hex(),
    }
