from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hil.boards.simulator import SimulatedBoard
from tests.sim.monitor import START_UP, build, listen


@pytest.fixture(scope="session")
def monitor_hex(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(
        Path(__file__).parent / "programs" / "monitor.c", tmp_path_factory.mktemp("programs")
    )


@pytest.fixture
async def board(tmp_path: Path, monitor_hex: Path) -> AsyncIterator[SimulatedBoard]:
    """Yield a board at speed `step`, without boot loader, whose test program has started."""
    async with SimulatedBoard(
        tmp_path / "board", firmware=monitor_hex, speed="step", record=True, bootloader=False
    ) as board:
        assert (await listen(board, 3, START_UP))[:2] == b"B\x01"
        yield board
