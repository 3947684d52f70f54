"""The state of a bridge, as users see it: the age of its oldest message, and its problems."""

import json
from dataclasses import asdict, replace

import pytest

from gateway.bridge.pauses import LONGEST_S
from gateway.bridge.status import (
    LATE_S,
    REMEDIES,
    SAMPLE_S,
    BridgeStatus,
    QueueAge,
    is_late,
    problems,
    read,
)
from gateway.config import parse
from gateway.doctor import bridges
from gateway.doctor.finding import State

FINE = BridgeStatus("cloud", "mqtts://far", None, 1, 9, 0, 0, 0, 0, retained="equal", oldest_s=1)


def test_age_of_the_oldest_message_follows_the_head_of_the_queue() -> None:
    ages = QueueAge()
    ages.sample(0.0, 1, 1)
    assert ages.seconds(9.0, 1) == 0.0  # the message came after the last sample
    ages.sample(10.0, 1, 3)  # sample at which messages 1 and 2 are in the queue
    ages.sample(20.0, 1, 4)
    assert ages.seconds(30.0, 1) == 20.0
    assert ages.seconds(30.0, 3) == 10.0
    ages.sample(30.0, 4, 4)
    assert ages.seconds(40.0, 4) == 0.0


def test_age_stays_right_when_samples_are_thinned() -> None:
    ages = QueueAge()
    for second in range(5_000):
        ages.sample(float(second), 1, second + 2)
    assert ages.seconds(5_000.0, 1) == 5_000.0


@pytest.mark.parametrize("days", [0.01, 0.1, 1, 10])
def test_age_of_a_queue_that_moves_slowly_is_right(days: float) -> None:
    """A message comes with each sample, and one leaves with every second sample."""
    ages, count = QueueAge(), int(days * 86_400 / SAMPLE_S)
    for number in range(count):
        ages.sample(number * SAMPLE_S, number // 2, number + 1)
    now, first = count * SAMPLE_S, count // 2
    age = now - first * SAMPLE_S
    assert age - max(2 * SAMPLE_S, 0.03 * age) <= ages.seconds(now, first) <= age


@pytest.mark.parametrize("days", [0.1, 1, 10, 100])
def test_age_is_right_when_a_long_queue_drains(days: float) -> None:
    """A message comes with each sample, and none leaves until the other broker is back."""
    ages, count = QueueAge(), int(days * 86_400 / SAMPLE_S)
    for number in range(count):
        ages.sample(number * SAMPLE_S, 0, number + 1)
    now = count * SAMPLE_S
    for share in (1.0, 0.9, 0.5, 0.1, 0.03, 0.01, 0.001):
        first = count - int(share * count)
        age = now - first * SAMPLE_S
        assert age - max(2 * SAMPLE_S, 0.03 * age) <= ages.seconds(now, first) <= age, share
    assert len(ages._samples) < 1500


def test_a_bridge_is_late_after_three_pauses_between_attempts() -> None:
    assert LATE_S == 3 * LONGEST_S
    assert not is_late(None)
    assert not is_late(LATE_S)
    assert is_late(LATE_S + 1)


def test_bridge_that_only_waits_and_compares_has_no_problem() -> None:
    for state in ("off", "waiting", "comparing", "equal"):
        fine = replace(
            FINE,
            retained=state,
            oldest_s=LATE_S,
            last_error="the other broker closed the connection",
        )
        assert problems(fine) == []


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("bridge", {"error": "no route"}),
        ("queue", {"oldest_s": LATE_S + 1}),
        ("retained", {"retained": "differ", "differ": 1}),
        (
            "retained",
            {"retained": "waiting messages of the bridge were not sent in time"},
        ),
        ("aside", {"aside": 1}),
        ("aside", {"aside_lost": 1}),
        ("dropped", {"dropped": 1}),
        ("unconfirmed", {"unconfirmed": 1}),
        ("not_taken", {"not_taken": 1}),
        ("held", {"held": 1}),
        ("looped", {"looped": 1}),
        ("lacking", {"lacking": ("a/#",)}),
    ],
)
def test_each_problem_of_a_bridge_is_one_everywhere(
    kind: str, changed: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = replace(FINE, **changed)  # type: ignore[arg-type]
    assert [found for found, _ in problems(bad)] == [kind]
    told = json.loads(json.dumps(asdict(bad))) | {"of_a_later_release": 1}
    assert problems(read(told)) == problems(bad)
    monkeypatch.setattr(bridges, "ask", lambda *_, **__: [{"bridges": [told]}])
    bridge = {"name": "cloud", "server": "mqtt://127.0.0.1", "up": ["#"]}
    found = bridges.bridges(parse({"bridge": [bridge]}, "a file"))
    texts = [(item.what, item.todo) for item in found if item.state != State.OK]
    assert texts == [(text, REMEDIES[kind]) for kind, text in problems(bad)]
