"""Which rows of the tables `message` and `queue` somebody still needs.

In: references to messages that come and go. Out: keys of rows to delete. A message is stored once, however many queues refer to it; only
those with more than one reference are counted, so that a million waiting messages cost nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.broker.burst import Burst


class Rows:
    """next: id of the next message. finished: (session, first number) of queue rows, dead: ids of message rows, both to be deleted."""

    __slots__ = ("_references", "dead", "finished", "next")

    def __init__(self, next_message: int, references: list[tuple[int, int]]) -> None:
        self.next = next_message
        self.finished: list[tuple[int, int]] = []
        self.dead: list[int] = []
        self._references = dict(references)

    @property
    def waste(self) -> int:
        """How many rows wait to be deleted."""
        return len(self.finished) + len(self.dead)

    def refer(self, burst: Burst) -> None:
        """One more queue row refers to a burst."""
        if burst.message:
            self._references[burst.message] = self._references.get(burst.message, 1) + 1
        else:
            burst.message = self.next
            self.next += 1

    def forget(self, burst: Burst) -> None:
        """One queue row less refers to a burst."""
        if burst.message and self.release(burst.message, burst.written):
            burst.message = 0
            burst.written = False

    def release(self, message: int, written: bool = True) -> bool:
        """One reference to a message less; True when it was the last one. written: the message has a row."""
        count = self._references.pop(message, 1)
        if count > 2:
            self._references[message] = count - 1
        if count == 1 and written:
            self.dead.append(message)
        return count == 1
