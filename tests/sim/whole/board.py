"""A board of the run: the sensor sketch of an Uno, built for this machine, in a library of its own
for each board (board.c). In: bytes from its line, the time, and when its power fails. Out: bytes
for its line, and the logs from which `truth.py` builds the rig's ledger.
"""

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hil.boards.ledger import ERASED, Ledger
from hil.boards.used import used_image
from provisioning.identity import Identity

FIRMWARE = Path(__file__).parents[3] / "firmware"
SOURCES = (
    # first, because `board_first` must be the first variable of the library
    Path(__file__).with_suffix(".c"),
    *sorted((FIRMWARE / "src").glob("*.c")),
    *(FIRMWARE / "examples" / "sensor" / f"{name}.c" for name in ("sensor", "reading", "command")),
)
MOST = 3
"""Largest number of boards in one run."""
INTERVAL_MS = 250
"""Time between two samples, in milliseconds."""
_LINE, _LOG = 8192, 1 << 18


class Outside(ctypes.Structure):
    """`struct outside` of board.c: state that survives a power cut, and the board's input and
    output.
    """

    _fields_ = (
        ("eeprom", ctypes.c_uint8 * 1024),
        ("identity", ctypes.c_uint8 * 128),
        ("now", ctypes.c_uint32),
        ("random", ctypes.c_uint32),
        ("cut_at", ctypes.c_uint32),
        ("tear", ctypes.c_uint32),
        ("busy_until", ctypes.c_uint32),
        ("rx_at", ctypes.c_uint32),
        ("rx_end", ctypes.c_uint32),
        ("tx_end", ctypes.c_uint32),
        ("writes_end", ctypes.c_uint32),
        ("conversions_end", ctypes.c_uint32),
        ("rx", ctypes.c_uint8 * _LINE),
        ("tx", ctypes.c_uint8 * _LINE),
        ("writes", ctypes.c_uint8 * _LOG),
        ("conversions", ctypes.c_uint8 * _LOG),
    )


class Library:
    """The program as a loaded library. `reset` gives its variables the values that they have after
    a power-on.
    """

    def __init__(self, path: Path) -> None:
        program = ctypes.CDLL(str(path))
        self.run = program.board_run
        self.run.restype = ctypes.c_bool
        self.outside = Outside()
        program.board_size.restype = ctypes.c_size_t
        self._begin = ctypes.addressof(ctypes.c_uint8.in_dll(program, "board_first"))
        self._fresh = ctypes.string_at(self._begin, program.board_size())

    def reset(self) -> None:
        ctypes.memmove(self._begin, self._fresh, len(self._fresh))


@cache
def libraries() -> tuple[Library, ...]:
    """Compile the board, one copy for each board of a run. Undefined behaviour ends the process
    with a message.
    """
    checks = ("-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    options = ("-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-fshort-enums", *checks)
    sizes = (f"-DSENSOR_INTERVAL_MS={INTERVAL_MS}", "-DOW_LOG_SIZE=256")
    with TemporaryDirectory() as folder:
        names = [Path(folder) / f"board-{number}.so" for number in range(MOST)]
        command = ["gcc", *options, *sizes, f"-I{FIRMWARE / 'src'}", "-o", names[0], *SOURCES]
        subprocess.run(command, check=True)
        for name in names[1:]:
            shutil.copy(names[0], name)
        return tuple(map(Library, names))


class Board:
    """A simulated board. seed: of its random values, not 0. first: the sequence of its next
    publication; if above 1, the board has published before the run.
    """

    def __init__(self, number: int, name: str, key: bytes, seed: int, first: int) -> None:
        self.name = name
        self.key = key
        self._library = libraries()[number]
        self.outside = self._library.outside
        ctypes.memset(ctypes.addressof(self.outside), 0, Outside.rx.offset)
        self.before = ERASED if first == 1 else used_image(first, seed)
        """Content of the EEPROM at the beginning."""
        self._first = first
        ctypes.memmove(self.outside.eeprom, self.before, len(self.before))
        ctypes.memset(self.outside.identity, 0xFF, 128)
        page = Identity(name, key).to_bytes()
        ctypes.memmove(self.outside.identity, page, len(page))
        self.outside.random = seed
        self._off_until = 0
        self._off_ms = 0
        self.cuts = 0
        self.torn = 0
        """Number of cuts in the middle of an EEPROM write; `cuts` counts all power cuts."""
        self._library.reset()

    @property
    def at_rest(self) -> bool:
        """Whether the board has power, has published, and has completed all its publications."""
        ledger = Ledger.from_image(bytes(self.outside.eeprom))
        has_published = any(one.sequence >= self._first for one in ledger.publications)
        return self.there and has_published and not ledger.waiting()

    @property
    def incarnation(self) -> int:
        """Incarnation in the EEPROM, 0 if there is none yet."""
        return Ledger.from_image(bytes(self.outside.eeprom)).incarnation

    def run(self, until: int) -> bytes:
        """Run until this time, in ms. Return the bytes sent."""
        outside = self.outside
        if self._off_until >= until:
            return b""
        if self._off_until:
            outside.now, self._off_until = self._off_until, 0
        if not self._library.run(ctypes.byref(outside), until):
            self.torn += outside.cut_at == 0
            self._cut()
        sent, outside.tx_end = ctypes.string_at(outside.tx, outside.tx_end), 0
        return sent

    @property
    def there(self) -> bool:
        """Whether the board has power."""
        return not self._off_until

    def receive(self, data: bytes) -> None:
        """Let bytes arrive at the board. Bytes for which the port's buffer has no room are lost."""
        outside = self.outside
        left = outside.rx_end - outside.rx_at
        ctypes.memmove(outside.rx, ctypes.addressof(outside.rx) + outside.rx_at, left)
        data = data[: _LINE - left]
        ctypes.memmove(ctypes.addressof(outside.rx) + left, data, len(data))
        outside.rx_at, outside.rx_end = 0, left + len(data)

    def cut_at(self, writes: int, tear: int, off_ms: int) -> None:
        """Cut the power in the middle of EEPROM write number `writes` from now. It stays off for
        `off_ms`. tear: content of the torn cell.
        """
        self.outside.cut_at, self.outside.tear, self._off_ms = writes, tear, off_ms

    def cut(self, off_ms: int) -> None:
        """Cut the power now, for `off_ms`."""
        self._off_ms = off_ms
        if not self._off_until:
            self._cut()

    def renew(self, off_ms: int) -> None:
        """Replace the board by a new chip with the same name. The logs must have been read
        before.
        """
        self.before, self._first = ERASED, 1
        ctypes.memmove(self.outside.eeprom, ERASED, len(ERASED))
        self.outside.writes_end = self.outside.conversions_end = 0
        self.cut(off_ms)

    def _cut(self) -> None:
        self.cuts += 1
        self._off_until = self.outside.now + max(1, self._off_ms)
        self.outside.cut_at = self.outside.busy_until = self.outside.rx_at = self.outside.rx_end = 0
        self._library.reset()
