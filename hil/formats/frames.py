"""Frames of the reliable link, read and written as gateway/links/FORMAT.md describes them. In:
bytes of a line, cut anywhere. Out: bodies (`Cutter`), and the content of a body: DATA, ACK, TIME or
a message of the handshake. To read a body, look at its type (`kind_of`), check that it belongs to a
session (`belongs`), then call `read_session` or `read_handshake`. The handshake has two versions:
without and with keys.
"""

import struct
from binascii import crc_hqx
from dataclasses import dataclass
from enum import IntEnum
from zlib import crc32

from hil.formats.keys import CODE_SIZE, session_seed

MODULO = 8
"""Modulus of sequences and acknowledgements."""
SEED_INPUTS = ("boot", "attempt", "board", "gateway")
"""Inputs of a session's seed in addition to the board's key. `boot` and `attempt` are counters of
the board. `board` and `gateway` are nonces. Without keys, `board` is 0, and `gateway` is made of
two counters of the gateway."""
MTU = 240
"""Longest payload of a DATA frame, in bytes."""

PLAIN, KEYED = 1, 2
"""Versions of the handshake."""
_SHORTEST = 3  # control and CRC-16
_LONGEST = 1 + MTU + 4
_NONCE = 8
_LONGEST_NAME = 23
_HELLO = struct.Struct(">BHBIIBBB")
_WELCOME = struct.Struct(">BHBHHIBBBI")
_KEYED_WELCOME = struct.Struct(">BHB8sIBBBI8s")
_WHO = struct.Struct(">BH")
_TIME = struct.Struct(">IB")


class FrameError(ValueError):
    """Bytes that the format does not allow."""


class Kind(IntEnum):
    """Kind of a body, by its two highest bits."""

    DATA = 0
    ACK = 1
    HANDSHAKE = 2
    TIME = 3


def crc16(data: bytes, initial: int) -> int:
    """Return the CRC-16 with the polynomial of XMODEM, highest bit first, not inverted."""
    return crc_hqx(data, initial)


@dataclass(frozen=True, slots=True)
class Seal:
    """The check at the end of each frame's body in a session. seed: start value of the CRC. keyed:
    whether the check is a CRC-32 instead of a CRC-16.
    """

    seed: int
    keyed: bool = False

    @property
    def size(self) -> int:
        return 4 if self.keyed else 2

    def of(self, content: bytes) -> bytes:
        if self.keyed:  # zlib inverts the seed as well
            return crc32(content, self.seed ^ 0xFFFF_FFFF).to_bytes(4, "little")
        return (crc16(content, self.seed) ^ 0xFFFF).to_bytes(2)


HANDSHAKE = {PLAIN: Seal(0xFFFF), KEYED: Seal(0xFFFF_FFFF, keyed=True)}
"""Seals of the handshake's frames, by version."""


def stuff(body: bytes) -> bytes:
    """Return the COBS form of a body of at most 253 bytes, the longest body of a frame. Each group
    of bytes up to a zero or the end is preceded by its length plus one.
    """
    return b"".join(bytes((len(group) + 1,)) + group for group in body.split(b"\0"))


def unstuff(stuffed: bytes) -> bytes:
    """Return the body of a COBS form. Raises FrameError if the bytes are not COBS."""
    groups = []
    at = 0
    while at < len(stuffed):
        code = stuffed[at]
        group = stuffed[at + 1 : at + code]
        if code == 0 or len(group) != code - 1:
            raise FrameError("this is not COBS")
        groups.append(group)
        at += code
    return b"\0".join(groups)


def begin_of_body(begin: bytes) -> bytes:
    """Decode the beginning of a frame's body. begin: the encoded bytes that have arrived so far."""
    groups = []
    at = 0
    while at < len(begin):
        groups.append(begin[at + 1 : at + begin[at]])
        at += begin[at] or len(begin)
    return b"\0".join(groups)


class Cutter:
    """Cuts a line's bytes into bodies. broken: number of pieces with invalid COBS or length."""

    def __init__(self) -> None:
        self.broken = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *pieces, rest = (self._rest + data).split(b"\0")
        self._rest = rest[: _LONGEST + 2]  # a longer frame is invalid anyway
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


def belongs(body: bytes, seal: Seal) -> bool:
    """Return whether a body ends with the right check for this session."""
    return len(body) > seal.size and seal.of(body[: -seal.size]) == body[-seal.size :]


def handshake_seal(body: bytes) -> Seal:
    """Return the seal of a handshake's body, by its version: the byte after the control byte."""
    return HANDSHAKE[PLAIN if body[1] == PLAIN else KEYED]


@dataclass(frozen=True, slots=True)
class Data:
    """A DATA frame. sequence: modulo 8. acknowledgement: next sequence that is expected."""

    sequence: int
    acknowledgement: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    acknowledgement: int


@dataclass(frozen=True, slots=True)
class Time:
    """A TIME frame. utc: the gateway's time, s since 1970; None in the device's question."""

    utc: float | None


@dataclass(frozen=True, slots=True)
class Hello:
    """The HELLO of a device. mtu, window: the device's limits. nonce, code: only with a key."""

    boot: int
    attempt: int
    incarnation: int
    next_sequence: int
    mtu: int
    window: int
    name: str
    power_on: bool = False
    nonce: bytes = b""
    code: bytes = b""

    @property
    def covered(self) -> bytes:
        """Return the bytes from which `code` is computed: the payload up to the code."""
        return _payload(self)[1][: -len(self.code) or None]


