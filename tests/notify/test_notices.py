"""When people are told: once at the begin, once at the end, again each day, and never at night."""

from pathlib import Path

from gateway.notify.notices import FILE, Notices

DAY = 86_400.0


def notices(folder: Path) -> Notices:
    return Notices(folder, "site-1", after_s=30, repeat_s=DAY)


def told(notices: Notices, problems: list[str], now: float, quiet: bool = False) -> list[str]:
    found = notices.take(problems, now, quiet=quiet)
    notices.keep()
    return [f"{message.event}: {', '.join(message.problems)}" for message in found]


def test_a_problem_is_told_once_when_it_begins_and_once_when_it_ends(tmp_path: Path) -> None:
    one = notices(tmp_path)
    assert told(one, ["a"], 0) == []
    assert told(one, ["a"], 30) == ["begins: a"]
    assert told(one, ["a", "b"], 31) == []
    assert told(one, ["a", "b"], 61) == ["begins: b"]
    assert told(one, ["b"], 62) == ["ends: a"]
    assert told(one, ["b"], 63) == []


def test_a_problem_that_ends_soon_is_not_told(tmp_path: Path) -> None:
    one = notices(tmp_path)
    assert told(one, ["a"], 0) == []
    assert told(one, [], 29) == []
    assert told(one, ["a"], 40) == []


def test_a_problem_that_lasts_is_told_each_day(tmp_path: Path) -> None:
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
    assert told(one, [], 80) == ["ends: a"]


def test_what_begins_after_a_restart_ends_at_once(tmp_path: Path) -> None:
    one = notices(tmp_path)
    told(one, ["a"], 0)
    assert told(one, ["a"], 30) == ["begins: a"]
    assert told(one, [], 31) == ["ends: a"]


def test_a_damaged_file_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[1")
    assert told(notices(tmp_path), ["a"], 0) == []
