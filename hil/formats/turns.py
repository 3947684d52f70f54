"""Frames of the turn link on the air, read as gateway/links/lora/FORMAT.md describes them. In: a
frame as it was sent, and keys. Out: the head, the content of a HELLO or WELCOME, whether the frame
was made with a key, and the MQTT packets in a TURN or an ANSWER. Each function takes one frame and
has no state.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from hil.formats.frames import FrameError
from hil.formats.keys import cmac
from hil.formats.packets import Answer, Kind, Other, Packet, Property, Publish, read

COUNTERS, LOW_BITS = 1 << 16, 64
HEAD, TAG = 3, 4
_SHORTEST, _LONGEST = HEAD + TAG, 255
_NONCE = 8
_HELLO = struct.Struct(f">HHIIBB{_NONCE}s{TAG}s")
_WELCOME = struct.Struct(f">{_NONCE}sIBI{TAG}s")
_VERSION, _OFFER, _WHO = 1, 1, 2
_SESSION, _BY_BOARD, _BY_GATEWAY = 2, 3, 4  # labels of codes and of the session's key

_FIRST_OF_MQTT = 0x10
_ASKS_TIME = 0x01
_PACKED, _RELEASES, _ALIAS = 0x08, 0x04, 0x03
_DONE, _TIME, _MORE = 0x01, 0x02, 0x03
_UTC = struct.Struct(">xIB")
POLL = Other(Kind.PINGREQ)


class Type(IntEnum):
    """Type of a frame: the two highest bits of its third byte. OFFER is a WELCOME or a WHO."""

    TURN = 0
    ANSWER = 1
    GREETING = 2
    OFFER = 3


@dataclass(frozen=True, slots=True)
class Head:
    """The header of a frame. low: the low six bits of a counter, or the kind of greeting."""

    network: int
    device: int
    type: Type
    low: int


@dataclass(frozen=True, slots=True)
class Hello:
    boot: int
    attempt: int
    incarnation: int
    next_sequence: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """A WELCOME. utc: seconds since 1970, 0 if unknown."""

    nonce: int
    incarnation: int
    utc: int


@dataclass(frozen=True, slots=True)
class Turn:
    packets: tuple[Packet, ...]
    asks_time: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """Content of an ANSWER. utc: seconds since 1970; None if the ANSWER has no time. more: whether
    the gateway has another packet for the board.
    """

    packets: tuple[Packet, ...]
    utc: float | None = None
    more: bool = False


def head(frame: bytes) -> Head:
    """Return the head of a frame. Raises FrameError for an impossible length."""
    if not _SHORTEST <= len(frame) <= _LONGEST:
        raise FrameError(f"a frame of {len(frame)} bytes, not {_SHORTEST} to {_LONGEST}")
    return Head(frame[0], frame[1], Type(frame[2] >> 6), frame[2] % LOW_BITS)


def read_hello(frame: bytes) -> Hello:
    """Return the content of a HELLO. Raises FrameError."""
    found = head(frame)
    if (found.type, found.low) != (Type.GREETING, _VERSION) or len(frame) != HEAD + _HELLO.size:
        raise FrameError("no HELLO")
    boot, attempt, incarnation, following, mtu, flags, nonce, _ = _HELLO.unpack_from(frame, HEAD)
    if not 1 <= mtu <= _LONGEST - _SHORTEST or flags > 1:
        raise FrameError(f"a HELLO with mtu {mtu} and flags {flags}, not both valid")
    return Hello(boot, attempt, incarnation, following, int.from_bytes(nonce))


def is_hello(frame: bytes, key: bytes) -> bool:
    """Whether the authentication code of a HELLO was made with this key."""
    return _code(key, _BY_BOARD, frame[:-TAG]) == frame[-TAG:]


def is_welcome(frame: bytes) -> bool:
    """Whether a frame has the head and the length of a WELCOME."""
    found = head(frame)
    return (found.type, found.low) == (Type.OFFER, _OFFER) and len(frame) == HEAD + _WELCOME.size


def read_welcome(frame: bytes) -> Welcome:
    """Return the content of a WELCOME. Raises FrameError."""
    if not is_welcome(frame):
        raise FrameError("not a WELCOME")
    nonce, incarnation, _, utc, _ = _WELCOME.unpack_from(frame, HEAD)
    return Welcome(int.from_bytes(nonce), incarnation, utc)


def welcomes(frame: bytes, hello: bytes, key: bytes) -> bool:
    """Whether this WELCOME was made with this key for this HELLO."""
    return _code(key, _BY_GATEWAY, frame[:-TAG] + hello) == frame[-TAG:]


def is_who(frame: bytes) -> bool:
    """Whether a frame is a WHO by its head and its length. The code is not read: a gateway without
    a session of a board cannot tell a real TURN from a forged one, so it may answer both.
    """
    found = head(frame)
    return (found.type, found.low) == (Type.OFFER, _WHO) and len(frame) == HEAD + TAG


def session_key(key: bytes, welcome: bytes, hello: bytes) -> bytes:
    """Return the key of the session that this WELCOME offers. welcome, hello: whole frames."""
    return cmac(key, bytes((_SESSION,)) + welcome[HEAD : HEAD + _NONCE] + hello)


def opened(frame: bytes, session: bytes, counter: int) -> bytes | None:
    """Decrypt the content of a TURN or ANSWER with the session's key. None for a wrong tag."""
    # the nonce begins with the direction, which has the number of the frame's type
    nonce = bytes((head(frame).type,)) + bytes(10) + counter.to_bytes(2)
    try:
        return AESCCM(session, tag_length=TAG).decrypt(nonce, frame[HEAD:], frame[:HEAD])
    except InvalidTag:
        return None


