"""Sharing of the device registry between all members (`sharing.py`). Sans-IO.

In: the contents of the registry here (`entered`), and entries of other members. Out: entries to
merge into the registry (`enter`). `board_entry.py` merges two entries of a board.
"""

from collections.abc import Callable, Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from gateway.site.errors import SiteError
from gateway.site.shared_state.board_entry import (
    GROUPS,
    MOST_BYTES,
    Entry,
    conflict,
    group_of,
    merged,
)
from gateway.site.shared_state.sharing import FRAME, Link, Sharing
from gateway.site.strict import parse

FIRST = 0x60
"""Lowest first byte of this channel's frames."""
MOST = 10_000
"""Largest number of names in the registry of a site, including former names of renamed boards."""


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    entries: list[Entry]


class BoardSharing(Sharing[Entry]):
    """Sharing of the entries of boards. enter: begins to merge entries into the registry on disk.
    The owner calls `entered` when they are merged, and after each other change of the registry.
    """

    def __init__(
        self,
        send: Callable[[str, bytes], None],
        enter: Callable[[Link[Entry], Sequence[Entry]], None],
    ) -> None:
        super().__init__(send, FIRST, GROUPS)
        self._merge = enter
        self._entries: dict[str, Entry] = {}
        """Entries of the registry when it was last read, by board."""

    def entered(self, entries: Iterable[Entry], done: Iterable[Link[Entry]] = ()) -> list[str]:
        """Note the present entries of the registry. done: links whose received entries are in the
        registry now. Return the names of boards whose entries are new or have changed.
        """
        before, self._entries = self._entries, {entry.name: entry for entry in entries}
        removed = dict.fromkeys(before.keys() - self._entries.keys())
        now = {name: entry.mark for name, entry in self._entries.items()}
        return [name for name in self.changed(removed | now, done) if name in now]

    def _decode(self, body: bytes) -> Sequence[Entry]:
        return parse(_Entries, body, FRAME + MOST_BYTES).entries

    def _encode(self, items: Sequence[bytes]) -> bytes:
        return b'{"entries":[%b]}' % b",".join(items)

    def _item(self, name: str) -> bytes | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.text.encode()

    def _group(self, name: str) -> int:
        return group_of(name)

    def _enter(self, link: Link[Entry]) -> None:
        known, entries = self._entries, link.entering or ()
        news = [
            entry
            for entry in entries
            if entry.name not in known
            or merged(known[entry.name], entry).mark != known[entry.name].mark
            or conflict(known[entry.name], entry) is not None
        ]
        if len(known.keys() | {entry.name for entry in news}) > MOST:
            raise SiteError(f"a registry of more than {MOST} boards")
        if news:
            self._merge(link, news)
        else:
            self._got(link)
