"""The sensor example as a process on a pseudo-terminal, with `onceway gateway run`. A kill -9 of
the board or of the gateway stands for a power cut.
"""

import asyncio
import os
import pty
import signal
import sqlite3
import time
import tty
from binascii import crc_hqx
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random

import aiomqtt
import pytest

from gateway.commands import control_client as control
from hil.boards.ledger import Ledger
from hil.judge.senml import decode, expected, is_status, says
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.service.process import GatewayProcess, start

NAME = "host-1"
SAMPLING_OFF = 0xFFFF
JOURNAL_SLOTS = 60


class Board:
    """A board with a serial cable that stays plugged in. The board has power while its process
    runs.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._eeprom = folder / "eeprom.bin"
        self._identity = folder / "identity.bin"
        self.identity = Identity.create(NAME)
        self._identity.write_bytes(self.identity.to_bytes().ljust(128, b"\xff"))
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

    def write_eeprom(self, image: bytes) -> None:
        self._eeprom.write_bytes(image)

    async def power_on(self, seed: int) -> None:
        arguments = [
            "--eeprom",
            self._eeprom,
            "--identity",
            self._identity,
            "--uart",
            str(self._master),
            "--seed",
            str(seed),
        ]
        self._process = await asyncio.create_subprocess_exec(
            self._program, *arguments, pass_fds=[self._master]
        )

    async def power_off(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        assert await self._process.wait() == -signal.SIGKILL, "the program ended by itself"

    async def end_delivered(self, seed: int) -> None:
        """Start the board again, with sampling switched off. When it has delivered everything,
        including the status of this start, switch it off.
        """
        await self.power_off()
        self.set_interval(SAMPLING_OFF)
        before = self.newest
        await self.power_on(seed)
        await until(lambda: self.newest > before and self.waiting == 0)
        await self.power_off()

    @property
    def interval(self) -> int:
        return int.from_bytes(self._eeprom.read_bytes()[0x20:0x22])

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
        registry = Registry(tmp_path / "data" / "registry.db")
        registry.finish(registry.begin(board.identity, "uno", board.port), "ab" * 32)
        path = tmp_path / "gateway.toml"
        path.write_text(f"""
[gateway]
data = "{tmp_path / "data"}"
trust_clock = true

[[serial]]
port = "{board.port}"

[[listener]]
bind = "127.0.0.1:0"
anonymous = true

