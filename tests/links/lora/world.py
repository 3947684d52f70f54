"""A board and a gateway over bad air, on simulated time.

The board is the C code of boards, with a small MQTT client that keeps what a real one keeps in its
EEPROM. The gateway is `TurnLink` with a small broker that commits late. Either may lose its power
at any time. The ledger has every reading, every nonce, and the times at which the board sent.
"""

import ctypes
import heapq
import subprocess
import tempfile
from functools import cache
from itertools import count
from pathlib import Path
from random import Random

import pytest

from gateway.links.lora.airtime import Modulation
from gateway.links.lora.frames import Header, SessionCipher
from gateway.links.lora.packing import split
from gateway.links.lora.turns import (
    Others,
    Received,
    Session,
    SessionEnded,
    SessionStarted,
    TurnLink,
)

SOURCES = Path(__file__).parents[3] / "firmware" / "src"
NAMES = ("turn", "ccm", "pack", "cmac", "airtime", "bytes")
KEY = bytes(range(0x30, 0x40))
NETWORK, DEVICE = 7, 3
FACTOR, SILENCE, DUTY = 9, 10, 0.1
RADIO = Modulation(FACTOR)
UP, DATA, DOWN = 1, 2, 3
IDLE, OPEN = 0, 2
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 4)))
"""Seeds of the random schedules."""
TOPIC = b"s/t"

CONNECT = bytes.fromhex("101400044d515454050200000d11ffffffff210001") + b"\x00"
PUBLISH, PUBREC, PUBREL, PUBCOMP = 0x34, 0x50, 0x62, 0x70


