"""What each board published last, so that another payload under the same identity is noticed.

In: each publication of a board, also one that comes again. Out: which boards have said something
else under a sequence that they had used (`gateway/payload/rewording.py`). The broker drops a
repetition without a look at it, so this is the only place where such a payload can be seen. A start
recalls what waits in the spool; the ingest compares again what reaches the table.
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
"""Publications of a board: as many as its mark tells apart."""
LONGEST = 256
"""Bytes of a payload that is kept; the library's boards send less."""
MOST_BOARDS = 2_500
"""All of them take at most 64 MB."""
RECALLED = 20_000
"""Publications in the spool that a start looks at, the newest."""


@dataclass(slots=True)
class Contradictions:
    """Of one board. sequence: the last one; last: µs, any origin."""

    count: int = 0
    sequence: int = 0
    last: int = 0


@dataclass(slots=True)
class _Board:
    incarnation: int
    payloads: dict[int, bytes] = field(default_factory=dict)
    """By sequence, the oldest first."""


class Said:
    """The board that was heard longest ago is forgotten first."""

    def __init__(self) -> None:
        self._boards: dict[str, _Board] = {}
        self.newest: Identity | None = None
        """Identity of the publication that was heard last, of any board."""
        self.contradictions: dict[str, Contradictions] = {}
        """By board."""

    def recall(self, folder: Path) -> None:
        """What boards published last before the gateway's start, as far as it is in the spool."""
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
                self._contradicted(identity, monotonic)
        elif len(payload) <= LONGEST:
            board.payloads[sequence] = payload
            if len(board.payloads) > KEPT:
                del board.payloads[next(iter(board.payloads))]

    def _contradicted(self, identity: Identity, monotonic: int) -> None:
        name, incarnation, sequence = identity
        found = self.contradictions.pop(name, None) or Contradictions()
        self.contradictions[name] = Contradictions(found.count + 1, sequence, monotonic)
        if len(self.contradictions) > MOST_BOARDS:
            del self.contradictions[next(iter(self.contradictions))]
        if found.count & (found.count + 1) == 0:  # the 1st, 2nd, 4th, 8th, …
            log.error(
                "two payloads of one key: %s (incarnation %d) sequence %d came again with another"
                " payload (%d since the start)",
                name,
                incarnation,
                sequence,
                found.count + 1,
            )


def _conflict(first: bytes, second: bytes) -> bool:
    from gateway.payload.rewording import (
        says_the_same,  # with cbor2: most gateways do without it for long
    )

    try:
        return not says_the_same(first, second)
    except Exception:  # a mistake of ours there must not end the board's connection
        log.exception("two payloads of one key cannot be compared: they count as two")
        return True
