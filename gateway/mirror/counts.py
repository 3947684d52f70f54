"""Number of readings of each board in the last hour. In: the time of each reading. Out: the number,
exact to a minute. The counts can be saved for the next start.
"""

from collections import Counter
from typing import Any

MINUTE_US = 60_000_000
MINUTES = 60
MOST_FUTURE = 10
"""Minutes by which a board's clock may be ahead of the gateway's."""


class HourCounts:
    """Counts of readings, by board and minute."""

    def __init__(self, kept: Any = None) -> None:
        self._boards: dict[str, Counter[int]] = {}
        for name, minutes in (kept or {}).items():
            self._boards[str(name)] = Counter({int(key): int(n) for key, n in minutes.items()})

    def take(self, device: str, time: int) -> None:
        """Count a reading. time: µs since 1970."""
        minutes = self._boards.setdefault(device, Counter())
        minutes[time // MINUTE_US] += 1
        if len(minutes) > MINUTES + MOST_FUTURE:
            newest = max(minutes)
            for minute in [one for one in minutes if one < newest - MINUTES]:
                del minutes[minute]

    def of(self, device: str, utc: int) -> int:
        """Return the number of a board's readings in the hour before `utc`. utc: µs since 1970."""
        since = utc // MINUTE_US - MINUTES
        return sum(n for minute, n in self._boards.get(device, {}).items() if minute > since)

    def forget(self, device: str) -> None:
        self._boards.pop(device, None)

    def kept(self) -> dict[str, dict[int, int]]:
        """Return the counts to save for the next start: by board, then by minute since 1970."""
        return {device: dict(minutes) for device, minutes in self._boards.items()}
