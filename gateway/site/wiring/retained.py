"""Sharing of retained messages between this gateway and its site.

In: retained publications of clients and boards here, and entries of the other members. Out: the
newest message of each topic at all members, for later subscribers.
`gateway/broker/retained_changes.py` decides which message is newest. Current subscribers get
publications through `forwarding.py`, not from here.

The gateway's own messages exist only in its memory and are not shared; on their topics, entries of
other members are ignored.

If clients changed a topic at two members while there was no link between them, the older change is
lost, and the log names it.

A publication here is sent to other members when it is on disk. An entry of another member is
confirmed when it is in memory, and goes to disk with the next commit. If the commit fails, the two
gateways differ when their next link begins, and the entry is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from gateway.boards.shared_settings import PREFIX
from gateway.broker.core import Core
from gateway.broker.retained import Retained
from gateway.broker.retained_changes import DELETION_S, drop, keep, put_deletion
from gateway.mqtt.errors import quote
from gateway.mqtt.topics import SHARE_PREFIX, SYSTEM_PREFIX
from gateway.runtime.engine import Engine
from gateway.site.shared_state.retained import RetainedSharing
from gateway.site.shared_state.retained_entry import NEVER, Entry
from gateway.site.shared_state.sharing import Link
from gateway.system.logs import printable

log = logging.getLogger(__name__)

_NAMES = 10
"""Largest number of topics in one sentence."""
RETRY_S = 0.5
"""Seconds until the next attempt to store entries of other members, if the disk is busy or full."""


class _Apart(NamedTuple):
    """A time without a link to a member. Both fields are compared with versions of retained
    messages (µs UTC). since: the newest version here at the beginning of this time. until: the end
    of this time, by this gateway's clock; 0 while it lasts, or if UTC is unknown.
    """

    since: int
    until: int


class SiteRetained:
    """The sharing of retained messages, from creation to `close`. send: sends a frame to a member,
    or drops it. lost: called with a sentence about a change that was lost.
    """

    def __init__(
        self,
        engine: Engine,
        send: Callable[[str, bytes], None],
        loop: asyncio.AbstractEventLoop,
        lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._broker = broker = engine.broker
        self._loop = loop
        self._changed: dict[int, set[str]] = {}
        """Changed topics, by the number of the commit that contains the changes."""
        self._lost = lost
        self._newest = 0
        """Highest version of a retained message here."""
        self._apart: dict[str, _Apart] = {}
        self._left_out = 0
        """Number of retained messages of other members that were left out here for lack of room."""
        self.sharing = RetainedSharing(send, self._entry_of, self._enter)
        self.sharing.changed(self._marks(item.topic for item in broker.retained.everything()))
        self._before = self._newest
        """Highest version here at the start. Changes up to this version may be known at other
        members.
        """
        broker.retained.watch = self._watch

    def close(self) -> None:
        self._broker.retained.watch = None

    # -- messages of this gateway

    def _watch(self, topic: str) -> None:
        number = self._broker.changes.number
        if number not in self._changed:
            self._changed[number] = set()
            self._broker.when_on_disk(number, partial(self._on_disk, number))
        self._changed[number].add(topic)

    def _on_disk(self, number: int) -> None:
        """Share the retained messages that commit `number`, which is now on disk, has changed."""
        self.sharing.changed(self._marks(self._changed.pop(number)))

    def _marks(self, topics: Iterable[str]) -> dict[str, int | None]:
        marks: dict[str, int | None] = {}
        for topic in topics:
            entry = self._entry_of(topic)
            marks[topic] = None if entry is None else entry.mark
            self._newest = max(self._newest, entry.version if entry is not None else 0)
        return marks

    def _entry_of(self, topic: str) -> Entry | None:
        retained = self._broker.retained.latest(topic)
        if retained is None or not retained.version:
            return None
        expires_in = NEVER
        if retained.expires is not None:  # whole seconds, so updates do not circle endlessly
            expires_in = min(NEVER - 1, max(0, int(retained.expires - self._broker.now)))
        return Entry(
            topic,
            retained.version,
            expires_in,
            retained.qos,
            retained.client,
            retained.properties,
            retained.payload,
        )

    # -- figures for people

    def figures(self) -> dict[str, int]:
        return {
            "retained_waiting": sum(self.sharing.owed.values()),
            "retained_left_out": self._left_out,
        }

    # -- messages of other members

    def joined(self, member: str) -> None:
        since = self._apart.get(member, _Apart(self._before, 0)).since
        self._apart[member] = _Apart(since, self._broker.utc or 0)
        self.sharing.joined(member)

    def link_ended(self, member: str) -> None:
        self._apart[member] = _Apart(self._newest, 0)
        self.sharing.link_ended(member)

    def received(self, member: str, frame: bytes) -> None:
        """Handle a frame of a member. Raises SiteError."""
        self._engine.begin()
        self.sharing.received(member, frame)

    def _enter(self, link: Link[Entry]) -> None:
        broker, entries = self._broker, link.entering or ()
        room = sum(len(entry.payload) + len(entry.name) for entry in entries)
        if self._engine.commits.has_backlog or broker.lacks_room(room):
            broker.promise()
            self._loop.call_later(RETRY_S, self._try_again, link)
            return
        self._tell_conflicts(link.member, entries)
        with broker.step:
            for entry in entries:
                self._take(entry)
        self.sharing.changed(self._marks(entry.name for entry in entries), [link])

    def _try_again(self, link: Link[Entry]) -> None:
        if self.sharing.is_there(link):
            self._engine.begin()
            self._enter(link)

    def _take(self, entry: Entry) -> None:
        broker, topic = self._broker, entry.name
        known = broker.retained.latest(topic)
        if known is not None and not known.version:
            return
        present = self._entry_of(topic)
        if present is not None and present.mark >= entry.mark:
            return
        if topic.startswith((SYSTEM_PREFIX, SHARE_PREFIX)):
            return
        expires_in = None if entry.expires_in == NEVER else float(entry.expires_in)
        if not entry.payload:
            expires_in = min(DELETION_S, expires_in or 0.0)
        message = Retained(
            topic,
            entry.client,
            entry.qos,
            entry.payload,
            entry.properties,
            None if expires_in is None else broker.now + expires_in,
            entry.version,
        )
        if topic.count("/") >= broker.limits.topic_levels or not take(broker, message):
            self._leave_out(topic)

    def _tell_conflicts(self, member: str, entries: Iterable[Entry]) -> None:
        """Log each topic whose older change is lost: different clients have changed it here and at
        the member while there was no link.
        """
        apart = self._apart.get(member)
        lost = []
        for entry in entries:
            ours = self._entry_of(entry.name)
            if ours is None or apart is None:
                continue
            if ours.client == entry.client and not entry.name.startswith(PREFIX):
                continue  # people, not clients, change the settings of boards
            older, newer, where = (ours, entry, "here")
            if entry.mark < ours.mark:
                older, newer, where = (entry, ours, f"at {member}")
            if (
                older.payload not in (b"", newer.payload)
                and apart.since < min(ours.version, entry.version)
                and entry.version <= apart.until
            ):
                author = quote(older.client) if older.client else "a person"
                lost.append(f"{quote(entry.name)} of {author} {where}")
        if lost:
            more = f" and {len(lost) - _NAMES} more" if len(lost) > _NAMES else ""
            self._lost(
                f"retained messages were changed at both gateways while there was no link to"
                f" {printable(member)}; the older change is lost: {', '.join(lost[:_NAMES])}{more}"
            )

    def _leave_out(self, topic: str) -> None:
        self._left_out += 1
        if self._broker.log_throttle.allows("retained messages of the site"):
            log.warning(
                "%s: a retained message of another gateway of the site is left out: it is beyond a"
                " limit (limits.retained, limits.retained_bytes, limits.topic_levels)",
                quote(topic),
            )


def take(core: Core, message: Retained) -> bool:
    """Store a newer entry of a peer gateway in place of the entry here. If there is no room for the
    newer entry, only remove the entry here, and return False.
    """
    if not message.payload:
        put_deletion(core, message)
    elif core.retained.fits(message.topic, message.size, core.limits):
        keep(core, message)
    else:
        if core.retained.latest(message.topic) is not None:
            drop(core, message.topic)
        return False
    return True
