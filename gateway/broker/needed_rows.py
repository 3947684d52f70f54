"""Which rows of the tables `message` and `queue` somebody still needs.

In: references to messages that come and go. Out: ids for new messages, and keys of rows to delete.
A message is stored once, however many queues refer to it; only those with more than one reference
are counted, so that a million waiting messages cost nothing here.

A new message takes the row of one that nobody needs any more: to write over a row touches one page
of the database, to insert one and delete another touches six. The queue rows that referred to the
old one are then deleted in the same commit, or were before.
"""

from __future__ import annotations

from gateway.broker.publish_run import PublishRun

_SWEEP = 256
"""So many rows that nobody needs are deleted even when there is no time for it."""


class NeededRows:
    __slots__ = ("_references", "dead", "finished", "next", "taken")

    def __init__(self, next_message: int, references: list[tuple[int, int]]) -> None:
        self.next = next_message
        """Id that no message has had."""
        self.finished: list[tuple[int, int]] = []
        """Queue rows to be deleted, as session and first number."""
        self.dead: list[int] = []
        """Ids of messages to be deleted."""
        self.taken: set[int] = set()
        """Of those, what messages of the open changes write over."""
        self._references = dict(references)

    @property
    def waste(self) -> int:
        """How many rows wait to be deleted."""
        return len(self.finished) + len(self.dead)

    def refer(self, run: PublishRun) -> None:
        """One more queue row refers to a run."""
        if run.message:
            self._references[run.message] = self._references.get(run.message, 1) + 1
        elif self.dead:
            run.message = self.dead.pop()
            self.taken.add(run.message)
        else:
            run.message = self.next
            self.next += 1

    def know(self, references: list[tuple[int, int]]) -> None:
        """Messages have come to which more than one row refers, with how many do."""
        self._references.update(references)

    def reserve(self, count: int) -> int:
        """So many ids that no message has had; returns the first of them."""
        self.next += count
        return self.next - count

    def forget(self, run: PublishRun) -> None:
        """One queue row less refers to a run."""
        if run.message and self.release(run.message, run.written or run.message in self.taken):
            run.message = 0
            run.written = False

    def release(self, message: int, written: bool = True) -> bool:
        """One reference to a message less; True when it was the last one. written: there is a row
        with this id.
        """
        count = self._references.pop(message, 1)
        if count > 2:
            self._references[message] = count - 1
        if count == 1 and written:
            self.dead.append(message)
        return count == 1

    def sweep(self, all_of_them: bool) -> tuple[list[tuple[int, int]], list[int]]:
        """The open changes are sealed: returns the queue rows and the message rows to delete with
        them. A queue row goes with the row in `flow` that says nothing of its messages any more, so
        a start can tell a place that is done from a damaged `flow`.
        """
        finished, self.finished = self.finished, []
        self.taken.clear()
        dead: list[int] = []
        if all_of_them or len(self.dead) >= _SWEEP:
            dead, self.dead = self.dead, []
        return finished, dead
