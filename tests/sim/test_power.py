"""Power and reset: which state survives each, and power cuts at exactly the requested moment."""

import pytest

from hil.boards.simulator import BoardError, SimulatedBoard
from tests.sim.monitor import MS, START_UP, ask, listen, write_cell

pytestmark = pytest.mark.sim

POWER_ON, EXTERNAL, BROWN_OUT, WATCHDOG = 1, 2, 4, 8  # MCUSR


async def start_report(board: SimulatedBoard) -> tuple[int, int]:
    """Return MCUSR and a byte of RAM that no start clears, as the program found them."""
    answer = await listen(board, 3, START_UP)
    assert answer[:1] == b"B"
    return answer[1], answer[2]


async def test_each_cause_shows_in_mcusr_and_ram_stays_except_without_power(
    board: SimulatedBoard,
) -> None:
    assert await ask(board, b"N", 1) == b"n"
    await board.reset()
    assert await start_report(board) == (EXTERNAL, 0x5A)
    await board.brownout()
    assert await start_report(board) == (BROWN_OUT, 0x5A)
    await board.send(b"W")
    await board.run(64 * MS)
    assert await start_report(board) == (WATCHDOG, 0x5A)
    await board.power(False)
    await board.power(True)
    cause, kept = await start_report(board)
    assert cause == POWER_ON
    assert kept != 0x5A


async def test_eeprom_and_flash_outlive_power_and_process(board: SimulatedBoard) -> None:
    await write_cell(board, 9, 0x77)
    await board.kill()
    await board.start()
    await listen(board, 3, START_UP)
    assert await ask(board, b"R\x00\x09", 2) == b"r\x77"


async def test_ram_noise_differs_from_start_to_start(board: SimulatedBoard) -> None:
    seen = set()
    for _ in range(8):
        await board.power(False)
        await board.power(True)
        seen.add((await start_report(board))[1])
    assert len(seen) > 2


async def test_a_cut_comes_within_an_instruction_of_its_cycle_and_the_board_stays_off(
    board: SimulatedBoard,
) -> None:
    events = await board.subscribe()
    armed_at = (await board.stats()).cycle
    await board.cut("cycles", 123_456)
    await board.run(200_000)
    cut = await events.wait_for("cut")
    assert 0 <= cut.cycle - armed_at - 123_456 <= 4
    assert cut.details["armed"] == "cycles"
    assert cut.details["writing"] is None
    assert (await events.wait_for("power")).details == {"on": False}
    await board.run(1000 * MS)
    assert await board.run(0) == b""
    assert not (await board.stats()).power
    await board.power(True)
    assert (await events.wait_for("boot")).details["cause"] == "power-on"
    assert (await start_report(board))[0] == POWER_ON


@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_a_cut_after_sent_bytes_lets_exactly_these_out(
    board: SimulatedBoard, count: int
) -> None:
    await board.cut("tx", count)
    assert await ask(board, b"R\x00\x00R\x00\x01", 9, 20 * MS) == b"r\xffr\xff"[:count]
    assert (await board.stats()).cuts == {"cycles": 0, "tx": 1, "eeprom": 0, "memory": 0}


async def test_a_cut_armed_without_power_counts_from_the_next_start(board: SimulatedBoard) -> None:
    await board.power(False)
    await board.cut("cycles", 80 * MS)
    await board.run(1000 * MS)
    assert (await board.stats()).armed == "cycles"
    before = (await board.stats()).cycle
    await board.power(True)
    await board.run(before + 79 * MS - (await board.stats()).cycle)
    assert (await board.stats()).power
    await board.run(2 * MS)
    assert not (await board.stats()).power


async def test_power_can_go_again_before_the_first_instruction(board: SimulatedBoard) -> None:
    await board.power(False)
    await board.cut("cycles", 10 * MS)
    await board.power(True)
    await board.run(MS)
    stats = await board.stats()
    assert (stats.power, stats.boots, stats.cuts["cycles"]) == (False, 1, 1)


async def test_a_cut_can_be_cancelled_or_replaced(board: SimulatedBoard) -> None:
    await board.cut("cycles", MS)
    await board.cancel()
    await board.run(2 * MS)
    await board.cut("cycles", MS)
    await board.cut("tx", 100)
    await board.run(2 * MS)
    stats = await board.stats()
    assert (stats.power, stats.armed, stats.left, sum(stats.cuts.values())) == (True, "tx", 100, 0)


async def test_a_cut_survives_a_reset(board: SimulatedBoard) -> None:
    await board.cut("tx", 2)
    await board.reset()
    assert await listen(board, 3, START_UP) == b"B\x02"


@pytest.mark.parametrize("command", ["reset", "brownout"])
async def test_a_board_without_power_cannot_be_reset(board: SimulatedBoard, command: str) -> None:
    await board.power(False)
    with pytest.raises(BoardError, match="power is off"):
        await board.command(command)
