"""A program on the simulated Uno that takes longer to set itself up than the watchdog waits."""

import subprocess
from pathlib import Path

import pytest

from hil.boards.exchange import Gateway, converse
from hil.boards.simulator import BUILD, HZ, SimulatedBoard

FIRMWARE = Path(__file__).parents[2] / "firmware"
PROGRAM = BUILD / "uno" / "slow.hex"
POWER_ON = b"\0"

pytestmark = pytest.mark.sim


@pytest.fixture(autouse=True)
def program() -> None:
    subprocess.run(
        ["make", "-s", "-C", FIRMWARE, f"../{PROGRAM.relative_to(FIRMWARE.parent)}"], check=True
    )


async def test_the_watchdog_waits_for_the_first_poll_and_then_watches(tmp_path: Path) -> None:
    gateway = Gateway()
    async with SimulatedBoard(tmp_path / "board", firmware=PROGRAM, speed="step") as board:
        await converse(board, gateway, completed=1, seconds=5)
        assert [delivery.payload for delivery in gateway.deliveries] == [POWER_ON]
        assert "start watchdog" not in board.eeprom_log.read_text()
        await board.run(6 * HZ)
        assert "start watchdog" in board.eeprom_log.read_text(), "it hung, and was reset"
