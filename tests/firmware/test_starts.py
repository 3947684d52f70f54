"""Each build that is shipped starts with any journal. The board is online within the time that
firmware/JOURNAL.md states, and its watchdog does not reset it.

In: a build of `make -C firmware`, on the simulated Uno or on a chip of libsimavr (bare.c). A
journal: erased, full, with damaged slots, or full of noise. Out: the time at which the gateway
hears the board, the number of its starts, and its first publications.
"""

import random
import subprocess
from binascii import crc_hqx
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from gateway.links.greeter import Answer, Greeter
from gateway.links.handshake import Hello
from gateway.links.roles import GatewayLink
from gateway.mqtt.packets import Packet, Publish
from hil.boards.by_radio import RadioGateway, converse_by_radio, provisioned
from hil.boards.exchange import INCARNATION, Gateway, converse
from hil.boards.simulator import BUILD, SimulatedBoard
from provisioning.boards import board
from tests.firmware.bare import build, named, run
from tests.firmware.eeprom import with_interval

pytestmark = pytest.mark.sim

SLOTS_AT, SLOT, SOURCE_AT = 0x040, 16, 4
EEPROM_SLOTS, MEMORY_SIZE = 60, 32768
FIRST = 5
"""Number of publications that are checked."""
SOURCE = bytes.fromhex("8000000100000200")
"""A reading of the sensor example: uptime, and half of the ADC's scale."""
IN_TIME_S = {60: 1.0, 2000: 3.0}
"""Longest duration of a start without a damaged slot, in seconds, by number of slots."""
FOR_DAMAGE_S = {60: 0.0, 2000: 1.5}
FOR_EACH_DAMAGED_S = 0.05
FIRST_GREETING_S = 4.0
"""Longest random wait of a radio board before its first greeting (OW_TURN_HELLO_FIRST_MS)."""
TURNS_S = 2.0

Memory = Literal["fram", "i2c-eeprom"]


@dataclass(frozen=True)
class Build:
    """A HEX file of `make -C firmware`. kind: name of the board in the catalogue. slots: number of
    slots of its journal. chip: a chip of libsimavr; empty for the simulated Uno. memory: external
    memory for the journal; None: the journal is in the EEPROM.
    """

    path: str
    kind: str
    slots: int = EEPROM_SLOTS
    chip: str = ""
    memory: Memory | None = None

    @property
    def hex(self) -> Path:
        return BUILD / self.path


UNOS = {
    "uno": Build("uno/sensor.hex", "uno"),
    "nano": Build("nano/sensor.hex", "nano"),
    "nano-old": Build("nano-old/sensor.hex", "nano-old"),
    "fram": Build("uno/sensor-memory.hex", "uno", 2000, memory="fram"),
    "i2c-eeprom": Build("uno/sensor-memory.hex", "uno", 2000, memory="i2c-eeprom"),
}
BARE_CHIPS = {
    "pro-mini": Build("pro-mini/sensor.hex", "pro-mini", chip="atmega328p"),
    "mega2560": Build("mega2560/sensor.hex", "mega2560", chip="atmega2560"),
}
LORA = Build("uno/sensor-lora.hex", "uno-lora")
WITHOUT_MEMORY = Build("uno/sensor-memory.hex", "uno", 2000)


@dataclass(frozen=True)
class Journal:
    """The content of a journal. slots: bytes of all slots. damaged: numbers of the slots that a
    start must repair.
    """

    slots: bytes
    damaged: tuple[int, ...] = ()


def full(slots: int) -> Journal:
    """Return a full journal in which no publication is acknowledged."""
    return Journal(b"".join(_slot(sequence) for sequence in range(1, slots + 1)))


def _slot(sequence: int) -> bytes:
    record = sequence.to_bytes(4) + SOURCE
    marks = bytes((sequence & 0xFF ^ mark ^ 0xFF) for mark in (0x55, 0xAA))
    return record + crc_hqx(record, 0xFFFF).to_bytes(2) + marks


def _harmed(slots: int, damaged: tuple[int, ...]) -> Journal:
    there = bytearray(full(slots).slots)
    for slot in damaged:
        there[slot * SLOT + SOURCE_AT] ^= 0x10
    return Journal(bytes(there), damaged)


JOURNALS: dict[str, Callable[[int], Journal]] = {
    "empty": lambda slots: Journal(b"\xff" * SLOT * slots),
    "full": full,
    "some damaged": lambda slots: _harmed(slots, (2, 3, 9)),
    "a run damaged": lambda slots: _harmed(slots, tuple(range(slots - 40, slots - 8))),
    "every second one damaged": lambda slots: _harmed(slots, tuple(range(1, 41, 2))),
    "noise": lambda slots: Journal(random.Random(slots).randbytes(SLOT * slots)),
}


class Noting(Greeter):
    """A greeter that records the number of each start of the board."""

    def __init__(self) -> None:
        super().__init__(1, incarnation=lambda: INCARNATION)
        self.boots: set[int] = set()

    def answer(self, hello: Hello) -> Answer:
        self.boots.add(hello.boot)
        return super().answer(hello)


class Awaiting(Gateway):
    """A gateway that records when the board came online, in seconds of the board's time."""

    online = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.greeter = Noting()
        self.link = GatewayLink(self.greeter, 115_200)

    def receive(self, data: bytes, now: float) -> bytes:
        answer = super().receive(data, now)
        if self.known and not self.online:
            self.online = now
        return answer

    def _answers(self, packet: Packet) -> Iterator[Packet]:
        if not (isinstance(packet, Publish) and packet.qos == 0):
            yield from super()._answers(packet)


