"""Frames of the reliable link, read and written from the format (gateway/links/README.md).

In: bytes of a line, cut anywhere. Out: bodies (`Cutter`), and what stands in one: DATA, ACK or a
message of the handshake. Whoever has a body looks at its type (`kind_of`), asks whether it belongs
to a session (`belongs`), and reads it (`read_session`, `read_handshake`).
"""

import struct
from binascii import crc_hqx
from dataclasses import dataclass
from enum import IntEnum

MODULO = 8
"""Sequences and acknowledgements count modulo this."""
HANDSHAKE_SEED = 0xFFFF
SEED_INPUTS = ("boot", "attempt", "gateway_boot", "handshake")
"""Fields of HELLO and WELCOME from which the seed of a session follows."""
MTU = 240
"""Longest payload of a DATA frame, in bytes."""

_VERSION = 1
_SHORTEST = 3  # control and CRC
_LONGEST = _SHORTEST + MTU
_LONGEST_NAME = 23
_HELLO = struct.Struct(">BHBIIBBB")
_WELCOME = struct.Struct(">BHBHHIBBBI")
_WHO = struct.Struct(">BH")
_TIME = struct.Struct(">IB")


class FrameError(ValueError):
    """Bytes that the format does not allow."""


class Kind(IntEnum):
    """The two highest bits of a body."""

    DATA = 0
    ACK = 1
    HANDSHAKE = 2
    TIME = 3


def crc16(data: bytes, initial: int) -> int:
    """CRC-16 with the polynomial of XMODEM, highest bit first, not inverted."""
    return crc_hqx(data, initial)


def stuff(body: bytes) -> bytes:
    """COBS of at most 253 bytes, as all bodies are: for each zero, and the end, how far away it is,
    and the bytes before it.
    """
    return b"".join(bytes((len(group) + 1,)) + group for group in body.split(b"\0"))


def unstuff(stuffed: bytes) -> bytes:
    """The other way. Raises FrameError."""
    groups = []
    at = 0
    while at < len(stuffed):
        code = stuffed[at]
        group = stuffed[at + 1 : at + code]
        if code == 0 or len(group) != code - 1:
            raise FrameError("this is no COBS")
        groups.append(group)
        at += code
    return b"\0".join(groups)


def begin_of_body(begin: bytes) -> bytes:
    """The first bytes of the body of a frame that broke off."""
    groups = []
    at = 0
    while at < len(begin):
        groups.append(begin[at + 1 : at + begin[at]])
        at += begin[at] or len(begin)
    return b"\0".join(groups)


class Cutter:
    """Cuts the bytes of a line into bodies. broken: pieces between two zero bytes that are none,
    because they break COBS or have an impossible length.
    """

    def __init__(self) -> None:
        self.broken = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *pieces, rest = (self._rest + data).split(b"\0")
        self._rest = rest[: _LONGEST + 2]  # a longer one is broken whatever follows
        bodies = []
        for piece in filter(None, pieces):
            try:
                body = unstuff(piece)
            except FrameError:
                body = b""
            if _SHORTEST <= len(body) <= _LONGEST:
                bodies.append(body)
            else:
                self.broken += 1
        return bodies


def kind_of(body: bytes) -> Kind:
    return Kind(body[0] >> 6)


def belongs(body: bytes, seed: int) -> bool:
    """Whether a body ends in its CRC under this seed, inverted."""
    return crc16(body[:-2], seed) ^ 0xFFFF == int.from_bytes(body[-2:])


@dataclass(frozen=True, slots=True)
class Data:
    """sequence, acknowledgement: modulo 8; the second is what its sender expects next."""

    sequence: int
    acknowledgement: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    acknowledgement: int


@dataclass(frozen=True, slots=True)
class Time:
    """utc: what the gateway tells, in seconds since 1970; None in the device's question."""

    utc: float | None


@dataclass(frozen=True, slots=True)
class Hello:
    """A device greets. mtu, window: what it takes at most."""

    boot: int
    attempt: int
    incarnation: int
    next_sequence: int
    mtu: int
    window: int
    name: str
    power_on: bool = False


