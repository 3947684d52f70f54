"""Messages between members about replicas of spool rows: one message per frame.

In: messages. Out: bytes (`encode`), and back (`decode`), which raises SiteError for anything that
is not exactly one message. Numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Annotated, NamedTuple, Self

from pydantic import BaseModel, Field, model_validator

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.strict import parse

FIRST = 0xA0
"""Lowest first byte of a frame of this module. Frames of other kinds have other first bytes."""
PIECE_BYTES = 256 * 1024
"""Largest size of a frame's rows, in bytes, unless a single row is longer."""
MOST_ID = 1 << 40
"""Upper bound of the ids of spool rows, exclusive."""
MOST_ROWS = 4096
_MOST_IDENTITIES = 256
_MOST_TOLD = 64 * 1024
_MOST = 1 << 62
_MOST_TIME = 1 << 56
"""Bound of times in µs: 2,000 years."""

Row = tuple[int, str | None, int | None, int, str, str, bytes, int, int, int | None]
"""A row of the spool: id, device, incarnation, sequence, client, topic, payload, boot, monotonic,
received. A row without identity has no device and no incarnation; its sequence is its number among
the rows without identity. monotonic and received are in µs.
"""


class Told(BaseModel, strict=True, frozen=True, extra="ignore"):
    """The state of the sender's spool. line: random identifier of the spool's series of rows. A new
    store generation, and a gateway that has lost rows, begins a series with another identifier.
    """

    line: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    keep: bool
    """Whether the receiver must keep copies of the sender's rows, and report which copies it has.
    """
    first: Annotated[int, Field(ge=0, lt=MOST_ID)]
    """Id of the lowest row that has not landed; if all have landed, the id of the next row."""
    name: Annotated[str, Field(min_length=1, max_length=300)]
    """The gateway's name in the keys of rows without identity."""
    epochs: Annotated[
        tuple[
            tuple[Annotated[int, Field(ge=0, lt=MOST_ID)], Annotated[int, Field(ge=0, lt=_MOST)]],
            ...,
        ],
        Field(min_length=1, max_length=_MOST_IDENTITIES),
    ]
    """Each pair: a row id, and the epoch in the keys of rows without identity from this id on. The
    pairs are in ascending order, and cover all rows that have not landed.
    """
    boot: Annotated[int, Field(ge=0, lt=_MOST)]
    clock: Annotated[int, Field(ge=0, lt=_MOST_TIME)] | None
    """Time at which the gateway started (`boot`), in µs UTC; None while unknown. If a row of this
    boot has no time of receipt, this time plus `monotonic` is its time.
    """

    @model_validator(mode="after")
    def _each_row_has_an_epoch(self) -> Self:
        if self.epochs[0][0] > self.first:
            raise ValueError("rows without an epoch")
        return self


class Rows(NamedTuple):
    line: str
    rows: Sequence[Row]


class Held(NamedTuple):
    """Confirmation that all received rows of a line (`Told.line`) up to the id `last` are on the
    sender's disk.
    """

    line: str
    last: int


Message = Told | Rows | Held


class _Tag(IntEnum):
    """The first byte of a frame."""

    TOLD = FIRST
    ROWS = FIRST + 1
    HELD = FIRST + 2


_HELD = Struct(">B8sQ")
_ROWS = Struct(">B8s")
_ROW = Struct(">QBqqqqqHHHI")
"""id, flags, incarnation, sequence, boot, monotonic, received; sizes in bytes of device, client,
topic and payload.
"""
_IDENTITY, _RECEIVED = 1, 2


def row_bytes(row: Row) -> int:
    """Return the number of bytes that a row takes in a frame."""
    texts = _text_bytes(row[1] or "") + _text_bytes(row[4]) + _text_bytes(row[5])
    return _ROW.size + texts + len(row[6])


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def portions(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Split rows into portions. A portion fits into one frame if each of its rows does."""
    begin = size = 0
    for index, row in enumerate(rows):
        needed = row_bytes(row)
        if index > begin and (size + needed > PIECE_BYTES or index - begin == MOST_ROWS):
            yield rows[begin:index]
            begin, size = index, 0
        size += needed
    if begin < len(rows):
        yield rows[begin:]


def encode(message: Message) -> bytes:
    """Return the frame of a message. The message must be within the bounds of this module."""
    match message:
        case Told():
            return bytes((_Tag.TOLD,)) + message.model_dump_json().encode()
        case Held(line, last):
            return _HELD.pack(_Tag.HELD, bytes.fromhex(line), last)
        case Rows(line, rows):
            out = bytearray(_ROWS.pack(_Tag.ROWS, bytes.fromhex(line)))
            for row in rows:
                _put(out, row)
            return bytes(out)


def _put(out: bytearray, row: Row) -> None:
    number, device, incarnation, sequence, client, topic, payload, boot, monotonic, received = row
    texts = [(device or "").encode(), client.encode(), topic.encode()]
    out += _ROW.pack(
        number,
        (device is not None) * _IDENTITY | (received is not None) * _RECEIVED,
        incarnation or 0,
        sequence,
        boot,
        monotonic,
        received or 0,
        *map(len, texts),
        len(payload),
    )
    for text in texts:
        out += text
    out += payload


def decode(frame: bytes) -> Message:
    """Return the message in a frame. Raises SiteError if the frame is not exactly one valid
    message.
    """
    try:
        match frame[0]:
            case _Tag.TOLD:
                return parse(Told, frame[1:], _MOST_TOLD)
            case _Tag.HELD:
                _, line, last = _HELD.unpack(frame)
                return Held(line.hex(), last)
            case _Tag.ROWS:
                _, line = _ROWS.unpack_from(frame)
                return Rows(line.hex(), _rows(frame))
    except (StructError, UnicodeDecodeError, IndexError) as error:
        raise SiteError(f"cannot read a frame ({error})") from error
    raise SiteError(f"a frame of unknown kind {frame[0]}")


def _rows(frame: bytes) -> list[Row]:
    if len(frame) > FRAME_BYTES:
        raise SiteError("copies that are too long")
    rows: list[Row] = []
    at, before = _ROWS.size, -1
    while at < len(frame):
        number, flags, incarnation, sequence, boot, monotonic, received, *sizes = _ROW.unpack_from(
            frame, at
        )
        at += _ROW.size
        if (
            not before < number < MOST_ID
            or flags > _IDENTITY | _RECEIVED
            or at + sum(sizes) > len(frame)
            or not all(0 <= one < _MOST for one in (incarnation, sequence, boot))
            or not all(0 <= one < _MOST_TIME for one in (monotonic, received))
        ):
            raise SiteError("an invalid copy")
        parts = []
        for size in sizes:
            parts.append(frame[at : at + size])
            at += size
        device, client, topic = (part.decode() for part in parts[:3])
        rows.append(
            (
                number,
                device if flags & _IDENTITY else None,
                incarnation if flags & _IDENTITY else None,
                sequence,
                client,
                topic,
                parts[3],
                boot,
                monotonic,
                received if flags & _RECEIVED else None,
            )
        )
        before = number
        if len(rows) > MOST_ROWS:
            raise SiteError(f"more than {MOST_ROWS} copies at once")
    return rows
