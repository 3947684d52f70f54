"""Cost of simulated boards: 6 busy or 40 sleeping ones must hold real time on 2 cores.

Counted in processor time, which does not depend on what else the machine does.
"""

from pathlib import Path

import pytest

from hil.boards.simulator import BUILD, HZ, SimulatedBoard
from tests.sim.monitor import listen

pytestmark = pytest.mark.sim

CORES = 2
CLOCK_TICKS = 100  # of /proc/PID/stat


def processor_seconds(board: SimulatedBoard) -> float:
    fields = Path(f"/proc/{board.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


async def cost(board: SimulatedBoard, seconds: int) -> float:
    """Return the processor seconds per second of board time."""
    before = processor_seconds(board)
    for _ in range(seconds * 100):
        await board.run(HZ // 100)
    return (processor_seconds(board) - before) / seconds


async def test_six_busy_boards_fit_on_two_cores(board: SimulatedBoard) -> None:
    """A busy board polls and never sleeps, and bytes flow in both directions at full rate."""
    before = processor_seconds(board)
    for _ in range(200):
        await board.send(b"R\x00\x00" * 38)
        await board.run(HZ // 100)
    assert (await board.stats()).tx > 10_000
    assert (processor_seconds(board) - before) / 2 < CORES / 6


async def test_clients_cannot_reach_a_board_at_speed_step(board: SimulatedBoard) -> None:
    """A program with the name of an earlier port could open the port and reset the board. In one of
    thousands of runs, this was a different program.
    """
    assert not board.port.is_symlink()


async def test_forty_sleeping_boards_fit_on_two_cores(tmp_path: Path) -> None:
    """A sleeping board is the sensor between its samples."""
    async with SimulatedBoard(
        tmp_path, firmware=BUILD / "uno" / "sensor.hex", speed="step"
    ) as board:
        await listen(board, 1)
        assert await cost(board, 10) < CORES / 40