@dataclass(frozen=True, slots=True)
class Welcome:
    """The gateway answers a HELLO. utc: seconds since 1970, 0 if not known."""

    boot: int
    attempt: int
    gateway_boot: int
    handshake: int
    incarnation: int
    mtu: int
    window: int
    utc: int = 0
    refused: bool = False

    @property
    def seed(self) -> int:
        """The CRC's initial value in the session that this begins."""
        counters = struct.pack(">HBHH", self.boot, self.attempt, self.gateway_boot, self.handshake)
        return crc16(counters, HANDSHAKE_SEED)


@dataclass(frozen=True, slots=True)
class Who:
    gateway_boot: int


def read_session(body: bytes) -> Data | Ack | Time:
    """A body of a session, whose CRC was looked at. Raises FrameError."""
    sequence, acknowledgement, payload = body[0] >> 3 & 7, body[0] & 7, body[1:-2]
    if kind_of(body) is Kind.DATA and payload:
        return Data(sequence, acknowledgement, payload)
    if kind_of(body) is Kind.ACK and not payload and not sequence:
        return Ack(acknowledgement)
    if kind_of(body) is Kind.TIME and not sequence and not acknowledgement:
        if not payload:
            return Time(None)
        if len(payload) == _TIME.size:
            seconds, part = _TIME.unpack(payload)
            return Time(seconds + part / 256)
    raise FrameError("neither DATA nor ACK nor TIME")


def read_handshake(body: bytes) -> Hello | Welcome | Who:
    """A body of the handshake, whose CRC was looked at. Raises FrameError."""
    number, payload = body[0] & 0x3F, body[1:-2]
    if not payload or payload[0] != _VERSION:
        raise FrameError("a handshake of another version")
    if number == 0 and _HELLO.size <= len(payload) <= _HELLO.size + _LONGEST_NAME:
        _, boot, attempt, incarnation, following, mtu, window, flags = _HELLO.unpack_from(payload)
        try:
            name = payload[_HELLO.size :].decode()
        except UnicodeDecodeError as error:
            raise FrameError("a name that is not UTF-8") from error
        return Hello(boot, attempt, incarnation, following, mtu, window, name, bool(flags & 1))
    if number == 1 and len(payload) == _WELCOME.size:
        _, boot, attempt, gateway_boot, handshake, incarnation, mtu, window, flags, utc = (
            _WELCOME.unpack(payload)
        )
        return Welcome(
            boot, attempt, gateway_boot, handshake, incarnation, mtu, window, utc, bool(flags & 1)
        )
    if number == 2 and len(payload) == _WHO.size:
        return Who(_WHO.unpack(payload)[1])
    raise FrameError("a handshake of an unknown kind or a wrong length")


def write_session(frame: Data | Ack, seed: int) -> bytes:
    """As it goes on the line, its zero byte included."""
    if isinstance(frame, Ack):
        return _sealed(Kind.ACK << 6 | frame.acknowledgement, b"", seed)
    return _sealed(
        Kind.DATA << 6 | frame.sequence << 3 | frame.acknowledgement, frame.payload, seed
    )


def write_handshake(message: Hello | Welcome | Who) -> bytes:
    """As it goes on the line, its zero byte included."""
    match message:
        case Hello():
            number = 0
            payload = _HELLO.pack(
                _VERSION,
                message.boot,
                message.attempt,
                message.incarnation,
                message.next_sequence,
                message.mtu,
                message.window,
                message.power_on,
            )
            payload += message.name.encode()
        case Welcome():
            number = 1
            payload = _WELCOME.pack(
                _VERSION,
                message.boot,
                message.attempt,
                message.gateway_boot,
                message.handshake,
                message.incarnation,
                message.mtu,
                message.window,
                message.refused,
                message.utc,
            )
        case Who():
            number, payload = 2, _WHO.pack(_VERSION, message.gateway_boot)
    return _sealed(Kind.HANDSHAKE << 6 | number, payload, HANDSHAKE_SEED)


def _sealed(control: int, payload: bytes, seed: int) -> bytes:
    content = bytes((control,)) + payload
    return stuff(content + (crc16(content, seed) ^ 0xFFFF).to_bytes(2)) + b"\0"
