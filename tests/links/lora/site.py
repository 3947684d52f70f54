"""A whole board and a whole gateway over bad air, on simulated time.

The board is the firmware with its MQTT client and its journal (`whole_board.c`). The gateway is a
`Station` with a KISS modem in memory, its transports, and the real broker on a store in memory.
Tests check that each reading is in the spool once. Board and gateway may lose their power, the
board even in the middle of an EEPROM write.
"""

import ctypes
import heapq
import subprocess
import tempfile
from functools import cache
from itertools import count
from pathlib import Path
from random import Random

from gateway.access.rules import Policy
from gateway.links.lora.airtime import Modulation
from gateway.links.lora.frames import Header, SessionCipher
from gateway.links.lora.kiss import KissModem
from gateway.links.lora.ledger_file import Ledgers
from gateway.links.lora.station import RadioFailed, RadioReady, Station
from gateway.links.lora.transports import Transports
from gateway.links.lora.turns import TurnLink
from gateway.system.regions import EU868
from provisioning.identity import Identity
from provisioning.radio_plan import AT, RadioPlan
from tests.broker.harness import Anonymous, World
from tests.links.lora.tnc import Tnc

FIRMWARE = Path(__file__).parents[3] / "firmware"
NAME, KEY = "roof-7", bytes(range(0x30, 0x40))
PLAN = RadioPlan(network=7, device=3)
REACHED, SENDS, CUT = 0, 1, 2
CONNECTED = 4
BAND = "P"
POLICY = Policy(Anonymous(), receive_maximum=2, device_aliases=8)


@cache
def build() -> ctypes.CDLL:
    """Compile the board; undefined behaviour ends the process with a message."""
    library = Path(tempfile.mkdtemp(prefix="onceway-board-")) / "board.so"
    files = [*sorted((FIRMWARE / "src").glob("*.c")), FIRMWARE / "tests" / "board.c"]
    checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    folders = [f"-I{FIRMWARE / 'src'}", f"-I{FIRMWARE / 'tests'}"]
    options = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fshort-enums", "-shared", "-fPIC"]
    twin = Path(__file__).with_name("whole_board.c")
    subprocess.run(
        ["gcc", *options, *checks, *folders, "-DOW_LORA=1", "-o", library, twin, *files],
        check=True,
    )
    loaded = ctypes.CDLL(str(library))
    for name in ("board_frame", "board_key"):
        getattr(loaded, name).restype = ctypes.POINTER(ctypes.c_uint8)
    for name in ("board_frame_length", "board_pending", "board_commands"):
        getattr(loaded, name).restype = ctypes.c_uint8
    for name in ("board_now", "board_time", "board_next", "board_command"):
        getattr(loaded, name).restype = ctypes.c_uint32
    for name in ("board_counter", "board_downs"):
        getattr(loaded, name).restype = ctypes.c_uint16
    loaded.board_idle.restype = ctypes.c_bool
    loaded.board_open.restype = ctypes.c_bool
    return loaded


