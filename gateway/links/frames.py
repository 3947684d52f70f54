"""Frames of the reliable link: DATA, ACK, TIME and the handshake's envelope (format: FORMAT.md).

In: bytes from the line, which may begin and end inside a frame. Out: complete bodies of bounded
length, then frames whose CRC fits the session. `FrameDecoder` splits the stream into bodies. `open`
of a `Check` returns the frame in a body. `to_bytes` of a frame returns its bytes on the wire.
"""

from binascii import crc_hqx
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self
from zlib import crc32

from gateway.links import cobs
from gateway.links.statistics import LinkStatistics

MTU = 240
"""The longest payload of a DATA frame, in bytes."""

MODULO = 8
"""Sequence and acknowledgement numbers count modulo 8."""

MAX_IN_FLIGHT = 3
"""Largest number of frames that a sender keeps in flight. With this limit, an acknowledgement that
is up to four frames late is recognised as old.
"""

_RESIDUE_16 = crc_hqx(b"\xff\xff", 0)
"""Result of CRC-16 over anything that ends in its own inverted CRC."""

_RESIDUE_32 = crc32(bytes(4))
"""Result of CRC-32 over anything that ends in its own inverted CRC, lowest byte first."""

_ONES = 0xFFFF_FFFF
_SHORTEST_BODY = 3
_LONGEST_BODY = 1 + MTU + 4
_LONGEST_ENCODED = _LONGEST_BODY + 1
_TIME_SIZE = 5
_TYPE_SHIFT = 6
_LOW_SIX = 0x3F
_LOW_THREE = 0x07


class FrameError(ValueError):
    """Error: a body has a correct CRC but breaks the format."""


class Check(Protocol):
    """The CRC at the end of each body. Each session has its own seed of the CRC."""

    def seal(self, content: bytes) -> bytes:
        """Return the body: control byte and payload, followed by their CRC."""

    def open(self, body: bytes) -> bytes | None:
        """Return control byte and payload of a body; None if its CRC is wrong."""


@dataclass(frozen=True, slots=True)
class Crc16:
    """The check for boards without keys: inverted CRC-16/XMODEM from `seed`, high byte first."""

    seed: int

    def seal(self, content: bytes) -> bytes:
        return content + (crc_hqx(content, self.seed) ^ 0xFFFF).to_bytes(2, "big")

    def open(self, body: bytes) -> bytes | None:
        return body[:-2] if crc_hqx(body, self.seed) == _RESIDUE_16 else None


@dataclass(frozen=True, slots=True)
class Crc32:
    """The check for boards with keys: inverted CRC-32 (IEEE 802.3) from `seed`, low byte first."""

    seed: int

    def seal(self, content: bytes) -> bytes:
        return content + crc32(content, self.seed ^ _ONES).to_bytes(4, "little")

    def open(self, body: bytes) -> bytes | None:
        fits = len(body) > 4 and crc32(body, self.seed ^ _ONES) == _RESIDUE_32
        return body[:-4] if fits else None


_FIRST_CHECK, _KEYED_CHECK = Crc16(0xFFFF), Crc32(_ONES)
_FIRST_VERSION = b"\x01"


def handshake_check(content: bytes) -> Check:
    """Return the check of a handshake frame, which depends on the version. content: control byte,
    then the payload, whose first byte is the version.
    """
    return _FIRST_CHECK if content[1:2] == _FIRST_VERSION else _KEYED_CHECK


def on_wire(control: int, payload: bytes, check: Check) -> bytes:
    """Return the frame as it goes on the wire, delimiter included."""
    return cobs.encode(check.seal(bytes((control,)) + payload)) + b"\0"


def frame_type(body: bytes) -> int:
    """Return the type of the frame: `Data.TYPE`, `Ack.TYPE`, `Time.TYPE` or `HANDSHAKE_TYPE`."""
    return body[0] >> _TYPE_SHIFT


HANDSHAKE_TYPE = 2


@dataclass(frozen=True, slots=True)
class Data:
    """A piece of the MQTT stream. acknowledgement: number of the DATA frame that its sender expects
    next. payload: 1…240 bytes.
    """

    TYPE: ClassVar[int] = 0

    sequence: int
    acknowledgement: int
    payload: bytes

    def to_bytes(self, check: Check) -> bytes:
        return on_wire(self.sequence << 3 | self.acknowledgement, self.payload, check)

    @classmethod
    def from_content(cls, content: bytes) -> Self:
        """Return the frame. content: control byte and payload. Raises FrameError if they break the
        format.
        """
        if not 1 < len(content) <= 1 + MTU:
            raise FrameError("DATA of a wrong length")
        return cls(content[0] >> 3 & _LOW_THREE, content[0] & _LOW_THREE, content[1:])


@dataclass(frozen=True, slots=True)
class Ack:
    """An acknowledgement without data. acknowledgement: number of the DATA frame that its sender
    expects next.
    """

    TYPE: ClassVar[int] = 1

    acknowledgement: int

    def to_bytes(self, check: Check) -> bytes:
        return on_wire(self.TYPE << _TYPE_SHIFT | self.acknowledgement, b"", check)

    @classmethod
    def from_content(cls, content: bytes) -> Self:
        """Return the frame. content: control byte and payload. Raises FrameError if they break the
        format.
        """
        if len(content) != 1 or content[0] >> 3 & _LOW_THREE:
            raise FrameError("ACK with a payload or a sequence number")
        return cls(content[0] & _LOW_THREE)


@dataclass(frozen=True, slots=True)
class Time:
    """A TIME frame. utc: seconds since 1970 by the gateway's clock, in steps of 1/256 s. None: the
    device asks for the time.
    """

    TYPE: ClassVar[int] = 3

    utc: float | None = None

    def to_bytes(self, check: Check) -> bytes:
        content = b"" if self.utc is None else int(self.utc * 256).to_bytes(_TIME_SIZE)
        return on_wire(self.TYPE << _TYPE_SHIFT, content, check)

    @classmethod
    def from_content(cls, content: bytes) -> Self:
        """Return the frame. content: control byte and payload. Raises FrameError if they break the
        format.
        """
        moment = content[1:]
        if len(moment) not in (0, _TIME_SIZE) or content[0] & _LOW_SIX:
            raise FrameError("TIME of a wrong length, or with a sequence number")
        return cls(int.from_bytes(moment) / 256 if moment else None)


def handshake_to_bytes(kind: int, payload: bytes) -> bytes:
    """Return a handshake frame as it goes on the wire. kind: the low six bits of its control byte.
    payload: begins with the version.
    """
    control = handshake_control(kind)
    return on_wire(control, payload, handshake_check(bytes((control,)) + payload))


def handshake_control(kind: int) -> int:
    """Return the control byte of a handshake frame. kind: its low six bits."""
    return HANDSHAKE_TYPE << _TYPE_SHIFT | kind


def handshake_from_body(body: bytes) -> tuple[int, bytes] | None:
    """Return kind and payload of a handshake body; None if its check is wrong."""
    content = handshake_check(body).open(body)
    return None if content is None else (content[0] & _LOW_SIX, content[1:])


class FrameDecoder:
    """A decoder that splits the byte stream of a line into the bodies of its frames."""

    def __init__(self, statistics: LinkStatistics) -> None:
        self._statistics = statistics
        self._partial = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes from the line. Yield the body of each frame that is complete now. Frames with
        broken COBS or an impossible length are counted and dropped.
        """
        *complete, partial = (self._partial + data).split(b"\0")
        # One byte more than the longest frame is enough to see, at the delimiter, that it was too
        # long.
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
