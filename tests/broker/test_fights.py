"""Clients that fight for one client identifier cause one log line a minute, which has both
addresses, and a problem in the status.
"""

import pytest

from gateway.mqtt.packets import Connect
from gateway.system.fights import MINUTE_S, MOST_PEACEFUL, Fights
from tests.broker.harness import World


def fight(world: World, client: str, times: int) -> None:
    for number in range(times):
        one = world.open(address=f"192.0.2.{1 + number % 2}:{5000 + number}")
        one.send(Connect(client))
        world.turn()


def test_two_clients_that_fight_are_one_line_a_minute_with_both_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    fight(world, "c", 500)
    lines = [record.getMessage() for record in caplog.records if "fight" in record.getMessage()]
    assert len(lines) == 1
    assert "'c'" in lines[0]
    assert "192.0.2.1:" in lines[0]
    assert "192.0.2.2:" in lines[0]
    (problem,) = world.broker.fights.present.values()
    assert "499 takeovers in a minute" in problem
    world.sleep(MINUTE_S + 1)
    fight(world, "c", 20)
    lines = [record.getMessage() for record in caplog.records if "fight" in record.getMessage()]
    assert len(lines) == 2
    assert world.broker.fights.present
    world.sleep(2 * MINUTE_S + 1)
    assert world.broker.fights.present == {}


def test_client_that_reconnects_seldom_is_no_identifier_fight(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    for _ in range(10):
        fight(world, "c", MOST_PEACEFUL)
        world.sleep(MINUTE_S)
    assert world.broker.fights.present == {}
    assert "fight" not in caplog.text


def test_many_fights_take_bounded_memory_and_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    fights = Fights(lambda: now)
    for number in range(20_000):
        for _ in range(MOST_PEACEFUL + 1):
            fights.take_over(f"c{number}", "192.0.2.1:1", "192.0.2.2:2")
    assert len(fights.present) <= 1024
    assert len(caplog.records) < 40
