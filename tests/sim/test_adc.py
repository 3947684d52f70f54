"""The voltages that the rig sets at the simulated ADC: each conversion measures a new voltage
exactly, and the log has it.
"""

import time
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from hil.boards.adc_log import FULL_SCALE_UV, STEPS, AdcLog
from hil.boards.simulator import BoardError, SimulatedBoard
from tests.sim.monitor import START_UP, ask, listen

pytestmark = pytest.mark.sim

FIRST = 1000


async def convert(board: SimulatedBoard, channel: int = 0) -> int:
    answer = await ask(board, b"A%c" % channel, 3)
    return int.from_bytes(answer[1:])


async def restart(board: SimulatedBoard) -> None:
    await board.power(False)
    await board.power(True)
    assert (await listen(board, 3, START_UP))[:1] == b"B"


async def test_each_of_1024_conversions_finds_another_step_through_cuts_and_resets(
    tmp_path: Path, monitor_hex: Path
) -> None:
    read = []
    async with SimulatedBoard(
        tmp_path, firmware=monitor_hex, speed="step", bootloader=False, adc_from=FIRST
    ) as board:
        await listen(board, 3, START_UP)
        for number in range(STEPS):
            if number % 200 == 100:
                await restart(board)
            read.append(await convert(board))
    assert read[0] == FIRST
    assert sorted(read) == list(range(STEPS))
    log = AdcLog(board.adc_log)
    log.look()
    assert [one.microvolts * STEPS // FULL_SCALE_UV for one in log.conversions] == read
    assert [one.volts for one in log.conversions] == [value * 5 / 1024 for value in read]
    assert [start.cause for start in log.starts] == ["power-on"] * 6


async def test_the_log_relates_board_time_to_this_machines(
    tmp_path: Path, monitor_hex: Path
) -> None:
    before = time.monotonic_ns()
    async with SimulatedBoard(
        tmp_path, firmware=monitor_hex, speed="step", bootloader=False, adc_from=0
    ) as board:
        await listen(board, 3, START_UP)
        log = AdcLog(board.adc_log)
        log.look()
        assert [start.cause for start in log.starts] == ["power-on"]
        assert log.conversions == []
        await convert(board)
        log.look()
        log.look()
    [start], [conversion] = log.starts, log.conversions
    assert before < start.ns < conversion.ns < time.monotonic_ns()
    assert start.cycle < conversion.cycle < board.cycle
    assert (log.newest(conversion.cycle - 1), log.newest(conversion.cycle)) == (-1, 0)
    assert (log.life(start.cycle - 1), log.life(conversion.cycle)) == (-1, 0)


async def test_without_a_schedule_the_voltage_set_by_hand_is_logged(board: SimulatedBoard) -> None:
    await board.adc(0, 1250)
    await board.adc(3, 2500)
    assert await convert(board, 3) == pytest.approx(512, abs=1)
    await convert(board)
    log = AdcLog(board.adc_log)
    log.look()
    assert [(one.channel, one.microvolts) for one in log.conversions] == [
        (3, 2_500_000),
        (0, 1_250_000),
    ]


@pytest.mark.parametrize("step", [-1, 1024])
async def test_a_step_that_the_adc_does_not_have_is_refused(tmp_path: Path, step: int) -> None:
    with pytest.raises(BoardError):
        await SimulatedBoard(tmp_path, bootloader=False, adc_from=step).start()


def test_file_that_is_not_a_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "adc.log").write_text("1 2 start power-on\n1 2 3\n")
    with pytest.raises(OncewayError, match="line 2 is neither a conversion nor a start"):
        AdcLog(tmp_path / "adc.log").look()