@dataclass(frozen=True, slots=True)
class Welcome:
    """A WELCOME: the gateway's answer to a HELLO. utc: seconds since 1970, 0 if unknown.
    gateway_boot, handshake: only without a key. nonce, code: only with a key.
    """

    boot: int
    attempt: int
    gateway_boot: int
    handshake: int
    incarnation: int
    mtu: int
    window: int
    utc: int = 0
    refused: bool = False
    nonce: bytes = b""
    code: bytes = b""

    def seal(self, hello: Hello | None, key: bytes) -> Seal | None:
        """Return the seal of the session that this WELCOME begins. hello: the HELLO that this
        WELCOME answers. Return None if the handshake has keys and `hello` is None.
        """
        if not self.nonce:
            numbers = self.boot, self.attempt, self.gateway_boot, self.handshake
            return Seal(crc16(struct.pack(">HBHH", *numbers), 0xFFFF))
        if hello is None:
            return None
        return Seal(session_seed(key, self.nonce, _payload(hello)[1]), keyed=True)

    def inputs(self, hello: Hello | None) -> dict[str, int]:
        """Return the inputs of the seed except the key (SEED_INPUTS)."""
        gateway = int.from_bytes(self.nonce) or self.gateway_boot << 16 | self.handshake
        board = int.from_bytes(hello.nonce) if hello else 0
        counters = {"boot": self.boot, "attempt": self.attempt}
        return {**counters, "board": board, "gateway": gateway}


@dataclass(frozen=True, slots=True)
class Who:
    """A WHO frame: the gateway asks for a HELLO. gateway_boot: as in WELCOME; None with keys."""

    gateway_boot: int | None


def read_session(body: bytes, seal: Seal) -> Data | Ack | Time:
    """Return the content of a session's frame. body: the frame's body, which `belongs` has checked.
    Raises FrameError.
    """
    sequence, acknowledgement, payload = body[0] >> 3 & 7, body[0] & 7, body[1 : -seal.size]
    if len(payload) > MTU:
        raise FrameError("DATA that is too long")
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
    """Return the content of a handshake's body, which `belongs` has checked. Raises FrameError."""
    number, payload = body[0] & 0x3F, body[1 : -handshake_seal(body).size]
    if not payload or payload[0] not in HANDSHAKE:
        raise FrameError("a handshake of another version")
    keyed = payload[0] == KEYED
    name_at = _HELLO.size + _NONCE * keyed
    name_end = len(payload) - CODE_SIZE * keyed
    if number == 0 and name_at <= name_end <= name_at + _LONGEST_NAME:
        _, boot, attempt, incarnation, following, mtu, window, flags = _HELLO.unpack_from(payload)
        try:
            name = payload[name_at:name_end].decode()
        except UnicodeDecodeError as error:
            raise FrameError("a name that is not UTF-8") from error
        sizes, nonce, code = (mtu, window), payload[_HELLO.size : name_at], payload[name_end:]
        known = boot, attempt, incarnation, following
        return Hello(*known, *sizes, name, bool(flags & 1), nonce, code)
    if number == 1 and keyed and len(payload) == _KEYED_WELCOME.size:
        _, boot, attempt, nonce, incarnation, mtu, window, flags, utc, code = _KEYED_WELCOME.unpack(
            payload
        )
        refused = bool(flags & 1)
        return Welcome(boot, attempt, 0, 0, incarnation, mtu, window, utc, refused, nonce, code)
    if number == 1 and not keyed and len(payload) == _WELCOME.size:
        _, boot, attempt, gateway_boot, handshake, incarnation, mtu, window, flags, utc = (
            _WELCOME.unpack(payload)
        )
        return Welcome(
            boot, attempt, gateway_boot, handshake, incarnation, mtu, window, utc, bool(flags & 1)
        )
    if number == 2 and len(payload) == (1 if keyed else _WHO.size):
        return Who(None if keyed else _WHO.unpack(payload)[1])
    raise FrameError("a handshake of an unknown kind or a wrong length")


def write_session(frame: Data | Ack, seal: Seal) -> bytes:
    """Return a frame as bytes of the line, with its zero byte."""
    if isinstance(frame, Ack):
        return _sealed(Kind.ACK << 6 | frame.acknowledgement, b"", seal)
    return _sealed(
        Kind.DATA << 6 | frame.sequence << 3 | frame.acknowledgement, frame.payload, seal
    )


def write_handshake(message: Hello | Welcome | Who) -> bytes:
    """Return the frame of a handshake message, stuffed and ended by a zero byte."""
    number, payload = _payload(message)
    return _sealed(Kind.HANDSHAKE << 6 | number, payload, HANDSHAKE[payload[0]])


def _payload(message: Hello | Welcome | Who) -> tuple[int, bytes]:
    """Return the low bits of a message's control byte, and its payload."""
    match message:
        case Hello():
            number = 0
            payload = _HELLO.pack(
                KEYED if message.nonce else PLAIN,
                message.boot,
                message.attempt,
                message.incarnation,
                message.next_sequence,
                message.mtu,
                message.window,
                message.power_on,
            )
            payload += message.nonce + message.name.encode() + message.code
        case Welcome(nonce=nonce) if nonce:
            number = 1
            payload = _KEYED_WELCOME.pack(
                KEYED,
                message.boot,
                message.attempt,
                nonce,
                message.incarnation,
                message.mtu,
                message.window,
                message.refused,
                message.utc,
                message.code,
            )
        case Welcome():
            number = 1
            payload = _WELCOME.pack(
                PLAIN,
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
        case Who(gateway_boot=None):
            number, payload = 2, bytes((KEYED,))
        case Who():
            number, payload = 2, _WHO.pack(PLAIN, message.gateway_boot)
    return number, payload


def _sealed(control: int, payload: bytes, seal: Seal) -> bytes:
    content = bytes((control,)) + payload
    return stuff(content + seal.of(content)) + b"\0"
