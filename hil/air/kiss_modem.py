"""A KISS modem as a process: `python -m hil.air.kiss_modem --air SOCKET --port LINK [--name NAME]
[--at X Y]`. Source: MeshCore's docs/kiss_modem_protocol.md. The KISS coder is not the gateway's.

In: bytes of a pseudo-terminal, to which LINK points, and frames on the air. Out: frames for the
air, and bytes for the pseudo-terminal. SIGUSR1 resets the modem: it forgets its settings without a
message. After SIGUSR2 it accepts no bytes from the host until the next reset.
"""

import re
import struct
from collections.abc import Callable
from enum import IntEnum

from hil.air.modem import main

DATA, HARDWARE = 0x00, 0x06
OK, ERROR, TX_DONE, RX_META = 0xF0, 0xF1, 0xF8, 0xF9
RADIO, VERSION, PONG, SIGNAL_REPORT = 0x8B, 0x91, 0x97, 0x9A
TOO_SHORT, INVALID, UNKNOWN, BUSY = 1, 2, 5, 7
FIRMWARE = 2
LONGEST = 255


class Request(IntEnum):
    SET_RADIO = 0x09
    SET_POWER = 0x0A
    GET_RADIO = 0x0B
    GET_VERSION = 0x11
    PING = 0x17
    SET_SIGNAL_REPORT = 0x19


_ESCAPES = {b"\xc0": b"\xdb\xdc", b"\xdb": b"\xdb\xdd"}
_SETTINGS = struct.Struct("<IIBB")
_POWERS = range(-9, 23)


def wrap(content: bytes) -> bytes:
    """Return the KISS frame of a type byte and its content."""
    body = re.sub(rb"[\xc0\xdb]", lambda match: _ESCAPES[match[0]], content, flags=re.DOTALL)
    return b"\xc0" + body + b"\xc0"


def unwrap(body: bytes) -> bytes:
    """Return the content of a KISS frame. body: the bytes between two delimiters, with escapes."""
    return body.replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")


class Modem:
    """Modem firmware, without I/O. say: sends bytes to the host. air: sends lines to the ether."""

    def __init__(self, say: Callable[[bytes], None], air: Callable[[str], None]) -> None:
        self._say = say
        self._air = air
        self.reset()

    def reset(self) -> None:
        self.hangs = False
        self._input = b""
        self._settings = _SETTINGS.pack(869_618_000, 62_500, 8, 8)
        self._power, self._reports, self._pending = 22, True, False
        self._air("off")  # cuts off a frame that is being sent

    def feed(self, data: bytes) -> None:
        *frames, self._input = (self._input + data).split(b"\xc0")
        self._input = self._input[-2 * LONGEST - 4 :]
        for frame in frames:
            if frame and not self.hangs:
                self._on_frame(unwrap(frame))

    def sent(self) -> None:
        if self._pending and not self.hangs:
            self._pending = False
            self._hardware(TX_DONE, b"\x01")
            self._listen()

    def heard(self, rssi: float, snr: float, frame: bytes) -> None:
        self._say(wrap(bytes((DATA,)) + frame))
        if self._reports:
            worst, best = -128, 127
            quality = max(worst, min(round(snr * 4), best)), max(worst, min(round(rssi), best))
            self._hardware(RX_META, struct.pack("<bb", *quality))

    def _listen(self) -> None:
        frequency, bandwidth, factor, _ = _SETTINGS.unpack(self._settings)
        self._air(f"listen {frequency} {bandwidth} {factor}")

    def _hardware(self, kind: int, data: bytes = b"") -> None:
        self._say(wrap(bytes((HARDWARE, kind)) + data))

    def _error(self, code: int) -> None:
        self._hardware(ERROR, bytes((code,)))

    def _on_frame(self, frame: bytes) -> None:
        kind, data = frame[0] & 15, frame[1:]
        if kind == DATA and 1 <= len(data) <= LONGEST:
            if self._pending:
                self._error(BUSY)
                return
            self._pending = True
            frequency, bandwidth, factor, coding = _SETTINGS.unpack(self._settings)
            preamble = 32 if factor <= 8 else 16
            self._air(
                f"send {frequency} {bandwidth} {factor} {coding - 4} {preamble} {self._power}"
                f" {data.hex()}"
            )
        elif kind == HARDWARE and data:
            self._on_request(data[0], data[1:])

    def _on_request(self, kind: int, data: bytes) -> None:
        match kind:
            case Request.SET_RADIO if len(data) < _SETTINGS.size:
                self._error(TOO_SHORT)
            case Request.SET_RADIO:
                _, bandwidth, factor, coding = _SETTINGS.unpack(data[: _SETTINGS.size])
                if not (5 <= factor <= 12 and 5 <= coding <= 8 and bandwidth):
                    self._error(INVALID)
                    return
                self._settings = data[: _SETTINGS.size]
                self._hardware(OK)
                if not self._pending:
                    self._listen()
            case Request.SET_POWER:
                power = int.from_bytes(data[:1], "little", signed=True)
                if not data or power not in _POWERS:
                    self._error(INVALID)
                    return
                self._power = power
                self._hardware(OK)
            case Request.GET_RADIO:
                self._hardware(RADIO, self._settings)
            case Request.GET_VERSION:
                self._hardware(VERSION, bytes((FIRMWARE, 0)))
            case Request.PING:
                self._hardware(PONG)
            case Request.SET_SIGNAL_REPORT:
                self._reports = bool(data and data[0])
                self._hardware(SIGNAL_REPORT, bytes((self._reports,)))
            case _:
                self._error(UNKNOWN)


if __name__ == "__main__":
    main("hil.air.kiss_modem", Modem)
