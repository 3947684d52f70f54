"""The link in memory, with a state machine that drives both ends: on any line, a session delivers a
prefix of the sent bytes.
"""

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, reject, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.links.soak import REACHED, run_schedule
from tests.links.twin import CDevice
from tests.links.world import KEY, Collision, MakeDevice, PythonDevice, World

SIZES = st.integers(1, 600)
TIMES = st.sampled_from([0.0005, 0.003, 0.02, 0.1, 0.7, 3.0])


class Schedule(RuleBasedStateMachine):
    """Actions of both applications, of the line, and of the power supplies."""

    world: World
    make_device: MakeDevice

    @initialize(
        seed=st.integers(0, 2**32),
        baud=st.sampled_from([None, 9600, 115200]),
        latency=st.sampled_from([0.0, 0.001, 0.05]),
        key=st.sampled_from([KEY, KEY, KEY, None]),
    )
    def begin(self, seed: int, baud: int | None, latency: float, key: bytes | None) -> None:
        self.world = World(
            Random(seed), type(self).make_device, baud=baud, latency=latency, key=key
        )
        self.advance(0.1)

    @rule(duration=TIMES)
    def advance(self, duration: float) -> None:
        try:
            self.world.advance(duration)
        except Collision:
            reject()

    @rule(size=SIZES)
    def device_writes(self, size: int) -> None:
        self.world.device.write(self.world.random.randbytes(size), self.world.now)

    @rule(size=SIZES)
    def gateway_writes(self, size: int) -> None:
        self.world.gateway.write(self.world.random.randbytes(size), self.world.now)

    @rule(rate=st.sampled_from([0.0, 0.001, 0.01, 0.1]))
    def noise(self, rate: float) -> None:
        self.world.set_noise(rate)

    @rule(up=st.booleans(), duration=TIMES)
    def stall(self, up: bool, duration: float) -> None:
        channel = self.world.up if up else self.world.down
        channel.stalled_until = self.world.now + duration

    @rule(up=st.booleans(), data=st.binary(min_size=1, max_size=300))
    def insert(self, up: bool, data: bytes) -> None:
        (self.world.up if up else self.world.down).inject(data, self.world.now)

    @rule(up=st.booleans())
    def replay(self, up: bool) -> None:
        self.world.replay(up=up)

    @rule(keep=st.booleans())
    def reboot_device(self, keep: bool) -> None:
        self.world.reboot_device(keep_incarnation=keep)

    @rule()
    def reboot_gateway(self) -> None:
        self.world.reboot_gateway()

    @rule(at_once=st.booleans())
    def gateway_closes(self, at_once: bool) -> None:
        self.world.gateway.close(self.world.now, at_once=at_once)

    @rule()
    def device_greets_anew(self) -> None:
        self.world.device.greet(self.world.now)

    @rule()
    def pause(self) -> None:
        self.world.gateway.pause()

    @rule()
    def resume(self) -> None:
        self.world.gateway.resume(self.world.now)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.world.settle()
            except Collision:
                return


class PythonSchedule(Schedule):
    """The schedule with the Python twin of a device."""

    make_device = PythonDevice


class CSchedule(Schedule):
    """The schedule with the C code of boards."""

    make_device = CDevice


SETTINGS = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)

TestPythonSchedule = PythonSchedule.TestCase
TestPythonSchedule.settings = SETTINGS
TestCSchedule = CSchedule.TestCase
TestCSchedule.settings = SETTINGS


@pytest.mark.parametrize("make_device", [PythonDevice, CDevice])
def test_the_soak_reaches_what_it_plans(make_device: MakeDevice) -> None:
    reached: Counter[str] = Counter()
    for number in range(300):
        reached += run_schedule(number, make_device)
        if reached.keys() >= set(REACHED):
            break
    assert [name for name in REACHED if not reached[name]] == []
