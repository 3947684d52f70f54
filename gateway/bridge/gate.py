"""The gate through which the packets of one direction of a bridge go. Before a retained message is
forwarded, its topic is noted on disk as in doubt (`agreement.py`).

In: packets. Out: the same packets in order, usually at once, and otherwise as soon as the note is
on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gateway.bridge.crossings import Crossings
from gateway.mqtt.packets import Packet, Publish

log = logging.getLogger(__name__)


class Gate:
    """Hands on the packets of one direction, in order. If the topic of a retained message must be
    noted first, this message and all packets behind it wait. go: called with packets that may be
    forwarded. prefix: the prefix of the other broker's topics; None for packets of our broker.
    failed: called with the reason if `go` raises an exception.
    """

    def __init__(
        self,
        crossings: Crossings,
        go: Callable[[list[Packet]], None],
        prefix: str | None,
        failed: Callable[[str], None],
    ) -> None:
        self._crossings = crossings
        self._go = go
        self._prefix = prefix
        self._failed = failed
        self._waiting: list[Packet] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        """Number of payload bytes in the packets that wait."""
        return sum(len(one.payload) for one in self._waiting if isinstance(one, Publish))

    def take(self, packets: list[Packet]) -> None:
        if self._task is None:
            disk = self._doubt(packets)
            if disk is None:
                self._go(packets)
                return
            self._task = asyncio.create_task(self._wait(disk))
        self._waiting += packets
        self._crossings.held_back += len(packets)

    def close(self) -> None:
        """Drop the packets that wait."""
        if self._task is not None:
            self._task.cancel()

    def _doubt(self, packets: list[Packet]) -> Awaitable[object] | None:
        found = [one.topic for one in packets if isinstance(one, Publish) and one.retain]
        if self._prefix is None:
            return self._crossings.doubt(found, True)
        return self._crossings.doubt([item.removeprefix(self._prefix) for item in found], False)

    async def _wait(self, disk: Awaitable[object] | None) -> None:
        packets, self._waiting = self._waiting, []
        try:
            while packets:
                if disk is not None:
                    await disk
                self._crossings.held_back -= len(packets)
                self._go(packets)
                packets, self._waiting = self._waiting, []
                disk = self._doubt(packets)
        except Exception as error:
            log.exception("bridge: internal error")
            self._failed(f"internal error ({error})")
        self._task = None
