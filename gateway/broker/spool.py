"""What goes up: publications on their way into the spool, and how full it is.

In: bursts to topics that the configuration names. Out: rows of the table `spool` (`gateway/store/README.md`). A full spool refuses; it
never drops. `onceway uplink run` takes rows away in order of their id, so what is left is known from the lowest id.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.broker.burst import Burst
    from gateway.broker.changes import SpoolRow

ROW_OVERHEAD = 64
"""Bytes that a row counts for beside topic and payload: its share of what the disk takes, so that the bound holds for small rows too."""

Identity = tuple[str, int, int]
"""device, incarnation, sequence."""


class Spool:
    """next: id of the next row. size: bytes of the rows that are there. boot: of the gateway, for the rows."""

    def __init__(self, limit: int, next_row: int, boot: int, parts: list[tuple[int, int]]) -> None:
        """parts: (last id, bytes) of the rows that are there, in order."""
        self.limit = limit
        self.next = next_row
        self.boot = boot
        self._parts = deque(parts)
        self.size = sum(size for _, size in parts)

    def fits(self, burst: Burst) -> bool:
        return self.size + _size(burst) <= self.limit

    def rows(self, burst: Burst, client: str, identity: Identity | None, monotonic: int, utc: int | None) -> list[SpoolRow]:
        """The rows of a burst. monotonic: µs since the gateway started; utc: µs since 1970, None while the clock is not known."""
        topic, boot = burst.topic.name, self.boot
        device, incarnation, sequence = identity or (None, None, None)
        first = self.next
        self.next = first + burst.count
        size = _size(burst)
        self.size += size
        if self._parts and first // 512 == self._parts[-1][0] // 512:
            size += self._parts.pop()[1]
        self._parts.append((self.next - 1, size))
        return [
            (first + index, device, incarnation, sequence, client, topic, payload, boot, monotonic, utc)
            for index, payload in enumerate(burst.payloads())
        ]

    def landed(self, lowest: int) -> None:
        """The uplink has taken away all rows below this id."""
        while self._parts and self._parts[0][0] < lowest:
            self.size -= self._parts.popleft()[1]


def _size(burst: Burst) -> int:
    return burst.count * (burst.size + len(burst.topic.wire) - 2 + ROW_OVERHEAD)  # wire: with its length in two bytes
