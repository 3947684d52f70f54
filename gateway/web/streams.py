"""The streams of the page, with a total bound that one user cannot use up.

In: a stream that begins. Out: whether it may begin, and perhaps another stream that ends instead.
Operators have priority: a viewer's stream ends to make room for an operator's.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A lasting connection of a user's browser. operator: whether the user is an operator. end:
    closes the connection."""

    user: str
    operator: bool
    end: Callable[[], None]


class Streams:
    """The open streams. most: largest number of streams; one user may have half of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: list[Stream] = []
        """The open streams, in the order in which they began."""

    def add(self, stream: Stream) -> bool:
        """Add a stream. Return False if its user already has half of all possible streams, or if
        there is no room and no other stream may be ended to make room (`_worst`).
        """
        count = Counter(item.user for item in self._open)
        if count[stream.user] >= self._most // 2:
            return False
        if len(self._open) >= self._most:
            worst = self._worst(stream, count)
            if worst is None:
                return False
            self._open.remove(worst)
            worst.end()
        self._open.append(stream)
        return True

    def discard(self, stream: Stream) -> None:
        """Remove a stream that has ended."""
        if stream in self._open:
            self._open.remove(stream)

    def _worst(self, stream: Stream, count: Counter[str]) -> Stream | None:
        """Return the stream that ends to make room for `stream`; None if no stream may end. The
        viewer with the most streams loses the oldest one. If no viewer has a stream, the operator
        with the most loses the oldest one, but only to another operator. A user loses a stream to a
        user of the same role only if the other user has at least two streams fewer.
        """
        viewers = [item for item in self._open if not item.operator]
        if not stream.operator or not viewers:
            least = count[stream.user] + 1
            among = viewers if viewers or not stream.operator else self._open
            among = [item for item in among if count[item.user] > least]
        else:
            among = viewers
        return max(among, key=lambda item: count[item.user], default=None)
