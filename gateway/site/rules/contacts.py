"""The other members as the parts of a member share them: what is said to them, how sets of names
travel, what waits to be flushed, what is counted, and what time it is.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gateway.site.rules.contact import Contact
from gateway.site.rules.messages import Message, encode


@dataclass(slots=True)
class Statistics:
    """Since the start."""

    asked: int = 0
    """Questions, one for each member that was asked."""
    calls: int = 0
    """Frames with questions, claims or ends: what another member has to work off."""
    moved_in: int = 0
    moved_out: int = 0
    silent: int = 0
    """Decisions while somebody was silent."""
    released: int = 0
    """Identifiers that another member had."""
    by_member: dict[str, int] = field(default_factory=dict)
    """How often each was silent."""


class Contacts(dict[str, Contact]):
    """The other members by name. send: brings a frame to one of them, or drops it. wake: `advance`
    wants to be called soon.
    """

    def __init__(
        self,
        me: str,
        others: Iterable[str],
        send: Callable[[str, bytes], None],
        wake: Callable[[], None],
        now: float,
    ) -> None:
        super().__init__({name: Contact(name, now) for name in sorted(others)})
        self.me = me
        self.now = now
        """The moment that all parts of this member go by."""
        self.names = tuple(sorted((me, *self)))
        self.statistics = Statistics()
        self.urgent = False
        """Something has been done by a commit, and waits for `advance`."""
        self._bits = {name: 1 << bit for bit, name in enumerate(self.names)}
        self._send = send
        self._wake = wake

    @property
    def starting(self) -> float:
        """Moment up to which a member may be starting."""
        times = (max(contact.expected, contact.fresh) for contact in self.values())
        return max(times, default=float("-inf"))

    def say(self, member: str, message: Message, *, call: bool = False) -> None:
        """call: it counts as one."""
        if self[member].up:
            self.statistics.calls += call
            self._send(member, encode(message))

    def stir(self) -> None:
        """Something is to be flushed that no call from outside has caused."""
        if not self.urgent:
            self.urgent = True
            self._wake()

    def mask(self, names: Iterable[str]) -> int:
        """A set of members as we send it. Who was removed from the site has no bit."""
        return sum(self._bits.get(name, 0) for name in names)

    def place(self, name: str | None) -> int:
        """A name as we send it, 0 for none."""
        return self.names.index(name) + 1 if name in self.names else 0

    def unmask(self, member: str, mask: int) -> frozenset[str]:
        """A set as that member has sent it."""
        if not mask:
            return frozenset()
        names = self[member].names or ()
        return frozenset(name for bit, name in enumerate(names) if mask >> bit & 1)

    def placed(self, member: str, place: int) -> str | None:
        """A name as that member has sent it."""
        names = self[member].names or ()
        return names[place - 1] if 0 < place <= len(names) else None
