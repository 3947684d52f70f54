"""Sharing of items between all members: each change goes to all members. Sans-IO.

In: links that begin and end, frames, and the items here (`changed`). Out: frames (`send`), and
other members' items to enter here (`_enter`). `boards.py` and `retained.py` define the items, and
which of two items of a name is valid.

When a link begins, each side sends a digest: for each group of names a sum of the group's items.
Where the sums differ, both sides send their items of that group. From then on each change goes to
all members that are not known to have it, including those without a link to the member that made
the change. A frame of items is confirmed once its items are entered, and only then does the next
frame follow. Waiting items are a set of names, so an item that changes often is sent once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Generic, Protocol, TypeVar

from gateway.site.errors import SiteError

FRAME = 256_000
"""Largest number of bytes of items in a frame; a larger item is sent alone."""
MOST_ITEMS = 100
"""Largest number of items in a frame: a few ms of work for a Raspberry Pi."""
_DIGEST, _ITEMS, _GOT = range(3)
"""Kinds of frames, as offsets from the channel's first byte."""
_64_BITS = (1 << 64) - 1


class Item(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def mark(self) -> int:
        """A number that identifies the item's content. Its low 64 bits go into the digest."""


Held = TypeVar("Held", bound=Item)


class Link(Generic[Held]):
    """The state of the exchange of items with one member. Exists as long as the member's link."""

    def __init__(self, member: str) -> None:
        self.member = member
        self.digest: tuple[int, ...] | None = None
        """Digest that the member sends at the start of the link: None before it has arrived, ()
        once it was compared.
        """
        self.owed: dict[str, None] = {}
        """Names of items that the member may lack."""
        self.unconfirmed = False
        """Whether items were sent that the member has not confirmed."""
        self.entering: Sequence[Held] | None = None
        """Items that the member has sent, until they are stored; None if there are none."""


class Sharing(ABC, Generic[Held]):
    """Sharing of items of one kind between all members. first: frames begin with this byte, or one
    of the next two. groups: number of groups of names in a digest.
    """

    def __init__(self, send: Callable[[str, bytes], None], first: int, groups: int) -> None:
        self._send = send
        self._first = first
        self._digest = [0] * groups
        self._packed = Struct(f">{groups}Q")
        self._known: list[dict[str, int]] = [{} for _ in range(groups)]
        """For each group of names, the marks (`Item.mark`) of its items, by name."""
        self._ready = False
        """Whether `changed` was called, and so knows all items of this gateway."""
        self._links: dict[str, Link[Held]] = {}

    @abstractmethod
    def _decode(self, body: bytes) -> Sequence[Held]:
        """Return the items in a frame. Raises SiteError."""

    @abstractmethod
    def _encode(self, items: Sequence[bytes]) -> bytes:
        """Return the body of a frame with these items (from `_item`), for `_decode`."""

    @abstractmethod
    def _item(self, name: str) -> bytes | None:
        """Return the current item of this name, encoded for a frame. Return None if there is none,
        or if it is not sent.
        """

    @abstractmethod
    def _group(self, name: str) -> int: ...

    @abstractmethod
    def _enter(self, link: Link[Held]) -> None:
        """Store the items that a member has sent (`Link.entering`), then call `changed`. Raises
        SiteError if the items cannot be stored.
        """

    @property
    def owed(self) -> dict[str, int]:
        """Number of items that each member with a link may lack. The items of an unconfirmed frame
        count as one.
        """
        return {member: len(link.owed) + link.unconfirmed for member, link in self._links.items()}

    def joined(self, member: str) -> None:
        self._links[member] = Link(member)
        if self._ready:
            self._tell_digest(member)

    def link_ended(self, member: str) -> None:
        self._links.pop(member, None)

    def is_there(self, link: Link[Held]) -> bool:
        """Whether a link still exists."""
        return self._links.get(link.member) is link

    def received(self, member: str, frame: bytes) -> None:
        """Handle a frame. Raises SiteError if it is invalid, after which the link has to end."""
        link, kind, body = self._links[member], frame[0] - self._first, frame[1:]
        if kind == _DIGEST and len(body) == self._packed.size and link.digest is None:
            link.digest = self._packed.unpack(body)
            self._compare(link)
        elif kind == _ITEMS and link.entering is None:
            link.entering = self._decode(body)
            self._enter(link)
        elif kind == _GOT and not body and link.unconfirmed:
            link.unconfirmed = False
            self._flush(link)
        else:
            raise SiteError(f"an unexpected frame of kind {frame[0]}")

    def changed(
        self, marks: Mapping[str, int | None], done: Iterable[Link[Held]] = ()
    ) -> list[str]:
        """Update the marks of some items. The first call must have the marks of all items of this
        gateway. marks: mark by the item's name; None if there is no such item. done: links whose
        received items are in this gateway's state now. Return the names of changed items.
        """
        first, self._ready = not self._ready, True
        news: dict[str, int | None] = {}
        for name, mark in marks.items():
            group = self._group(name)
            known = self._known[group]
            before = known.get(name)
            if mark == before:
                continue
            news[name] = mark
            self._digest[group] ^= ((before or 0) ^ (mark or 0)) & _64_BITS
            if mark is None:
                del known[name]
            else:
                known[name] = mark
        had: dict[str, dict[str, int]] = {}
        for link in done:
            if self.is_there(link):
                had[link.member] = {item.name: item.mark for item in link.entering or ()}
                self._got(link)
        for member, link in self._links.items():
            if first:
                self._tell_digest(member)
                self._compare(link)
                continue
            theirs = had.get(member, {})
            link.owed |= {
                name: None
                for name, mark in news.items()
                if mark is not None and theirs.get(name) != mark
            }
            self._flush(link)
        return list(news)

    def _got(self, link: Link[Held]) -> None:
        link.entering = None
        self._send(link.member, bytes((self._first + _GOT,)))

    def _tell_digest(self, member: str) -> None:
        self._send(member, bytes((self._first + _DIGEST,)) + self._packed.pack(*self._digest))

    def _compare(self, link: Link[Held]) -> None:
        if not self._ready or not link.digest:
            return
        for known, ours, theirs in zip(self._known, self._digest, link.digest, strict=True):
            if ours != theirs:
                link.owed |= dict.fromkeys(known)
        link.digest = ()
        self._flush(link)

    def _flush(self, link: Link[Held]) -> None:
        if link.unconfirmed or not self._ready:
            return
        items: list[bytes] = []
        room = FRAME
        for name in list(link.owed):
            item = self._item(name)
            if item is not None:
                room -= len(item) + 1
                if items and (room < 0 or len(items) == MOST_ITEMS):
                    break
                items.append(item)
            del link.owed[name]
        if items:
            link.unconfirmed = True
            self._send(link.member, bytes((self._first + _ITEMS,)) + self._encode(items))
