"""One Network Connection of a client, on a plain socket. In: the port of a broker on this machine,
a CONNECT. Out: packets in both directions. OSError or PacketError ends the connection.
"""

import select
import socket
from types import TracebackType
from typing import Self

from hil.formats.packets import (
    Connack,
    Connect,
    Cutter,
    Disconnect,
    Packet,
    PacketError,
    write,
)

CONNECT_WITHIN = 10.0  # s
RECEIVE = 65_536  # bytes at once


class Connection:
    """A connection that the broker has accepted. connack: its answer; the reason is 0."""

    connack: Connack

    def __init__(self, port: int, connect: Connect) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), CONNECT_WITHIN)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._cutter = Cutter()
        self._early: list[Packet] = []
        try:
            self.send(connect)
            while not (packets := self._read(CONNECT_WITHIN)):
                pass
            answer, *self._early = packets
            if not isinstance(answer, Connack) or answer.reason:
                raise PacketError(f"the answer to CONNECT was {answer}")
            self.connack = answer
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, *packets: Packet) -> None:
        self._socket.sendall(b"".join(map(write, packets)))

    def receive(self, within: float) -> list[Packet]:
        """Wait at most `within` seconds, and return the packets that arrived, perhaps none."""
        if self._early:
            early, self._early = self._early, []
            return early
        ready, _, _ = select.select([self._socket], [], [], max(0.0, within))
        return self._read(CONNECT_WITHIN) if ready else []

    def disconnect(self) -> None:
        self.send(Disconnect())

    def _read(self, within: float) -> list[Packet]:
        self._socket.settimeout(within)
        data = self._socket.recv(RECEIVE)
        if not data:
            raise ConnectionResetError("the broker has closed the connection")
        packets = list(self._cutter.feed(data))
        if broken := [packet for packet in packets if isinstance(packet, Disconnect)]:
            raise PacketError(f"the broker has ended the connection: {broken[0]}")
        return packets