class AwaitingByRadio(RadioGateway):
    online = 0.0

    def hear(self, frame: bytes, now: float) -> list[bytes]:
        answers = super().hear(frame, now)
        if self.known and not self.online:
            self.online = now
        return answers


def in_time(build: Build, journal: Journal) -> float:
    """Return the time limit of a start, in seconds."""
    seconds = IN_TIME_S[build.slots] + FOR_EACH_DAMAGED_S * len(journal.damaged)
    return seconds + (FOR_DAMAGE_S[build.slots] if journal.damaged else 0)


def place_of(build: Build, journal: Journal, folder: Path) -> Path:
    """Make a folder for a simulated Uno whose memory has this journal. Return the folder."""
    place = folder / "board"
    place.mkdir()
    image = bytearray(with_interval(1000))
    if build.slots == EEPROM_SLOTS:
        image[SLOTS_AT : SLOTS_AT + len(journal.slots)] = journal.slots
    (place / "eeprom.bin").write_bytes(image)
    if build.memory:
        rest = b"\xff" * (MEMORY_SIZE - len(journal.slots))
        (place / "memory.bin").write_bytes(journal.slots + rest)
    return place


def is_in_order(gateway: Gateway, journal: Journal) -> bool:
    """Return whether the oldest publications arrived first and in order. A publication whose slot
    is damaged must be reported as lost instead.
    """
    first = [(one.sequence, one.payload == b"lost") for one in gateway.deliveries[:FIRST]]
    return first == [(number, number - 1 in journal.damaged) for number in range(1, FIRST + 1)]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("bare"))


def test_each_build_for_a_board_is_tried() -> None:
    listed = subprocess.run(
        ["make", "-s", "-C", BUILD.parents[1] / "firmware", "list"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    tried = [*UNOS.values(), *BARE_CHIPS.values(), LORA, WITHOUT_MEMORY]
    assert {one.path for one in tried} == set(listed)


@pytest.mark.few(12)
@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("name", UNOS)
async def test_an_uno_or_nano_is_online_in_time(name: str, journal: str, tmp_path: Path) -> None:
    made, found = UNOS[name], JOURNALS[journal](UNOS[name].slots)
    gateway, place = Awaiting(), place_of(made, found, tmp_path)
    firmware = named(made.hex, made.kind, tmp_path)
    async with SimulatedBoard(place, firmware=firmware, speed="step", memory=made.memory) as uno:
        await converse(uno, gateway, completed=FIRST, seconds=60)
        stats = await uno.stats()
    assert (stats.boots, stats.cause, gateway.greeter.boots) == (1, "power-on", {1})
    assert 0 < gateway.online <= in_time(made, found)
    assert is_in_order(gateway, found)


@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("name", BARE_CHIPS)
def test_another_chip_or_clock_is_online_in_time(
    name: str, journal: str, bare: Path, tmp_path: Path
) -> None:
    made, found = BARE_CHIPS[name], JOURNALS[journal](BARE_CHIPS[name].slots)
    gateway, hz = Awaiting(), board(made.kind).clock
    image = place_of(made, found, tmp_path) / "eeprom.bin"
    command = [bare, made.chip, str(hz), named(made.hex, made.kind, tmp_path), image]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        next(now for now in run(process, gateway, hz, 60) if gateway.completed >= FIRST)
    assert gateway.greeter.boots == {1}, "its watchdog bit"
    assert 0 < gateway.online <= in_time(made, found)
    assert is_in_order(gateway, found)


@pytest.mark.parametrize("journal", JOURNALS)
async def test_a_board_by_radio_is_online_in_time(journal: str, tmp_path: Path) -> None:
    """The first two turns are a greeting and a CONNECT. Each takes less than a second at SF7. The
    random wait before the greeting comes from a nonce, so it differs between compilers.
    """
    found, gateway = JOURNALS[journal](LORA.slots), AwaitingByRadio()
    place = place_of(LORA, found, tmp_path)
    firmware = provisioned(LORA.hex, tmp_path / "radio.hex")
    async with SimulatedBoard(place, firmware=firmware, speed="step", radio=True) as uno:
        await converse_by_radio(uno, gateway, arrived=FIRST, seconds=60)
        stats = await uno.stats()
    assert (stats.boots, stats.cause) == (1, "power-on")
    assert 0 < gateway.online <= in_time(LORA, found) + FIRST_GREETING_S + TURNS_S
    assert is_in_order(gateway, found)


async def test_a_board_whose_memory_is_missing_is_online_in_time(tmp_path: Path) -> None:
    found, gateway = full(WITHOUT_MEMORY.slots), Awaiting()
    place = place_of(WITHOUT_MEMORY, found, tmp_path)
    firmware = named(WITHOUT_MEMORY.hex, WITHOUT_MEMORY.kind, tmp_path)
    async with SimulatedBoard(place, firmware=firmware, speed="step") as uno:
        await converse(uno, gateway, completed=1, seconds=5)
        stats = await uno.stats()
    assert (stats.boots, stats.cause, gateway.greeter.boots) == (1, "power-on", {1})
    assert 0 < gateway.online <= in_time(WITHOUT_MEMORY, found)
