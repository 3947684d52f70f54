"""Messages that can never reach the other broker of a bridge, kept until a person discards or
retries them.

In: a message that is set aside, with the reason. Out: rows for the next commit, and the list of
kept messages. The rows are in the store only; memory holds their numbers and sizes. Beyond a
bridge's bound, its oldest messages are deleted.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.broker.core import Core
from gateway.broker.store_rows import ASIDE_OVERHEAD


class Message(NamedTuple):
    """An application message. properties: encoded, without the property length. expires: time in
    seconds on the broker's time axis, None for never.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    expires: float | None

    @property
    def size(self) -> int:
        """Size of the message and its row, in bytes, as counted against `Bound.size`."""
        return len(self.topic.encode()) + len(self.payload) + len(self.properties) + ASIDE_OVERHEAD


class Bound(NamedTuple):
    """Largest number of messages, and of bytes, that are kept for one bridge."""

    messages: int
    size: int


class Aside:
    """The messages that are set aside, as the broker knows them."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def bridges(self) -> list[str]:
        """Names of the bridges with messages that are set aside."""
        return [name for name, sizes in self._core.aside.items() if sizes]

    def numbers(self, bridge: str) -> list[int]:
        """Return the numbers of the messages that are set aside for a bridge, the oldest first."""
        return list(self._core.aside.get(bridge, ()))

    def size(self, bridge: str) -> int:
        """Return the size of a bridge's messages in bytes, as counted against the bound."""
        return sum(self._core.aside.get(bridge, {}).values())

    def keep(self, bridge: str, message: Message, reason: str, most: Bound, utc: int | None) -> int:
        """Set a message aside with the next commit. Return the number of dropped messages: the
        oldest beyond the bound, or only this one if it is too large. utc: µs since 1970 or None.
        """
        if message.size > most.size:
            return 1
        core = self._core
        number, core.next_aside = core.next_aside, core.next_aside + 1
        sizes = core.aside.setdefault(bridge, {})
        sizes[number] = message.size
        expires = message.expires
        core.changes.aside[number] = (
            number,
            bridge,
            utc,
            message.topic,
            message.qos,
            int(message.retain),
            message.properties,
            None if expires is None else int(expires * 1000),
            message.payload,
            reason,
        )
        core.changes.bytes += message.size
        lost, size = 0, self.size(bridge)
        for oldest in list(sizes):
            if len(sizes) <= most.messages and size <= most.size:
                break
            size -= sizes[oldest]
            self.forget(bridge, oldest)
            lost += 1
        core.promise()
        return lost

    def forget(self, bridge: str, number: int) -> bool:
        """Delete a message with the next commit. Return False if the bridge does not have it."""
        if self._core.aside.get(bridge, {}).pop(number, None) is None:
            return False
        changes = self._core.changes
        if changes.aside.pop(number, None) is None:
            changes.aside[number] = None
        self._core.promise()
        return True
