"""What has come of each board: the mark of an incarnation is the highest sequence that was taken,
and which of the 64 before it were.

In: the identities of publications that are taken, of boards that have proved their key. Out:
whether one has come before, and rows for the commit that brings the publication to disk. A mark
outlives sessions, restarts and Clean Start. So a board's PUBREL needs no commit of its own: what
PUBCOMP says is on disk since the PUBLISH.

What a mark says is true, but it need not know all. Whoever finds a sequence in it answers without
taking the publication again; so nothing may stand in it that is not in the same commit, or in one
before. What it does not know is taken once more under the same identity, and the table at the
centre drops that; so a mark may be older than the truth, or be forgotten.

A sequence below the window is not known: it is taken. A journal of a board has 60 places, and a
larger one drops what is older (`firmware/src/ow_journal.h`), so what lies so far behind and comes
all the same was never taken here, or comes from a board whose EEPROM was written back. To answer
for it as for a duplicate might lose it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.broker.message_ids import sequence_of, unpack_set
from gateway.broker.store_rows import MarkRow

WINDOW = 64
"""Sequences before the highest one."""
PLACES = 4
"""Incarnations of a device whose marks are kept."""
_ALL = (1 << WINDOW) - 1


class Mark:
    """Of one incarnation of a device."""

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
        """As in `MarkRow`."""
        self.device = device
        self.place = place
        self.incarnation = incarnation
        self.highest = highest
        """The highest sequence that was taken; 0 for none, since sequences begin with 1."""
        self._window = window & _ALL
        """Bit n: the sequence n + 1 before it was taken."""
        self._kept = kept
        self.commit = 0
        """Number of the commit that holds the last change; 0: one of an earlier start."""

    def has(self, sequence: int) -> bool:
        """Whether a publication was taken."""
        behind = self.highest - sequence
        return behind == 0 or (behind > 0 and bool(self._window >> (behind - 1) & 1))

    def is_below(self, sequence: int) -> bool:
        """Whether a sequence is too old for the window: nothing is known of it."""
        return self.highest - sequence > WINDOW

    def add(self, sequence: int) -> None:
        """A publication is taken. One below the window is not noted."""
        ahead = sequence - self.highest
        if ahead > WINDOW:
            self.highest, self._window = sequence, 0
        elif ahead > 0:
            self._window = (self._window << 1 | 1) << (ahead - 1) & _ALL
            self.highest = sequence
        elif -WINDOW <= ahead < 0:
            self._window |= 1 << (-ahead - 1)

    def greeted(self, next_sequence: int) -> None:
        """The board tells its next sequence, and with it the high halves of what an older version
        kept of it: packet identifiers between PUBLISH and PUBREL.
        """
        for identifier in unpack_set(self._kept):
            sequence = sequence_of(identifier, next_sequence)
            if next_sequence - WINDOW <= sequence < next_sequence:
                self.add(sequence)
        self._kept = b""

    def merge(self, highest: int, window: int, kept: bytes) -> None:
        """Another gateway has taken these, too: as in `MarkRow`."""
        ours, theirs = self._taken(), (window & _ALL) << 1 | (highest > 0)
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

    def _taken(self) -> int:
        """Bit n: the sequence n before the highest was taken."""
        return self._window << 1 | (self.highest > 0)

    def row(self) -> MarkRow:
        """What the store keeps. Its whole numbers have a sign; a window without a gap is -1, which
        takes one byte.
        """
        window = self._window - (1 << WINDOW) if self._window >> (WINDOW - 1) else self._window
        return self.device, self.place, self.incarnation, self.highest, window, self._kept


class Marks:
    """Of all boards."""

    def __init__(self, rows: Iterable[MarkRow]) -> None:
        self._marks: dict[str, dict[int, Mark]] = {}
        """By device and incarnation; of each device, that which was used last comes last."""
        for row in rows:
            mark = Mark(*row)
            self._marks.setdefault(mark.device, {})[mark.incarnation] = mark

    def of(self, device: str, incarnation: int) -> Mark:
        """The mark of an incarnation. A new one takes a free place of its device, or that of the
        mark that was not used for the longest.
        """
        marks = self._marks.setdefault(device, {})
        mark = marks.pop(incarnation, None)
        if mark is None:
            if len(marks) >= PLACES:
                del marks[next(iter(marks))]
            taken = {known.place for known in marks.values()}
            mark = Mark(device, min(set(range(PLACES)) - taken), incarnation)
        marks[incarnation] = mark
        return mark

    def latest(self, device: str) -> Mark | None:
        """The mark that was used last."""
        return next(reversed(self._marks.get(device, {}).values()), None)

    def merge(self, row: MarkRow) -> Mark:
        """What another gateway knows of an incarnation is known here, too; returns its mark."""
        device, _, incarnation, highest, window, kept = row
        mark = self.of(device, incarnation)
        mark.merge(highest, window, kept)
        return mark
