"""A KISS modem in memory, as the description of its protocol says, with its own coding of KISS. In:
bytes of the host. Out: bytes for the host, and the frames on the air.
"""

import re
import struct

ESCAPES = {b"\xc0": b"\xdb\xdc", b"\xdb": b"\xdb\xdd"}


def wrap(content: bytes) -> bytes:
    body = re.sub(rb"[\xc0\xdb]", lambda match: ESCAPES[match[0]], content, flags=re.DOTALL)
    return b"\xc0" + body + b"\xc0"


def unwrap(body: bytes) -> bytes:
    return body.replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")


class Tnc:
    """A modem with room for one frame. The frame is on the air until the test calls `finish`."""

    def __init__(self) -> None:
        self.out = b""
        self.sent: list[bytes] = []
        self.mute = False
        self.refuses: set[int] = set()
        self.boot()

    def boot(self) -> None:
        self._input = b""
        self.radio = struct.pack("<IIBB", 869_618_000, 62_500, 8, 8)
        self.power, self.duplex, self.delay, self.report = 22, 0, 50, 1
        self.pending: bytes | None = None

    def feed(self, data: bytes) -> None:
        self._input += data
        *frames, self._input = self._input.split(b"\xc0")
        for frame in frames:
            if frame and not self.mute:
                self._on_frame(unwrap(frame))

    def finish(self, result: int = 1) -> None:
        assert self.pending is not None
        self.sent.append(self.pending)
        self.pending = None
        self._say(0xF8, bytes((result,)))

    def hear(self, frame: bytes, snr: int, rssi: int) -> None:
        self.out += wrap(b"\x00" + frame)
        if self.report:
            self._say(0xF9, struct.pack("<bb", snr, rssi))

    def _say(self, kind: int, data: bytes = b"") -> None:
        self.out += wrap(bytes((0x06, kind)) + data)

    def _on_frame(self, frame: bytes) -> None:
        kind, data = frame[0] & 15, frame[1:]
        if kind == 0:
            if self.pending is not None:
                self._say(0xF1, b"\x07")
            elif len(data) <= 255:
                self.pending = data
        elif kind == 1:
            self.delay = data[0]
        elif kind == 5:
            self.duplex = data[0]
        elif kind == 6:
            self._on_hardware(data[0], data[1:])

    def _on_hardware(self, kind: int, data: bytes) -> None:
        if kind in self.refuses:
            self._say(0xF1, b"\x02")
        elif kind == 0x09:
            self.radio = data
            self._say(0xF0)
        elif kind == 0x0A:
            self.power = data[0]
            self._say(0xF0)
        elif kind == 0x0B:
            self._say(0x8B, self.radio)
        elif kind == 0x11:
            self._say(0x91, b"\x02\x00")
        elif kind == 0x19:
            self.report = data[0]
            self._say(0x9A, data)
        else:
            self._say(0xF1, b"\x05")
