"""The device registry is the same at all members. Sans-IO.

In: links that come and go, frames, and what the registry here holds. Out: frames (`send`), and
entries of others that are to be entered here (`enter`). What two entries of a board come to is said
in `board_entry.py`; this file brings each change to whoever lacks it.

When a link begins, each side says a digest: of each of 256 groups of names a sum of its entries.
Where they differ, both send theirs of that group. From then on each change goes to all members of
whom it is not known that they have it, so it reaches those, too, with whom its maker has no link. A
frame of entries is confirmed once they are on the disk, and only then the next one follows: what
waits is a set of names, so a board that changes often is sent once.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from struct import Struct

from pydantic import BaseModel, ConfigDict

from gateway.site.board_entry import MOST_BYTES, Entry, merged
from gateway.site.errors import SiteError
from gateway.site.strict import parse

FIRST = 0x60
"""Frames of this channel begin with this byte or a higher one."""
MOST = 10_000
"""Names in the registry of a site, with those that are gone."""
FRAME = 256_000
"""Bytes of entries in a frame."""
_GROUPS = 256
_DIGEST = Struct(f">{_GROUPS}Q")


class _Kind(IntEnum):
    DIGEST = FIRST
    ENTRIES = FIRST + 1
    GOT = FIRST + 2


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    entries: list[Entry]


class Link:
    """A member as long as there is a link to it."""

    def __init__(self, member: str) -> None:
        self.member = member
        self.digest: tuple[int, ...] | None = None
        """What it has said when the link began; () once it was compared."""
        self.owed: dict[str, None] = {}
        """Names of entries that it may lack."""
        self.unconfirmed = False
        """Entries were sent, and it has not said yet that it has them."""
        self.entering: Sequence[Entry] | None = None
        """What it has sent, until that is on the disk."""


class Sharing:
    """enter: asks for entries to be merged into the registry on the disk. `entered` is to be called
    then, and whenever the registry has changed.
    """

    def __init__(
        self,
        send: Callable[[str, bytes], None],
        enter: Callable[[Link, Sequence[Entry]], None],
    ) -> None:
        self._send = send
        self._enter = enter
        self._known: dict[str, Entry] | None = None
        """None until the registry was read first."""
        self._digest = [0] * _GROUPS
        self._links: dict[str, Link] = {}

    @property
    def owed(self) -> dict[str, int]:
        """By member with a link: entries that it may lack; those of a frame that it has not
        confirmed count as one.
        """
        return {member: len(link.owed) + link.unconfirmed for member, link in self._links.items()}

    def joined(self, member: str) -> None:
        self._links[member] = Link(member)
        if self._known is not None:
            self._tell_digest(member)

    def left(self, member: str) -> None:
        self._links.pop(member, None)

    def received(self, member: str, frame: bytes) -> None:
        """SiteError: this is no frame of ours, and the link has to end."""
        link, kind, body = self._links[member], frame[0], frame[1:]
        if kind == _Kind.DIGEST and len(body) == _DIGEST.size and link.digest is None:
            link.digest = _DIGEST.unpack(body)
            self._compare(link)
        elif kind == _Kind.ENTRIES and link.entering is None:
            self._on_entries(link, parse(_Entries, body, FRAME + MOST_BYTES).entries)
        elif kind == _Kind.GOT and not body and link.unconfirmed:
            link.unconfirmed = False
            self._flush(link)
        else:
            raise SiteError(f"a frame of kind {kind} that cannot be here")

    def entered(self, entries: Iterable[Entry], done: Iterable[Link] = ()) -> list[str]:
        """What the registry holds now. done: whose entries were merged into it. Returns the names
        of which something is new.
        """
        first, before = self._known is None, self._known or {}
        self._known = now = {entry.name: entry for entry in entries}
        news = [name for name, entry in now.items() if not _same(before.get(name), entry)]
        for name in (*news, *(before.keys() - now.keys())):
            for entry in (before.get(name), now.get(name)):
                if entry is not None:
                    self._digest[entry.place] ^= entry.mark
        had: dict[str, dict[str, Entry]] = {}
        for link in done:
            if self._links.get(link.member) is link:
                had[link.member] = {entry.name: entry for entry in link.entering or ()}
                self._got(link)
        for member, link in self._links.items():
            if first:
                self._tell_digest(member)
                self._compare(link)
                continue
            theirs = had.get(member, {})
            link.owed |= {name: None for name in news if not _same(theirs.get(name), now[name])}
            self._flush(link)
        return news

    def _on_entries(self, link: Link, entries: Sequence[Entry]) -> None:
        known = self._known or {}
        news = [
            entry
            for entry in entries
            if entry.name not in known
            or not _same(merged(known[entry.name], entry), known[entry.name])
        ]
        if len(known.keys() | {entry.name for entry in news}) > MOST:
            raise SiteError(f"a registry of more than {MOST} boards")
        link.entering = entries
        if news:
            self._enter(link, news)
        else:
            self._got(link)

    def _got(self, link: Link) -> None:
        link.entering = None
        self._send(link.member, bytes((_Kind.GOT,)))

    def _tell_digest(self, member: str) -> None:
        self._send(member, bytes((_Kind.DIGEST,)) + _DIGEST.pack(*self._digest))

    def _compare(self, link: Link) -> None:
        if self._known is None or not link.digest:
            return
        differing = {
            group
            for group, (ours, theirs) in enumerate(zip(self._digest, link.digest, strict=True))
            if ours != theirs
        }
        link.digest = ()
        link.owed |= {name: None for name, entry in self._known.items() if entry.place in differing}
        self._flush(link)

    def _flush(self, link: Link) -> None:
        if link.unconfirmed or self._known is None:
            return
        texts: list[str] = []
        room = FRAME
        for name in list(link.owed):
            entry = self._known.get(name)
            if entry is not None and (room := room - len(entry.text) - 1) < 0:
                break
            del link.owed[name]
            if entry is not None:
                texts.append(entry.text)
        if texts:
            link.unconfirmed = True
            body = f'{{"entries":[{",".join(texts)}]}}'
            self._send(link.member, bytes((_Kind.ENTRIES,)) + body.encode())


def _same(one: Entry | None, other: Entry) -> bool:
    return one is not None and one.mark == other.mark
