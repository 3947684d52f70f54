"""Detection of payload conflicts: a payload that differs from an earlier one with the same
identity.

In: each publication of a board, duplicates included. Out: the boards that sent another payload
under a used sequence (`gateway/payload/rewording.py`). The broker drops a duplicate without looking
at its payload, so only this module can detect a conflict at the gateway. At a start, the module
reads the boards' newest publications from the spool. The ingest compares again with the table.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from gateway.broker.marks import WINDOW
from gateway.broker.spool import Identity
from gateway.store.views import newest_of_boards

log = logging.getLogger(__name__)

KEPT = WINDOW
"""Number of publications kept for each board: as many as its anti-replay window covers."""
LONGEST = 256
"""Longest payload that is kept, in bytes. Boards with Onceway's library send shorter ones."""
MOST_BOARDS = 2_500
"""Largest number of boards whose publications are kept; together they take at most 64 MB."""
RECALLED = 20_000
"""Number of the spool's newest publications that a start recalls."""


@dataclass(slots=True)
class PayloadConflicts:
    """The payload conflicts of one board. sequence: sequence of the last conflict. last: time of
    the last conflict, in µs, as it was given to `LastPublications.hear`.
    """

    count: int = 0
    sequence: int = 0
    last: int = 0


@dataclass(slots=True)
class _Board:
    incarnation: int
    payloads: dict[int, bytes] = field(default_factory=dict)
    """Payloads by sequence, the oldest first."""


class LastPublications:
    """The last publications of each board. If there are more than MOST_BOARDS boards, the board
    that has been silent for the longest time is dropped.
    """

    def __init__(self) -> None:
        self._boards: dict[str, _Board] = {}
        self.newest: Identity | None = None
        """Identity of the publication that arrived last, whatever its board; None before the first
        one.
        """
        self.payload_conflicts: dict[str, PayloadConflicts] = {}
        """Payload conflicts by board."""

    def recall(self, folder: Path) -> None:
        """Recall the last publications from before the gateway's start, as far as the spool still
        has them. folder: the data directory.
        """
        for name, incarnation, sequence, payload in newest_of_boards(folder, RECALLED):
            self.hear((name, incarnation, sequence), payload, 0)

    def hear(self, identity: Identity, payload: bytes, monotonic: int) -> None:
        self.newest = identity
        name, incarnation, sequence = identity
        board = self._boards.pop(name, None)
        if board is None or board.incarnation != incarnation:
            board = _Board(incarnation)
        self._boards[name] = board
        if len(self._boards) > MOST_BOARDS:
            del self._boards[next(iter(self._boards))]
        first = board.payloads.get(sequence)
        if first is not None:
            if first != payload and _conflict(first, payload):
                self._count_conflict(identity, monotonic)
        elif len(payload) <= LONGEST:
            board.payloads[sequence] = payload
            if len(board.payloads) > KEPT:
                del board.payloads[next(iter(board.payloads))]

    def _count_conflict(self, identity: Identity, monotonic: int) -> None:
        name, incarnation, sequence = identity
        found = self.payload_conflicts.pop(name, None) or PayloadConflicts()
        self.payload_conflicts[name] = PayloadConflicts(found.count + 1, sequence, monotonic)
        if len(self.payload_conflicts) > MOST_BOARDS:
            del self.payload_conflicts[next(iter(self.payload_conflicts))]
        if found.count & (found.count + 1) == 0:  # the 1st, 2nd, 4th, 8th, …
            log.error(
                "payload conflict: %s (incarnation %d) sequence %d arrived again with"
                " another payload (conflicts since the gateway's start: %d)",
                name,
                incarnation,
                sequence,
                found.count + 1,
            )


def _conflict(first: bytes, second: bytes) -> bool:
    from gateway.payload.rewording import (
        says_the_same,  # imports cbor2, which most gateways rarely need
    )

    try:
        return not says_the_same(first, second)
    except Exception:  # a fault in the comparison must not end the board's connection
        log.exception("two payloads of one sequence cannot be compared: they count as different")
        return True
