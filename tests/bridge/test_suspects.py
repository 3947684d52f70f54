"""The search for messages at which the other broker closes the connection."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.bridge.suspects import SLOWEST, SOON_S, TIMES, Release, Suspects


def connection(
    suspects: Suspects, waiting: list[int], closes: Callable[[int], bool], late: bool = False
) -> list[int]:
    """Simulate a connection of the bridge until it ends, and return the messages that still wait.
    As long as there are suspects, the bridge sends each message alone, otherwise all together.
    closes: returns whether the other broker closes the connection at this message. late: it closes
    a long time after the message.
    """
    suspects.keep(waiting)
    left = [number for number in waiting if not suspects.guilty(number)]
    for number in set(waiting) - set(left):
        suspects.forget_guilty(number)
    alone = suspects.tries_suspects
    now = 0.0
    while left:
        together = left[:1] if alone and suspects.tries_suspects else list(left)
        for number in together:
            suspects.sent(number, 100, now)
        for number in together:
            if closes(number):
                suspects.ended(True, now + 2 * SOON_S if late else now)
                return left
            suspects.answered(number)
            left.remove(number)
    suspects.ended(False, now)
    return left


@given(st.sets(st.integers(0, 20)), st.integers(1, 20))
@settings(deadline=None)
def test_guilty_ones_are_found_and_no_other_one(poison: set[int], count: int) -> None:
    suspects, waiting, tries = Suspects(), list(range(count)), 0
    taken: list[int] = []

    def closes(number: int) -> bool:
        if number not in poison:
            taken.append(number)
        return number in poison

    while waiting:
        waiting = connection(suspects, waiting, closes)
        tries += 1
        assert tries <= 1 + (TIMES + 1) * len(poison)
    assert sorted(taken) == [number for number in range(count) if number not in poison]
    assert not suspects.tries_suspects


@given(st.lists(st.booleans(), max_size=40))
@settings(deadline=None)
def test_random_broker_stops_blame_no_acceptable_message(
    kills: list[bool],
) -> None:
    """Each connection that the broker kills has accepted at least one message before."""
    suspects, waiting = Suspects(), list(range(10))
    for killed in kills:
        went: list[int] = []

        def closes(number: int, went: list[int] = went, killed: bool = killed) -> bool:
            went.append(number)
            return killed and len(went) > 1

        before = len(waiting)
        waiting = connection(suspects, waiting, closes)
        assert not any(suspects.guilty(number) for number in range(10))
        assert len(waiting) < before or not before


@pytest.mark.parametrize("size", [0, 1_000_000])
def test_late_close_suspects_the_only_message_in_flight(size: int) -> None:
    """The other broker never acknowledges a message, and closes the connection at the end of its
    keep alive.
    """
    suspects = Suspects()
    for closes in range(TIMES):
        assert suspects.suspected(1) == bool(closes)
        assert not suspects.guilty(1)
        suspects.sent(1, size, 0)
        suspects.ended(True, SOON_S + size / SLOWEST + 0.1)
    assert suspects.guilty(1)


def test_late_closes_make_several_suspects_and_convict_none() -> None:
    suspects = Suspects()
    for _ in range(2 * TIMES):
        for key in (1, Release(2), 3):
            suspects.sent(key, 0, 0)
        suspects.ended(True, SOON_S + 0.1)
    for key in (1, Release(2), 3):
        assert suspects.suspected(key)
        assert not suspects.guilty(key)
    for _ in range(TIMES - 1):
        for key in (1, Release(2)):
            suspects.sent(key, 0, 0)
        suspects.answered(1)
        suspects.ended(True, 2 * SOON_S)
    assert suspects.guilty(Release(2))


def test_end_with_another_reason_blames_no_message() -> None:
    suspects = Suspects()
    for _ in range(TIMES):
        suspects.sent(1, 0, 0)
        suspects.ended(False, 0)
    assert not suspects.tries_suspects
