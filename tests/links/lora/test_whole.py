"""The board's MQTT client over the turn link, up to the broker. Each reading arrives once, whatever
happens on the air. Without losses, it takes two frames.
"""

import pytest

from gateway.links.lora.airtime import Modulation
from tests.links.lora.site import PLAN, Site
from tests.links.lora.test_duty import TINY, worst_hour


def begun(seed: int = 1) -> Site:
    site = Site(seed)
    site.run(60.0)
    assert site.is_connected
    return site


def test_a_reading_takes_two_frames() -> None:
    site = begun()
    for _ in range(2):
        assert site.sample()
        site.run(60.0)
    before = len(site.air)
    for _ in range(20):
        assert site.sample()
        site.run(60.0)
    frames = site.air[before:]
    assert [up for up, _ in frames] == [True, False] * 20
    assert {len(frame) for up, frame in frames if up} == {30}
    assert {len(frame) for up, frame in frames if not up} == {8}
    site.check()


def test_airtime_of_a_reading_is_within_the_goal() -> None:
    site = begun()
    for _ in range(2):
        assert site.sample()
        site.run(60.0)
    up, down = len(site.sent[True]), len(site.sent[False])
    assert site.sample()
    site.run(60.0)
    spent = sum(end - start for start, end in site.sent[True][up:] + site.sent[False][down:])
    assert spent == pytest.approx(0.383, abs=0.001)  # s; through a KISS modem the goal is 0.490 s


@pytest.mark.parametrize("seed", range(8))
def test_each_reading_lands_once_over_air_that_loses_alters_and_delays(seed: int) -> None:
    site = begun(seed)
    site.lost, site.damaged, site.late = 0.2, 0.1, 0.1
    for _ in range(60):
        site.sample()
        site.run(site.random.uniform(1, 60))
    site.settle()
    assert len(site.taken) == 60
    assert site.link.counts["copies"] > 0


@pytest.mark.parametrize("seed", range(8))
def test_each_reading_lands_once_through_power_cuts_of_both(seed: int) -> None:
    site = begun(seed)
    site.lost, site.damaged = 0.1, 0.05
    for _ in range(40):
        site.sample()
        site.run(site.random.uniform(0.1, 20))
        match site.random.randrange(6):
            case 0:
                site.cut_board()
            case 1:
                site.cut_board(site.random.randrange(1, 40))
            case 2:
                site.cut_gateway()
    site.settle()


def test_after_a_long_silence_the_journal_drains() -> None:
    site = begun()
    site.lost = 1.0
    for _ in range(50):
        assert site.sample()
        site.run(300.0)
    assert len(site.rows) == 0
    site.settle()
    assert len(site.taken) == 50


def test_a_command_comes_with_the_answer_to_the_next_turn_once() -> None:
    site = begun()
    site.lost = 0.2
    operator = site.world.accepted("operator", answers=True)
    for number in range(10):
        operator.publish("c", number.to_bytes(4, "big"), qos=2)
        site.run(30.0)
        site.sample()
        site.run(120.0)
    site.lost = 0.0
    site.poll()
    site.run(60.0)
    assert site.commands == list(range(10))
    site.settle()


def test_idle_board_polls_and_receives_commands() -> None:
    """The poll comes after half of the Keep Alive of 7,200 s."""
    site = begun()
    operator = site.world.accepted("operator", answers=True)
    operator.publish("c", b"\0\0\0\1", qos=2)
    before = len(site.air)
    site.run(3000.0)
    assert len(site.air) == before
    site.run(700.0)
    assert site.commands == [1]
    assert site.is_connected
    assert site.downs == 0


def test_board_learns_the_time() -> None:
    site = begun()
    assert abs(site.board_time - (1_800_000_000 + site.now)) <= 1


def test_neither_side_sends_more_than_the_law_allows() -> None:
    site = begun()
    while site.now < 2 * 3600:
        site.sample()
        site.run(2.0)
    limit = 360 + TINY
    assert worst_hour(site.sent[True]) <= limit
    assert worst_hour(site.sent[False]) <= limit
    assert worst_hour(site.sent[True]) > 200
    longest = Modulation(PLAN.factor).airtime(103)
    assert all(end - start <= longest for start, end in site.sent[True])
    site.settle()
