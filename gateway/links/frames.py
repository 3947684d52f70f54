"""Frames of the reliable link: DATA, ACK, TIME and the handshake's envelope (format: README.md).

In: bytes from the line, split anywhere. Out: bodies, whole and bounded in length, then frames whose
CRC fits the session. `FrameDecoder` cuts the stream, `open_body` checks a body, `to_bytes` of a
frame makes what goes on the wire.
"""

from binascii import crc_hqx
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from gateway.links import cobs
from gateway.links.statistics import LinkStatistics

MTU = 240
"""The longest payload of a DATA frame, in bytes."""

MODULO = 8
"""Sequence and acknowledgement numbers count modulo 8."""

MAX_IN_FLIGHT = 3
"""Frames that a sender of ours keeps in flight at most, so that an old acknowledgement, up to four
frames late, is seen to be old.
"""

HANDSHAKE_SEED = 0xFFFF
"""CRC seed of frames that belong to no session yet."""

_RESIDUE = crc_hqx(b"\xff\xff", 0)
"""What a CRC gives over anything that ends in its own inverted CRC."""

_SHORTEST_BODY = 3
_LONGEST_BODY = _SHORTEST_BODY + MTU
_LONGEST_ENCODED = _LONGEST_BODY + 1
_TIME_SIZE = 5
_TYPE_SHIFT = 6
_LOW_SIX = 0x3F
_LOW_THREE = 0x07


class FrameError(ValueError):
    """A body that passed its CRC and still breaks the format."""


def seal(control: int, payload: bytes, seed: int) -> bytes:
    """Return the frame as it goes on the wire, delimiter included."""
    body = bytes((control,)) + payload
    return cobs.encode(body + (crc_hqx(body, seed) ^ 0xFFFF).to_bytes(2, "big")) + b"\0"


def fits(body: bytes, seed: int) -> bool:
    """Tell whether the CRC at the end of `body` is right under `seed`: then the CRC over all of it
    is the residue.
    """
    return crc_hqx(body, seed) == _RESIDUE


def frame_type(body: bytes) -> int:
    """Return the two type bits of a body: `Data.TYPE`, `Ack.TYPE`, `HANDSHAKE_TYPE` or
    `Time.TYPE`.
    """
    return body[0] >> _TYPE_SHIFT


HANDSHAKE_TYPE = 2


@dataclass(frozen=True, slots=True)
class Data:
    """A piece of the MQTT stream, and what the sender expects next from its peer. payload: 1…240
    bytes.
    """

    TYPE: ClassVar[int] = 0

    sequence: int
    acknowledgement: int
    payload: bytes

    def to_bytes(self, seed: int) -> bytes:
        return seal(self.sequence << 3 | self.acknowledgement, self.payload, seed)

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        """Read a body whose CRC has been checked. Raises FrameError."""
        if len(body) == _SHORTEST_BODY:
            raise FrameError("DATA without payload")
        return cls(body[0] >> 3 & _LOW_THREE, body[0] & _LOW_THREE, body[1:-2])


@dataclass(frozen=True, slots=True)
class Ack:
    """The number of the next DATA frame that its sender expects."""

    TYPE: ClassVar[int] = 1

    acknowledgement: int

    def to_bytes(self, seed: int) -> bytes:
        return seal(self.TYPE << _TYPE_SHIFT | self.acknowledgement, b"", seed)

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        """Read a body whose CRC has been checked. Raises FrameError."""
        if len(body) != _SHORTEST_BODY or body[0] >> 3 & _LOW_THREE:
            raise FrameError("ACK with payload or sequence")
        return cls(body[0] & _LOW_THREE)


@dataclass(frozen=True, slots=True)
class Time:
    """The gateway's clock: UTC in seconds, told to 1/256 s. None: the device asks for it."""

    TYPE: ClassVar[int] = 3

    utc: float | None = None

    def to_bytes(self, seed: int) -> bytes:
        told = b"" if self.utc is None else int(self.utc * 256).to_bytes(_TIME_SIZE)
        return seal(self.TYPE << _TYPE_SHIFT, told, seed)

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        """Read a body whose CRC has been checked. Raises FrameError."""
        told = body[1:-2]
        if len(told) not in (0, _TIME_SIZE) or body[0] & _LOW_SIX:
            raise FrameError("TIME of a wrong length, or with numbers")
        return cls(int.from_bytes(told) / 256 if told else None)


def handshake_to_bytes(kind: int, payload: bytes) -> bytes:
    """Return a handshake frame as it goes on the wire; kind: the low six bits of its control
    byte.
    """
    return seal(HANDSHAKE_TYPE << _TYPE_SHIFT | kind, payload, HANDSHAKE_SEED)


def handshake_from_body(body: bytes) -> tuple[int, bytes]:
    """Return kind and payload of a handshake body whose CRC has been checked."""
    return body[0] & _LOW_SIX, body[1:-2]


class FrameDecoder:
    """Cuts the byte stream of a line into bodies. Holds at most one frame, whatever comes in."""

    def __init__(self, statistics: LinkStatistics) -> None:
        self._statistics = statistics
        self._partial = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies that `data` completes; what breaks COBS or has an impossible length is
        counted and dropped.
        """
        *complete, partial = (self._partial + data).split(b"\0")
        # One byte more than the longest frame is enough to know, when the delimiter comes, that it
        # was too long.
        self._partial = partial[: _LONGEST_ENCODED + 1]
        for encoded in complete:
            if not encoded:
                continue
            if len(encoded) <= _LONGEST_ENCODED:
                try:
                    body = cobs.decode(encoded)
                except cobs.CobsError:
                    body = b""
                if _SHORTEST_BODY <= len(body) <= _LONGEST_BODY:
                    yield body
                    continue
            self._statistics.malformed_frames += 1
