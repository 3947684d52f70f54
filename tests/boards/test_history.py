"""The last readings of boards, from the gateway: bounds, restarts, and the command."""

import asyncio
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.boards import history as module
from gateway.boards.history import FILE, History
from gateway.payload.readings import Reading
from tests.boards.test_commanded import site

SECOND = 1_000_000
ONCEWAY = Path(sys.executable).with_name("onceway")


def reading(value: float | str | bool, time: int | None, name: str = "t", **more: bool) -> Reading:
    return Reading(name, value, "Cel", time, "synchronised", **more)


NOW = 1_000_000 * SECOND


def values(history: History, device: str = "", begin: int = 0) -> list[object]:
    history.clock = lambda: (0.0, NOW)
    return [row["value"] for row in history.since(device, (NOW - begin) / SECOND)]


def test_numbers_of_a_time_come_in_its_order(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.take("a", [reading(2, 20 * SECOND), reading(1, 10 * SECOND), reading(3, 30 * SECOND)])
    history.take("b", [reading(9, 25 * SECOND)])
    assert values(history) == [1, 2, 3, 9]
    assert values(history, "a", 20 * SECOND) == [2, 3]
    (first, second) = history.last("")
    assert (first["device"], first["value"], first["time"]) == ("a", 3, "1970-01-01T00:00:30Z")
    assert second["unit"] == "Cel"
    assert history.begins("a") == 10 * SECOND
    assert history.begins("nobody") is None


def test_readings_may_come_during_a_read(tmp_path: Path) -> None:
    history = History(tmp_path)
    for board in ("a", "b"):
        history.take(board, [reading(1, SECOND, "t"), reading(1, SECOND, "u")])
    found = []
    history.clock = lambda: (0.0, NOW)
    for row in history.since("", NOW):
        found.append((row["device"], row["name"]))
        history.take("a", [reading(2, 2 * SECOND, f"new-{len(found)}")])
        history.take(f"new-{len(found)}", [reading(2, 2 * SECOND)])
    assert {*found} >= {(board, name) for board in "ab" for name in "tu"}


def test_texts_statuses_and_readings_without_a_time(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.take(
        "a", [reading("open", 1, "door"), reading(7, None, "u"), reading(1, 1, status=True)]
    )
    assert values(history) == [7]
    assert [(row["name"], row["value"]) for row in history.last("a")] == [
        ("door", "open"),
        ("u", 7),
    ]


def test_readings_have_ages_before_the_clock_is_known_and_times_afterwards(tmp_path: Path) -> None:
    history, axis = History(tmp_path), [100.0]
    history.clock = lambda: (axis[0], None)
    for value in range(3):
        history.take("a", [reading(value, None)])
        axis[0] += 10.0
    history.take("b", [reading(9, NOW)])
    found = [(row["value"], row["time"], row["ago_s"]) for row in history.since("", 25)]
    assert found == [(1, None, 20.0), (2, None, 10.0)]
    first = history.begins("a")
    assert first is not None
    assert (history.age(first), history.utc(first)) == (30.0, None)
    assert history.begins("b") is None
    history.write()
    assert [row["value"] for row in History(tmp_path).last("a")] == [2]
    again = History(tmp_path)
    again.clock = lambda: (5.0, NOW)
    assert list(again.since("a", 1e6)) == [], "the time without the gateway is not known"
    history.clock = lambda: (axis[0], NOW)
    rows = list(history.since("a", 25))
    assert [(row["time"], row["ago_s"]) for row in rows] == [
        ("1970-01-12T13:46:20Z", 20.0),
        ("1970-01-12T13:46:30Z", 10.0),
    ]
    history._new = True
    history.write()
    assert values(History(tmp_path), "a") == [0, 1, 2]


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    history = History(tmp_path)
    for number in range(4000):
        history.take("a", [reading(number, number * SECOND)])
    assert values(history) == list(range(4000 - module.POINTS, 4000))
    history.take("a", [reading(1, 1, "second"), reading(1, 1, "third")])
    assert [row["name"] for row in history.last("a")] == ["t", "second"]
    history.forget([])
    assert values(history) == []


def test_a_clean_end_keeps_them(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.take("a", [reading(1.5, SECOND), reading("x", SECOND, "text")])
    history.write()
    again = History(tmp_path)
    assert list(again.last("")) == list(history.last(""))
    assert values(again) == [1.5]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a": {"t": 1}}', '{"a": {"t": [null, 1, 1, [1], []]}}', '{"a": 1}']
)
def test_damaged_file_is_reported(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(text)
    assert list(History(tmp_path).last("")) == []
    assert "cannot be read" in caplog.text


async def onceway(folder: Path, *words: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(
        subprocess.run,
        [ONCEWAY, "readings", *words, "--data", str(folder / "data")],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


async def test_a_person_asks_the_gateway(tmp_path: Path) -> None:
    async with site(tmp_path) as (sensor, _):
        for value in (2.5, 3.5):
            await sensor.measure(value)
        code, out, err = await onceway(tmp_path, "roof-1", "--since", "1d", "--csv")
        rows = list(csv.DictReader(io.StringIO(out)))
        assert code == 0
        assert [row["value"] for row in rows] == ["1.0", "2.5", "3.5"]
        assert {(row["device"], row["name"], row["unit"]) for row in rows} == {
            ("roof-1", "adc0", "V")
        }
        assert "are not kept here; the table has all readings" in err
        code, out, err = await onceway(tmp_path, "--json")
        found = json.loads(out)
        assert [row["value"] for row in found["readings"]] == [3.5]
        assert (code, err) == (0, "")
        code, out, _ = await onceway(tmp_path)
        assert out.startswith("roof-1")
        assert "3.5 V" in out
        code, _, err = await onceway(tmp_path, "roof-2")
        assert (code, "no such board" in err) == (5, True)
        for words in (("--since", "soon"), ("--csv", "--json")):
            assert (await onceway(tmp_path, *words))[0] == 2
    killed = "COVERAGE_RUN" not in os.environ
    assert killed is not (tmp_path / "data" / FILE).exists()
    code, _, err = await onceway(tmp_path)
    assert (code, "no gateway runs here" in err) == (12, True)
