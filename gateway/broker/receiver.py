"""The connection to a session's client, as far as its queue knows it.

In: runs of messages, and packets with the commits that they wait for. Out: bytes to send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gateway.broker.publish_run import PublishRun


class Receiver(Protocol):
    """The connection to the session's client, as far as its queue knows it."""

    @property
    def full(self) -> bool:
        """Nothing more should be sent for now."""

    @property
    def room(self) -> int:
        """Bytes that may be sent until it is full."""

    def shape(self, run: PublishRun, first: int, extra: bytes) -> tuple[bytes, bytes] | None: ...

    def send(self, packets: bytes, commit: int = 0, acknowledgements: int = 0) -> None: ...

    def send_qos_0(
        self, run: PublishRun, flags: int, extra: bytes, skip: int, count: int
    ) -> None: ...

    def fail(self, error: Exception, doing: str) -> None:
        """End the connection soon, because a call for it has raised an exception."""


class Outgoing:
    """Packets that leave in one piece."""

    __slots__ = ("_commit", "_packets", "_room", "_size", "connection")

    def __init__(self, connection: Receiver) -> None:
        self.connection = connection
        self._packets: list[bytes] = []
        self._size = 0
        self._room = connection.room
        """Bytes until the connection is full."""
        self._commit = 0
        """The commit that they wait for."""

    def add(self, packets: bytes, commit: int) -> None:
        if commit != self._commit:
            self.flush()
            self._commit = commit
        self._packets.append(packets)
        self._size += len(packets)
        if self._size > self._room:
            self.flush()

    def flush(self) -> None:
        if self._packets:
            try:
                self.connection.send(b"".join(self._packets), self._commit)
            except Exception as error:
                self.connection.fail(error, "messages are sent")
            self._packets.clear()
            self._size = 0
            self._room = self.connection.room
