"""The cost of simulated boards: 2 cores must run 6 busy or 40 sleeping boards in real time. The
tests measure processor time, which does not depend on the machine's other load.
"""

from pathlib import Path

import pytest

from hil.boards.simulator import BUILD, HZ, SimulatedBoard
from tests.sim.monitor import listen

pytestmark = pytest.mark.sim

CORES = 2
CLOCK_TICKS = 100  # ticks a second in /proc/PID/stat


def processor_seconds(board: SimulatedBoard) -> float:
    fields = Path(f"/proc/{board.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


async def cost(board: SimulatedBoard, seconds: int) -> float:
    """Run the board. Return the processor time for a second of board time, in seconds."""
    before = processor_seconds(board)
    for _ in range(seconds * 100):
        await board.run(HZ // 100)
    return (processor_seconds(board) - before) / seconds


async def test_six_busy_boards_fit_on_two_cores(board: SimulatedBoard) -> None:
    """A busy board never sleeps. It receives and sends bytes at the line's full rate."""
    before = processor_seconds(board)
    for _ in range(200):
        await board.send(b"R\x00\x00" * 38)
        await board.run(HZ // 100)
    assert (await board.stats()).tx > 10_000
    assert (processor_seconds(board) - before) / 2 < CORES / 6


async def test_clients_cannot_reach_a_board_at_speed_step(board: SimulatedBoard) -> None:
    """The kernel uses names of ports again. A program that still has the name of an earlier port
    could open this board's port, and so reset the board. In one of thousands of runs, that
    happened.
    """
    assert not board.port.is_symlink()


async def test_forty_sleeping_boards_fit_on_two_cores(tmp_path: Path) -> None:
    """A sleeping board is a board with the sensor sketch between two samples."""
    async with SimulatedBoard(
        tmp_path, firmware=BUILD / "uno" / "sensor.hex", speed="step"
    ) as board:
        await listen(board, 1)
        assert await cost(board, 10) < CORES / 40
