"""Sleep modes, watchdog and ADC, as a program sees them."""

import pytest

from hil.boards.simulator import SimulatedBoard
from tests.sim.monitor import MS, ask, listen

pytestmark = pytest.mark.sim

IDLE, POWER_DOWN, POWER_SAVE, STANDBY = 0, 2, 3, 6  # SMCR


async def test_timers_run_in_idle_until_the_watchdog_wakes(board: SimulatedBoard) -> None:
    """The watchdog's oscillator jitters, so the timer's count differs each time. Because of this,
    two boards with the same EEPROM draw different nonces.
    """
    first, second = await idle_time(board), await idle_time(board)
    assert first == pytest.approx(64_000, rel=1 / 400)
    assert 0 < abs(first - second) < 300


async def idle_time(board: SimulatedBoard) -> int:
    """Let the board sleep until the watchdog wakes it. Return the timer's count, in units of 64
    cycles. The board is then reset.
    """
    answer = await ask(board, b"P%c" % IDLE, 3)
    await board.reset()
    await listen(board, 3)
    return int.from_bytes(answer[1:])


@pytest.mark.parametrize("mode", [POWER_DOWN, POWER_SAVE, STANDBY])
async def test_timers_stand_still_in_deep_sleep(board: SimulatedBoard, mode: int) -> None:
    before = (await board.stats()).cycle
    answer = await ask(board, b"P%c" % mode, 3)
    assert answer[:1] == b"p"
    assert int.from_bytes(answer[1:]) <= 5
    assert (await board.stats()).cycle - before > 255 * MS


async def test_bytes_that_come_in_deep_sleep_are_lost(board: SimulatedBoard) -> None:
    await board.send(b"P%c" % POWER_DOWN)
    await board.run(100 * MS)
    await board.send(b"R\x00\x00")
    assert await listen(board, 5, 400 * MS) == b"p\x00\x00"


async def test_sleep_with_interrupts_disabled_ends_only_by_reset(board: SimulatedBoard) -> None:
    assert await ask(board, b"Z" + b"xyz", 1, 500 * MS) == b""
    assert (await board.stats()).asleep
    await board.reset()
    assert (await listen(board, 3))[:1] == b"B"


@pytest.mark.parametrize(
    ("millivolts", "expected"), [(0, 0), (1250, 256), (2500, 512), (4990, 1021)]
)
async def test_the_adc_reads_what_is_applied(
    board: SimulatedBoard, millivolts: int, expected: int
) -> None:
    await board.adc(3, millivolts)
    await board.adc(0, 5000 - millivolts)
    answer = await ask(board, b"A\x03", 3)
    assert int.from_bytes(answer[1:]) == pytest.approx(expected, abs=1)


async def test_voltages_stay_applied_through_power_and_reset(board: SimulatedBoard) -> None:
    await board.adc(1, 2500)
    await board.power(False)
    await board.power(True)
    await listen(board, 3)
    assert int.from_bytes((await ask(board, b"A\x01", 3))[1:]) == pytest.approx(512, abs=1)


async def test_the_deepest_stack_since_power_on_is_known(board: SimulatedBoard) -> None:
    before = (await board.stats()).stack
    assert before < 40
    assert await ask(board, b"K", 1) == b"k"
    assert 200 <= (await board.stats()).stack - before <= 230
    await board.power(False)
    await board.power(True)
    await listen(board, 3)
    assert (await board.stats()).stack == before


async def test_a_stopped_crystal_hangs_a_board_whose_watchdog_is_off(board: SimulatedBoard) -> None:
    await board.hang()
    assert await ask(board, b"R\x00\x00", 1, 3000 * MS) == b""
    await board.reset()
    assert (await listen(board, 3))[:1] == b"B"


async def test_the_watchdog_resets_a_board_whose_crystal_has_stopped(board: SimulatedBoard) -> None:
    await board.send(b"W")  # the watchdog is on, with 60 ms
    await board.run(10 * MS)
    await board.hang()
    assert (await listen(board, 3, 500 * MS))[:1] == b"B"
    assert (await board.stats()).cause == "watchdog"
