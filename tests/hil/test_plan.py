"""Bench and plan: what a seed decides, it decides the same way every time; what cannot work is refused with its reason."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import OncewayError
from hil.bench import Bench, Faults, load, shipped
from hil.plan import CUT_IN_EXCHANGE, CUTS, KILL_GATEWAY, KILL_INGEST, KILL_UPLINK, NOISE, OUTAGE, REPEAT, plan

SEEDS = st.integers(0, 2**32)


def demo(seed: int, readings: int = 400) -> Bench:
    return load("demo", seed=seed, readings=readings)


@given(seed=SEEDS, readings=st.integers(40, 1000))
def test_the_demo_breaks_everything_it_promises(seed: int, readings: int) -> None:
    made = plan(demo(seed, readings))
    for device in ("uno-1", "uno-2"):
        cuts = made.of(device, *CUTS)
        assert len(cuts) == 3
        assert len(made.of(device, CUT_IN_EXCHANGE)) == len(made.of(device, NOISE)) == 1
        assert all(1 <= fault.at <= made.readings[device] - 2 for fault in cuts)
    assert sum(made.readings.values()) == readings
    assert [fault.kind for fault in made.of("gateway")] == [KILL_GATEWAY] * 3
    assert [fault.kind for fault in made.of("uplink")] == [KILL_UPLINK]
    assert [fault.kind for fault in made.of("ingest")] == [KILL_INGEST]
    assert len(made.of("landing", REPEAT)) == 1
    [outage] = made.of("landing", OUTAGE)
    assert outage.at < outage.detail["until"] <= readings
    assert len({fault.id for fault in made.faults}) == len(made.faults)


@given(seed=SEEDS)
def test_same_seed_same_plan(seed: int) -> None:
    assert plan(demo(seed)) == plan(demo(seed))
    assert plan(demo(seed)) != plan(demo(seed + 1))


def test_readings_that_do_not_divide() -> None:
    assert plan(Bench(title="t", boards=3, readings=10)).readings == {"uno-1": 4, "uno-2": 3, "uno-3": 3}


def test_a_bench_without_faults_plans_none() -> None:
    assert plan(Bench(title="t")).faults == ()


def test_all_shipped_benches_load() -> None:
    assert "demo" in shipped()
    for name in shipped():
        plan(load(name))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title = "t"\nboard = 2', "board = 2: Extra inputs are not permitted"),
        ("boards = 2", "title = {'boards': 2}: Field required"),
        ('title = "t"\nboards = 0', "boards = 0: Input should be greater than or equal to 1"),
        ('title = "t"\nreadings = 4\n[faults]\nboard_cuts = 3', "2 boards with 3 power cuts each need at least 8 readings, not 4"),
        ('title = "t"\n[faults]\nboard_cuts_in_exchange = 1', "board_cuts_in_exchange must not exceed board_cuts"),
        ("title = ", "the bench is not TOML"),
    ],
)
def test_a_bad_bench_names_key_value_and_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bench.toml"
    path.write_text(text)
    with pytest.raises(OncewayError) as caught:
        load(str(path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_such_bench() -> None:
    with pytest.raises(OncewayError, match=r"cannot read the bench.*Benches that come with the project: .*demo"):
        load("no-such-bench")


def test_nothing_is_broken_that_was_not_asked_for() -> None:
    assert Faults() == Faults(noise=0, board_cuts=0, gateway_kills=0, uplink_kills=0, landing_outages=0, ingest_kills=0)