[uplink]
landing = "file:///landing"
""")
        return path

    return write


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # what is waited for is in a file
            await asyncio.sleep(0.05)


class Site:
    """A gateway that is started several times with the same data."""

    def __init__(self, configuration: Path) -> None:
        self._configuration = configuration
        self.gateway: GatewayProcess

    async def start(self) -> None:
        self.gateway = await start("--config", str(self._configuration))
        await self.gateway.ready()

    async def kill(self) -> None:
        await self.gateway.end(signal.SIGKILL)


@asynccontextmanager
async def gateway_at(configuration: Path) -> AsyncIterator[Site]:
    site = Site(configuration)
    await site.start()
    try:
        yield site
        assert await site.gateway.end() == 0
    finally:
        if site.gateway.process.returncode is None:
            await site.kill()


def spooled(folder: Path) -> list[tuple[str, int, int, str, bytes]]:
    with closing(sqlite3.connect(folder / "data" / "gateway.db")) as database:
        return database.execute(
            "SELECT device, incarnation, sequence, topic, payload FROM spool WHERE device NOT NULL"
            " ORDER BY id"
        ).fetchall()


async def connected(board: Board, folder: Path) -> None:
    """Wait until the gateway has a publication that the board makes after this call. A second
    outage before that moment could cause a duplicate (firmware/JOURNAL.md).
    """
    newest = board.newest
    await until(lambda: (rows := spooled(folder)) and rows[-1][2] > newest)


def check(board: Board, folder: Path) -> None:
    """Check that each sequence is in the spool once, and that all sequences have one incarnation.
    For publications that are still in the board's journal, also compare the content.
    """
    rows = spooled(folder)
    ledger = board.ledger
    assert [row[2] for row in rows] == list(range(1, board.newest + 1))
    assert {row[:2] for row in rows} == {(NAME, ledger.incarnation)}
    sent = {sequence: (topic, payload) for _, _, sequence, topic, payload in rows}
    # a power cut may have damaged one slot
    assert len(ledger.publications) >= min(JOURNAL_SLOTS, board.newest) - 1
    for publication in ledger.publications:
        topic, payload = sent[publication.sequence]
        assert topic == f"sensors/{NAME}/{'status' if is_status(publication.source) else 'adc0'}"
        assert says(decode(payload), expected(NAME, publication.source))


async def test_readings_reach_the_spool(
    sensor: Path, tmp_path: Path, configuration: Callable[[Board], Path]
) -> None:
    async with board_on(sensor, tmp_path, 20) as board:
        async with gateway_at(configuration(board)):
            await until(lambda: board.newest >= 100)
            await board.end_delivered(2)
        check(board, tmp_path)


async def test_readings_made_before_the_time_was_known_get_it(
    sensor: Path, tmp_path: Path, configuration: Callable[[Board], Path]
) -> None:
    before = time.time()
    async with board_on(sensor, tmp_path, 200) as board:
        # on a busy machine, the board starts late and catches up
        await until(lambda: board.newest >= 20)
        async with gateway_at(configuration(board)):
            await until(lambda: len(spooled(tmp_path)) >= 25)
            await board.end_delivered(2)
        check(board, tmp_path)
    # a later status may lack its time: it was made after a new start
    delivered_by_then = spooled(tmp_path)[:25]
    times = [
        record.time or 0 for *_, payload in delivered_by_then for record in decode(payload) or ()
    ]
    assert times == sorted(times)
    assert before - 2 <= times[0] <= times[-1] <= time.time() + 1
    assert times[-1] - times[0] >= 2


async def test_several_readings_a_packet(
    sensor: Path, tmp_path: Path, configuration: Callable[[Board], Path]
) -> None:
    async with (
        board_on(sensor.with_name("sensor-packs"), tmp_path, 1000) as board,
        gateway_at(configuration(board)),
    ):
        await until(lambda: len(spooled(tmp_path)) >= 2)
    [_, *_, topic, payload] = spooled(tmp_path)[1]
    records = decode(payload)
    assert topic == f"sensors/{NAME}/adc0"
    assert records
    start = records[0].time
    assert start
    assert [record[:3:2] for record in records] == [(f"{NAME}:adc0", start + i) for i in range(3)]


async def test_power_cuts_of_both_lose_and_double_nothing(
    sensor: Path, tmp_path: Path, configuration: Callable[[Board], Path]
) -> None:
    random = Random(5)
    async with board_on(sensor, tmp_path, 10) as board:
        async with gateway_at(configuration(board)) as site:
            for cut in range(12):
                await connected(board, tmp_path)
                await asyncio.sleep(random.uniform(0.05, 0.6))
                if cut % 4 == 3:
                    await site.kill()
                    await site.start()
                else:
                    await board.power_off()
                    await board.power_on(cut)
            await connected(board, tmp_path)
            await board.end_delivered(99)
        assert board.newest > JOURNAL_SLOTS, "each slot was used again"
        check(board, tmp_path)


async def test_log_of_the_board_is_read_over_the_link(
    sensor: Path, tmp_path: Path, configuration: Callable[[Board], Path]
) -> None:
    """The log has events from before the connection. Readings arrive during the request as well."""
    async with board_on(sensor, tmp_path, 30) as board:
        async with gateway_at(configuration(board)):
            await until(lambda: len(spooled(tmp_path)) >= 5)
            *lines, last = await asyncio.to_thread(
                control.ask, tmp_path / "data", do="log", client=NAME
            )
            said = [line["text"] for line in lines]
            assert last["lost"] or said[0] == "start, cause 0"
            assert any(text.startswith("connected, session ") for text in said), said
            assert all(abs(line["utc"] - time.time()) < 120 for line in lines), lines
            await connected(board, tmp_path)
            await board.end_delivered(2)
        check(board, tmp_path)


async def test_commands_are_obeyed_once(
    sensor: Path, tmp_path: Path, configuration: Callable[[Board], Path]
) -> None:
    """If a board executed the reboot command again after its start, it would never stop restarting.
    The command is retained, so the gateway sends it again when the board subscribes again.
    """
    async with board_on(sensor, tmp_path, 30) as board:
        async with gateway_at(configuration(board)) as site:
            # the board has also subscribed by then
            await until(lambda: len(spooled(tmp_path)) >= 5)
            boots = board.ledger.boots
            async with aiomqtt.Client(
                "127.0.0.1", site.gateway.port, protocol=aiomqtt.ProtocolVersion.V5
            ) as client:
                await client.publish(f"commands/{NAME}", b"reboot", qos=2, retain=True)
                await until(lambda: board.ledger.boots == boots + 1)
                newest = board.newest
                await until(lambda: board.newest >= newest + 10)
                await client.publish(f"commands/{NAME}", b"nonsense", qos=2)
                await site.gateway.logged("does not know the command 'nonsense'")
                await client.publish(f"commands/{NAME}", b"interval 65535", qos=2)
                await until(lambda: board.interval == SAMPLING_OFF)
            assert board.ledger.boots == boots + 1
            await board.end_delivered(2)
        check(board, tmp_path)
