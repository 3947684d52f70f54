"""Bounds for incomplete WebSocket messages, and for connections before the WebSocket handshake.

In: the bytes of each connection, on their way to aiohttp, which keeps the fragments of a message
until the message is complete; and the completion of each message. Out: if all connections together
have too many incomplete bytes, the connection with the most is dropped. Connections before their
first message, whose clients are unknown, have a separate bound.
"""

import asyncio
import logging
import time

from gateway.links.http_server import Between
from gateway.links.masks import Masks
from gateway.system.fair_queue import FairQueue
from gateway.system.log_throttle import LogThrottle

log = logging.getLogger(__name__)

MOST_BYTES_BEFORE = 8_000_000
MOST_BYTES = 64_000_000
MOST_UPGRADING = 1000
MOST_UPGRADING_OF_ONE = 500


class Fragments:
    """Counts the bytes of incomplete packets of each connection of a listener, and of all
    together."""

    def __init__(self) -> None:
        self.upgrading: FairQueue[Counted] = FairQueue(MOST_UPGRADING, MOST_UPGRADING_OF_ONE)
        self._before = _Pool(MOST_BYTES_BEFORE)
        self._after = _Pool(MOST_BYTES)
        self._throttle = LogThrottle(time.monotonic)

    def hold(self, connection: "Counted", size: int) -> None:
        """Note that a connection now has `size` bytes of incomplete packets. There are two bounds:
        for all connections before their first complete message, and for all others. If a bound is
        exceeded, drop those of its connections with the most bytes.
        """
        pool = self._after if connection.has_spoken else self._before
        for worst in pool.hold(connection, size):
            self.drop(
                worst, "incomplete messages take too much memory, and this connection has the most"
            )

    def spoken(self, connection: "Counted") -> None:
        """Note that the first message of a connection is complete. From now on, the bound
        MOST_BYTES holds for its bytes, and no longer MOST_BYTES_BEFORE.
        """
        self._before.hold(connection, 0)
        connection.has_spoken = True

    def drop(self, connection: "Counted", why: str) -> None:
        address = connection.address
        if self._throttle.allows(address.rpartition(":")[0]):
            log.warning("%s: dropped: %s", address, why)
        connection.transport.abort()


class _Pool:
    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes_of: dict[Counted, int] = {}
        self._total = 0

    def hold(self, connection: "Counted", size: int) -> list["Counted"]:
        """Note how many bytes of incomplete messages a connection has now. Return the connections
        to drop, the largest first, until the total is within the bound.
        """
        self._total += size - self._bytes_of.pop(connection, 0)
        if size:
            self._bytes_of[connection] = size
        dropped = []
        while self._total > self._most:
            worst = max(self._bytes_of, key=self._bytes_of.__getitem__)
            self._total -= self._bytes_of.pop(worst)
            dropped.append(worst)
        return dropped


class Counted(Between):
    """A protocol between a connection and aiohttp's protocol for the connection. It counts bytes,
    and checks that the client masks its frames, which aiohttp does not check.
    """

    def __init__(self, shared: Fragments, handler: asyncio.Protocol) -> None:
        super().__init__(handler)
        self.has_spoken = False
        self.masks = Masks()
        self._shared = shared
        self._unfinished = self._chunk = 0

    def message(self, size: int) -> None:
        """Note that a WebSocket message of `size` bytes is complete."""
        if not self.has_spoken:
            self._shared.spoken(self)
        # the rest arrived in the same piece
        header = 6 if size < 126 else 8 if size < 1 << 16 else 14  # RFC 6455, section 5.2
        self._chunk = max(0, self._chunk - size - header)
        self._unfinished = self._chunk
        self._shared.hold(self, self._unfinished)

    def upgraded(self) -> None:
        """Note that the connection is a WebSocket now, and no longer an HTTP request."""
        self._shared.upgrading.discard(self.address, self)
        self._chunk = self._unfinished = 0
        self._shared.hold(self, 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        excess = self._shared.upgrading.add(self.address, self)
        if excess is not None:
            self._shared.drop(excess, "too many connections before their WebSocket upgrade")

    def data_received(self, data: bytes) -> None:
        clear = self.masks.checked(data)
        self._chunk = len(clear)
        self._unfinished += len(clear)
        self._shared.hold(self, self._unfinished)
        super().data_received(clear)

    def connection_lost(self, error: Exception | None) -> None:
        self._shared.upgrading.discard(self.address, self)
        self._shared.hold(self, 0)
        super().connection_lost(error)
