"""The handshake of the reliable link: HELLO, WELCOME, WHO (format: FORMAT.md).

In: payloads of handshake frames. Out: messages as dataclasses, and back. There are two versions: in
version 2, device and gateway prove to each other that they have the device's key; in version 1 they
prove nothing. `greeter.py` makes the answers.
"""

import struct
from binascii import crc_hqx
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from gateway.links.frames import (
    MTU,
    Check,
    Crc16,
    Crc32,
    FrameError,
    handshake_control,
    handshake_to_bytes,
)
from gateway.links.keys import MAC_SIZE, NONCE_SIZE, mac, proves, session_key

PLAIN, KEYED = 1, 2
"""Versions of the handshake: 1 without keys, 2 with proofs of the device's key."""

MAX_WINDOW = 4
MAX_NAME = 23

_HELLO = struct.Struct(">BHBIIBBB")
_WELCOME = struct.Struct(">BHBHHIBBBI")
_KEYED_WELCOME = struct.Struct(f">BHB{NONCE_SIZE}sIBBBI")
_WHO = struct.Struct(">BH")
_SEED = struct.Struct(">HBHH")
_SEED_32 = struct.Struct(">I")
_PLAIN_SEED = 0xFFFF


class VersionError(FrameError):
    """Error: the peer uses an unknown version of the link. version: the version in its frame."""

    def __init__(self, version: int) -> None:
        super().__init__(f"link version {version}")
        self.version = version


def _version(payload: bytes) -> int:
    if not payload:
        raise FrameError("empty handshake")
    if payload[0] not in (PLAIN, KEYED):
        raise VersionError(payload[0])
    return payload[0]


def _check_sizes(mtu: int, window: int) -> None:
    if not (1 <= mtu <= MTU and 1 <= window <= MAX_WINDOW):
        raise FrameError(f"a handshake with an invalid mtu ({mtu}) or window ({window})")


@dataclass(frozen=True, slots=True)
class Hello:
    """The greeting of a device. mtu: the longest payload that it accepts, in bytes. window: the
    number of frames in flight that it accepts. name: at most 23 bytes of UTF-8. flags: bit 0 is
    `power_on`; the other bits are unused. nonce, code: challenge and proof of a device with a key;
    empty in version 1.
    """

    KIND: ClassVar[int] = 0

    boot: int
    attempt: int
    incarnation: int
    next_sequence: int
    mtu: int
    window: int
    name: str
    flags: int = 0
    nonce: bytes = b""
    code: bytes = b""

    @property
    def version(self) -> int:
        return KEYED if self.nonce else PLAIN

    @property
    def power_on(self) -> bool:
        """Whether the last start was a power-on or a brown-out."""
        return bool(self.flags & 1)

    @property
    def payload(self) -> bytes:
        fields = _HELLO.pack(
            self.version,
            self.boot,
            self.attempt,
            self.incarnation,
            self.next_sequence,
            self.mtu,
            self.window,
            self.flags,
        )
        return fields + self.nonce + self.name.encode() + self.code

    def to_bytes(self) -> bytes:
        return handshake_to_bytes(self.KIND, self.payload)

    def signed(self, key: bytes) -> Self:
        """Return a copy whose `code` is computed with this key."""
        return replace(self, code=mac(key, self._covered))

    def proves(self, key: bytes) -> bool:
        """Whether the code was made with this key. This also holds for a frame that a third party
        has recorded and sends again.
        """
        return self.version == KEYED and proves(key, self._covered, self.code)

    @property
    def _covered(self) -> bytes:
        return bytes((handshake_control(self.KIND),)) + replace(self, code=b"").payload

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Return the message in a payload. Raises FrameError for another version, a wrong length,
        sizes out of range, or a name that cannot be printed.
        """
        nonce_end, code_size = _HELLO.size, 0
        if _version(payload) == KEYED:
            nonce_end, code_size = _HELLO.size + NONCE_SIZE, MAC_SIZE
        name_end = len(payload) - code_size
        if not nonce_end <= name_end <= nonce_end + MAX_NAME:
            raise FrameError("HELLO of a wrong length")
        _, boot, attempt, incarnation, next_sequence, mtu, window, flags = _HELLO.unpack_from(
            payload
        )
        _check_sizes(mtu, window)
        try:
            name = payload[nonce_end:name_end].decode()
        except UnicodeDecodeError as error:
            raise FrameError("a name that is not UTF-8") from error
        if not name.isprintable():
            raise FrameError("a name that cannot be printed")
        return cls(
            boot,
            attempt,
            incarnation,
            next_sequence,
            mtu,
            window,
            name,
            flags,
            payload[_HELLO.size : nonce_end],
            payload[name_end:],
        )


@dataclass(frozen=True, slots=True)
class Welcome:
    """The gateway's answer to the HELLO of version 1 that has this boot and attempt. utc: seconds
    since 1970, 0 if unknown.
    """

    KIND: ClassVar[int] = 1

    boot: int
    attempt: int
    gateway_boot: int
    handshake: int
    incarnation: int
    mtu: int
    window: int
    utc: int
    refused: bool = False

    def to_bytes(self) -> bytes:
        fields = _WELCOME.pack(
            PLAIN,
            self.boot,
            self.attempt,
            self.gateway_boot,
            self.handshake,
            self.incarnation,
            self.mtu,
            self.window,
            self.refused,
            self.utc,
        )
        return handshake_to_bytes(self.KIND, fields)

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Return the message in a payload. Raises FrameError for another version, a wrong length,
        or sizes out of range.
        """
        if _version(payload) != PLAIN or len(payload) != _WELCOME.size:
            raise FrameError("WELCOME of a wrong length")
        _, boot, attempt, gateway_boot, handshake, incarnation, mtu, window, flags, utc = (
            _WELCOME.unpack(payload)
        )
        _check_sizes(mtu, window)
        return cls(
            boot, attempt, gateway_boot, handshake, incarnation, mtu, window, utc, bool(flags & 1)
        )

    @property
    def check(self) -> Check:
        """Return the check for frames of the session that this WELCOME begins."""
        return Crc16(session_seed(self.boot, self.attempt, self.gateway_boot, self.handshake))


