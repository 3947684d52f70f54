"""Orders that a board gets in advance: they take effect at a conversion of the board, whatever the
speed of the programs around it.
"""

from pathlib import Path

import pytest

from hil.boards.exchange import Gateway, converse
from hil.boards.simulator import BoardError, Event, SimulatedBoard
from tests.sim.test_sensor import board_in, fresh_eeprom

pytestmark = pytest.mark.sim


async def struck(board: SimulatedBoard, completed: int, *orders: tuple[int, str]) -> list[Event]:
    """Give the board these orders, each for a sample. Run until `completed` publications are
    complete or the board is off, and return its events.
    """
    events = await board.subscribe()
    for number, (sample, command) in enumerate(orders, 1):
        await board.at(sample, f"uno-1/x-{number}", command)
    await converse(board, Gateway(), completed=completed)
    await board.command("quit")
    return [event async for event in events if event.name in ("struck", "cut", "boot")]


def places(events: list[Event]) -> list[tuple[str, int, str | None]]:
    return [
        (event.details["id"], event.details["sample"], event.details["behind"])
        for event in events
        if event.name == "struck"
    ]


async def test_a_cut_ordered_ahead_counts_from_its_sample(tmp_path: Path) -> None:
    async with board_in(tmp_path / "board", fresh_eeprom()) as board:
        events = await struck(board, 9, (3, "cut eeprom 5 torn"))
    assert places(events) == [("uno-1/x-1", 3, None)]
    [cut] = [event for event in events if event.name == "cut"]
    assert cut.details["since"]["writes"] == 4  # the fifth write is torn
    assert cut.details["writing"] is not None


async def test_the_same_order_strikes_in_the_same_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One board gets the order for the power cut before its start, the other one just before the
    sample. The gateway's nonce is fixed, because the board's time for a session key depends on it.
    """
    monkeypatch.setattr("gateway.links.greeter.draw_nonce", lambda: bytes(8))
    cycles = []
    for name, late in (("a", False), ("b", True)):
        async with board_in(tmp_path / name, fresh_eeprom()) as board:
            gateway = Gateway()
            if late:
                await converse(board, gateway, completed=2)
            events = await board.subscribe()
            await board.at(6, "uno-1/x-1", "cut tx 9")
            await converse(board, gateway, completed=12)
            cycles.append((await events.wait_for("cut")).cycle)
    assert cycles[0] == cycles[1]


async def test_strikes_run_one_at_a_time_and_report_their_delay(tmp_path: Path) -> None:
    async with board_in(tmp_path / "board", fresh_eeprom()) as board:
        events = await struck(
            board, 9, (3, "brownout"), (3, "reset"), (4, "hang"), (8, "power off")
        )
    assert places(events) == [
        ("uno-1/x-1", 3, None),
        ("uno-1/x-2", 4, "uno-1/x-1"),
        ("uno-1/x-3", 5, "uno-1/x-2"),
        ("uno-1/x-4", 8, None),
    ]
    causes = [event.details["cause"] for event in events if event.name == "boot"]
    # after a reset, the boot loader starts the program by a watchdog reset
    assert causes == ["brown-out", "external", "watchdog", "watchdog"]


async def test_strike_due_before_an_armed_cut_waits_for_it(tmp_path: Path) -> None:
    """The cut is armed at sample 3, and the reset is due at sample 4. The board takes more samples
    before the cut happens, so the reset happens only after the cut.
    """
    async with board_in(tmp_path / "board", fresh_eeprom()) as board:
        events = await board.subscribe()
        await board.at(3, "uno-1/x-1", "cut eeprom 40")
        await board.at(4, "uno-1/x-2", "reset")
        gateway = Gateway()
        await converse(board, gateway, completed=9)
        await board.power(True)
        await converse(board, gateway, completed=gateway.completed + 2)
        await board.command("quit")
        told = [event async for event in events if event.name in ("struck", "cut")]
    assert [event.name for event in told] == ["struck", "cut", "struck"]
    [first, (name, sample, behind)] = places(told)
    assert first == ("uno-1/x-1", 3, None)
    assert (name, behind) == ("uno-1/x-2", "uno-1/x-1")
    assert sample > 4


async def test_bad_orders_are_refused(tmp_path: Path) -> None:
    async with board_in(tmp_path / "board", fresh_eeprom()) as board:
        for line in ("at 0 x reset", "at 3 x stats", 'at 3 "x reset', "at 3 x", "at x y reset"):
            with pytest.raises(BoardError):
                await board.command(line)
        for _ in range(256):
            await board.at(9, "x", "reset")
        with pytest.raises(BoardError, match="too many"):
            await board.at(9, "x", "reset")
