"""The site's facts about the sessions of clients, in memory and in the table `place`.

In: decisions of the site's gateways about a client. Out: the client's `Place`; a missing place
means epoch 0, not suspect, and no older session. A place outlives its session while a member may
hold an older session, or if the client may not know that its session has ended. A place that is no
longer needed is deleted with a later commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from gateway.broker.core import Core
from gateway.site.moving.session_moves import move_rows
from gateway.site.rules.holder import ALL_CLIENTS, NOBODY
from gateway.store.move_rows import PlaceRow

_IDLE = 256
"""Unneeded places are deleted after this number of writes, plus half the number of all places."""
MOST_UNHEARD = 1024
"""Largest number of places that are kept for clients that may not know that their session has
ended. The newest places are kept.
"""
_COPIED = 2
"""Value of the column `doubtful` for a place from a copy of the store. The value is 1 for any other
suspect place, and 0 for a place that is not suspect.
"""
_UNHEARD = ""
"""Entry in the column `older`: the client may not know that its session is new, or has ended. An
older Onceway takes this entry for the name of a former member, and removes it.
"""


class Place:
    """The site's facts about one client's session: its epoch, whether the session is suspect, and
    the members that may hold an older session. copied: the facts are from a copy of the store.
    unheard: possibly, the client does not know that a new session has begun, or that the old one
    has ended.
    """

    __slots__ = ("copied", "epoch", "older", "suspect", "unheard")

    def __init__(
        self,
        epoch: int = 0,
        suspect: bool = False,
        older: frozenset[str] = NOBODY,
        copied: bool = False,
        unheard: bool = False,
    ):
        self.epoch = epoch
        self.suspect = suspect
        self.older = older
        self.copied = copied
        self.unheard = unheard

    @staticmethod
    def of_row(row: PlaceRow) -> Place:
        _, epoch, doubt, names = row
        older = frozenset(json.loads(names))
        unheard = _UNHEARD in older
        return Place(epoch, doubt > 0, older - {_UNHEARD}, doubt == _COPIED, unheard)

    def row(self, key: str) -> PlaceRow:
        doubt = _COPIED if self.copied else int(self.suspect)
        names = self.older | {_UNHEARD} if self.unheard else self.older
        return key, self.epoch, doubt, json.dumps(sorted(names))


class Places(dict[str, Place]):
    """The places by session key. `save` writes a changed place with the next commit. rows: rows of
    the store. is_needed: returns whether the session of a key is here, or on its way.
    """

    def __init__(
        self, core: Core, rows: Iterable[PlaceRow], is_needed: Callable[[str], bool]
    ) -> None:
        super().__init__({row[0]: Place.of_row(row) for row in rows})
        self._core = core
        self._is_needed = is_needed
        self._saved = 0
        """Number of places written since the last search for unneeded ones."""

    @property
    def in_doubt(self) -> int:
        """Number of suspect sessions. An ended session does not count if its place is kept only
        because the client may not know that the session has ended.
        """
        return sum(
            place.suspect and (not place.unheard or self._is_needed(key))
            for key, place in self.items()
        )

    def of(self, key: str) -> Place:
        """Return the `Place` of a client; a new one if there is none. Call `save` after changes."""
        return self.setdefault(key, Place())

    def end(self, key: str) -> None:
        """Delete the place of a session that has ended at all members."""
        if self.pop(key, None) is not None:
            move_rows(self._core).places[key] = None
            self._core.promise()

    def save(self, key: str) -> None:
        """Write a place with the next commit. If the place has epoch 0, is not suspect and names no
        older member, delete it.
        """
        place = self[key]
        empty = not (place.epoch or place.suspect or place.older)
        if empty:
            del self[key]
        move_rows(self._core).places[key] = None if empty else place.row(key)
        self._saved += 1
        if self._saved >= _IDLE + len(self) // 2:
            self._saved = 0
            self.forget_idle()

    def trust(self, key: str) -> None:
        """Clear `suspect`, `copied` and `unheard` of a suspect place, with the next commit."""
        place = self.get(key)
        if place is not None and place.suspect:
            place.suspect = place.copied = place.unheard = False
            self.save(key)

    def forget_idle(self) -> None:
        """Delete the place of each ended session, unless the place names older members. If the
        client may not know that its session has ended, the place stays; but of these places only
        the newest MOST_UNHEARD stay.
        """
        idle = [k for k, place in self.items() if not place.older and not self._is_needed(k)]
        unheard = [key for key in idle if self[key].unheard]
        for key in {*idle} - {*unheard[-MOST_UNHEARD:]}:
            del self[key]
            move_rows(self._core).places[key] = None

    def mark_copies(self) -> None:
        """Mark each place as suspect and as one from a copy, because this gateway's store was
        restored.
        """
        for key in [key for key in self if key != ALL_CLIENTS]:
            place = self.of(key)  # `save` may forget unneeded ones
            place.suspect = place.copied = True
            self.save(key)
        move_rows(self._core).trusted = True