@cache
def build() -> ctypes.CDLL:
    """Compile the board's half of the turn link. Undefined behaviour ends the process with a
    message.
    """
    library = Path(tempfile.mkdtemp(prefix="onceway-turn-")) / "turn.so"
    files = [SOURCES / f"ow_{name}.c" for name in NAMES]
    checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    options = ["-std=c11", "-O1", "-g", "-shared", "-fPIC", f"-I{SOURCES}", "-o", str(library)]
    twin = Path(__file__).with_name("turn_twin.c")
    subprocess.run(["gcc", *options, *checks, str(twin), *map(str, files)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.turn_size.restype = ctypes.c_size_t
    loaded.turn_put.restype = ctypes.c_bool
    for name in ("turn_frame", "turn_session", "ow_turn_packet"):
        getattr(loaded, name).restype = ctypes.POINTER(ctypes.c_uint8)
    for name in ("turn_counter", "turn_attempt", "ow_turn_send"):
        getattr(loaded, name).restype = ctypes.c_uint16 if "send" not in name else ctypes.c_uint8
    for name in ("turn_incarnation", "turn_wait", "turn_utc"):
        getattr(loaded, name).restype = ctypes.c_uint32
    loaded.ow_turn_listens.restype = ctypes.c_bool
    return loaded


def packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes((first, len(body))) + body


def acknowledge(kind: int, identifier: int) -> bytes:
    return packet(kind, identifier.to_bytes(2, "big"))


class Ledger:
    """The promises of a world: events that must never happen, and events that must have happened at
    the end.
    """

    def __init__(self) -> None:
        self.nonces: dict[tuple[bytes, int, int], bytes] = {}
        self.sent: list[tuple[float, float]] = []
        self.air: list[tuple[bool, bytes]] = []
        """All frames: whether the board sent it, and its bytes."""
        self.readings: dict[int, bytes] = {}
        self.delivered: list[tuple[int, bytes]] = []
        self.commands: list[int] = []
        self.reasons: list[str] = []

    def seal(self, key: bytes, direction: int, counter: int, frame: bytes) -> None:
        assert self.nonces.setdefault((key, direction, counter), frame) == frame, "a nonce twice"

    def check(self) -> None:
        assert len({sequence for sequence, _ in self.delivered}) == len(self.delivered), "doubled"
        for sequence, payload in self.delivered:
            assert self.readings[sequence] == payload, "altered"
        assert self.commands == sorted(set(self.commands)), "a command twice, or out of order"


class Board:
    """The C code and an MQTT client. The state in `__init__` outlives a power cut; the state in
    `start` does not.
    """

    def __init__(self, random: Random, ledger: Ledger) -> None:
        self._random, self._ledger = random, ledger
        self.boot = 0
        self.incarnation = 0
        self.next_sequence = 1
        self.journal: dict[int, bool] = {}
        """The unfinished publications, by sequence. The value says whether PUBREC has arrived."""
        self.sent_before: set[int] = set()

    def start(self, now: float) -> None:
        self._lib = build()
        self._turn = ctypes.create_string_buffer(self._lib.turn_size())
        self.boot += 1
        self._lib.turn_begin(self._turn, KEY, NETWORK, DEVICE, FACTOR, SILENCE, _ms(now))
        self.sending_until: float | None = None
        self._greet()

    def lose_memory(self) -> None:
        """Wipe the EEPROM."""
        self.boot, self.incarnation = 0, 0

    def _greet(self) -> None:
        self._connected = False
        self._aliased = False
        self._flights: dict[int, int] = {}
        entropy = self._random.getrandbits(32)
        self._lib.turn_greet(
            self._turn, self.boot, ctypes.c_uint32(self.incarnation), self.next_sequence, entropy
        )

    def sample(self) -> None:
        payload = self._random.randbytes(20)
        self._ledger.readings[self.next_sequence] = payload
        self.journal[self.next_sequence] = False
        self.next_sequence += 1

    def poll(self) -> None:
        if self._connected:
            self._lib.ow_turn_poll(self._turn)

    def step(self, now: float) -> bytes | None:
        """Let the board work until now. Return the frame that it begins to send, if any."""
        if self.sending_until is not None:
            if now < self.sending_until:
                return None
            self.sending_until = None
            self._lib.ow_turn_sent(self._turn, _ms(now))
        if self._lib.ow_turn_tick(self._turn, _ms(now)) == DOWN:
            self._greet()
        self._advance()
        length = self._lib.ow_turn_send(self._turn)
        if not length:
            return None
        frame = bytes(self._lib.turn_frame(self._turn)[:length])
        if self._lib.turn_state(self._turn) == OPEN:
            session = bytes(self._lib.turn_session(self._turn)[:16])
            self._ledger.seal(session, 0, self._lib.turn_counter(self._turn), frame)
        self.sending_until = now + RADIO.airtime(length)
        self._ledger.sent.append((now, self.sending_until))
        return frame

    @property
    def listens(self) -> bool:
        return self.sending_until is None and bool(self._lib.ow_turn_listens(self._turn))

    def receive(self, frame: bytes, now: float) -> None:
        if not self.listens:
            return
        self._lib.ow_turn_tick(self._turn, _ms(now))
        match self._lib.turn_receive(self._turn, frame, len(frame)):
            case 1:
                self.incarnation = self._lib.turn_incarnation(self._turn)
                assert self._lib.turn_put(self._turn, CONNECT, len(CONNECT))
            case 2:
                length = ctypes.c_uint8()
                while found := self._lib.ow_turn_packet(self._turn, ctypes.byref(length)):
                    self._take(bytes(found[: length.value]))
                if self._lib.turn_state(self._turn) == IDLE:
                    self._greet()
            case 3:
                self._greet()

    @property
    def wait(self) -> float:
        """Seconds until the board has something to do."""
        return max(self._lib.turn_wait(self._turn), 1) / 1000

    def _take(self, data: bytes) -> None:
        kind = data[0]
        identifier = int.from_bytes(data[2:4], "big")
        if kind == 0x20:
            self._connected = True
            if not data[2]:  # Session Present is 0
                self.journal = dict.fromkeys(self.journal, False)
        elif kind == PUBREC and identifier in self._flights:
            self.journal[identifier] = True
            self._flights[identifier] = PUBREL
        elif kind == PUBCOMP and identifier in self._flights:
            del self._flights[identifier]
            del self.journal[identifier]
        elif kind & 0xF0 == 0x30:
            self._ledger.commands.append(int.from_bytes(data[-4:], "big"))

    def _advance(self) -> None:
        if not self._connected:
            return
        for identifier in self.journal:
            step = self._flights.get(identifier)
            if step is None and len(self._flights) == 2:
                break
            if step is None:
                step = PUBREL if self.journal[identifier] else PUBLISH
                self._flights[identifier] = step
            if step == PUBREL and self._put(acknowledge(PUBREL, identifier)):
                self._flights[identifier] = PUBCOMP
            elif step == PUBLISH and self._put(self._publish(identifier)):
                self._flights[identifier] = PUBREC
                self.sent_before.add(identifier)
                self._aliased = True

    def _publish(self, identifier: int) -> bytes:
        first = PUBLISH | (8 if identifier in self.sent_before else 0)
        topic = b"" if self._aliased else TOPIC
        head = len(topic).to_bytes(2, "big") + topic + identifier.to_bytes(2, "big")
        return packet(first, head + b"\x03\x23\x00\x01" + self._ledger.readings[identifier])

    def _put(self, data: bytes) -> bool:
        done: bool = self._lib.turn_put(self._turn, data, len(data))
        return done


class Gateway:
    """`TurnLink` and a small broker. Committed state outlives a power cut."""

    def __init__(self, random: Random, ledger: Ledger) -> None:
        self._random, self._ledger = random, ledger
        self.others: Others | None = None
        self.session_present = False
        self.held: set[int] = set()
        self.marks: set[int] = set()
        self.utc = 0.0

    def start(self) -> None:
        ledger = self._ledger

        class Recorded(SessionCipher):
            def __init__(self, key: bytes) -> None:
                super().__init__(key)
                self._record = key

            def seal(self, header: Header, direction: int, counter: int, content: bytes) -> bytes:
                frame = super().seal(header, direction, counter, content)
                ledger.seal(self._record, direction, counter, frame)
                return frame

        self.link = TurnLink(
            NETWORK,
            lambda number: KEY if number == DEVICE else None,
            utc=lambda: self.utc,
            airtime=RADIO.airtime,
            incarnation=lambda: self._random.getrandbits(31) + 1,
            nonce=lambda: self._random.randbytes(8),
            cipher=Recorded,
            others=self.others,
        )
        self._commits: list[tuple[float, int, Session, list[bytes]]] = []
        self._numbers = count()
        self.session: Session | None = None

    def receive(self, frame: bytes, now: float) -> None:
        for event in self.link.receive(frame, now):
            match event:
                case SessionStarted(session):
                    self.session = session
                case Received(session, data):
                    assert session is self.session
                    packets, rest = split(data)
                    assert not rest
                    late = self._random.choice((0.0, 0.01, 0.2, 0.2, 1.3))
                    heapq.heappush(
                        self._commits, (now + late, next(self._numbers), session, packets)
                    )
                case SessionEnded(session, reason):
                    assert session is self.session
                    self._ledger.reasons.append(reason)
                    self.session = None

    def command(self, number: int) -> None:
        if self.session is not None:
            data = packet(0x30, b"\0\1c\0" + number.to_bytes(4, "big"))
            self.link.write(self.session, data)

    @property
    def deadline(self) -> float:
        return self._commits[0][0] if self._commits else float("inf")

    def step(self, now: float) -> list[bytes]:
        while self._commits and self._commits[0][0] <= now:
            _, _, session, packets = heapq.heappop(self._commits)
            for each in packets:
                self._commit(session, each)
        return [outgoing.frame for outgoing in self.link.take(now)]

    def _commit(self, session: Session, data: bytes) -> None:
        """Process one packet as one commit, then write its answer."""
        kind = data[0]
        if kind == 0x10:
            self._write(session, packet(0x20, bytes((self.session_present, 0, 0))))
            self.session_present = True
        elif kind & 0xF0 == 0x30:
            at = 4 + int.from_bytes(data[2:4], "big")
            identifier = int.from_bytes(data[at : at + 2], "big")
            if identifier not in self.held and identifier not in self.marks:
                self._ledger.delivered.append((identifier, data[at + 6 :]))
            self.held.add(identifier)
            self.marks.add(identifier)
            self._write(session, acknowledge(PUBREC, identifier))
        elif kind == PUBREL:
            identifier = int.from_bytes(data[2:4], "big")
            self.held.discard(identifier)
            self._write(session, acknowledge(PUBCOMP, identifier))
        elif kind == 0xC0:
            self._write(session, b"\xd0\x00")

    def _write(self, session: Session, data: bytes) -> None:
        if session is self.session:
            self.link.write(session, data)


class World:
    """A board, a gateway, and the air between them. lost, doubled, late, damaged: probability for
    each frame. replayed: probability that an old frame is sent again.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ledger = Ledger()
        self.now = 100.0
        self.lost = self.doubled = self.late = self.damaged = self.replayed = 0.0
        self._numbers = count()
        self._air: list[tuple[float, int, bool, bytes]] = []
        self.board = Board(self.random, self.ledger)
        self.gateway = Gateway(self.random, self.ledger)
        self.gateway.start()
        self.board.start(self.now)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self._step()
            moments = [end, self.gateway.deadline]
            moments.append(self.board.sending_until or self.now + self.board.wait)
            if self._air:
                moments.append(self._air[0][0])
            self.now = max(min(moments), self.now + 0.001)
        self.ledger.check()

    def settle(self) -> None:
        """End all faults, and wait until all readings have arrived."""
        self.lost = self.doubled = self.late = self.damaged = self.replayed = 0.0
        for _ in range(60):
            self.run(60.0)
            if not [
                sequence for sequence in self.board.journal if not self.board.journal[sequence]
            ]:
                break
        delivered = {sequence for sequence, _ in self.ledger.delivered}
        assert delivered == set(self.ledger.readings), "lost"

    def cut_board(self) -> None:
        self.board.start(self.now)

    def cut_gateway(self) -> None:
        self.gateway.start()

    def _step(self) -> None:
        while self._air and self._air[0][0] <= self.now:
            _, _, up, frame = heapq.heappop(self._air)
            if up:
                self.gateway.receive(frame, self.now)
            else:
                self.board.receive(frame, self.now)
        if (frame := self.board.step(self.now)) is not None:
            self._send(True, frame)
        for frame in self.gateway.step(self.now):
            self._send(False, frame)

    def _send(self, up: bool, frame: bytes) -> None:
        self.ledger.air.append((up, frame))
        arrives = self.now + RADIO.airtime(len(frame))
        if self.random.random() < self.replayed:
            self._put(self.random.choice(self.ledger.air), arrives + self.random.uniform(0, 3))
        if self.random.random() < self.lost:
            return
        if self.random.random() < self.damaged:
            frame = self._damage(frame)
        late = self.random.uniform(0, 3) if self.random.random() < self.late else 0.0
        self._put((up, frame), arrives + late)
        if self.random.random() < self.doubled:
            self._put((up, frame), arrives + late + self.random.uniform(0, 2))

    def _put(self, sent: tuple[bool, bytes], moment: float) -> None:
        heapq.heappush(self._air, (moment, next(self._numbers), *sent))

    def _damage(self, frame: bytes) -> bytes:
        bit = self.random.randrange(8 * len(frame))
        harmed = bytearray(frame)
        harmed[bit // 8] ^= 1 << bit % 8
        return bytes(harmed[: self.random.randrange(len(frame) + 1)]) or b"\0"


def _ms(now: float) -> int:
    return round(now * 1000) & 0xFFFF
