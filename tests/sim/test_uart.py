"""The UART and its line: 10 bit times a byte, room for three received bytes, rates that must fit,
and interrupts that repeat until they are served.
"""

import itertools
import random

import pytest

from hil.boards.simulator import HZ, SimulatedBoard
from tests.sim.monitor import MS, ask, listen

pytestmark = pytest.mark.sim

BOARD_BYTE = 10 * 8 * 17  # cycles for a byte at UBRR0 = 16 and double speed
HOST_BYTE = 10 * HZ / 115_200
INSTRUCTION = 4  # cycles: an event is recorded at the end of an instruction


def sent_at(board: SimulatedBoard) -> list[int]:
    return [int(line.split()[0]) for line in board.tx_log.read_text().splitlines()]


async def test_a_byte_takes_ten_bit_times(board: SimulatedBoard) -> None:
    await ask(board, b"D\x01", 3)
    await ask(board, b"R\x00\x00", 2)
    times = sent_at(board)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert min(gaps) == pytest.approx(BOARD_BYTE, abs=INSTRUCTION)
    # without a gap, from the data register
    assert times[2] - times[0] == pytest.approx(2 * BOARD_BYTE, abs=INSTRUCTION)


async def test_bytes_to_the_board_come_at_the_pace_of_the_hosts_rate(board: SimulatedBoard) -> None:
    await board.send(b"T" + bytes(200) + b"\x04")
    before = (await board.stats()).rx
    await board.run(int(100 * HOST_BYTE))
    assert abs((await board.stats()).rx - before - 100) <= 1


async def test_interrupts_echo_a_stream_at_full_rate_without_loss(board: SimulatedBoard) -> None:
    data = random.Random(1).randbytes(3000).replace(b"\x04", b"\x05") + b"\x04"
    await board.send(b"T" + data[:1000])
    echoed = await listen(board, 500)
    for start in range(1000, len(data), 500):
        await board.send(data[start : start + 500])
        echoed += await listen(board, 500)
    echoed += await listen(board, len(data) - len(echoed))
    assert echoed == data
    assert (await board.stats()).overruns == 0


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_the_receiver_holds_three_bytes(board: SimulatedBoard, count: int) -> None:
    data = b"abc"[:count]
    answer = await ask(board, b"D\x0a" + data, 3 + count)
    assert answer == b"d" + bytes([count, 0]) + data


async def test_a_late_program_loses_what_does_not_fit_and_sees_the_overrun(
    board: SimulatedBoard,
) -> None:
    answer = await ask(board, b"D\x14" + b"abcdefgh", 6)
    # two bytes in the FIFO, and the newest in the shift register
    assert answer == b"d\x03\x01" + b"abh"
    assert (await board.stats()).overruns == 5


async def test_a_rate_slightly_off_still_fits(board: SimulatedBoard) -> None:
    await board.command("baud 113000")
    assert (await ask(board, b"R\x00\x00", 2)) == b"r\xff"


@pytest.mark.parametrize("rate", [9600, 57_600, 230_400])
async def test_a_wrong_rate_gives_garbage_both_ways(board: SimulatedBoard, rate: int) -> None:
    await board.command(f"baud {rate}")
    assert (await ask(board, b"D\x01" + b"R\x00\x00" * 4, 1, 30 * MS))[:1] not in (b"d", b"r")
    await board.command("baud 115200")
    await board.reset()
    await board.command(f"baud {rate}")
    heard = await listen(board, 3, 100 * MS)
    assert heard
    assert heard[:1] != b"B"


async def test_a_level_that_stands_asks_again_and_one_that_fell_does_not(
    board: SimulatedBoard,
) -> None:
    """The test program's interrupt handler reads one byte in each call. The interrupt stays pending
    while bytes wait, so three bytes must cause exactly three calls.
    """
    assert await ask(board, b"T" + b"xyz\x04", 4) == b"xyz\x04"
    # the program is back in its loop, so no handler is running
    assert await ask(board, b"R\x00\x00", 2) == b"r\xff"
