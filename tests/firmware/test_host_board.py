"""The sensor as a process on a pseudo-terminal, against `onceway gateway run`: kill -9 of either is a power cut."""

import asyncio
import os
import pty
import signal
import sqlite3
import tty
from binascii import crc_hqx
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random

import cbor2
import pytest

from hil.board.ledger import Ledger
from provisioning.identity import Identity
from tests.service.process import GatewayProcess, start

NAME = "host-1"
SAMPLING_OFF = 0xFFFF
JOURNAL_SLOTS = 60


class Board:
    """A board whose serial cable is plugged in for ever; its process is its power."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._eeprom = folder / "eeprom.bin"
        self._identity = folder / "identity.bin"
        self._identity.write_bytes(Identity.create(NAME).to_bytes().ljust(128, b"\xff"))
        self._eeprom.write_bytes(b"\xff" * 1024)
        self._master, slave = pty.openpty()
        tty.setraw(slave)
        self.port = os.ttyname(slave)
        os.close(slave)

    def set_interval(self, milliseconds: int) -> None:
        record = milliseconds.to_bytes(2)
        image = bytearray(self._eeprom.read_bytes())
        image[0x20:0x24] = record + crc_hqx(record, 0xFFFF).to_bytes(2)
        self._eeprom.write_bytes(image)

    async def power_on(self, seed: int) -> None:
        arguments = ["--eeprom", self._eeprom, "--identity", self._identity, "--uart", str(self._master), "--seed", str(seed)]
        self._process = await asyncio.create_subprocess_exec(self._program, *arguments, pass_fds=[self._master])

    async def power_off(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        assert await self._process.wait() == -signal.SIGKILL, "the program ended by itself"

    @property
    def ledger(self) -> Ledger:
        return Ledger.from_image(self._eeprom.read_bytes())

    @property
    def waiting(self) -> int:
        ledger = self.ledger
        return sum(not ledger.state(publication.sequence)[1] for publication in ledger.publications)

    @property
    def newest(self) -> int:
        return max((publication.sequence for publication in self.ledger.publications), default=0)


@asynccontextmanager
async def board_on(sensor: Path, folder: Path, interval: int) -> AsyncIterator[Board]:
    board = Board(sensor, folder)
    board.set_interval(interval)
    await board.power_on(1)
    try:
        yield board
    finally:
        await board.power_off()


@pytest.fixture
def configuration(tmp_path: Path) -> Callable[[Board], Path]:
    def write(board: Board) -> Path:
        path = tmp_path / "gateway.toml"
        path.write_text(f'[gateway]\ndata = "{tmp_path / "data"}"\ntrust_clock = true\n\n[[serial]]\nport = "{board.port}"\nopen = true\n')
        return path

    return write


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # what is waited for is in a file
            await asyncio.sleep(0.05)


async def ready(configuration: Path) -> GatewayProcess:
    gateway = await start("--config", str(configuration))
    await gateway.ready()
    return gateway


def spooled(folder: Path) -> list[tuple[str, int, int, str, bytes]]:
    with closing(sqlite3.connect(folder / "data" / "gateway.db")) as database:
        return database.execute("SELECT device, incarnation, sequence, topic, payload FROM spool ORDER BY id").fetchall()


def volts(payload: bytes) -> float:
    [record] = cbor2.loads(payload)
    assert record[-2] + record[0] == f"{NAME}:adc0"
    assert record[1] == "V"
    return float(record[2])


def check(board: Board, folder: Path) -> None:
    """Each sequence once, under one incarnation, and with the value that the board journalled, as far as that is still there."""
    rows = spooled(folder)
    ledger = board.ledger
    assert [row[2] for row in rows] == list(range(1, board.newest + 1))
    assert {row[:2] for row in rows} == {(NAME, ledger.incarnation)}
    assert {row[3] for row in rows} == {f"sensors/{NAME}/adc0"}
    payloads = {row[2]: row[4] for row in rows}
    assert len(ledger.publications) >= min(JOURNAL_SLOTS, board.newest) - 1  # a power cut may have torn one slot
    for publication in ledger.publications:
        assert volts(payloads[publication.sequence]) == publication.sensor[1] * 5 / 1024


async def test_readings_reach_the_spool(sensor: Path, tmp_path: Path, configuration: Callable[[Board], Path]) -> None:
    async with board_on(sensor, tmp_path, 20) as board:
        gateway = await ready(configuration(board))
        await until(lambda: board.newest >= 100)
        await board.power_off()
        board.set_interval(SAMPLING_OFF)
        await board.power_on(2)
        await until(lambda: board.waiting == 0)
        assert await gateway.end() == 0
        check(board, tmp_path)


async def test_power_cuts_of_both_lose_and_double_nothing(sensor: Path, tmp_path: Path, configuration: Callable[[Board], Path]) -> None:
    random = Random(5)
    async with board_on(sensor, tmp_path, 10) as board:
        path = configuration(board)
        gateway = await ready(path)
        for cut in range(24):
            await asyncio.sleep(random.uniform(0.05, 0.6))
            if cut % 4 == 3:
                await gateway.end(signal.SIGKILL)
                gateway = await ready(path)
            else:
                await board.power_off()
                await board.power_on(cut)
        await board.power_off()
        board.set_interval(SAMPLING_OFF)
        await board.power_on(99)
        await until(lambda: board.waiting == 0)
        assert await gateway.end() == 0
        assert board.newest > 100
        check(board, tmp_path)
