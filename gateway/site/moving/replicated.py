"""Spool rows on two disks, if acknowledgements wait for the second disk (`[site] copies = 2`).

In: sealed commits and commits on this disk, with their spool rows; the row up to which the spool is
safe, because it is replicated or has landed. Out: the rows, once this disk has them; and `commit`,
the number of the last commit up to which every row is safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gateway.broker.store_rows import SpoolRow


class Replicated:
    """Tracks which commits are safe: each of their spool rows is replicated or has landed.
    committed: called with the spool rows of each commit once the commit is on this disk. last_row:
    id of the last spool row at the start, 0 if there is none. At the start it is unknown whether
    that row is replicated or has landed.
    """

    def __init__(self, committed: Callable[[Sequence[SpoolRow]], None], last_row: int) -> None:
        self._committed = committed
        self._sealed: deque[tuple[int, Sequence[SpoolRow]]] = deque()
        self._unsafe = deque([(0, last_row)] if last_row else ())
        """Commits that are only on this disk: number of each commit, and id of its last spool row.
        """
        self._on_disk = 0
        self.commit = 0
        self.refusing = False
        """Whether QoS 1 and 2 publications for the spool are refused, because the second disk has
        been missing for too long. Set by the code that looks for a second disk.
        """
        self._calls: list[tuple[int, Callable[[], None]]] = []
        self._look()

    def sealed(self, number: int, rows: Sequence[SpoolRow]) -> None:
        """Note that a commit was given to the writer. rows: the commit's spool rows."""
        if rows:
            self._sealed.append((number, rows))

    def on_disk(self, number: int) -> None:
        """Note that a commit is on this disk."""
        self._on_disk = number
        while self._sealed and self._sealed[0][0] <= number:
            sealed, rows = self._sealed.popleft()
            self._unsafe.append((sealed, rows[-1][0]))
            self._committed(rows)
        self._look()

    def safe(self, row: int) -> None:
        """Note that all spool rows up to this id are safe: each is replicated or has landed."""
        while self._unsafe and self._unsafe[0][1] <= row:
            self._unsafe.popleft()
        self._look()

    def call(self, number: int, call: Callable[[], None]) -> None:
        """Call a function once the commit with this number and all commits before it are safe."""
        self._calls.append((number, call))
        self._look()

    def _look(self) -> None:
        """Compute `commit` again. Then call the functions whose commit is safe now."""
        self.commit = self._unsafe[0][0] - 1 if self._unsafe else self._on_disk
        if self._calls:
            due = [call for number, call in self._calls if number <= self.commit]
            self._calls = [item for item in self._calls if item[0] > self.commit]
            for call in due:
                call()
