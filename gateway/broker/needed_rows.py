"""References to rows of the tables `message` and `queue`.

In: new and removed references to messages. Out: ids for new messages, and keys of rows to delete. A
message is stored once, however many queues refer to it. Only messages with more than one reference
are counted, so a million waiting messages take no memory here.

A new message overwrites the row of a message that is no longer needed. Overwriting a row touches
one page of the database; an insert and a delete touch six. The queue rows of the old message are
deleted in the same commit, or earlier.
"""

from __future__ import annotations

from gateway.broker.publish_run import PublishRun

_SWEEP = 256
"""Number of unneeded rows from which on they are deleted even if the disk is busy."""


class NeededRows:
    __slots__ = ("_references", "dead", "finished", "next", "reused")

    def __init__(self, next_message: int, references: list[tuple[int, int]]) -> None:
        self.next = next_message
        """Lowest id that no message has had."""
        self.finished: list[tuple[int, int]] = []
        """Queue rows to be deleted, as session and first number."""
        self.dead: list[int] = []
        """Ids of messages to be deleted."""
        self.reused: set[int] = set()
        """Ids from `dead` whose rows messages of the open changes overwrite."""
        self._references = dict(references)

    @property
    def unwritten_deletions(self) -> int:
        """Number of rows that wait to be deleted."""
        return len(self.finished) + len(self.dead)

    def refer(self, run: PublishRun) -> None:
        """Count one more queue row that refers to a run."""
        if run.message:
            self._references[run.message] = self._references.get(run.message, 1) + 1
        elif self.dead:
            run.message = self.dead.pop()
            self.reused.add(run.message)
        else:
            run.message = self.next
            self.next += 1

    def know(self, references: list[tuple[int, int]]) -> None:
        """Add messages with more than one reference, each with the number of its references."""
        self._references.update(references)

    def reserve(self, count: int) -> int:
        """Reserve `count` ids that no message has had. Return the first one."""
        self.next += count
        return self.next - count

    def forget(self, run: PublishRun) -> None:
        """Uncount a queue row that refers to a run."""
        if run.message and self.release(run.message, run.written or run.message in self.reused):
            run.message = 0
            run.written = False

    def release(self, message: int, written: bool = True) -> bool:
        """Uncount a reference to a message. Return True if it was the last one. written: whether
        there is a row with this id.
        """
        count = self._references.pop(message, 1)
        if count > 2:
            self._references[message] = count - 1
        if count == 1 and written:
            self.dead.append(message)
        return count == 1

    def sweep(self, all_of_them: bool) -> tuple[list[tuple[int, int]], list[int]]:
        """Return the queue rows and the message rows to delete with the changes that are sealed. A
        queue row is deleted together with the `flow` row that no longer mentions its messages. So a
        start can tell a finished delivery from a damaged `flow`.
        """
        finished, self.finished = self.finished, []
        self.reused.clear()
        dead: list[int] = []
        if all_of_them or len(self.dead) >= _SWEEP:
            dead, self.dead = self.dead, []
        return finished, dead
