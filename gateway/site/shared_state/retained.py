"""Sharing of retained messages between all members (`sharing.py`). Sans-IO.

In: marks of the messages here (`changed`), and entries of other members. Out: entries that other
members lack (`find` returns the entry of a topic), and received entries (`enter`).
"""

from collections.abc import Callable, Sequence
from zlib import crc32

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.shared_state.retained_entry import Entry, decode, encode
from gateway.site.shared_state.sharing import MOST_ITEMS, Link, Sharing

FIRST = 0x80
"""Lowest first byte of this channel's frames."""
_GROUPS = 1024
"""Number of groups in a digest, which then has 8 kB. With 100,000 topics, one changed topic makes
members send about a hundred topics when a link between them begins.
"""


class RetainedSharing(Sharing[Entry]):
    """Sharing of retained messages. find: returns the entry of a topic, or None. enter: called with
    a link that has received entries (`Link.entering`); makes them retained messages, and then calls
    `changed`.
    """

    def __init__(
        self,
        send: Callable[[str, bytes], None],
        find: Callable[[str], Entry | None],
        enter: Callable[[Link[Entry]], None],
    ) -> None:
        super().__init__(send, FIRST, _GROUPS)
        self._find = find
        self._take = enter

    def _decode(self, body: bytes) -> Sequence[Entry]:
        entries = list(decode(body, MOST_ITEMS))
        if not entries:
            raise SiteError("not a retained message")
        return entries

    def _encode(self, items: Sequence[bytes]) -> bytes:
        return b"".join(items)

    def _item(self, name: str) -> bytes | None:
        entry = self._find(name)
        if entry is None or not entry.expires_in:
            return None
        item = encode(entry)
        return item if len(item) < FRAME_BYTES else None

    def _group(self, name: str) -> int:
        return crc32(name.encode()) % _GROUPS

    def _enter(self, link: Link[Entry]) -> None:
        self._take(link)
