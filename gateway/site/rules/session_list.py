"""Messages with which a member shows its sessions to another member, as bytes of a frame.

  WANT   number (4 bytes), subject (1 byte): counts, or the next page of the list with this number
  TOLD   number (4 bytes), subject (1 byte), whether more pages follow (1 byte), JSON

Numbers are big-endian. The first byte, 0x20 or 0x21, distinguishes these frames from those of
`messages.py`.
"""

from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from gateway.site.errors import SiteError

FIRST = 0x20
"""First byte of a WANT frame. A TOLD frame begins with the next number."""
_WANT, _TOLD = FIRST, FIRST + 1
_HEAD, _MORE = Struct(">BIB"), Struct(">?")


class What(IntEnum):
    COUNTS = 1
    PAGE = 2


class Want(NamedTuple):
    number: int
    subject: What


class Told(NamedTuple):
    number: int
    subject: What
    more: bool
    data: bytes


def encode(message: Want | Told) -> bytes:
    if isinstance(message, Want):
        return _HEAD.pack(_WANT, *message)
    head = _HEAD.pack(_TOLD, message.number, message.subject) + _MORE.pack(message.more)
    return head + message.data


def decode(frame: bytes) -> Want | Told:
    """Return the message in a frame. Raises SiteError if the frame is not exactly one valid
    message.
    """
    try:
        kind, number, subject = _HEAD.unpack_from(frame)
        rest = frame[_HEAD.size :]
        if kind == _WANT and not rest:
            return Want(number, What(subject))
        if kind == _TOLD and rest[:1] in (b"\0", b"\1"):
            return Told(number, What(subject), rest[0] == 1, rest[1:])
    except (StructError, ValueError) as error:
        raise SiteError(f"cannot read a frame ({error})") from error
    raise SiteError(f"a frame of unknown kind {kind}, or of a wrong length")