def read_turn(content: bytes) -> Turn:
    """Return the content of a TURN. Raises FrameError or PacketError."""
    asks_time = content[:1] == bytes((_ASKS_TIME,))
    packets, rest = _packets(content[asks_time:])
    if rest:
        packets += _unpacked(rest)
    return Turn(tuple(packets) or (POLL,), asks_time)


def read_answer(content: bytes, turn: Turn) -> Reply:
    """Return the content of an ANSWER to a turn. Raises FrameError or PacketError."""
    done: list[Packet] = []
    utc, more = None, False
    while content and content[0] < _FIRST_OF_MQTT:
        form, size = content[0], 1
        if form == _DONE:
            done += successes(turn)
        elif form == _TIME and len(content) >= _UTC.size:
            seconds, part = _UTC.unpack_from(content)
            utc, size = seconds + part / 256, _UTC.size
        elif form == _MORE:
            more = True
        else:
            raise FrameError(f"an ANSWER with the unknown form {form:#04x}")
        content = content[size:]
    packets, rest = _packets(content)
    if rest:
        raise FrameError("an ANSWER with a packed form after a packet")
    return Reply((*done, *packets), utc, more)


def successes(turn: Turn) -> list[Packet]:
    """Return the packets for which the one byte `_DONE` of an ANSWER stands: the success of each
    packet of the turn, or PINGRESP if the turn is a POLL.
    """
    if turn.packets == (POLL,):
        return [Other(Kind.PINGRESP)]
    found: list[Packet] = []
    for packet in turn.packets:
        match packet:
            case Answer(kind=Kind.PUBREL):
                found.append(Answer(Kind.PUBCOMP, packet.id))
            case Publish(qos=1):
                found.append(Answer(Kind.PUBACK, packet.id))
            case Publish(qos=2):
                found.append(Answer(Kind.PUBREC, packet.id))
    return found


def _packets(content: bytes) -> tuple[list[Packet], bytes]:
    """Return the MQTT packets at the beginning of `content`, and the remaining bytes. These are
    empty, or a packed form (`gateway/links/lora/FORMAT.md`).
    """
    packets = []
    while content and content[0] >= _FIRST_OF_MQTT:
        packet, size = read(content)
        packets.append(packet)
        content = content[size:]
    return packets, content


def _unpacked(content: bytes) -> list[Packet]:
    form, identifier, payload = content[0], int.from_bytes(content[1:3]), content[3:]
    if not form & _PACKED or len(content) < 3 or not identifier:
        raise FrameError(f"a TURN with the unknown form {content[:3].hex()}")
    alias = ((Property.TOPIC_ALIAS, (form & _ALIAS) + 1),)
    publish = Publish("", payload, 2, identifier, properties=alias)
    if form & _RELEASES:
        return [Answer(Kind.PUBREL, identifier - 1 or 0xFFFF), publish]
    return [publish]


def _code(key: bytes, label: int, data: bytes) -> bytes:
    return cmac(key, bytes((label,)) + data)[:TAG]
