"""The state that all parts of a `Member` share: the other members, sending, the encoding of member
names, planned calls, statistics, and the current time.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from gateway.site.rules.contact import Contact
from gateway.site.rules.messages import Message, encode


@dataclass(slots=True)
class Statistics:
    """Counters since the start of this gateway."""

    asked: int = 0
    """Number of queries; a query to two members counts twice."""
    calls: int = 0
    """Number of Ask, Take and End frames sent. Each causes work at another member."""
    moved_in: int = 0
    moved_out: int = 0
    silent: int = 0
    """Number of decisions that were made while a member was silent."""
    superseded: int = 0
    """Number of CONNECTs whose client connected again before the session lookup had ended."""
    released: int = 0
    """Number of packet identifiers that other members have released at this member's request."""
    by_member: dict[str, int] = field(default_factory=dict)
    """Number of session lookups in which a member was silent, by member."""


class Contacts(dict[str, Contact]):
    """The other members by name. send: sends a frame to one of them, or drops it. wake: requests a
    call of `Member.advance` at the given time or earlier.
    """

    def __init__(
        self,
        me: str,
        others: Iterable[str],
        send: Callable[[str, bytes], None],
        wake: Callable[[float], None],
        now: float,
    ) -> None:
        super().__init__({name: Contact(name, now) for name in sorted(others)})
        self.me = me
        self.now = now
        """Current time for all parts of this member, in seconds of a monotonic clock."""
        self.names = tuple(sorted((me, *self)))
        self.statistics = Statistics()
        self.timed: list[tuple[float, int, Callable[[], None]]] = []
        """Heap of planned calls: time, serial number, function."""
        self.afterwards: dict[Callable[[], None], None] = {}
        """Functions to call at the end of the present call of a `Member` method, each once."""
        self._count = count()
        self._bits = {name: 1 << bit for bit, name in enumerate(self.names)}
        self._send = send
        self.wake = wake

    def plan(self, time: float, call: Callable[[], None]) -> None:
        """Call a function at `time`. A planned call cannot be withdrawn, so it must do no harm if
        it has become needless.
        """
        entry = time, next(self._count), call
        heapq.heappush(self.timed, entry)
        if self.timed[0] is entry:
            self.wake(time)

    @property
    def starting(self) -> float:
        """Time after which no other member can still be starting (`Contact.expected`,
        `Contact.fresh`). Minus infinity if there are no other members.
        """
        times = (max(contact.expected, contact.fresh) for contact in self.values())
        return max(times, default=float("-inf"))

    def say(self, member: str, message: Message, *, call: bool = False) -> None:
        """Send a message to a member. call: whether it counts in `Statistics.calls`."""
        if self[member].up:
            self.statistics.calls += call
            self._send(member, encode(message))

    def mask(self, names: Iterable[str]) -> int:
        """Return the number that stands for the members `names` in a message: bit n is the n-th
        name of this member's Names, from 0. Members that were removed from the site have no bit.
        """
        return sum(self._bits.get(name, 0) for name in names)

    def place(self, name: str | None) -> int:
        """Return the number that stands for a member in a message: the position of its name in this
        member's Names, from 1; 0 for None or a name outside the site.
        """
        return self.names.index(name) + 1 if name in self.names else 0

    def unmask(self, member: str, mask: int) -> frozenset[str]:
        """Return the members for which `mask` stands in a message from `member`. Bits without a
        name are ignored.
        """
        if not mask:
            return frozenset()
        names = self[member].names or ()
        return frozenset(name for bit, name in enumerate(names) if mask >> bit & 1)

    def placed(self, member: str, place: int) -> str | None:
        """Return the member for which `place` stands in a message from `member`; None for 0 or a
        number without a name.
        """
        names = self[member].names or ()
        return names[place - 1] if 0 < place <= len(names) else None
