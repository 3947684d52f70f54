"""Frames of the turn link and their encryption (FORMAT.md, Frame and Handshake).

In: bytes that a radio has received. Out: messages as dataclasses, decrypted content; and back. Each
function handles one frame and keeps no state.
"""

import struct
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import ClassVar, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from gateway.links.frames import FrameError
from gateway.links.keys import NONCE_SIZE, cmac, session_key
from gateway.links.lora.airtime import LONGEST

HEADER_SIZE = 3
TAG_SIZE = 4
OVERHEAD = HEADER_SIZE + TAG_SIZE
MTU = LONGEST - OVERHEAD
"""Largest number of bytes of content in a frame."""

LONGEST_NAME = 14
"""Largest number of characters of a board's name. The longest reading by radio has the name in its
topic and in its payload. Without the two names it takes 67 of the 95 bytes that a packet may have
(firmware/examples/sensor, a first PUBLISH with `missed`).
"""

COUNTERS = 1 << 16
LOW = 0x3F
"""Mask of the low six bits of a counter, which are in the header."""

TURN, ANSWER, GREETING, GATEWAY_GREETING = range(4)
"""Frame types: the two high bits of the header's third byte."""

UP, DOWN = 0, 1
"""Directions: from the board, to the board. Part of the nonce of the encryption."""

_SESSION, _HELLO, _WELCOME, _WHO, _NONCE = 0x02, 0x03, 0x04, 0x05, 0x06
"""Labels: the first byte of a CMAC's input, one for each purpose. Serial lines use other labels."""

_HELLO_FIELDS = struct.Struct(">HHIIBB")
_WELCOME_FIELDS = struct.Struct(f">{NONCE_SIZE}sIBI")
_POWER_ON = 1
_LOWEST_DEVICE, _HIGHEST_DEVICE = 1, 254


@dataclass(frozen=True, slots=True)
class Header:
    """The header of each frame. low: the low six bits of a counter, or the kind of greeting."""

    network: int
    device: int
    type: int
    low: int

    def to_bytes(self) -> bytes:
        return bytes((self.network, self.device, self.type << 6 | self.low))

    @classmethod
    def from_frame(cls, frame: bytes) -> Self:
        """Return the header of a frame. Raises FrameError for a wrong length or device number."""
        if not OVERHEAD <= len(frame) <= LONGEST:
            raise FrameError(f"a frame of {len(frame)} bytes, not {OVERHEAD} to {LONGEST}")
        if not _LOWEST_DEVICE <= frame[1] <= _HIGHEST_DEVICE:
            raise FrameError(f"a frame with the invalid device number {frame[1]}")
        return cls(frame[0], frame[1], frame[2] >> 6, frame[2] & LOW)


class SessionCipher:
    """The encryption of one session's frames. key: 16 bytes. The caller must not use a counter
    twice in one direction with different content.
    """

    def __init__(self, key: bytes) -> None:
        self._ccm = AESCCM(key, tag_length=TAG_SIZE)

    def seal(self, header: Header, direction: int, counter: int, content: bytes) -> bytes:
        """Return a frame with the encrypted content. Raises ValueError if the content is longer
        than MTU.
        """
        if len(content) > MTU:
            raise ValueError(f"content of {len(content)} bytes, more than {MTU}")
        head = header.to_bytes()
        return head + self._ccm.encrypt(_nonce(direction, counter), content, head)

    def open(self, frame: bytes, direction: int, counter: int) -> bytes | None:
        """Return the content of a frame; None if its tag is wrong."""
        head, sealed = frame[:HEADER_SIZE], frame[HEADER_SIZE:]
        try:
            return self._ccm.decrypt(_nonce(direction, counter), sealed, head)
        except InvalidTag:
            return None


def _nonce(direction: int, counter: int) -> bytes:
    return bytes((direction, *bytes(10), counter >> 8, counter & 0xFF))


def _code(key: bytes, label: int, data: bytes) -> bytes:
    return cmac(key, bytes((label,)) + data)[:TAG_SIZE]


