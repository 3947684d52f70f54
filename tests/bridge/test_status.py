"""The state of a bridge, for users: the age of its oldest message."""

from gateway.bridge.status import LATE_S, QueueAge, is_late


def test_age_of_the_oldest_message_follows_the_head_of_the_queue() -> None:
    ages = QueueAge()
    ages.sample(0.0, 1, 1)
    assert ages.seconds(9.0, 1) == 0.0  # younger than a sample
    ages.sample(10.0, 1, 3)  # messages 1 and 2
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


def test_a_bridge_is_late_after_three_pauses_between_attempts() -> None:
    assert not is_late(None)
    assert not is_late(LATE_S)
    assert is_late(LATE_S + 1)
