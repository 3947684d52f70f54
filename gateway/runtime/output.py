"""Output that waits in links, because clients read more slowly than others publish.

In: links with much unsent output, and their large payloads. Out: turns in which a transport gets
more output; the end of the slowest links when too much output waits in all links together.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from gateway.broker.broker import Broker
from gateway.broker.session import Attached

MANY = 65_536
"""Number of unsent bytes above which a connection counts towards the total of unsent bytes."""
_FEED_S = 0.005
"""Longest time per turn, in seconds, for giving output to transports. The rest is for input."""


class Link(Protocol):
    """The part of a link that `Output` uses."""

    unsent: int
    waiting: int

    @property
    def connection(self) -> Attached: ...

    def feed(self) -> None: ...

    def look(self) -> int: ...

    def see_progress(self) -> None: ...

    def give_up(self) -> None: ...


class Turns(Protocol):
    """The part of the engine that `Output` uses."""

    broker: Broker

    def begin(self) -> None: ...

    def do(self, call: Callable[..., object], *args: object) -> None: ...

    def serve(
        self, connection: Attached, doing: str, call: Callable[..., object], *args: object
    ) -> None: ...


class Output:
    """The waiting output of all links of an engine."""

    def __init__(self, engine: Turns, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self.bytes = 0
        """Number of bytes that wait in links. A payload that several links share counts once."""
        self._slow: dict[Link, None] = {}
        self._hungry: dict[Link, None] = {}
        """Links whose transports get more of their output in the next call of `_feed`."""
        self._feeding = False
        self._payloads: dict[int, int] = {}
        """Number of links that hold each payload, by the `id` of the payload's object."""

    def note_unsent(self, link: Link, unsent: int) -> None:
        """Note the number of unsent bytes of a link's transport."""
        unsent = unsent if unsent > MANY else 0
        self.bytes += unsent - link.unsent
        link.unsent = unsent
        if unsent or link.waiting:
            self._slow[link] = None
        else:
            self._slow.pop(link, None)

    def feed_later(self, link: Link) -> None:
        """Give a link's transport more output soon. Links take turns, because copying takes
        time.
        """
        self._hungry[link] = None
        if not self._feeding:
            self._feeding = True
            self._loop.call_soon(self._engine.do, self._feed)

    def _feed(self) -> None:
        self._feeding = False
        self._engine.begin()
        ends = time.monotonic() + _FEED_S
        for link in list(self._hungry):
            if time.monotonic() > ends:
                break
            del self._hungry[link]
            self._engine.serve(link.connection, "writing its output", link.feed)
        for link in self._hungry:
            self.feed_later(link)

    def hold(self, payload: memoryview) -> None:
        """Note that a link holds a payload, or a part of it. The link must call `release` later."""
        key = id(payload.obj)
        if key not in self._payloads:
            self._payloads[key] = 0
            self.bytes += len(payload.obj)  # type: ignore[arg-type]
        self._payloads[key] += 1

    def release(self, payload: memoryview) -> None:
        """Note that a link no longer holds this payload."""
        key = id(payload.obj)
        self._payloads[key] -= 1
        if not self._payloads[key]:
            del self._payloads[key]
            self.bytes -= len(payload.obj)  # type: ignore[arg-type]

    def see_progress(self) -> None:
        """Check which of the links with unsent output have sent anything since the last check."""
        for link in list(self._slow):
            self._engine.serve(link.connection, "checking its progress", link.see_progress)

    def drop_slowest_links(self) -> None:
        """Drop the links with the most unsent bytes, until the waiting output of all links together
        is at most seven eighths of `memory_bytes`.
        """
        most = self._engine.broker.limits.memory_bytes
        for link in list(self._slow):
            self._engine.serve(link.connection, "counting its unsent bytes", link.look)
        for link in sorted(self._slow, key=lambda link: link.unsent + link.waiting, reverse=True):
            if self.bytes <= most - most // 8:
                break
            self._engine.serve(link.connection, "dropping its connection", link.give_up)
        self._engine.broker.settle()
