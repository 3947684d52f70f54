"""Messages between members: one message per frame.

In: messages. Out: bytes (`encode`), and back (`decode`), which raises SiteError for anything that
is not exactly one message. A frame has no length of its own: `links/net.py` hands over complete
frames. Numbers are big-endian. The sizes of lists and texts are checked before they are decoded.

A set of members is a number: bit n stands for the n-th name of the sender's Names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeVar

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES

ENTRIES = 16_384
PART_BYTES = 256_000
CREDIT = 4
"""Largest number of frames with parts of sessions that may be in flight to a member."""
MAX_EPOCH = 1 << 62
"""All epochs are lower than this. A record that would need MAX_EPOCH or more is not made
(`lookup.py`), so no member can make another member send a message that others must refuse.
"""
MEMBERS = 16
_ROOM = 64
"""Assumed size of an entry of a frame, in bytes, without its client and data. The same number of
bytes stays free in each frame.
"""


class Names(NamedTuple):
    """The first frame of a link: the members of the site as the sender knows them."""

    members: tuple[str, ...]


class Beat(NamedTuple):
    """A keep-alive. clock: the sender's monotonic clock, in ms. echo: newest `clock` that the
    sender has received from the receiver, or 0 while the sender grants no lease (`contacts.py`).
    """

    clock: int
    echo: int


class Query(NamedTuple):
    """A question about a client: where its session is, or, with a packet identifier, whether that
    identifier was received.
    """

    client: str
    identifier: int = 0


class Ask(NamedTuple):
    number: int
    questions: tuple[Query, ...]


class Kind(IntEnum):
    NO = 0
    """The sender has no record of this client, or does not know the identifier in the query."""
    CLAIM = 1
    BUSY = 2
    """The sender is deciding about this client: ask again."""
    RELEASED = 3
    """The sender had the packet identifier of the query as received. The identifier is now
    released, and the release is on disk."""


class Reply(NamedTuple):
    """A reply. The fields from `epoch` on are set only in a CLAIM. session, suspect, older, copied:
    fields of the sender's record (`Held`). moved_to: the member `given_to`, as an index into the
    sender's Names, from 1; 0 for none. restored: the sender's store was restored, so it may have
    forgotten something. If such a sender has no record, it sends, in place of NO, a CLAIM without a
    session and with empty `older`.
    """

    kind: Kind
    epoch: int = 0
    session: bool = False
    suspect: bool = False
    moved_to: int = 0
    older: int = 0
    copied: bool = False
    restored: bool = False


class Answer(NamedTuple):
    """Replies to some of the queries in one Ask. number: number of the Ask. first: index, in the
    Ask, of the query that the first reply answers.
    """

    number: int
    first: int
    replies: tuple[Reply, ...]


class Wanted(NamedTuple):
    """A request for one part of a session. epoch: the epoch in the receiver's reply CLAIM. part:
    number of the part, from 0.
    """

    client: str
    epoch: int
    part: int


class Take(NamedTuple):
    wanted: tuple[Wanted, ...]


class Part(NamedTuple):
    """Part number `part` of a session that has `parts` parts. parts = 0: the session is
    unavailable. suspect: whether the session is suspect now; this may have changed since the reply
    CLAIM.
    """

    client: str
    epoch: int
    part: int
    parts: int
    data: bytes
    suspect: bool = False


class Give(NamedTuple):
    moved_parts: tuple[Part, ...]


class Got(NamedTuple):
    """Confirmation that one Give has been processed."""


class Over(NamedTuple):
    """The message that a client's record at the receiver is outdated if its epoch is lower than
    `below`. below: epoch of the sender's record. older: the members in `older` of the sender's
    record, and also the sender if its session can be used. copied: as in the sender's record.
    """

    client: str
    below: int
    older: int = 0
    copied: bool = False


class End(NamedTuple):
    overs: tuple[Over, ...]


class State(IntEnum):
    DONE = 0
    """The sender of this answer has no older record, neither in memory nor on disk."""
    STAYS = 1
    """The sender of this answer keeps its record, and the receiver has to end its own. First case:
    only the receiver's record is from a copy of a store. Second case: neither member knew of the
    other's record. Then the record with the lower epoch ends; if the epochs are equal, that of the
    member with the lower name. In the second case, the sender marks its own record as suspect, on
    disk, before it answers.
    """
    BUSY = 2
    """The sender of this answer is busy: repeat the message a little later."""
    HELD = 3
    """The sender of this answer has a record whose epoch is not lower than `Over.below`."""


class Ended(NamedTuple):
    client: str
    below: int
    state: State
    epoch: int = 0


class Endings(NamedTuple):
    ended: tuple[Ended, ...]


Message = Names | Beat | Ask | Answer | Take | Give | Got | End | Endings
Entry = TypeVar("Entry", Query, Wanted, Part, Over, Ended, Reply)


class _Tag(IntEnum):
    """The first byte of a frame."""

    NAMES = 1
    BEAT = 2
    ASK = 3
    ANSWER = 4
    TAKE = 5
    GIVE = 6
    GOT = 7
    END = 8
    ENDINGS = 9


_BYTE, _SHORT, _LONG = Struct(">B"), Struct(">H"), Struct(">I")
_CLOCKS = Struct(">QQ")
_WANTED, _PART, _OVER, _ENDED = Struct(">QH"), Struct(">QHHBI"), Struct(">QHB"), Struct(">QBQ")
_ANSWERED, _CLAIM = Struct(">IH"), Struct(">QBBH")


def portions(entries: Iterable[Entry]) -> list[tuple[Entry, ...]]:
    """Split entries so that each portion fits into a frame."""
    found: list[tuple[Entry, ...]] = []
    portion: list[Entry] = []
    size = 0
    for entry in entries:
        needed = _ROOM
        if not isinstance(entry, Reply):
            needed += len(entry.client) * 4
            if isinstance(entry, Part):
                needed += len(entry.data)
        if portion and (size + needed > FRAME_BYTES - _ROOM or len(portion) == ENTRIES):
            found.append(tuple(portion))
            portion, size = [], 0
        portion.append(entry)
        size += needed
    if portion:
        found.append(tuple(portion))
    return found


def encode(message: Message) -> bytes:
    """Return the frame of a message. The message must be within the bounds of this module."""
    match message:
        case Names(members):
            return bytes((_Tag.NAMES, len(members))) + b"".join(map(_name_bytes, members))
        case Beat():
            return _BYTE.pack(_Tag.BEAT) + _CLOCKS.pack(*message)
        case Ask(number, questions):
            return _BYTE.pack(_Tag.ASK) + _LONG.pack(number) + _list(questions, _question_bytes)
        case Answer(number, first, replies):
            head = _BYTE.pack(_Tag.ANSWER) + _ANSWERED.pack(number, first)
            return head + _list(replies, _reply_bytes)
        case Take(wanted):
            return _BYTE.pack(_Tag.TAKE) + _list(wanted, _wanted_bytes)
        case Give(given):
            return _BYTE.pack(_Tag.GIVE) + _list(given, _part_bytes)
        case Got():
            return _BYTE.pack(_Tag.GOT)
        case End(overs):
            return _BYTE.pack(_Tag.END) + _list(overs, _over_bytes)
        case Endings(ended):
            return _BYTE.pack(_Tag.ENDINGS) + _list(ended, _ended_bytes)


def _list(entries: tuple[Entry, ...], write: Callable[[Entry], bytes]) -> bytes:
    return _SHORT.pack(len(entries)) + b"".join(map(write, entries))


def _name_bytes(name: str) -> bytes:
    raw = name.encode()
    return _BYTE.pack(len(raw)) + raw


def _question_bytes(question: Query) -> bytes:
    return _text(question.client) + _SHORT.pack(question.identifier)


def _reply_bytes(reply: Reply) -> bytes:
    kind = _BYTE.pack(reply.kind)
    if reply.kind != Kind.CLAIM:
        return kind
    flags = reply.session | reply.suspect << 1 | reply.copied << 2 | reply.restored << 3
    return kind + _CLAIM.pack(reply.epoch, flags, reply.moved_to, reply.older)


def _wanted_bytes(wanted: Wanted) -> bytes:
    return _text(wanted.client) + _WANTED.pack(wanted.epoch, wanted.part)


def _part_bytes(moved: Part) -> bytes:
    client, epoch, part, parts, data, suspect = moved
    return _text(client) + _PART.pack(epoch, part, parts, suspect, len(data)) + data


def _over_bytes(over: Over) -> bytes:
    return _text(over.client) + _OVER.pack(over.below, over.older, over.copied)


def _ended_bytes(ended: Ended) -> bytes:
    return _text(ended.client) + _ENDED.pack(ended.below, ended.state, ended.epoch)


def decode(frame: bytes) -> Message:
    """Return the message in a frame. Raises SiteError if the frame is not exactly one valid
    message.
    """
    if len(frame) > FRAME_BYTES:
        raise SiteError(f"a frame of {len(frame)} bytes; at most {FRAME_BYTES} are allowed")
    try:
        reader = _Reader(frame)
        message = _message(reader)
    except (StructError, IndexError, UnicodeDecodeError, ValueError) as error:
        raise SiteError(f"cannot read a frame ({error})") from error
    if reader.position != len(frame):
        raise SiteError("a frame with extra bytes at its end")
    return message


def _message(reader: _Reader) -> Message:
    match reader.kind:
        case _Tag.NAMES:
            (count,) = reader.take(_BYTE)
            if count > MEMBERS:
                raise SiteError(f"a site of {count} members; at most {MEMBERS} are allowed")
            return Names(tuple(reader.name() for _ in range(count)))
        case _Tag.BEAT:
            return Beat(*reader.take(_CLOCKS))
        case _Tag.ASK:
            (number,) = reader.take(_LONG)
            return Ask(number, reader.entries(_question))
        case _Tag.ANSWER:
            number, first = reader.take(_ANSWERED)
            return Answer(number, first, reader.entries(_reply))
        case _Tag.TAKE:
            return Take(reader.entries(_wanted))
        case _Tag.GIVE:
            return Give(reader.entries(_part))
        case _Tag.GOT:
            return Got()
        case _Tag.END:
            return End(reader.entries(_over))
        case _Tag.ENDINGS:
            return Endings(reader.entries(_ended))
    raise SiteError(f"a frame of unknown kind {reader.kind}")


def _question(reader: _Reader) -> Query:
    return Query(reader.text(), *reader.take(_SHORT))


def _reply(reader: _Reader) -> Reply:
    kind = Kind(*reader.take(_BYTE))
    if kind != Kind.CLAIM:
        return Reply(kind)
    epoch, flags, moved_to, older = reader.take(_CLAIM)
    if epoch >= MAX_EPOCH or flags > 15 or moved_to > MEMBERS:
        raise SiteError("a claim that cannot be read")
    session, suspect, copied, restored = (bool(flags & bit) for bit in (1, 2, 4, 8))
    return Reply(kind, epoch, session, suspect, moved_to, older, copied, restored)


def _wanted(reader: _Reader) -> Wanted:
    return Wanted(reader.text(), *reader.take(_WANTED))


def _part(reader: _Reader) -> Part:
    client = reader.text()
    epoch, part, parts, suspect, size = reader.take(_PART)
    if size > PART_BYTES or (part >= parts and size) or suspect > 1:
        raise SiteError("an invalid part of a session")
    return Part(client, epoch, part, parts, reader.bytes(size), bool(suspect))


def _over(reader: _Reader) -> Over:
    client = reader.text()
    below, older, copied = reader.take(_OVER)
    if below >= MAX_EPOCH or copied > 1:
        raise SiteError("an invalid end of sessions")
    return Over(client, below, older, bool(copied))


def _ended(reader: _Reader) -> Ended:
    client = reader.text()
    below, state, epoch = reader.take(_ENDED)
    if epoch >= MAX_EPOCH:
        raise SiteError("an impossible epoch")
    return Ended(client, below, State(state), epoch)


def _text(value: str) -> bytes:
    raw = value.encode()
    return _SHORT.pack(len(raw)) + raw


class _Reader:
    """A reader of a frame, positioned after the kind. Raises IndexError for an empty frame."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self.kind = frame[0]
        self.position = 1

    def take(self, fields: Struct) -> tuple[int, ...]:
        values: tuple[int, ...] = fields.unpack_from(self._frame, self.position)
        self.position += fields.size
        return values

    def bytes(self, size: int) -> bytes:
        begin = self.position
        if size > len(self._frame) - begin:
            raise SiteError("a frame that ends too early")
        self.position += size
        return self._frame[begin : self.position]

    def text(self) -> str:
        (size,) = _SHORT.unpack_from(self._frame, self.position)
        self.position += _SHORT.size
        return self.bytes(size).decode()

    def name(self) -> str:
        return self.bytes(*self.take(_BYTE)).decode()

    def entries(self, read: Callable[[_Reader], Entry]) -> tuple[Entry, ...]:
        (count,) = _SHORT.unpack_from(self._frame, self.position)
        self.position += _SHORT.size
        if count > ENTRIES or count > len(self._frame) - self.position:
            raise SiteError(f"a list of {count} entries, more than allowed or than the frame has")
        return tuple(read(self) for _ in range(count))
