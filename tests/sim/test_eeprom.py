"""The EEPROM: 3.4 ms a cell, files with the written content, and cells that are torn like real
ones.
"""

import pytest

from hil.boards.ledger import Write, read_log
from hil.boards.simulator import HZ, SimulatedBoard
from tests.sim.monitor import MS, START_UP, ask, listen, write_cell

pytestmark = pytest.mark.sim

# cycles until the five bytes of a write command have arrived and the write has begun
BEGIN = HZ // 11_520 * 5 + 200
HALF = 17 * MS // 10


def writes(board: SimulatedBoard) -> list[Write]:
    return [entry for entry in read_log(board.eeprom_log) if isinstance(entry, Write)]


async def read_cell(board: SimulatedBoard, address: int) -> int:
    return (await ask(board, b"R" + address.to_bytes(2), 2))[1]


async def test_a_write_takes_its_time_and_is_in_the_image(board: SimulatedBoard) -> None:
    assert 3400 <= await write_cell(board, 0x123, 0x42) <= 3412
    assert await read_cell(board, 0x123) == 0x42
    assert board.eeprom_image.read_bytes()[0x123] == 0x42
    assert (await board.eeprom())[0x123] == 0x42
    assert [(write.address, write.value, write.torn) for write in writes(board)] == [
        (0x123, 0x42, False)
    ]


async def test_erase_and_write_alone_take_half_and_do_half(board: SimulatedBoard) -> None:
    await write_cell(board, 1, 0b1010_0000)
    assert 1800 <= await write_cell(board, 1, 0b0110_1111, mode=2) <= 1812
    assert await read_cell(board, 1) == 0b0010_0000  # without an erase, bits only become 0
    assert 1800 <= await write_cell(board, 1, 0x00, mode=1) <= 1812
    assert await read_cell(board, 1) == 0xFF


async def test_a_write_enable_that_comes_too_late_writes_nothing(board: SimulatedBoard) -> None:
    answer = await ask(board, b"U\x00\x07\x00", 2)
    assert answer == b"u\x00"
    assert (await board.stats()).writes == 0


async def test_wear_counts_writes_of_each_cell(board: SimulatedBoard) -> None:
    for value in (1, 1, 2):
        await write_cell(board, 0x3FF, value)
    await write_cell(board, 0, 0)
    wear = await board.wear()
    assert (wear[0x3FF], wear[0], sum(wear)) == (3, 1, 4)


async def test_a_cut_after_a_number_of_writes_leaves_the_last_one_whole(
    board: SimulatedBoard,
) -> None:
    await board.cut("eeprom", 2)
    await write_cell(board, 0, 0x11)
    await board.send(b"E\x00\x00\x01\x22")
    await board.run(10 * MS)
    stats = await board.stats()
    assert (stats.power, stats.cuts["eeprom"], stats.writes, stats.torn_writes) == (False, 1, 2, 0)
    assert board.eeprom_image.read_bytes()[:3] == b"\x11\x22\xff"


async def test_a_torn_cut_stops_in_the_middle_of_that_write(board: SimulatedBoard) -> None:
    await write_cell(board, 0, 0x55)
    await board.cut("eeprom", 1, torn=True)
    await board.send(b"E\x00\x00\x00\xaa")
    await board.run(10 * MS)
    stats = await board.stats()
    assert (stats.power, stats.writes, stats.torn_writes) == (False, 2, 1)
    last = writes(board)[-1]
    assert last.torn
    assert last.value == board.eeprom_image.read_bytes()[0]


@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.98])
async def test_a_torn_cell_is_partly_erased_or_partly_programmed(
    board: SimulatedBoard, part: float
) -> None:
    old, new = 0b0011_0101, 0b0101_0011
    seen = set()
    for address in range(24):
        await write_cell(board, address, old)
        await board.send(b"E\x00" + address.to_bytes(2) + bytes([new]))
        await board.run(int(BEGIN + part * 2 * HALF))
        await board.power(False)
        value = board.eeprom_image.read_bytes()[address]
        if part < 0.5:
            assert value & old == old  # a bit that is 1 stays 1 during the erase
        else:
            assert value & new == new  # a bit that is 1 in the new value stays 1 during the write
        seen.add(value)
        await board.power(True)
        await listen(board, 3, START_UP)
    assert len(seen) > 1
    assert (await board.stats()).torn_writes == 24


async def test_a_reset_lets_a_write_finish_and_a_brown_out_tears_it(board: SimulatedBoard) -> None:
    await board.send(b"E\x00\x00\x05\x00")
    await board.run(BEGIN + 100)
    await board.reset()
    await listen(board, 3, START_UP)
    assert await read_cell(board, 5) == 0x00
    await board.send(b"E\x00\x00\x06\x00")
    await board.run(BEGIN + 100)
    await board.brownout()
    assert (await board.stats()).torn_writes == 1


async def test_bits_that_are_worn_out_read_as_they_are_stuck_from_the_next_write_on(
    board: SimulatedBoard,
) -> None:
    await write_cell(board, 5, 0b0000_1111)
    await board.stick(5, 0b1000_0001, 0b1000_0000)
    assert await read_cell(board, 5) == 0b0000_1111
    await write_cell(board, 5, 0b0000_1111)
    assert await read_cell(board, 5) == 0b1000_1110
    await write_cell(board, 5, 0b1010_1010)
    assert await read_cell(board, 5) == 0b1010_1010
    await write_cell(board, 4, 0b0000_1111)
    assert await read_cell(board, 4) == 0b0000_1111
    assert [write.value for write in writes(board)] == [
        0b0000_1111,
        0b1000_1110,
        0b1010_1010,
        0b0000_1111,
    ]
    assert (await board.stats()).stuck_writes == 1
