"""What is published while a session moves between gateways reaches it once."""

import random
from collections.abc import Callable

import pytest

from gateway.broker import following
from gateway.broker.addresses import NOTICES
from gateway.broker.fan_out import deliver
from gateway.broker.publish_run import PublishRun
from gateway.mqtt.packets import Connack, Connect, Publish, Subscribe, Subscription, Version
from gateway.site.passing_messages import FIRST
from tests.broker.harness import FOREVER
from tests.service.test_site import Sites
from tests.service.test_site_passing import SOON_S, publisher, reader
from tests.service.test_site_schedules import NAMES, Mover, Source

PAIRS = ("a", "b"), ("a", "c"), ("b", "c")


class Ride:
    """A client that reads and moves, beginning at a, and a client at each gateway that publishes
    with each step.
    """

    def __init__(self, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.sites = Sites(*NAMES)
        self.mover = Mover(self.sites)
        self.sites.pass_time(0.1)
        self.sources = {name: Source(self.sites, name) for name in NAMES}
        self._steps = 0

    def steps(self, count: int) -> None:
        """So many frames arrive; each few of them a moment passes, and somebody publishes."""
        for _ in range(count):
            if self._steps % 12 == 0:
                self.sites.tick()
                self.sources[NAMES[self._steps // 12 % 3]].publish(self.rng)
            self._steps += 1
            self.sites.step()

    def move(self, name: str) -> None:
        self.mover.look()
        self.mover.leave()
        self.mover.come(name)

    def until(self, reached: Callable[[], bool]) -> None:
        for _ in range(2000):
            if reached():
                return
            self.steps(1)
        raise AssertionError("it does not come to that")

    def has_left(self, name: str = "a") -> bool:
        return "mover" not in self.sites[name].broker.sessions

    def is_at(self, name: str) -> bool:
        return "mover" in self.sites[name].broker.sessions

    def cut(self, name: str) -> None:
        self.look()
        self.sites[name].slow_disk = False
        self.sites.members[name].power_cut()
        self.mover.cut(name)
        self.sources[name].begin()
        self.join()

    def join(self) -> None:
        for pair in PAIRS:
            if frozenset(pair) not in self.sites.links:
                self.sites.join(*pair)

    def look(self) -> None:
        self.mover.look()
        for source in self.sources.values():
            source.look()

    def end(self, at: str) -> None:
        """The client comes to a gateway, and all becomes quiet."""
        self.join()
        self.sites.pass_time(2)
        self.move(at)
        self.sites.pass_time(6)
        self.look()
        assert not self.mover.lost
        assert len(self.mover.got) == len(set(self.mover.got)), "once"
        for source in self.sources.values():
            missing = source.acknowledged - set(self.mover.got)
            assert not missing, f"it lacks {sorted(missing)}"
            assert source.acknowledged
        for name in NAMES:
            world = self.sites[name]
            assert not list(world.broker.journeys), "it is over"
            assert world.rows("SELECT * FROM journey") == []
            assert world.rows("SELECT client FROM session WHERE length(client) = 0") == []


@pytest.mark.parametrize("path", ["b", "bc", "ba", "bca", "bcb", "bcabc"])
def test_what_is_published_anywhere_at_any_step_comes_once(path: str) -> None:
    ride = Ride()
    for name in path:
        ride.move(name)
        ride.steps(150)
    ride.end(path[-1])


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("path", ["b", "bc", "ba", "bcb"])
def test_a_link_that_is_cut_meanwhile_delays_it(path: str, pair: tuple[str, str]) -> None:
    """The client moves on before the gateway without a link has said that it knows."""
    ride = Ride()
    for name, before in zip(path, "a" + path, strict=False):
        ride.join()
        ride.sites.pass_time(0.7)
        ride.move(name)
        ride.until(lambda name=name, before=before: ride.is_at(name) and ride.has_left(before))
        ride.sites.part(*pair)
        ride.steps(80)
    ride.end(path[-1])


@pytest.mark.parametrize("victim", NAMES)
def test_a_power_cut_at_any_step_loses_and_doubles_nothing(victim: str) -> None:
    for step in range(0, 66, 6):
        ride = Ride(step)
        ride.move("b")
        ride.until(ride.has_left)
        ride.steps(step)
        ride.cut(victim)
        ride.steps(24)
        ride.end("c" if step % 2 else "b")


def test_what_is_published_while_nobody_has_taken_it_comes_where_it_is_called_back() -> None:
    ride = Ride()
    ride.move("b")
    ride.until(ride.has_left)
    ride.cut("b")
    ride.steps(60)
    assert not ride.is_at("b")
    (follower,) = ride.sites["a"].broker.journeys
    assert follower[0].send_flow.messages
    ride.sites.pass_time(6)
    assert ride.is_at("a")
    ride.steps(20)
    ride.end("a")


@pytest.mark.parametrize("victim", ["a", "c"])
def test_a_power_cut_while_it_is_called_back_loses_nothing(victim: str) -> None:
    ride = Ride()
    ride.move("b")
    ride.until(ride.has_left)
    ride.cut("b")
    ride.steps(60)
    ride.sites["a"].slow_disk = True
    ride.sites.pass_time(6)
    ride.sites["a"].commit()
    ride.cut(victim)
    ride.sites["a"].slow_disk = False
    ride.sites.pass_time(6)
    assert ride.is_at("a")
    ride.steps(20)
    ride.end("b")


def test_a_filter_that_comes_before_the_cuts_is_served_at_once() -> None:
    """What it has subscribed to since it came nobody sends on, so it is not held back."""
    sites = Sites(*NAMES)
    client = reader(sites, "a", "t", client="c")
    client.client.break_line()
    client = reader(sites, "b", "t", client="c")
    (journey,) = [journey for _, journey in sites["b"].broker.journeys] or [None]
    assert journey is None, "all have cut long since"
    client.client.break_line()
    sites.settle()
    sites["a"].slow_disk = True  # its cut does not leave
    sites.connect("c", "c", wait=0.3)
    (found,) = sites["c"].broker.journeys
    assert "a" in found[1].closed
