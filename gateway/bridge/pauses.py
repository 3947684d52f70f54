"""The pauses between two attempts of a bridge to connect.

In: what a connection has achieved, and how it ended. Out: seconds until the next attempt: up to 1 s
after a success, and twice as long after each failure in a row, `LONGEST_S` at most.

A connection does not count as a failure if it lasted for `SETTLED_S`, or if the other broker
acknowledged a message on it. Then the next attempt follows soon, because a connection that breaks
often still moves messages. A connection that the other broker ended with a reason, such as "session
taken over" or "quota exceeded", counts as a failure unless it lasted long enough.
"""

import random

LONGEST_S = 60.0
SETTLED_S = 10.0
"""A connection that lasted longer than this, in seconds, does not count as a failure."""


class Pauses:
    """The pauses of one bridge between its attempts to connect."""

    def __init__(self) -> None:
        self._tries = 0
        """Number of consecutive failures. Each one doubles the pause."""
        self._progress = False
        self._has_reason = False

    def progress(self) -> None:
        """Note that the other broker has acknowledged a message."""
        self._progress = True

    def note_reason(self) -> None:
        """Note that the other broker has given a reason why it ends the connection or accepts no
        more messages.
        """
        self._has_reason = True

    def next(self, lasted_s: float, suspects: int | None) -> float:
        """Return the seconds until the next attempt to connect. lasted_s: duration of the last
        connection. suspects: None, except while packets that may have ended a connection are sent
        alone (`suspects.py`). Then the number of packets found guilty since the last acknowledged
        message; it replaces the number of failures.
        """
        if suspects is not None:
            self._tries = suspects
        elif lasted_s > SETTLED_S or (self._progress and not self._has_reason):
            self._tries = 0
        else:
            self._tries += 1
        self._progress = self._has_reason = False
        longest = min(2.0 ** min(self._tries, 16), LONGEST_S)
        return longest * random.uniform(0.5, 1)  # noqa: S311 - jitter, no secret
