"""The model of the SX1276, register by register, compared with the data sheet (revision 7)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hil.air.physics import Channel, airtime
from hil.boards.simulator import HZ, Event, EventStream, SimulatedBoard
from tests.sim.monitor import MS, START_UP, ask, build, listen

pytestmark = pytest.mark.sim

FIFO, OP_MODE, FREQUENCY, FIFO_AT, TX_BASE, RX_AT, IRQ_MASK, IRQ = 0, 1, 6, 13, 14, 16, 17, 18
RX_BYTES, SNR, RSSI, CONFIG_1, CONFIG_2, LENGTH, VERSION = 0x13, 0x19, 0x1A, 0x1D, 0x1E, 0x22, 0x42
PA_CONFIG, DIO_MAPPING = 0x09, 0x40
LORA, SLEEP, STANDBY, TRANSMIT, RECEIVE = 0x80, 0x80, 0x81, 0x83, 0x85
TX_DONE, VALID_HEADER, CRC_ERROR, RX_DONE = 0x08, 0x10, 0x20, 0x40


class Bus:
    """Access to the chip through the test program (programs/bus.c)."""

    def __init__(self, board: SimulatedBoard) -> None:
        self.board = board

    async def exchange(self, *data: int) -> bytes:
        answer = await ask(self.board, b"S%c" % len(data) + bytes(data), 1 + len(data))
        assert answer[:1] == b"s"
        return answer[1:]

    async def get(self, address: int) -> int:
        return (await self.exchange(address, 0))[1]

    async def put(self, address: int, *values: int) -> None:
        await self.exchange(address | 0x80, *values)

    async def dio0(self) -> int:
        return (await ask(self.board, b"D", 2))[1]

    async def reset(self) -> None:
        assert await ask(self.board, b"R", 1) == b"r"

    async def to_lora(self) -> None:
        """Put the chip to sleep in LoRa mode."""
        await self.put(OP_MODE, 0x08)
        await self.put(OP_MODE, SLEEP)

    async def listen(self) -> None:
        await self.to_lora()
        await self.put(CONFIG_2, 7 << 4 | 4)
        await self.put(OP_MODE, RECEIVE)

    async def transmit(self, frame: bytes, factor: int = 7) -> None:
        await self.to_lora()
        await self.put(CONFIG_2, factor << 4 | 4)
        await self.put(OP_MODE, STANDBY)
        await self.put(TX_BASE, 0)
        await self.put(FIFO_AT, 0)
        await self.put(FIFO, *frame)
        await self.put(LENGTH, len(frame))
        await self.put(OP_MODE, TRANSMIT)


@pytest.fixture(scope="module")
def bus_hex(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(Path(__file__).parent / "programs" / "bus.c", tmp_path_factory.mktemp("programs"))


@pytest.fixture
async def bus(tmp_path: Path, bus_hex: Path) -> AsyncIterator[Bus]:
    board = SimulatedBoard(
        tmp_path / "board", firmware=bus_hex, speed="step", bootloader=False, radio=True
    )
    async with board:
        assert await listen(board, 1, START_UP) == b"B"
        yield Bus(board)


async def radio_event(events: EventStream) -> Event:
    return await events.wait_for("radio")


async def test_after_power_on_it_has_the_values_of_table_41(bus: Bus) -> None:
    assert await bus.get(VERSION) == 0x12
    assert await bus.get(OP_MODE) == 0x09, "FSK, standby"
    assert await bus.exchange(FREQUENCY, 0, 0, 0) == b"\0\x6c\x80\x00"
    await bus.to_lora()
    assert await bus.exchange(CONFIG_1, 0, 0) == b"\0\x72\x70"
    await bus.put(VERSION, 0)
    assert await bus.get(VERSION) == 0x12, "read only"


async def test_radio_becomes_a_lora_modem_only_in_sleep_mode(bus: Bus) -> None:
    """Data sheet, section 6.4, RegOpMode: LongRangeMode."""
    await bus.put(OP_MODE, STANDBY)
    assert await bus.get(OP_MODE) & LORA == 0
    await bus.put(OP_MODE, 0x00)
    await bus.put(OP_MODE, STANDBY)
    assert await bus.get(OP_MODE) == STANDBY
    await bus.put(OP_MODE, 0x01)
    assert await bus.get(OP_MODE) == STANDBY


async def test_a_reset_takes_5_ms_and_all_settings(bus: Bus) -> None:
    """Data sheet, section 7.2.2. The chip does not drive the bus before the reset is over."""
    await bus.to_lora()
    await bus.put(FREQUENCY, 0xD9)
    await bus.reset()
    assert await bus.get(VERSION) == 0xFF
    await bus.board.run(5 * MS)
    assert await bus.get(VERSION) == 0x12
    assert await bus.get(OP_MODE) == 0x09
    assert await bus.get(FREQUENCY) == 0x6C


async def test_a_byte_takes_eight_bits_of_the_clock_that_is_set(bus: Bus) -> None:
    cycles = (await ask(bus.board, b"C", 2))[1]
    assert 32 <= cycles <= 32 + 12, "8 bits of 4 cycles, and what the program takes to look"


async def test_the_fifo_counts_on_and_is_closed_asleep(bus: Bus) -> None:
    """SX1276 data sheet, section 4.1.2.3: the address of the FIFO goes from 255 to 0. In sleep
    mode, the FIFO cannot be read.
    """
    await bus.to_lora()
    await bus.put(FIFO, 1)
    await bus.put(OP_MODE, STANDBY)
    await bus.board.run(MS)
    await bus.put(FIFO_AT, 254)
    await bus.put(FIFO, 1, 2, 3)
    assert await bus.get(FIFO_AT) == 1
    await bus.put(FIFO_AT, 254)
    assert await bus.exchange(FIFO, 0, 0, 0) == b"\0\1\2\3"
    await bus.put(OP_MODE, SLEEP)
    assert await bus.get(FIFO) == 0


@pytest.mark.parametrize("factor", [7, 9])
async def test_a_frame_takes_its_airtime_and_tells_its_end(bus: Bus, factor: int) -> None:
    events = await bus.board.subscribe()
    frame = bytes(range(20))
    await bus.put(FREQUENCY, 0xD9, 0x61, 0x9A)
    await bus.put(PA_CONFIG, 0x80 | 12)
    await bus.put(DIO_MAPPING, 0x40)
    await bus.transmit(frame, factor)
    sent = await radio_event(events)
    assert sent.details == {
        "frame": frame.hex(),
        "frequency": 869_525_024,
        "bandwidth": 125_000,
        "factor": factor,
        "coding": 1,
        "preamble": 8,
        "power": 14,
        "usual": True,
    }
    channel = Channel(869_525_000, 125_000, factor)
    end = sent.cycle + round((airtime(channel, 1, 8, len(frame)) + 0.00018) * HZ)
    await bus.board.run(end - bus.board.cycle - 4 * MS)
    assert (await bus.get(IRQ), await bus.dio0()) == (0, 0)
    await bus.board.run(4 * MS)
    assert (await bus.get(IRQ), await bus.dio0()) == (TX_DONE, 1)
    assert await bus.get(OP_MODE) == STANDBY, "by itself"
    await bus.put(IRQ, TX_DONE)
    assert (await bus.get(IRQ), await bus.dio0()) == (0, 0)


async def test_a_mode_change_or_a_reset_cuts_a_frame_off(bus: Bus) -> None:
    await bus.transmit(b"cut off")
    await bus.put(OP_MODE, STANDBY)
    await bus.board.run(HZ)
    assert await bus.get(IRQ) == 0


async def test_a_frame_that_is_heard_lies_behind_the_one_before(bus: Bus) -> None:
    await bus.listen()
    await bus.board.hear(b"first", rssi=-75.0, snr=9.5)
    assert await bus.get(IRQ) == RX_DONE | VALID_HEADER
    assert await bus.dio0() == 1
    assert await bus.get(RX_BYTES) == 5
    assert await bus.get(SNR) == 38, "quarters of a dB"
    assert await bus.get(RSSI) == 157 - 75, "5.5.5, above 0 dB"
    await bus.put(IRQ, 0xFF)
    await bus.board.hear(b"second", rssi=-125.0, snr=-8.0)
    assert await bus.get(RX_AT) == 5
    await bus.put(FIFO_AT, 5)
    assert await bus.exchange(FIFO, *b"......") == b"\0second"
    assert await bus.get(SNR) == 256 - 32
    assert await bus.get(RSSI) == 157 - 125 + 8, "the packet's, which is SNR above the noise"


async def test_damaged_frame_sets_its_flag_unless_masked(bus: Bus) -> None:
    await bus.listen()
    await bus.board.hear(b"damaged", good=False)
    assert await bus.get(IRQ) == RX_DONE | VALID_HEADER | CRC_ERROR
    await bus.put(IRQ, 0xFF)
    await bus.put(IRQ_MASK, RX_DONE)
    await bus.board.hear(b"masked")
    assert await bus.get(IRQ) == VALID_HEADER
    assert await bus.dio0() == 0


async def test_radio_that_does_not_listen_receives_nothing(bus: Bus) -> None:
    await bus.to_lora()
    await bus.board.hear(b"asleep")
    await bus.transmit(b"sends")
    await bus.board.hear(b"sends")
    assert await bus.get(IRQ) & RX_DONE == 0


async def test_radio_without_supply_is_silent_and_forgets_its_registers(bus: Bus) -> None:
    await bus.to_lora()
    await bus.board.radio(False)
    assert await bus.get(VERSION) == 0xFF
    await bus.board.radio(True)
    await bus.board.run(6 * MS)
    assert await bus.get(VERSION) == 0xFF
    await bus.board.run(4 * MS)
    assert await bus.get(OP_MODE) == 0x09


async def test_a_board_without_a_radio_has_nothing_to_switch(tmp_path: Path, bus_hex: Path) -> None:
    async with SimulatedBoard(tmp_path / "b", firmware=bus_hex, speed="step") as board:
        for command in ("radio on", "heard -80 9 00"):
            with pytest.raises(Exception, match="--radio"):
                await asyncio.wait_for(board.command(command), 10)
