"""The spool: publications on their way to the uplink, and their total size.

In: runs to topics that the configuration names. Out: rows of the table `spool`
(`gateway/store/README.md`). A full spool refuses publications; it never drops rows. `onceway uplink
run` removes rows in order of their id, so the lowest remaining id identifies all rows that remain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gateway.broker.publish_run import PublishRun
from gateway.broker.store_rows import SpoolRow
from gateway.system.usage import Account, Notes, Origin, Shares, within

ROW_OVERHEAD = 64
"""Bytes that are counted for a row in addition to topic and payload. Without these bytes, many
small rows could exceed the bound on disk space."""

PART = 512
"""Number of rows whose sizes are added up as one part. Landed rows are subtracted by whole parts,
so the known size of the spool may be too large by one part."""

_NOTED = 64
"""The stored bytes of an origin may be too low by at most 1 / _NOTED of the spool's limit."""

Identity = tuple[str, int, int]


class Oldest(NamedTuple):
    """Arrival of the oldest row: µs after start `boot` (`monotonic`), and µs UTC or None."""

    boot: int
    monotonic: int
    received: int | None


class _Part:
    """The total size of up to PART rows with consecutive ids."""

    __slots__ = ("last", "shares", "size")

    def __init__(self, last: int, size: int) -> None:
        self.last = last
        self.size = size
        self.shares = Shares(last // PART)


class Spool:
    def __init__(self, limit: int, next_row: int, boot: int, parts: list[tuple[int, int]]) -> None:
        """Create the spool. parts: (last id, bytes) of each part of the existing rows, in order."""
        self.limit = self.limit_of_others = limit
        """Size limits in bytes: `limit` for boards, `limit_of_others` for all other publishers."""
        self.next = next_row
        self.boot = boot
        """Number of the gateway's present start, which each row contains."""
        self.full = False
        """Whether the spool has had no room for a message since rows were last removed."""
        self.lowest = parts[0][0] if parts else next_row
        """Id of the oldest row when the store was last checked."""
        self.oldest: Oldest | None = None
        """Time of arrival of the oldest row, or None."""
        self.notes: Notes = {}
        """Rows of the table of origins that the next commit writes."""
        self._parts = deque(_Part(*part) for part in parts)
        self.size = sum(size for _, size in parts)
        """Bytes of the existing rows."""

    def limit_to(self, limit: int, devices_share: float) -> None:
        """Change the bounds. limit: bytes. devices_share: fraction reserved for boards, 0…1."""
        self.limit, self.limit_of_others = limit, int(limit * (1 - devices_share))

    def restore_shares(self, shares: Iterable[tuple[int, Account | Origin | None, int]]) -> None:
        """Restore, after a restart, the bytes that each owner has in each part of the spool
        (`PART`). shares: the id of any row of the part, the owner, and the owner's bytes there.
        """
        parts = {part.shares.number: part.shares for part in self._parts}
        for row, owner, size in shares:
            if owner is not None and row // PART in parts:
                parts[row // PART].charge(owner, size)
                parts[row // PART].notes(0)

    def fits(self, run: PublishRun, account: Account | None) -> bool:
        """Whether the spool has room for a run. account: the publisher's; None for a board."""
        size = run.count * (run.size + len(run.topic.wire) - 2 + ROW_OVERHEAD)  # 2: its length
        most = self.limit_of_others
        owner = None if run.publisher is None else run.publisher.origin
        if account is None:
            if self.size + size <= self.limit:
                return True
        elif self.size + size <= most and (owner is None or within(owner.spooled + size, most)):
            return account.spooled + size <= account.spool_share * self.limit
        self.full = True
        return False

    def fits_when_empty(self, run: PublishRun, account: Account | None) -> bool:
        """Whether an empty spool has room for one publication of a run. account: as for `fits`."""
        size = run.size + len(run.topic.wire) - 2 + ROW_OVERHEAD
        if account is None:
            return size <= self.limit
        alone = run.publisher is None or run.publisher.origin is None
        fits = size <= self.limit_of_others if alone else within(size, self.limit_of_others)
        return fits and size <= account.spool_share * self.limit

    def rows(
        self,
        run: PublishRun,
        client: str,
        identity: Identity | None,
        up_s: float,
        utc_start: int | None,
        account: Account | None,
    ) -> list[SpoolRow]:
        """Count and return the rows of a run. account: as for `fits`. up_s: seconds since the
        gateway started; utc_start: its start in µs since 1970, None while the clock is not known.
        """
        monotonic = int(up_s * 1_000_000)
        utc = None if utc_start is None else utc_start + monotonic
        topic, boot = run.topic.name, self.boot
        device, incarnation, sequence = identity or (None, None, None)
        first, size = self.next, run.count * (run.size + len(run.topic.wire) - 2 + ROW_OVERHEAD)
        part = self._grow(first, run.count, size)
        if account is not None and account.spool_share < 1:
            part.shares.charge(account, size)
        if run.publisher is not None and run.publisher.origin is not None:
            part.shares.charge(run.publisher.origin, size)
            self.notes |= part.shares.notes(self.limit // _NOTED)
        return [
            (
                first + index,
                device,
                incarnation,
                sequence,
                client,
                topic,
                payload,
                boot,
                monotonic,
                utc,
            )
            for index, payload in enumerate(run.payloads())
        ]

    def adopt(self, rows: Iterable[SpoolRow]) -> list[SpoolRow]:
        """Add acknowledged rows of a peer gateway. Return them with ids of this spool."""
        adopted = [(self.next + index, *row[1:]) for index, row in enumerate(rows)]
        for row in adopted:
            self._grow(row[0], 1, len(row[6]) + len(row[5].encode()) + ROW_OVERHEAD)
        return adopted

    def _grow(self, first: int, count: int, size: int) -> _Part:
        """Count new rows and their bytes. Return the part with the last row."""
        self.next = first + count
        self.size += size
        if not self._parts or first // PART != self._parts[-1].last // PART:
            if self._parts:
                self.notes |= self._parts[-1].shares.notes(0)
            self._parts.append(_Part(first, 0))
        part = self._parts[-1]
        part.last = self.next - 1
        part.size += size
        return part

    @property
    def count(self) -> int:
        return self.next - self.lowest if self.size else 0

    def age(self, monotonic: int, utc: int | None) -> float | None:
        """Return the age of the oldest row in seconds; None if there is no row, or no known age."""
        if self.oldest is None or not self.size:
            return None
        boot, arrived, received = self.oldest
        if boot == self.boot:
            return (monotonic - arrived) / 1_000_000
        if received is None or utc is None:
            return None
        return (utc - received) / 1_000_000

    def landed(self, lowest: int, oldest: Oldest | None = None) -> None:
        """Note that the uplink removed all rows below `lowest`. oldest: arrival of row `lowest`."""
        self.lowest, self.oldest = lowest, oldest
        while self._parts and self._parts[0].last < lowest:
            self.full = False
            part = self._parts.popleft()
            self.size -= part.size
            self.notes |= part.shares.release()
