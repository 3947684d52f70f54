"""Boards that no gateway of a site holds."""

import asyncio

import pytest

from gateway.boards.nowhere import ASK_S, SELDOM_S, Nowhere


class Others:
    """The other gateways. held: their clients; None while one is silent."""

    def __init__(self, *held: str) -> None:
        self.held: set[str] | None = set(held)
        self.asked = 0

    async def __call__(self) -> set[str] | None:
        self.asked += 1
        return self.held


async def answered() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_board_that_nobody_holds_is_found() -> None:
    others = Others("roof-1")
    nowhere = Nowhere(others)
    assert nowhere.among(["roof-1", "roof-2"], 0) == set()
    await answered()
    assert nowhere.among(["roof-1", "roof-2", "new"], 1) == {"roof-2"}
    others.held = {"roof-1", "roof-2"}
    nowhere.among(["roof-1", "roof-2", "new"], ASK_S)
    await answered()
    assert nowhere.among(["roof-1", "roof-2", "new"], ASK_S) == {"new"}
    assert others.asked == 2


async def test_while_each_board_is_held_the_others_are_asked_seldom() -> None:
    others = Others("roof-1")
    nowhere = Nowhere(others)
    nowhere.among(["roof-1"], 0)
    await answered()
    nowhere.among(["roof-1"], SELDOM_S - 1)
    await answered()
    assert others.asked == 1
    nowhere.among(["roof-1"], SELDOM_S)
    await answered()
    assert others.asked == 2


async def test_a_silent_gateway_may_hold_each_board() -> None:
    others = Others()
    others.held = None
    nowhere = Nowhere(others)
    nowhere.among(["roof-1"], 0)
    await answered()
    assert nowhere.among(["roof-1"], 1) == set()


@pytest.mark.parametrize("others", [None, Others()])
async def test_without_a_site_or_a_board_nobody_is_asked(others: Others | None) -> None:
    nowhere = Nowhere(others)
    assert nowhere.among([], 0) == set()
    if others is not None:
        await answered()
        assert others.asked == 0
