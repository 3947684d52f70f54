"""Boards that have no session at any gateway of a site."""

import asyncio

import pytest

from gateway.boards.nowhere import ASK_S, SELDOM_S, Nowhere


class Others:
    """Replies of two other gateways: lists of their clients. held: clients of the first gateway;
    None: this gateway is silent. more: clients of the second gateway.
    """

    def __init__(self, *held: str) -> None:
        self.held: set[str] | None = set(held)
        self.more = {"another client"}
        self.asked = 0

    async def __call__(self) -> dict[str, set[str] | None]:
        self.asked += 1
        return {"a": self.held, "c": self.more}


async def answered() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_board_without_a_session_anywhere_is_found() -> None:
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


async def test_the_last_answer_counts_while_a_gateway_starts_again() -> None:
    others = Others("roof-2")
    nowhere, boards = Nowhere(others), ["roof-1", "roof-2"]
    nowhere.among(boards, 0)
    await answered()
    others.held = None
    for now in (ASK_S, 2 * ASK_S, ASK_S + SELDOM_S - 1):
        assert nowhere.among(boards, now) == {"roof-1"}
        await answered()
    others.held = {"roof-2"}
    nowhere.among(boards, ASK_S + SELDOM_S - 1 + ASK_S)
    await answered()
    assert nowhere.among(boards, 10 * SELDOM_S) == {"roof-1"}, "the time without a question counts"


async def test_board_missing_before_a_restart_counts_until_the_first_answer() -> None:
    others = Others("roof-1")
    answer, others.held = others.held, None
    nowhere, boards = Nowhere(others), ["roof-1", "roof-2", "roof-3"]
    assert nowhere.among(boards, 5, before={"roof-1", "roof-2"}) == {"roof-1", "roof-2"}
    await answered()
    assert nowhere.among(boards, 6, before={"roof-3"}) == {"roof-1", "roof-2"}
    others.held = answer
    nowhere.among(boards, 5 + ASK_S)
    await answered()
    assert nowhere.among(boards, 5 + ASK_S) == {"roof-2", "roof-3"}


@pytest.mark.parametrize("before", [set(), {"roof-1"}])
async def test_a_gateway_that_stays_silent_holds_no_board(before: set[str]) -> None:
    """The first gateway by name is silent, so the second one asks all other gateways. The silent
    gateway never answers.
    """
    others = Others()
    others.held, others.more = None, {"roof-2"}
    nowhere, boards = Nowhere(others), ["roof-1", "roof-2", "roof-3"]
    for now in (0, ASK_S, SELDOM_S - 1):
        assert nowhere.among(boards, now, before) == before, "it may be starting again"
        await answered()
    for now in (SELDOM_S, 9 * SELDOM_S):
        assert nowhere.among(boards, now, before) == {"roof-1", "roof-3"}
        await answered()
    others.more.add("roof-1")
    nowhere.among(boards, 10 * SELDOM_S, before)
    await answered()
    assert nowhere.among(boards, 10 * SELDOM_S, before) == {"roof-3"}
    others.held = {"roof-3"}
    nowhere.among(boards, 11 * SELDOM_S, before)
    await answered()
    assert nowhere.among(boards, 11 * SELDOM_S, before) == set()
    others.held = None
    nowhere.among(boards, 12 * SELDOM_S, before)
    await answered()
    assert nowhere.among(boards, 12 * SELDOM_S, before) == set(), "it may be starting again"


async def test_a_board_that_is_a_problem_stays_one_until_a_gateway_has_it() -> None:
    others = Others()
    nowhere, boards = Nowhere(others), ["roof-1", "roof-2"]
    nowhere.among(boards, 0)
    await answered()
    others.held = None
    for now in (1, ASK_S, ASK_S + SELDOM_S, 9 * SELDOM_S):
        assert nowhere.among(boards, now, before={"roof-2"}) == {"roof-1", "roof-2"}
        await answered()


async def test_search_of_another_gateway_ends_the_local_search() -> None:
    others, first = Others(), [True]
    nowhere = Nowhere(others, lambda: first[0])
    assert nowhere.among(["roof-1"], 0, before={"roof-1"}) == {"roof-1"}
    first[0] = False
    assert nowhere.among(["roof-1"], 1, before={"roof-1"}) == set()


@pytest.mark.parametrize("others", [None, Others()])
async def test_no_member_is_asked_without_a_site_or_a_board(others: Others | None) -> None:
    nowhere = Nowhere(others)
    assert nowhere.among([], 0) == set()
    if others is not None:
        await answered()
        assert others.asked == 0