@dataclass(frozen=True, slots=True)
class Hello:
    """The greeting of a board. mtu: the longest content that the board accepts, in bytes. nonce:
    the board's challenge. code: the proof that the board has its key.
    """

    VERSION: ClassVar[int] = 1
    SIZE: ClassVar[int] = HEADER_SIZE + _HELLO_FIELDS.size + NONCE_SIZE + TAG_SIZE

    network: int
    device: int
    boot: int
    attempt: int
    incarnation: int
    next_sequence: int
    mtu: int
    power_on: bool = False
    nonce: bytes = bytes(NONCE_SIZE)
    code: bytes = bytes(TAG_SIZE)

    def to_bytes(self) -> bytes:
        return self._fields + self.nonce + self.code

    @property
    def _fields(self) -> bytes:
        header = Header(self.network, self.device, GREETING, self.VERSION)
        return header.to_bytes() + _HELLO_FIELDS.pack(
            self.boot,
            self.attempt,
            self.incarnation,
            self.next_sequence,
            self.mtu,
            _POWER_ON if self.power_on else 0,
        )

    def signed(self, key: bytes, entropy: int) -> Self:
        """Return a copy with a fresh nonce, whose `code` is computed with this key. entropy: 32
        random bits.
        """
        seen = bytes((_NONCE,)) + self._fields + entropy.to_bytes(4, "big")
        fresh = replace(self, nonce=cmac(key, seen)[:NONCE_SIZE])
        return replace(fresh, code=_code(key, _HELLO, fresh.to_bytes()[:-TAG_SIZE]))

    def proves(self, key: bytes) -> bool:
        """Whether the code was made with this key. This also holds for a frame that a third party
        has recorded and sends again.
        """
        return compare_digest(_code(key, _HELLO, self.to_bytes()[:-TAG_SIZE]), self.code)

    def session(self, key: bytes, nonce: bytes) -> bytes:
        """Return the key of the session that the WELCOME with this nonce begins. key: the board's
        key.
        """
        return session_key(key, nonce, self.to_bytes(), _SESSION)

    @classmethod
    def from_frame(cls, frame: bytes) -> Self:
        """Return the message in a frame. Raises FrameError for another version, a wrong length, an
        impossible MTU, or unknown flags.
        """
        header = Header.from_frame(frame)
        if (header.type, header.low) != (GREETING, cls.VERSION) or len(frame) != cls.SIZE:
            raise FrameError("not a HELLO of this version")
        boot, attempt, incarnation, next_sequence, mtu, flags = _HELLO_FIELDS.unpack_from(
            frame, HEADER_SIZE
        )
        if not 1 <= mtu <= MTU or flags & ~_POWER_ON:
            raise FrameError(f"a HELLO with mtu {mtu} and flags {flags}, not both valid")
        nonce = frame[-TAG_SIZE - NONCE_SIZE : -TAG_SIZE]
        numbers = boot, attempt, incarnation, next_sequence, mtu, bool(flags & _POWER_ON)
        return cls(header.network, header.device, *numbers, nonce, frame[-TAG_SIZE:])


@dataclass(frozen=True, slots=True)
class Welcome:
    """The gateway's offer of a session. nonce: the gateway's challenge. mtu: the longest content
    that the gateway accepts, in bytes. utc: seconds since 1970, 0 if unknown. code: the proof that
    the gateway has the board's key.
    """

    KIND: ClassVar[int] = 1
    SIZE: ClassVar[int] = HEADER_SIZE + _WELCOME_FIELDS.size + TAG_SIZE

    network: int
    device: int
    nonce: bytes
    incarnation: int
    mtu: int
    utc: int
    code: bytes = bytes(TAG_SIZE)

    def to_bytes(self) -> bytes:
        header = Header(self.network, self.device, GATEWAY_GREETING, self.KIND).to_bytes()
        fields = _WELCOME_FIELDS.pack(self.nonce, self.incarnation, self.mtu, self.utc)
        return header + fields + self.code

    def signed(self, key: bytes, hello: Hello) -> Self:
        """Return a copy whose `code` is computed with this key. The copy is valid only as the
        answer to this HELLO.
        """
        return replace(self, code=_code(key, _WELCOME, self._covered(hello)))

    def proves(self, key: bytes, hello: Hello) -> bool:
        """Whether the sender has this key, and has made the WELCOME for this HELLO."""
        return compare_digest(_code(key, _WELCOME, self._covered(hello)), self.code)

    def _covered(self, hello: Hello) -> bytes:
        return self.to_bytes()[:-TAG_SIZE] + hello.to_bytes()

    @classmethod
    def from_frame(cls, frame: bytes) -> Self:
        """Return the message in a frame. Raises FrameError for anything but a WELCOME."""
        header = Header.from_frame(frame)
        if (header.type, header.low) != (GATEWAY_GREETING, cls.KIND) or len(frame) != cls.SIZE:
            raise FrameError("not a WELCOME")
        nonce, incarnation, mtu, utc = _WELCOME_FIELDS.unpack_from(frame, HEADER_SIZE)
        fields = nonce, incarnation, mtu, utc
        return cls(header.network, header.device, *fields, frame[-TAG_SIZE:])


def who_frame(network: int, device: int, key: bytes, turn: bytes) -> bytes:
    """Return the WHO that answers a TURN for which the gateway has no session. turn: bytes of the
    TURN.
    """
    header = Header(network, device, GATEWAY_GREETING, 2).to_bytes()
    return header + _code(key, _WHO, turn)


def is_who(frame: bytes, key: bytes, turn: bytes) -> bool:
    """Whether a frame is the WHO that answers this TURN, made with this key. turn: bytes of the
    TURN.
    """
    return compare_digest(frame, who_frame(turn[0], turn[1], key, turn))
