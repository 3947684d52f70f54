"""Messages between members about subscriptions and packets: one message per frame.

In: messages. Out: bytes (`encode`), and back (`decode`), which raises SiteError for anything that
is not exactly one message. The first byte is FIRST or above, which distinguishes these frames from
those of `rules/messages.py`. Numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES

FIRST = 0x40
PIECE_BYTES = 128 * 1024
"""Largest number of bytes of packets in one frame."""
FILTERS_PER_FRAME = 8_192
"""Largest number of filters in one frame."""
GONE = 3
"""Value instead of a QoS: the sender no longer has subscribers to this filter."""
MOST_NUMBER = 1 << 62
MOST_QUEUE = 1 << 32


class Hello(NamedTuple):
    """The beginning of a new round (see `forwarding.py`). Both sides exchange packets once each has
    named the other side's current round in a HELLO. sender_round: number of the sender's round;
    packets for the sender carry this number. receiver_round: the receiver's latest round that the
    sender has heard of, 0 for none. queue: number of the sender's queue, in which its messages are
    numbered. packet_bytes: the largest packet that the sender accepts, in bytes.
    """

    sender_round: int
    receiver_round: int
    queue: int
    packet_bytes: int


class Packets(NamedTuple):
    """A part of the stream of MQTT control packets. round: number of the receiver's current round
    (see `Hello`). latest: number of the sender's latest message in flight when these bytes were
    queued. By this number, the receiver finds the full number of a message from its packet
    identifier. data: the bytes.
    """

    round: int
    latest: int
    data: bytes


class Taken(NamedTuple):
    """Confirmation that `size` more bytes of packets have been processed. round: number of the
    receiver's current round (see `Hello`).
    """

    round: int
    size: int


class WantedFilter(NamedTuple):
    topic_filter: str
    qos: int


class WantedFilters(NamedTuple):
    """Filters of the sender's clients. first, last: whether this is the first or the last part of a
    complete list. A message that is neither has further filters of a list, or changes.
    """

    first: bool
    last: bool
    filters: tuple[WantedFilter, ...]


Message = Hello | Packets | Taken | WantedFilters


class _Tag(IntEnum):
    """The kind of a frame. It is the first byte of the frame."""

    HELLO = FIRST
    PACKETS = FIRST + 1
    TAKEN = FIRST + 2
    FILTERS = FIRST + 3


_HELLO, _PACKETS, _TAKEN = Struct(">BIIQI"), Struct(">BIQ"), Struct(">BII")
_FILTERS, _WISH = Struct(">BBH"), Struct(">BH")


def portions(filters: Iterable[WantedFilter]) -> Iterator[tuple[WantedFilter, ...]]:
    """Split filters so that each portion fits into a frame."""
    portion: list[WantedFilter] = []
    size = 0
    for wanted in filters:
        needed = _WISH.size + len(wanted.topic_filter) * 4
        if portion and (
            size + needed > FRAME_BYTES - _FILTERS.size or len(portion) == FILTERS_PER_FRAME
        ):
            yield tuple(portion)
            portion, size = [], 0
        portion.append(wanted)
        size += needed
    yield tuple(portion)


def encode(message: Message) -> bytes:
    """Return the frame of a message. The message must be within PIECE_BYTES and
    FILTERS_PER_FRAME.
    """
    match message:
        case Hello():
            return _HELLO.pack(_Tag.HELLO, *message)
        case Packets(number, latest, data):
            return _PACKETS.pack(_Tag.PACKETS, number, latest) + data
        case Taken():
            return _TAKEN.pack(_Tag.TAKEN, *message)
        case WantedFilters(first, last, filters):
            out = bytearray(_FILTERS.pack(_Tag.FILTERS, first | last << 1, len(filters)))
            for topic_filter, qos in filters:
                raw = topic_filter.encode()
                out += _WISH.pack(qos, len(raw)) + raw
            return bytes(out)


def decode(frame: bytes) -> Message:
    """Return the message in a frame. Raises SiteError if the frame is not exactly one valid
    message.
    """
    try:
        return _decode(frame)
    except (StructError, UnicodeDecodeError, IndexError) as error:
        raise SiteError(f"cannot read a frame ({error})") from error


def _decode(frame: bytes) -> Message:
    match frame[0]:
        case _Tag.HELLO:
            hello = Hello(*_HELLO.unpack(frame)[1:])
            if not hello.sender_round or not 0 < hello.queue < MOST_QUEUE:
                raise SiteError("a HELLO whose round or queue number is out of range")
            return hello
        case _Tag.PACKETS:
            _, number, latest = _PACKETS.unpack_from(frame)
            data = frame[_PACKETS.size :]
            if len(data) > PIECE_BYTES or latest >= MOST_NUMBER:
                raise SiteError("invalid packets")
            return Packets(number, latest, data)
        case _Tag.TAKEN:
            return Taken(*_TAKEN.unpack(frame)[1:])
        case _Tag.FILTERS:
            return _wanted_filters(frame)
    raise SiteError(f"a frame of unknown kind {frame[0]}")


def _wanted_filters(frame: bytes) -> WantedFilters:
    _, flags, count = _FILTERS.unpack_from(frame)
    if flags > 3 or count > FILTERS_PER_FRAME:
        raise SiteError("an invalid list of filters")
    filters, at = [], _FILTERS.size
    for _ in range(count):
        qos, size = _WISH.unpack_from(frame, at)
        at += _WISH.size + size
        if qos > GONE or at > len(frame):
            raise SiteError("an invalid filter")
        filters.append(WantedFilter(frame[at - size : at].decode(), qos))
    if at != len(frame):
        raise SiteError("a frame with extra bytes at its end")
    return WantedFilters(bool(flags & 1), bool(flags & 2), tuple(filters))
