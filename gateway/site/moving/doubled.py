"""What of the spool is on two disks, where acknowledgements wait for that (`[site] copies = 2`).

In: commits that are sealed and that are on this disk, with their rows of the spool; and up to which
row the spool is safe: it is on another gateway's disk, too, or has landed. Out: the rows, once this
disk has them; and `commit`, the number of the last commit of which, and of all before it, each row
is safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gateway.broker.store_rows import SpoolRow


class Doubled:
    """committed: told the rows of each commit when it is on this disk. last_row: the id of the last
    row that was there at the start, 0 for none: whether it is safe is not known yet.
    """

    def __init__(self, committed: Callable[[Sequence[SpoolRow]], None], last_row: int) -> None:
        self._committed = committed
        self._sealed: deque[tuple[int, Sequence[SpoolRow]]] = deque()
        self._unsafe = deque([(0, last_row)] if last_row else ())
        """Commits that are on this disk alone, with the last row of each."""
        self._on_disk = 0
        self.commit = 0
        self.refusing = False
        """What is published at QoS 1 or 2 for the spool is refused: the second disk is missing for
        too long. Whoever looks for one says so."""
        self._calls: list[tuple[int, Callable[[], None]]] = []
        self._look()

    def sealed(self, number: int, rows: Sequence[SpoolRow]) -> None:
        if rows:
            self._sealed.append((number, rows))

    def on_disk(self, number: int) -> None:
        """This disk has the commit."""
        self._on_disk = number
        while self._sealed and self._sealed[0][0] <= number:
            sealed, rows = self._sealed.popleft()
            self._unsafe.append((sealed, rows[-1][0]))
            self._committed(rows)
        self._look()

    def safe(self, row: int) -> None:
        """The spool is safe up to this row."""
        while self._unsafe and self._unsafe[0][1] <= row:
            self._unsafe.popleft()
        self._look()

    def call(self, number: int, call: Callable[[], None]) -> None:
        """Call when all of this commit and of those before it is safe."""
        self._calls.append((number, call))
        self._look()

    def _look(self) -> None:
        self.commit = self._unsafe[0][0] - 1 if self._unsafe else self._on_disk
        if self._calls:
            due = [call for number, call in self._calls if number <= self.commit]
            self._calls = [item for item in self._calls if item[0] > self.commit]
            for call in due:
                call()
