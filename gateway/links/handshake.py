"""The handshake of the reliable link: HELLO, WELCOME, WHO and the session seed (format: README.md).

In: payloads of handshake frames. Out: messages as dataclasses, and back. `Greeter` answers HELLO
for all ports of a gateway.
"""

import secrets
import struct
from binascii import crc_hqx
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Self

from gateway.links.frames import HANDSHAKE_SEED, MAX_IN_FLIGHT, MTU, FrameError, handshake_to_bytes

VERSION = 1
MAX_WINDOW = 4
MAX_NAME = 23

_HELLO = struct.Struct(">BHBIIBBB")
_WELCOME = struct.Struct(">BHBHHIBBBI")
_WHO = struct.Struct(">BH")
_SEED = struct.Struct(">HBHH")
_U16 = 0xFFFF


class VersionError(FrameError):
    """The peer speaks another version of the link. version: the one it speaks."""

    def __init__(self, version: int) -> None:
        super().__init__(f"link version {version}")
        self.version = version


def _check_version(payload: bytes) -> None:
    if payload[:1] != bytes((VERSION,)):
        raise VersionError(payload[0]) if payload else FrameError("empty handshake")


def _check_sizes(mtu: int, window: int) -> None:
    if not (1 <= mtu <= MTU and 1 <= window <= MAX_WINDOW):
        raise FrameError(f"mtu {mtu}, window {window}")


@dataclass(frozen=True, slots=True)
class Hello:
    """A device greets. mtu, window: the longest payload and the number of frames that it takes.
    name: at most 23 bytes of UTF-8.
    """

    KIND: ClassVar[int] = 0

    boot: int
    attempt: int
    incarnation: int
    next_sequence: int
    mtu: int
    window: int
    name: str
    power_on: bool = False

    def to_bytes(self) -> bytes:
        """Return the frame as it goes on the wire."""
        fields = _HELLO.pack(
            VERSION,
            self.boot,
            self.attempt,
            self.incarnation,
            self.next_sequence,
            self.mtu,
            self.window,
            self.power_on,
        )
        return handshake_to_bytes(self.KIND, fields + self.name.encode())

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Raises FrameError: another version, a wrong length, sizes out of range, a name that
        cannot be printed.
        """
        _check_version(payload)
        if not _HELLO.size <= len(payload) <= _HELLO.size + MAX_NAME:
            raise FrameError("HELLO of a wrong length")
        _, boot, attempt, incarnation, next_sequence, mtu, window, flags = _HELLO.unpack_from(
            payload
        )
        _check_sizes(mtu, window)
        try:
            name = payload[_HELLO.size :].decode()
        except UnicodeDecodeError as error:
            raise FrameError("a name that is not UTF-8") from error
        if not name.isprintable():
            raise FrameError("a name that cannot be printed")
        return cls(boot, attempt, incarnation, next_sequence, mtu, window, name, bool(flags & 1))


@dataclass(frozen=True, slots=True)
class Welcome:
    """The gateway answers the HELLO that had this boot and attempt. utc: seconds since 1970, 0 when
    unknown.
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
        """Return the frame as it goes on the wire."""
        fields = _WELCOME.pack(
            VERSION,
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
        """Raises FrameError: another version, a wrong length, sizes out of range."""
        _check_version(payload)
        if len(payload) != _WELCOME.size:
            raise FrameError("WELCOME of a wrong length")
        _, boot, attempt, gateway_boot, handshake, incarnation, mtu, window, flags, utc = (
            _WELCOME.unpack(payload)
        )
        _check_sizes(mtu, window)
        return cls(
            boot, attempt, gateway_boot, handshake, incarnation, mtu, window, utc, bool(flags & 1)
        )

    @property
    def seed(self) -> int:
        return session_seed(self.boot, self.attempt, self.gateway_boot, self.handshake)


@dataclass(frozen=True, slots=True)
class Who:
    """The gateway has no session with whom it hears, or has ended it: greet."""

    KIND: ClassVar[int] = 2

    gateway_boot: int

    def to_bytes(self) -> bytes:
        """Return the frame as it goes on the wire."""
        return handshake_to_bytes(self.KIND, _WHO.pack(VERSION, self.gateway_boot))

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Raises FrameError: another version, a wrong length."""
        _check_version(payload)
        if len(payload) != _WHO.size:
            raise FrameError("WHO of a wrong length")
        return cls(_WHO.unpack(payload)[1])


def session_seed(boot: int, attempt: int, gateway_boot: int, handshake: int) -> int:
    """Return the CRC seed of a session: four counters, so that frames from before any restart fail
    their CRC.
    """
    return crc_hqx(_SEED.pack(boot, attempt, gateway_boot, handshake), HANDSHAKE_SEED)


def draw_incarnation() -> int:
    """Return a random incarnation: 32 bits, not 0."""
    return secrets.randbelow(0xFFFF_FFFF) + 1


class Greeter:
    """Answers HELLO for all ports of one gateway process.

    One handshake counter serves every port: two boards whose cables are swapped never share a
    session seed. So where ports have greeters of their own, since each admits others, they share
    `handshakes`.

    gateway_boot: starts of this gateway, from its database. utc: seconds since 1970, 0 while
    unknown. admit: whether a device of this name may connect. incarnation: draws a number for a
    device that has none.
    """

    def __init__(
        self,
        gateway_boot: int,
        *,
        utc: Callable[[], float] = lambda: 0,
        admit: Callable[[str], bool] = lambda name: True,
        incarnation: Callable[[], int] = draw_incarnation,
        handshakes: Iterator[int] | None = None,
    ) -> None:
        self.gateway_boot = gateway_boot & _U16
        self.utc = utc
        self._admit = admit
        self._incarnation = incarnation
        self._handshakes = handshakes or count(1)

    def answer(self, hello: Hello) -> Welcome:
        """Return a WELCOME for a HELLO that is new, refused when the device is not admitted."""
        refused = not self._admit(hello.name)
        incarnation = 0 if refused else hello.incarnation or self._incarnation()
        return Welcome(
            hello.boot,
            hello.attempt,
            self.gateway_boot,
            next(self._handshakes) & _U16,
            incarnation,
            MTU,
            MAX_IN_FLIGHT,
            int(self.utc()),
            refused,
        )
