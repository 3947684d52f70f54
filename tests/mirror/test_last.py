"""The newest readings in memory: their limits, and which of them survive a restart."""

from pathlib import Path

import pytest

from gateway.mirror import last
from gateway.mirror.last import FILE, MOST_OF_ONE, POINTS, LastReadings
from gateway.payload.readings import Reading

NOW = 1_767_225_600_000_000


def reading(name: str = "adc0", value: float | str = 1.5, at: int = NOW) -> Reading:
    return Reading(name, value, "V", at, "synchronised", 4, at)


def test_last_values_outlive_the_gateway(tmp_path: Path) -> None:
    kept = LastReadings(tmp_path)
    assert kept.take("roof-1", reading())
    assert kept.take("roof-1", reading("door", "open"))
    text = kept.news()
    assert text
    assert kept.news() is None, "nothing new"
    kept.write(text)
    later = LastReadings(tmp_path)
    assert {name: series.last for name, series in later.of("roof-1").items()} == {
        "adc0": reading(),
        "door": reading("door", "open"),
    }
    assert later.news() is None, "what was read is not new"


def test_a_file_that_cannot_be_read_is_an_empty_one(tmp_path: Path) -> None:
    for text in ("", "[1]", '{"a": 3}', '{"a": [{"name": "x"}]}', '{"a": [{"name": 1, "b": 2}]}'):
        (tmp_path / FILE).write_text(text)
        assert LastReadings(tmp_path).devices == []


def test_names_and_boards_without_end_take_memory_with_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last, "MOST_NAMES", MOST_OF_ONE + 1)
    kept = LastReadings(tmp_path)
    taken = [kept.take("roof-1", reading(f"n{number}")) for number in range(MOST_OF_ONE + 1)]
    assert taken == [True] * MOST_OF_ONE + [False]
    assert kept.take("roof-2", reading())
    assert not kept.take("roof-3", reading())
    assert kept.take("roof-2", reading(value=7)), "a known name has its place"
    assert sorted(kept.forget("roof-2")) == ["adc0"]
    assert kept.take("roof-3", reading())
    for number in range(POINTS + 5):
        kept.take("roof-3", reading(value=number, at=NOW + number))
    points = kept.of("roof-3")["adc0"].points
    assert (len(points), points[-1]) == (POINTS, (NOW + POINTS + 4, POINTS + 4))


def test_readings_an_hour_and_the_last_receipt_are_counted(tmp_path: Path) -> None:
    kept = LastReadings(tmp_path)
    assert kept.received("roof-1") is None
    for minute in range(90):
        kept.take("roof-1", reading(at=NOW + minute * 60_000_000))
    end = NOW + 89 * 60_000_000
    assert kept.received("roof-1") == end
    assert kept.per_hour("roof-1", end) == 60


def test_readings_an_hour_are_counted_before_the_clock_is_known(tmp_path: Path) -> None:
    kept, now = LastReadings(tmp_path), [0.0]
    kept.axis = lambda: now[0]
    for _ in range(90):
        kept.take("roof-1", Reading("t", 1.0, None, None, "unknown"))
        now[0] += 60.0
    assert kept.per_hour("roof-1", None) in (59, 60)
    end = 1_800_000_000_000_000
    kept.take("roof-1", Reading("t", 1.0, None, end, "synchronised"))
    assert kept.per_hour("roof-1", end) == kept.per_hour("roof-1", None) + 1
    (tmp_path / FILE).write_text(kept.news() or "")
    assert LastReadings(tmp_path).per_hour("roof-1", None) == 0


def test_a_value_ends_a_fault_that_was_reported(tmp_path: Path) -> None:
    kept = LastReadings(tmp_path)
    fault = Reading("adc0.fault", 4, None, NOW, "synchronised", None, NOW, status=True)
    assert kept.mend("roof-1", reading()) is None
    kept.take("roof-1", fault)
    assert kept.mend("roof-1", reading("door")) is None
    assert kept.mend("roof-1", fault) is None
    well = kept.mend("roof-1", reading(at=NOW + 5))
    assert well is not None
    assert (well.name, well.value, well.time) == ("adc0.fault", 0, NOW + 5)
    assert kept.of("roof-1")["adc0.fault"].last == well
    assert kept.mend("roof-1", reading()) is None


def test_readings_of_an_hour_are_counted_beyond_a_plot_and_over_a_restart(tmp_path: Path) -> None:
    kept, sent = LastReadings(tmp_path), 0
    end = 10_000 * 3_600_000_000
    for second in range(3600):  # a reading per second under each of two names
        for name in ("a", "b"):
            time = end - 3_599_000_000 + second * 1_000_000
            kept.take("roof-1", Reading(name, 1.0, None, time, "synchronised", None, time))
            sent += 1
    assert abs(kept.per_hour("roof-1", end) - sent) <= 2 * 60, "to the minute"
    news = kept.news()
    assert news is not None
    kept.write(news)
    again = LastReadings(tmp_path)
    assert again.per_hour("roof-1", end) == kept.per_hour("roof-1", end)
    assert again.per_hour("roof-1", end + 7_200_000_000) == 0


def test_gaps_are_the_last_four_between_receipts(tmp_path: Path) -> None:
    kept = LastReadings(tmp_path)
    for number in range(7):
        kept.take("roof-1", reading(at=NOW + number * number * 1_000_000))
    assert list(kept.of("roof-1")["adc0"].gaps) == [5, 7, 9, 11]


def test_names_beyond_a_number_have_their_newest_point_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last, "MOST_PLOTS", 2)
    kept = LastReadings(tmp_path)
    for name in ("a", "b", "c"):
        for at in (NOW, NOW + 1):
            kept.take("roof-1", reading(name, at=at))
    assert [len(series.points) for series in kept.of("roof-1").values()] == [2, 2, 1]
    assert [job.name for job in kept.jobs] == [
        saved.job.name for saved in (kept.saved, kept.saved_counts, kept.saved_topics)
    ]


def test_topics_of_a_name_are_few_and_outlive_the_gateway(tmp_path: Path) -> None:
    kept = LastReadings(tmp_path)
    longest = "d" * 256
    for topic in ("a", "a", "b", longest, f"{longest}d", "e", "a"):
        kept.take("roof-1", reading(), topic)
    known = ("a", "b", longest, last.UNKNOWN)
    assert kept.of("roof-1")["adc0"].topics == known
    kept.take("roof-2", reading())
    for topic in ("a", "b", "c", "d", "e", "f"):
        kept.take("roof-2", reading(), topic)
    four = ("a", "b", "c", "d", last.UNKNOWN)
    assert kept.of("roof-2")["adc0"].topics == four
    text = kept.news()
    assert text
    kept.write(text)
    later = LastReadings(tmp_path)
    assert later.of("roof-1")["adc0"].topics == known
    assert later.of("roof-2")["adc0"].topics == four


def test_each_change_is_news(tmp_path: Path) -> None:
    kept = LastReadings(tmp_path)
    fault = reading(f"adc0{last.FAULT}", value=3)
    kept.take("roof-1", fault)
    assert kept.news()
    assert kept.forget("roof-2") == []
    assert kept.news() is None
    mended = kept.mend("roof-1", reading(at=NOW + 9))
    assert mended == Reading(fault.name, 0, "V", NOW + 9, "synchronised", 4, NOW + 9)
    assert kept.news()
    assert kept.mend("roof-1", reading()) is None, "it is over"
    assert kept.news() is None
    assert kept.forget("roof-1") == [fault.name]
    assert kept.news()
    assert (kept.received("roof-1"), kept.per_hour("roof-1", NOW + 9)) == (None, 0)