class Site:
    """A gateway and a radio board in simulated time, in seconds. lost, damaged, late: probability
    that a frame is lost, damaged or late.
    """

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.lost = self.damaged = self.late = 0.0
        self.taken: dict[int, bytes] = {}
        """Readings that the journal has accepted, by sequence."""
        self.perhaps: dict[int, bytes] = {}
        """Readings, by sequence, whose write to the journal a power cut has interrupted. Each may
        be in the journal or not.
        """
        self._writing: dict[int, bytes] = {}
        self.nonces: dict[tuple[bytes, int, int], bytes] = {}
        self.air: list[tuple[bool, bytes]] = []
        """All frames: whether the board sent it, and its bytes."""
        self.sent: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        self.now = 0.0
        self._numbers = count()
        self._flying: list[tuple[float, int, bool, bytes]] = []
        self._boot = 0
        self.cuts = 0
        self.ledgers = Ledgers(EU868, "machine", None, 0.0)
        self.world = World()
        self._start_gateway()
        self._board = build()
        page = Identity(NAME, KEY).to_bytes().ljust(AT, b"\xff") + PLAN.to_bytes()
        self._board.board_make(page, len(page))
        self._board.board_start()

    # --- actions of a test ---

    def sample(self) -> bool:
        """Publish a reading. Return whether the journal accepts it."""
        source = self.random.randbytes(8)
        sequence = self._board.board_next()
        if self._board.board_publish(source) != 0:
            return False
        self._writing[sequence] = source
        return True

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self._gateway()
            moment = min(end, self._deadline())
            self._run_board(max(moment, self.now + 0.001))
            while self._flying and self._flying[0][0] <= self.now:
                _, _, up, frame = heapq.heappop(self._flying)
                self._land(up, frame)
        self._gateway()

    def settle(self) -> None:
        """End all faults of the air. Run for at most 120 minutes of simulated time, until all
        readings that the board has accepted are in the spool. Then `check` them.
        """
        self.lost = self.damaged = self.late = 0.0
        for _ in range(120):
            self.run(60.0)
            if {sequence for _, _, sequence, _ in self.rows} >= set(self.taken):
                break
        self.check()

    def check(self) -> None:
        """Check that each reading is in the spool, unchanged and once. Only after a power cut may a
        reading be there twice: a board that does not know of the gateway's commit sends the reading
        again, with the same identity. The table then has it once.
        """
        rows = self.rows
        identities = {(device, life, sequence) for device, life, sequence, _ in rows}
        assert len(identities) == len(set(rows)), "two readings of one identity"
        assert len(rows) == len(identities) or self.cuts, "doubled"
        for _, _, sequence, payload in rows:
            assert payload[:8] in (self.taken.get(sequence), self.perhaps.get(sequence)), "altered"
        landed = {sequence for _, _, sequence, _ in rows}
        assert set(self.taken) <= landed <= set(self.taken) | set(self.perhaps), "lost"

    def cut_board(self, at_write: int = 0) -> None:
        """Cut the board's power: now, or if `at_write` is given, in the middle of that EEPROM
        write, counted from now.
        """
        if at_write:
            self._board.board_cut_at_write(at_write, self.random.randrange(4))
        else:
            self._restart_board()

    def cut_gateway(self) -> None:
        """Cut the gateway's power. Uncommitted changes and the radio's state are lost."""
        self.cuts += 1
        self.world.power_cut()
        self._start_gateway()

    @property
    def rows(self) -> list[tuple[str, int, int, bytes]]:
        query = "SELECT client, incarnation, sequence, payload FROM spool"
        return self.world.rows(query)  # type: ignore[return-value]

    @property
    def is_connected(self) -> bool:
        return bool(self._board.board_state() == CONNECTED)

    @property
    def commands(self) -> list[int]:
        taken = self._board.board_commands()
        return [self._board.board_command(number) for number in range(taken)]

    @property
    def downs(self) -> int:
        return int(self._board.board_downs())

    @property
    def board_time(self) -> int:
        return int(self._board.board_time())

    def poll(self) -> None:
        self._board.board_poll()

    # --- the gateway ---

    def _start_gateway(self) -> None:
        nonces = self.nonces

        class Recorded(SessionCipher):
            def __init__(self, key: bytes) -> None:
                super().__init__(key)
                self._record = key

            def seal(self, header: Header, direction: int, counter: int, content: bytes) -> bytes:
                frame = super().seal(header, direction, counter, content)
                known = nonces.setdefault((self._record, direction, counter), frame)
                assert known == frame, "a nonce twice"
                return frame

        self.tnc = Tnc()
        modem = KissModem(EU868.frequency, Modulation(PLAN.factor), 14)
        self.link = TurnLink(
            PLAN.network,
            {PLAN.device: KEY}.get,
            utc=lambda: 1_800_000_000 + self.now,
            airtime=modem.airtime,
            incarnation=lambda: self.random.getrandbits(31) + 1,
            nonce=lambda: self.random.randbytes(8),
            cipher=Recorded,
        )
        self.station = Station(
            modem, self.link, self.ledgers, BAND, Modulation(PLAN.factor).airtime
        )
        self.transports = Transports(
            self.link,
            self.world.engine.accept(POLICY),
            {PLAN.device: NAME}.get,
            listener="lora",
            path="/dev/lora",
            wake=lambda: None,
        )
        self._leaves: float | None = None
        self._swept = self.now
        self.station.open(self.now)

    def _deadline(self) -> float:
        moments = [self.now + 60.0]
        if self._flying:
            moments.append(self._flying[0][0])
        if self._leaves is not None:
            moments.append(self._leaves)
        if (deadline := self.station.deadline) is not None:
            moments.append(deadline)
        return min(moments)

    def _gateway(self) -> None:
        """Let the gateway do all work that is due now. Its commits take no simulated time."""
        if self._leaves is not None and self.now >= self._leaves:
            self._leaves = None
            self.tnc.finish()
        if self.now >= self._swept + 1:
            self.world.sleep(self.now - self._swept)
            self._swept = self.now
        while True:
            said, self.tnc.out = self.tnc.out, b""
            events = self.station.receive(said, self.now)
            for event in events:
                assert not isinstance(event, RadioFailed), event
                if not isinstance(event, RadioReady):
                    self.transports.handle(event)
            self.world.turn()
            self.transports.go_on()
            if self.station.record(self.now) is not None:
                self.station.recorded()
            self.station.tick(self.now)
            asked = self.station.take()
            self.tnc.feed(asked)
            if self.tnc.pending is not None and self._leaves is None:
                airtime = Modulation(PLAN.factor, preamble=16).airtime(len(self.tnc.pending))
                self._leaves = self.now + airtime
                self._fly(False, self.tnc.pending, airtime)
            if not asked and not events and not self.tnc.out:
                return

    # --- the air ---

    def _run_board(self, until: float) -> None:
        result = self._board.board_run(round(until * 1000))
        self.now = self._board.board_now() / 1000
        if result == SENDS:
            frame = bytes(self._board.board_frame()[: self._board.board_frame_length()])
            if self._board.board_open():
                key = bytes(self._board.board_key()[:16])
                counter = self._board.board_counter()
                assert self.nonces.setdefault((key, 0, counter), frame) == frame, "a nonce twice"
            self._fly(True, frame, Modulation(PLAN.factor).airtime(len(frame)))
        elif result == CUT:
            self._restart_board()
        if self._board.board_idle():
            self.taken |= self._writing
            self._writing = {}

    def _restart_board(self) -> None:
        self.cuts += 1
        self.perhaps |= self._writing
        self._writing = {}
        self._board.board_start()

    def _fly(self, up: bool, frame: bytes, airtime: float) -> None:
        self.air.append((up, frame))
        self.sent[up].append((self.now, self.now + airtime))
        if self.random.random() < self.lost:
            return
        if self.random.random() < self.damaged:
            harmed = bytearray(frame)
            bit = self.random.randrange(8 * len(frame))
            harmed[bit // 8] ^= 1 << bit % 8
            frame = bytes(harmed[: self.random.randrange(1, len(frame) + 1)])
        late = self.random.uniform(0, 3) if self.random.random() < self.late else 0.0
        flight = self.now + airtime + late, next(self._numbers), up, frame
        heapq.heappush(self._flying, flight)

    def _land(self, up: bool, frame: bytes) -> None:
        if not up:
            self._board.board_hear(frame, len(frame))
        elif self._leaves is None:  # a radio that is sending hears nothing
            self.tnc.hear(frame, 20, -90)
