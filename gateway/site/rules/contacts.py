"""The other members, shared by the parts of a member: sending, encoding of sets of names, calls to
come, statistics, and the current time.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from gateway.site.rules.contact import Contact
from gateway.site.rules.messages import Message, encode


@dataclass(slots=True)
class Statistics:
    """Counters since the start."""

    asked: int = 0
    """Queries, counted once for each queried member."""
    calls: int = 0
    """Frames with queries, claims or ends: work for another member."""
    moved_in: int = 0
    moved_out: int = 0
    silent: int = 0
    """Decisions while a member was silent."""
    superseded: int = 0
    """CONNECTs that waited for an answer when their client connected again."""
    released: int = 0
    """Identifiers that another member had, and has released."""
    by_member: dict[str, int] = field(default_factory=dict)
    """Number of times that each member was silent."""


class Contacts(dict[str, Contact]):
    """The other members by name. send: sends a frame to one of them, or drops it. wake: requests a
    call of `advance` at a time, or earlier.
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
        """Current time for all parts of this member."""
        self.names = tuple(sorted((me, *self)))
        self.statistics = Statistics()
        self.timed: list[tuple[float, int, Callable[[], None]]] = []
        """Heap of calls that are due at a time."""
        self.afterwards: dict[Callable[[], None], None] = {}
        """Calls that are due at the end of the present call from outside, each once."""
        self._count = count()
        self._bits = {name: 1 << bit for bit, name in enumerate(self.names)}
        self._send = send
        self.wake = wake

    def plan(self, time: float, call: Callable[[], None]) -> None:
        """Call a function at a time. A call that has become needless must do no harm."""
        entry = time, next(self._count), call
        heapq.heappush(self.timed, entry)
        if self.timed[0] is entry:
            self.wake(time)

    @property
    def starting(self) -> float:
        """Return the time up to which a member may be starting."""
        times = (max(contact.expected, contact.fresh) for contact in self.values())
        return max(times, default=float("-inf"))

    def say(self, member: str, message: Message, *, call: bool = False) -> None:
        """Send a message to a member. call: whether to count it as a call."""
        if self[member].up:
            self.statistics.calls += call
            self._send(member, encode(message))

    def mask(self, names: Iterable[str]) -> int:
        """Return a set of members as we send it. Members removed from the site have no bit."""
        return sum(self._bits.get(name, 0) for name in names)

    def place(self, name: str | None) -> int:
        """Return a name as we send it, 0 for none."""
        return self.names.index(name) + 1 if name in self.names else 0

    def unmask(self, member: str, mask: int) -> frozenset[str]:
        """Return a set of members as a member has sent it."""
        if not mask:
            return frozenset()
        names = self[member].names or ()
        return frozenset(name for bit, name in enumerate(names) if mask >> bit & 1)

    def placed(self, member: str, place: int) -> str | None:
        """Return a name as a member has sent it."""
        names = self[member].names or ()
        return names[place - 1] if 0 < place <= len(names) else None
