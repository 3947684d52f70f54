"""Two runs side by side. In: their reports as JSON. Out: rows: name, value of each run, change."""

from collections.abc import Iterator
from typing import Any

PLAIN = (
    "verdict",
    "title",
    "seed",
    "version",
    "seconds",
    "readings_per_s",
    "goodput_bytes_per_s",
    "line_share",
    "frames_again",
    "publishes_again",
    "written_per_reading",
)
GROUPS = ("readings", "outcomes", "hops", "delay_s", "cpu_s", "memory_bytes", "growth_bytes")


def rows(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the comparison: name, value of each run, change in percent. A key of the
    bench has a row only if its values differ. The change is "" if it is 0 or cannot be computed.
    """
    for name in PLAIN:
        yield _row(name, one.get(name), other.get(name))
    benches = one.get("bench", {}), other.get("bench", {})
    for name in dict.fromkeys([*benches[0], *benches[1]]):
        if name not in PLAIN and benches[0].get(name) != benches[1].get(name):
            yield _row(f"bench: {name}", benches[0].get(name), benches[1].get(name))
    faults, others = one["faults"]["happened"], other["faults"]["happened"]
    for kind in sorted(faults.keys() | others.keys()):
        yield _row(f"faults: {kind}", faults.get(kind, 0), others.get(kind, 0))
    for group in GROUPS:
        first, second = one.get(group, {}), other.get(group, {})
        for name in dict.fromkeys([*first, *second]):
            yield _row(f"{group}: {name}", first.get(name), second.get(name))


def _row(name: str, one: Any, other: Any) -> tuple[str, str, str, str]:
    change = ""
    if isinstance(one, int | float) and isinstance(other, int | float) and one and name != "seed":
        change = f"{(other - one) / one:+.0%}" if other != one else ""
    return name, _text(one), _text(other), change


def _text(value: Any) -> str:
    """Return a value as text; a bench's table in one line, without empty and False values."""
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    if isinstance(value, dict):
        texts = {key: _text(one) for key, one in value.items() if one is not False}
        return ", ".join(f"{key} {one}".replace("\n", " ") for key, one in texts.items() if one)
    return "" if value is None else str(value)
