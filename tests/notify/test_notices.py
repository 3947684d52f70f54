"""Times of notifications: at the beginning and the end of a problem, each day in between, and never
at night.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.notify.notices import FILE, MOST, Message, Notices
from gateway.system.without_figures import without_figures

DAY = 86_400.0


def notices(folder: Path) -> Notices:
    return Notices(folder, "site-1", after_s=30, repeat_s=DAY)


def by_words(problems: list[str]) -> dict[str, str]:
    return {without_figures(text): text for text in problems}


def told(notices: Notices, problems: list[str], now: float, quiet: bool = False) -> list[str]:
    found = notices.take(by_words(problems), now, quiet=quiet)
    notices.keep()
    return [f"{message.event}: {', '.join(message.problems)}" for message in found]


def test_a_problem_is_reported_once_when_it_begins_and_once_when_it_ends(tmp_path: Path) -> None:
    one = notices(tmp_path)
    assert told(one, ["a"], 0) == []
    assert told(one, ["a"], 30) == ["begins: a"]
    assert told(one, ["a", "b"], 31) == []
    assert told(one, ["a", "b"], 61) == ["begins: b"]
    assert told(one, ["b"], 62) == []
    assert told(one, ["b"], 91) == [], "it may come back"
    assert told(one, ["b"], 92) == ["ends: a"]
    assert told(one, ["b"], 93) == []


def events(notices: Notices, shows: Callable[[int], bool], until: int) -> list[str]:
    """Return the events of one problem in each second before `until`. shows: returns whether the
    problem is present.
    """
    return [
        text.split(":")[0]
        for now in range(until)
        for text in told(notices, ["a"] * shows(now), now)
    ]


@pytest.mark.parametrize(("period", "lasts", "most"), [(120, 40, 3), (600, 300, 5), (1800, 900, 7)])
def test_problem_that_comes_and_goes_is_reported_a_few_times(
    tmp_path: Path, period: int, lasts: int, most: int
) -> None:
    one = notices(tmp_path)
    begins = [*["begins", "ends"] * most][:most]
    assert events(one, lambda now: now % period < lasts, 6 * 3600) == begins
    for now in range(6 * 3600, 7 * 3600 + 61):
        if ends := told(one, [], now):
            break
    assert ends == ["ends: a"], "once it stays away"


def test_problem_that_comes_and_goes_is_known_after_a_restart(tmp_path: Path) -> None:
    for start in range(0, 7200, 600):
        found = events(notices(tmp_path), lambda now: now % 120 < 40, 600)
        assert found == (["begins", "ends", "begins"] if not start else []), start


def test_problem_that_is_back_the_next_day_is_reported_as_the_first_time(tmp_path: Path) -> None:
    one = notices(tmp_path)
    assert events(one, lambda now: now % 43_200 < 60, 100_000) == ["begins", "ends"] * 3
    assert events(notices(tmp_path / "none"), lambda now: now < 1, 60) == []


def test_problems_that_ended_are_forgotten(tmp_path: Path) -> None:
    one = Notices(tmp_path, "site-1", after_s=0, repeat_s=0)
    for number in range(5 * MOST):
        one.take({f"x {number}": "a"}, number / 1000)
    assert len(one._known) <= 2 * MOST + 1
    assert one.take({}, 10.0)
    one.take({}, 4000.0)
    assert not one._known


def test_a_problem_that_ends_soon_is_not_reported(tmp_path: Path) -> None:
    one = notices(tmp_path)
    assert told(one, ["a"], 0) == []
    assert told(one, [], 29) == []
    assert told(one, ["a"], 40) == []


def test_a_problem_that_lasts_is_reported_each_day(tmp_path: Path) -> None:
    one = notices(tmp_path)
    told(one, ["a"], 0)
    told(one, ["a"], 30)
    assert told(one, ["a"], 29 + DAY) == []
    assert told(one, ["a"], 30 + DAY) == ["goes on: a"]
    assert told(one, ["a"], 31 + DAY) == []


def test_messages_of_the_quiet_time_are_sent_afterwards(tmp_path: Path) -> None:
    one = notices(tmp_path)
    told(one, ["a"], 0)
    told(one, ["a"], 30)
    assert told(one, ["b"], 100, quiet=True) == []
    assert told(one, ["b"], 200, quiet=True) == []
    assert told(one, ["b"], 300) == ["begins: b", "ends: a"]


def test_a_restart_tells_nothing_again(tmp_path: Path) -> None:
    one = notices(tmp_path)
    told(one, ["a"], 0)
    told(one, ["a"], 30)
    assert told(notices(tmp_path), ["a"], 40) == []
    one = notices(tmp_path)
    assert told(one, [], 50) == [], "the gateway has not looked at everything yet"
    assert told(one, ["a"], 51) == []
    assert told(one, [], 52) == []
    assert told(one, [], 81) == []
    assert told(one, [], 82) == ["ends: a"]


def test_waiting_notice_counts_as_sent(tmp_path: Path) -> None:
    one = notices(tmp_path)
    one.take(by_words(["a", "b"]), 0)
    began = one.take(by_words(["a", "b"]), 30)  # the gateway dies before `keep`
    again = notices(tmp_path)
    again.recall(began)
    assert told(again, ["a"], 40) == []
    (end,) = again.take(by_words(["a"]), 80)
    assert (end.event, end.problems) == ("ends", ["b"])
    third = notices(tmp_path)
    third.recall([*began, end])
    assert told(third, ["a"], 90) == []
    assert told(third, ["a"], 130) == []


def test_notice_of_a_problem_begun_after_a_restart_ends_with_the_problem(tmp_path: Path) -> None:
    one = notices(tmp_path)
    told(one, ["a"], 0)
    assert told(one, ["a"], 30) == ["begins: a"]
    assert told(one, [], 31) == []
    assert told(one, [], 61) == ["ends: a"]


def test_a_damaged_file_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[1")
    assert told(notices(tmp_path), ["a"], 0) == []


def test_a_problem_is_one_while_its_figures_change(tmp_path: Path) -> None:
    def refused(count: int) -> list[str]:
        return [f"roof-1: publications to 't' are refused (0x87; {count:,} so far)"]

    one = notices(tmp_path)
    for now in range(30):
        assert told(one, refused(now), now) == []
    assert told(one, refused(1030), 30) == [f"begins: {refused(1030)[0]}"]
    assert told(one, refused(1031), 31) == []
    assert told(notices(tmp_path), refused(1040), 40) == []
    told(one, [], 60)
    (end,) = told(one, [], 90)
    assert end == f"ends: {refused(1030)[0]}", "as it was told"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("roof-1: no reading", "roof-2: no reading"),
        ("7: no reading", "8: no reading"),
        ("/dev/ttyUSB0: gone", "/dev/ttyUSB1: gone"),
        ("bridge a: 10.0.0.5:1883 refuses", "bridge a: 10.0.1.5:1883 refuses"),
        ("refused (0x87)", "refused (0x97)"),
    ],
)
def test_names_with_digits_are_two_problems(tmp_path: Path, one: str, other: str) -> None:
    made = notices(tmp_path)
    told(made, [one, other], 0)
    assert told(made, [one, other], 30) == [f"begins: {one}, {other}"]
    assert told(made, [other], 31) == []
    assert told(made, [other], 61) == [f"ends: {one}"]


def test_problem_is_one_while_its_words_change(tmp_path: Path) -> None:
    """The reason of an outage changes at each attempt, but it is one problem with one beginning and
    one end.
    """
    one, events = notices(tmp_path), []
    for now in range(0, 600, 10):
        why = ("refused", "timed out", "no route")[now // 10 % 3]
        events += one.take({"uplink outage": f"no batch lands: {why}"}, now)
        one.keep()
        if now == 300:
            one = notices(tmp_path)
    events += one.take({}, 600) + one.take({}, 630)
    assert [(event.event, event.problems) for event in events] == [
        ("begins", ["no batch lands: refused"]),
        ("ends", ["no batch lands: refused"]),
    ]


def test_identifier_takes_the_place_of_words_of_an_earlier_version(tmp_path: Path) -> None:
    before = notices(tmp_path)
    told(before, ["roof-1: silent for 5 min", "roof-2: gone"], 0)
    told(before, ["roof-1: silent for 5 min", "roof-2: gone"], 30)
    now = notices(tmp_path)
    assert now.take({"boards roof-1 silent": "roof-1: silent for 7 min"}, 40) == []
    now.keep()
    (end,) = now.take({"boards roof-1 silent": "roof-1: silent for 9 min"}, 80)
    assert (end.event, end.problems) == ("ends", ["roof-2: gone"])
    assert now.take({}, 90) == []
    (end,) = now.take({}, 120)
    assert (end.event, end.problems) == ("ends", ["roof-1: silent for 5 min"])


def test_waiting_notice_counts_as_sent_under_its_identifier(tmp_path: Path) -> None:
    one = notices(tmp_path)
    one.take({"x a": "a"}, 0)
    began = one.take({"x a": "a"}, 30)  # the gateway dies before `keep`
    again = notices(tmp_path)
    again.recall(began)
    assert again.take({"x a": "a again"}, 40) == []
    (end,) = again.take({}, 80)
    assert (end.event, end.problems) == ("ends", ["a"])
    third = notices(tmp_path)
    third.recall([*began, end])
    assert third.take({"x a": "a"}, 90) == []
    assert third.take({}, 130) == []


def test_a_clock_that_was_ahead_delays_nothing(tmp_path: Path) -> None:
    one = notices(tmp_path)
    assert told(one, ["a"], 1e9) == []
    assert told(one, ["a"], 100) == []
    assert told(one, ["a"], 130) == ["begins: a"]


def test_each_try_of_a_message_has_the_same_number(tmp_path: Path) -> None:
    message = Message("begins", ["a"], "site-1", 5.0)
    assert message.public()["id"] == Message("begins", ["a"], "site-1", 5.0).id
    assert message.id != Message("ends", ["a"], "site-1", 5.0).id
