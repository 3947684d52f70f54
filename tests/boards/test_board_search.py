"""Boards that no gateway of a site holds."""

import asyncio

import pytest

from gateway.boards.board_search import ASK_S, SELDOM_S, BoardSearch


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


async def test_board_at_no_gateway_is_found() -> None:
    others = Others("roof-1")
    search = BoardSearch(others)
    assert search.among(["roof-1", "roof-2"], 0) == set()
    await answered()
    assert search.among(["roof-1", "roof-2", "new"], 1) == {"roof-2"}
    others.held = {"roof-1", "roof-2"}
    search.among(["roof-1", "roof-2", "new"], ASK_S)
    await answered()
    assert search.among(["roof-1", "roof-2", "new"], ASK_S) == {"new"}
    assert others.asked == 2


async def test_while_each_board_is_held_the_others_are_asked_seldom() -> None:
    others = Others("roof-1")
    search = BoardSearch(others)
    search.among(["roof-1"], 0)
    await answered()
    search.among(["roof-1"], SELDOM_S - 1)
    await answered()
    assert others.asked == 1
    search.among(["roof-1"], SELDOM_S)
    await answered()
    assert others.asked == 2


async def test_a_silent_gateway_may_hold_each_board() -> None:
    others = Others()
    others.held = None
    search = BoardSearch(others)
    search.among(["roof-1"], 0)
    await answered()
    assert search.among(["roof-1"], 1) == set()


async def test_the_last_answer_counts_while_a_gateway_starts_again() -> None:
    others = Others("roof-2")
    search, boards = BoardSearch(others), ["roof-1", "roof-2"]
    search.among(boards, 0)
    await answered()
    others.held = None
    for now in (ASK_S, 2 * ASK_S, ASK_S + SELDOM_S - 1):
        assert search.among(boards, now) == {"roof-1"}
        await answered()
    assert search.among(boards, ASK_S + SELDOM_S) == set()
    others.held = {"roof-2"}
    search.among(boards, 2 * ASK_S + SELDOM_S)
    await answered()
    assert search.among(boards, 2 * ASK_S + SELDOM_S) == {"roof-1"}
    assert search.among(boards, 10 * SELDOM_S) == {"roof-1"}, "the time without a question counts"


async def test_boards_missing_before_a_restart_count_until_the_first_answer() -> None:
    others = Others("roof-1")
    answer, others.held = others.held, None
    search, boards = BoardSearch(others), ["roof-1", "roof-2", "roof-3"]
    assert search.among(boards, 5, before={"roof-1", "roof-2"}) == {"roof-1", "roof-2"}
    await answered()
    assert search.among(boards, 6, before={"roof-3"}) == {"roof-1", "roof-2"}
    others.held = answer
    search.among(boards, 5 + ASK_S)
    await answered()
    assert search.among(boards, 5 + ASK_S) == {"roof-2", "roof-3"}


async def test_boards_missing_before_a_restart_do_not_count_for_good() -> None:
    others = Others()
    others.held = None
    search = BoardSearch(others)
    assert search.among(["roof-1"], 5, before={"roof-1"}) == {"roof-1"}
    assert search.among(["roof-1"], 5 + SELDOM_S, before={"roof-1"}) == set()


@pytest.mark.parametrize("others", [None, Others()])
async def test_no_member_is_asked_without_a_site_or_a_board(others: Others | None) -> None:
    search = BoardSearch(others)
    assert search.among([], 0) == set()
    if others is not None:
        await answered()
        assert others.asked == 0