@dataclass(frozen=True, slots=True)
class KeyedWelcome:
    """The gateway's answer to a HELLO of version 2. nonce: the gateway's challenge. code: the proof
    that the gateway has the device's key; zeros in a refusal, because the gateway may lack the key.
    """

    KIND: ClassVar[int] = 1

    boot: int
    attempt: int
    nonce: bytes
    incarnation: int
    mtu: int
    window: int
    utc: int
    refused: bool = False
    code: bytes = bytes(MAC_SIZE)

    @property
    def _fields(self) -> bytes:
        return _KEYED_WELCOME.pack(
            KEYED,
            self.boot,
            self.attempt,
            self.nonce,
            self.incarnation,
            self.mtu,
            self.window,
            self.refused,
            self.utc,
        )

    def to_bytes(self) -> bytes:
        return handshake_to_bytes(self.KIND, self._fields + self.code)

    def signed(self, key: bytes, hello: Hello) -> Self:
        """Return a copy whose `code` is computed with this key. The copy is valid only as the
        answer to this HELLO.
        """
        return replace(self, code=mac(key, self._covered(hello)))

    def proves(self, key: bytes, hello: Hello) -> bool:
        """Whether the sender has this key, and made the WELCOME for this HELLO."""
        return proves(key, self._covered(hello), self.code)

    def check(self, key: bytes, hello: Hello) -> Check:
        """Return the check for frames of the session that this WELCOME begins. key: the device's
        key.
        """
        seed: int = _SEED_32.unpack_from(session_key(key, self.nonce, hello.payload))[0]
        return Crc32(seed)

    def _covered(self, hello: Hello) -> bytes:
        return bytes((handshake_control(self.KIND),)) + self._fields + hello.payload

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Return the message in a payload. Raises FrameError for another version, a wrong length,
        or sizes out of range.
        """
        if _version(payload) != KEYED or len(payload) != _KEYED_WELCOME.size + MAC_SIZE:
            raise FrameError("WELCOME of a wrong length")
        _, boot, attempt, nonce, incarnation, mtu, window, flags, utc = _KEYED_WELCOME.unpack_from(
            payload
        )
        _check_sizes(mtu, window)
        code = payload[_KEYED_WELCOME.size :]
        return cls(boot, attempt, nonce, incarnation, mtu, window, utc, bool(flags & 1), code)


def read_welcome(payload: bytes) -> Welcome | KeyedWelcome:
    """Return the WELCOME in a payload, of either version. Raises FrameError for anything else."""
    if _version(payload) == KEYED:
        return KeyedWelcome.from_payload(payload)
    return Welcome.from_payload(payload)


@dataclass(frozen=True, slots=True)
class Who:
    """WHO: the gateway has no session with its peer, or has ended it, and asks the device for a
    HELLO. gateway_boot: number of the gateway's starts; None in version 2.
    """

    KIND: ClassVar[int] = 2

    gateway_boot: int | None

    def to_bytes(self) -> bytes:
        if self.gateway_boot is None:
            return handshake_to_bytes(self.KIND, bytes((KEYED,)))
        return handshake_to_bytes(self.KIND, _WHO.pack(PLAIN, self.gateway_boot))

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Return the message in a payload. Raises FrameError for a wrong version or length."""
        keyed = _version(payload) == KEYED
        if len(payload) != (1 if keyed else _WHO.size):
            raise FrameError("WHO of a wrong length")
        return cls(None if keyed else _WHO.unpack(payload)[1])


def session_seed(boot: int, attempt: int, gateway_boot: int, handshake: int) -> int:
    """Return the CRC seed of a session without a key. It is made of four counters, so frames from
    before a restart of device or gateway fail their CRC.
    """
    return crc_hqx(_SEED.pack(boot, attempt, gateway_boot, handshake), _PLAIN_SEED)
