"""Anti-replay windows of boards: per incarnation, the highest sequence that was accepted, and which
of the 64 sequences below it were accepted (RFC 4303, 3.4.3).

In: identities of publications of boards that have proved their key. Out: whether a publication is a
duplicate, and rows for the commit that brings the publication to disk. A window outlives sessions,
restarts and Clean Start. So a board's PUBREL needs no commit: the commit of the PUBLISH has all
that PUBCOMP confirms.

A window contains only sequences that were accepted, but it may lack some. If a sequence is in the
window, its publication is acknowledged without being stored again, so a window is written in the
same commit as its publications, or later. If a sequence is not in the window, its publication is
stored again under the same identity, and the table at the centre drops the duplicate. So a window
may be outdated or lost without harm.

A sequence below the window counts as unknown, and its publication is accepted. A board's journal
has 60 places, and a larger journal drops older entries (`firmware/src/ow_journal.h`). So a sequence
that old was never accepted here, or comes from a board whose EEPROM was restored. If it counted as
a duplicate, its publication might be lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.broker.store_rows import MarkRow
from gateway.mqtt.message_ids import sequence_of, unpack_set

WINDOW = 64
"""Number of sequences below the highest one that a window covers."""
PLACES = 4
"""Largest number of incarnations of a device whose windows are kept."""
_ALL = (1 << WINDOW) - 1


class Mark:
    """The anti-replay window of one incarnation of a device."""

    __slots__ = ("_kept", "_window", "commit", "device", "highest", "incarnation", "place")

    def __init__(
        self,
        device: str,
        place: int,
        incarnation: int,
        highest: int = 0,
        window: int = 0,
        kept: bytes = b"",
    ) -> None:
        """Create a window from the columns of `MarkRow`."""
        self.device = device
        self.place = place
        self.incarnation = incarnation
        self.highest = highest
        """The highest accepted sequence; 0 for none: sequences begin with 1."""
        self._window = window & _ALL
        """Bit n: whether the sequence `highest - n - 1` was accepted."""
        self._kept = kept
        self.commit = 0
        """Number of the commit with the last change; 0 for a change before this start."""

    def has(self, sequence: int) -> bool:
        """Whether the publication with a sequence was accepted; False below the window."""
        behind = self.highest - sequence
        return behind == 0 or (behind > 0 and bool(self._window >> (behind - 1) & 1))

    def is_below(self, sequence: int) -> bool:
        """Whether a sequence is too old for the window, so that nothing is known about it."""
        return self.highest - sequence > WINDOW

    def add(self, sequence: int) -> None:
        """Add the sequence of an accepted publication. A sequence below the window is ignored."""
        ahead = sequence - self.highest
        if ahead > WINDOW:
            self.highest, self._window = sequence, 0
        elif ahead > 0:
            self._window = (self._window << 1 | 1) << (ahead - 1) & _ALL
            self.highest = sequence
        elif -WINDOW <= ahead < 0:
            self._window |= 1 << (-ahead - 1)

    def greeted(self, next_sequence: int) -> None:
        """Add sequences that an older version of the gateway stored as packet identifiers: those of
        exchanges between PUBLISH and PUBREL. next_sequence: the board's next sequence.
        """
        for identifier in unpack_set(self._kept):
            sequence = sequence_of(identifier, next_sequence)
            if next_sequence - WINDOW <= sequence < next_sequence:
                self.add(sequence)
        self._kept = b""

    def merge(self, highest: int, window: int, kept: bytes) -> None:
        """Add the sequences that a peer gateway has accepted. Parameters: as in `MarkRow`."""
        ours, theirs = self._bits(), (window & _ALL) << 1 | (highest > 0)
        ahead = highest - self.highest
        if 0 < ahead <= WINDOW:
            theirs |= ours << ahead
        elif -WINDOW <= ahead <= 0:
            theirs = ours | theirs << -ahead
        elif ahead < 0:
            theirs = ours
        self.highest = max(highest, self.highest)
        self._window = theirs >> 1 & _ALL
        self._kept = self._kept or kept

    def _bits(self) -> int:
        """Return a bit set. Bit n: whether the sequence `highest - n` was accepted."""
        return self._window << 1 | (self.highest > 0)

    def row(self) -> MarkRow:
        """Return the row for the store. SQLite's integers are signed; a window without a gap is -1,
        which takes one byte.
        """
        window = self._window - (1 << WINDOW) if self._window >> (WINDOW - 1) else self._window
        return self.device, self.place, self.incarnation, self.highest, window, self._kept


class Marks:
    """The anti-replay windows of all boards."""

    def __init__(self, rows: Iterable[MarkRow]) -> None:
        self._marks: dict[str, dict[int, Mark]] = {}
        """Windows by device and incarnation, the most recently used incarnation last."""
        for row in rows:
            mark = Mark(*row)
            self._marks.setdefault(mark.device, {})[mark.incarnation] = mark

    def of(self, device: str, incarnation: int) -> Mark:
        """Return the window of an incarnation. A new window gets a free slot of its device, or the
        slot of the least recently used window.
        """
        marks = self._marks.setdefault(device, {})
        mark = marks.pop(incarnation, None)
        if mark is None:
            if len(marks) >= PLACES:
                del marks[next(iter(marks))]
            used = {known.place for known in marks.values()}
            mark = Mark(device, min(set(range(PLACES)) - used), incarnation)
        marks[incarnation] = mark
        return mark

    def latest(self, device: str) -> Mark | None:
        """Return a device's most recently used window, or None."""
        return next(reversed(self._marks.get(device, {}).values()), None)

    def merge(self, row: MarkRow) -> Mark:
        """Merge a peer gateway's window of an incarnation and return the result."""
        device, _, incarnation, highest, window, kept = row
        mark = self.of(device, incarnation)
        mark.merge(highest, window, kept)
        return mark
