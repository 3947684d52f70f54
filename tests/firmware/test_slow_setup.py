"""Programs on the simulated Uno that take their time: one to set itself up, for longer than the
watchdog waits; one in each loop, as sketches with `delay(1000)` do.
"""

import subprocess
from pathlib import Path

import pytest

from hil.boards.exchange import Gateway, converse
from hil.boards.simulator import BUILD, HZ, SimulatedBoard

FIRMWARE = Path(__file__).parents[2] / "firmware"
POWER_ON = b"\0"

pytestmark = pytest.mark.sim


def program(name: str) -> Path:
    target = f"../build/firmware/uno/{name}.hex"
    subprocess.run(["make", "-s", "-C", FIRMWARE, target], check=True)
    return BUILD / "uno" / f"{name}.hex"


async def test_the_watchdog_waits_for_the_first_poll_and_then_watches(tmp_path: Path) -> None:
    gateway = Gateway()
    async with SimulatedBoard(tmp_path / "board", firmware=program("slow"), speed="step") as board:
        await converse(board, gateway, completed=1, seconds=5)
        assert [delivery.payload for delivery in gateway.deliveries] == [POWER_ON]
        assert "start watchdog" not in board.eeprom_log.read_text()
        await board.run(6 * HZ)
        assert "start watchdog" in board.eeprom_log.read_text(), "it hung, and was reset"


async def test_a_poll_a_second_brings_the_first_publication_within_seconds(tmp_path: Path) -> None:
    """A byte of the EEPROM a poll would take 40 s."""
    gateway, place = Gateway(), tmp_path / "board"
    async with SimulatedBoard(place, firmware=program("drowsy"), speed="step") as board:
        await converse(board, gateway, completed=1, seconds=60)
        first = board.cycle / HZ
        await converse(board, gateway, completed=6, seconds=60)
        assert (await board.stats()).boots == 1
    assert [delivery.payload[0] for delivery in gateway.deliveries[:6]] == list(range(6))
    assert first < 15
    assert board.cycle / HZ - first < 36, "five publications, one each five seconds"
