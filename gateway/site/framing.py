"""Frames on a connection between two members: bytes in, frames out, and back. Without I/O.

  length   4 bytes: number of bytes of kind and body
  kind     1 byte (`Kind`)
  body     ALIVE and ECHO: a number of 4 bytes. FRAME: a message (`rules/messages.py`,
           `forwarding/messages.py`). Other kinds: JSON or text

All numbers have the high byte first.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum

from gateway.site.errors import SiteError

FRAME_BYTES = 1 << 20
"""Largest body of a frame, in bytes."""
_HEAD = struct.Struct("!IB")
_NUMBER = struct.Struct("!I")


class Kind(IntEnum):
    GREETING = 1
    ALIVE = 2
    FRAME = 3
    REMOVED = 4
    """The list of removed members that the sender knows."""
    JOIN = 5
    """Request of an invited gateway or a member for a certificate. Also the answer to this request.
    """
    BYE = 6
    """Reason why the sender ends the connection."""
    ECHO = 7
    """Immediate answer to ALIVE."""


def pack(kind: Kind, body: bytes) -> bytes:
    return _HEAD.pack(1 + len(body), kind) + body


def pack_number(kind: Kind, number: int) -> bytes:
    return pack(kind, _NUMBER.pack(number & 0xFFFF_FFFF))


def unpack_number(body: bytes) -> int:
    if len(body) != _NUMBER.size:
        raise SiteError(f"a keep-alive of {len(body)} bytes instead of {_NUMBER.size}")
    (number,) = _NUMBER.unpack(body)
    return int(number)


class Frames:
    """The frames of one connection. most: largest body accepted, in bytes; may be changed."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def __iter__(self) -> Iterator[tuple[Kind, bytes]]:
        """Yield complete frames. Raises SiteError for an invalid frame, after which nothing more
        can be read.
        """
        at = 0
        try:
            while len(self._bytes) - at >= _HEAD.size:
                length, kind = _HEAD.unpack_from(self._bytes, at)
                if not 0 < length <= self.most + 1:
                    raise SiteError(
                        f"a frame of {length} bytes; at most {self.most + 1} are allowed"
                    )
                end = at + 4 + length
                if len(self._bytes) < end:
                    return
                if kind not in Kind.__members__.values():
                    raise SiteError(f"a frame of the unknown kind {kind}")
                body = bytes(self._bytes[at + _HEAD.size : end])
                at = end
                yield Kind(kind), body
        finally:
            del self._bytes[:at]
