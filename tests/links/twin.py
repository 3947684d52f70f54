"""The C code of the boards as a device in the world: firmware/src, compiled for this machine and
called through ctypes.
"""

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from random import Random

from gateway.links.frames import Crc16, Crc32
from gateway.links.roles import REFUSED_WAIT
from tests.links.world import Id, Ledger

SOURCES = Path(__file__).parents[2] / "firmware" / "src"
BUFFERS = ((56, 2, 128), (19, 1, 64), (240, 4, 1024))
"""Longest received payload in bytes, window in frames, sending ring in bytes: the board's default,
the smallest, the largest.
"""

NAME = b"sensor-1"
_SLICE = 16


@cache
def build(mtu: int, window: int, ring: int, keys: bool = False) -> ctypes.CDLL:
    """Compile the link with these buffers. Undefined behaviour ends the process with a message."""
    directory = Path(tempfile.mkdtemp(prefix="onceway-twin-"))
    library = directory / "twin.so"
    files = [SOURCES / f"ow_{name}.c" for name in ("link", "frame", "crc", "cmac", "bytes")]
    sizes = [f"-DOW_LINK_RX_MTU={mtu}", f"-DOW_LINK_WINDOW={window}", f"-DOW_LINK_TX_SIZE={ring}"]
    sizes.append(f"-DOW_KEYS={keys:d}")
    checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    command = [
        "gcc",
        "-std=c11",
        "-O1",
        "-g",
        "-shared",
        "-fPIC",
        *checks,
        *sizes,
        f"-I{SOURCES}",
        "-o",
        str(library),
    ]
    subprocess.run([*command, str(Path(__file__).with_suffix(".c")), *map(str, files)], check=True)
    twin = ctypes.CDLL(str(library))
    twin.twin_size.restype = ctypes.c_size_t
    twin.twin_payload.restype = ctypes.POINTER(ctypes.c_uint8)
    for name in ("open", "refused"):
        getattr(twin, f"twin_{name}").restype = ctypes.c_bool
    for name, kind in (
        ("attempt", ctypes.c_uint8),
        ("incarnation", ctypes.c_uint32),
        ("seed", ctypes.c_uint32 if keys else ctypes.c_uint16),
        ("repeats", ctypes.c_uint16),
    ):
        getattr(twin, f"twin_{name}").restype = kind
    return twin


class CDevice:
    """`ow_link` and its application. The application greets again after a session has ended, and
    keeps bytes until the sending ring has room for them.
    """

    def __init__(
        self,
        ledger: Ledger,
        random: Random,
        boot: int,
        incarnation: int,
        baud: int | None,
        key: bytes | None = None,
        *,
        buffers: tuple[int, int, int] | None = None,
    ) -> None:
        self._twin = build(*buffers or random.choice(BUFFERS), key is not None)
        self._key = key
        self._random = random
        self._link = ctypes.create_string_buffer(self._twin.twin_size())
        self._twin.ow_link_init(self._link)
        self._ledger = ledger
        self._boot = boot
        self._byte_time = 10 / baud if baud else 0.0
        self._now = 0.0
        self._free_at = 0.0
        self._greet_at: float | None = None
        self._pending = b""
        self.incarnation = incarnation
        self.known: Id | None = None
        self._greet()

    def receive(self, data: bytes, now: float) -> None:
        self._now = now
        taken = ctypes.c_int()
        while data:
            event = self._twin.twin_receive(
                self._link, data, len(data), self._clock(), ctypes.byref(taken)
            )
            data = data[taken.value :]
            self._on_event(event)

    def tick(self, now: float) -> None:
        self._now = now
        if self._greet_at is not None:
            if now >= self._greet_at:
                self._greet()
            return
        self._on_event(self._twin.twin_tick(self._link, self._clock()))

    def write(self, data: bytes, now: float) -> None:
        if self.known is not None:
            self._ledger.up[self.known].sent += data
            self._pending += data

    def greet(self, now: float) -> None:
        if self.known is not None:
            self._greet()

    def take(self, now: float) -> bytes:
        self._now = now
        if now < self._free_at:
            return b""
        if self._pending:
            put = self._twin.twin_put(self._link, self._pending, len(self._pending))
            self._pending = self._pending[put:]
        # As with the UART: the link chooses its bytes late, and its timers start when
        # bytes leave.
        room = _SLICE if self._byte_time else 4096
        buffer = ctypes.create_string_buffer(room)
        length = self._twin.twin_transmit(self._link, buffer, room, self._clock())
        data = buffer.raw[:length]
        self._free_at = now + len(data) * self._byte_time
        return data

    @property
    def deadline(self) -> float | None:
        moments = [self._free_at] if self._free_at > self._now else []
        if self._greet_at is not None:
            moments.append(self._greet_at)
        elif (wait := self._twin.twin_wait(self._link, self._clock())) >= 0:
            # The C clock counts whole milliseconds.
            moments.append((int(self._now * 1000) + max(wait, 1) + 0.01) / 1000)
        return min(moments, default=None)

    @property
    def repeated(self) -> int:
        repeats: int = self._twin.twin_repeats(self._link)
        return repeats

    def _clock(self) -> int:
        return int(self._now * 1000) & 0xFFFF

    def _greet(self) -> None:
        self._greet_at = None
        self._over()
        numbers = self._boot, ctypes.c_uint32(self.incarnation), 1
        entropy = ctypes.c_uint32(self._random.getrandbits(32))
        self._twin.twin_greet(self._link, NAME, *numbers, self._key or b"", entropy)

    def _over(self) -> None:
        self.known = None
        self._pending = b""

    def _on_event(self, event: int) -> None:
        match event:
            case 1:  # OW_LINK_UP
                self.incarnation = self._twin.twin_incarnation(self._link)
                seed = self._twin.twin_seed(self._link)
                check = Crc16(seed) if self._key is None else Crc32(seed)
                self.known = self._boot, self._twin.twin_attempt(self._link), check
                self._ledger.welcomed(self.known)
            case 2:  # OW_LINK_DATA
                assert self.known is not None
                length = ctypes.c_uint8()
                payload = self._twin.twin_payload(self._link, ctypes.byref(length))
                self._ledger.down[self.known].received += bytes(payload[: length.value])
            case 3:  # OW_LINK_DOWN
                self._over()
                self._greet_at = self._now + (
                    REFUSED_WAIT if self._twin.twin_refused(self._link) else 0.0
                )
