"""Programs on the simulated Uno that misuse the library. In one, the setup takes longer than the
watchdog's timeout. In another, each loop does. A third one polls once a second, and a fourth one
calls the library from an interrupt.
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


async def test_each_start_greets_before_a_loop_that_the_watchdog_ends(tmp_path: Path) -> None:
    """The gateway recognises a loop of restarts by the number of HELLOs. So a board must send one
    after each start, even if the watchdog ends the program soon after.
    """
    gateway, boots = Gateway(), set[int]()
    place = tmp_path / "board"
    async with SimulatedBoard(place, firmware=program("blocked"), speed="step") as board:
        for _ in range(60):
            await converse(board, gateway, completed=1, seconds=0.25)
            if greeting := gateway.link.greeting:
                boots.add(greeting.boot)
        stats = await board.stats()
    assert stats.cause == "watchdog"
    assert len(boots) == stats.boots >= 5
    assert not gateway.known


async def test_a_call_from_an_interrupt_stops_a_debug_build_where_it_is_seen(
    tmp_path: Path,
) -> None:
    """The board stops and blinks its LED. It does not restart."""
    gateway, place = Gateway(), tmp_path / "board"
    async with SimulatedBoard(place, firmware=program("interrupts"), speed="step") as board:
        await converse(board, gateway, completed=1, seconds=3)
        assert gateway.known, "until then it ran"
        await board.run(3 * HZ)
        before = (await board.stats()).tx
        await board.run(10 * HZ)
        stats = await board.stats()
    assert (stats.tx, stats.boots) == (before, 1)


async def test_a_poll_a_second_brings_the_first_publication_within_seconds(tmp_path: Path) -> None:
    """If a poll wrote only one byte of the EEPROM, the first publication would take 40 s."""
    gateway, place = Gateway(), tmp_path / "board"
    async with SimulatedBoard(place, firmware=program("drowsy"), speed="step") as board:
        await converse(board, gateway, completed=1, seconds=60)
        first = board.cycle / HZ
        await converse(board, gateway, completed=6, seconds=60)
        assert (await board.stats()).boots == 1
    assert [delivery.payload[0] for delivery in gateway.deliveries[:6]] == list(range(6))
    assert first < 15
    assert board.cycle / HZ - first < 36, "five publications, one each five seconds"
