"""Expected boards: a board that is silent for too long is reported as a problem."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.boards.expected import FILE, LEAST_S, NEVER, Expected, Seen
from gateway.boards.intervals import Gaps, of_command, parse, words
from gateway.links.greeter import Refusal
from gateway.links.serial_port import _why_refused

PORT = "/dev/ttyUSB0"
HERE = Seen(connected=True, port=PORT)
SILENT_LINE = Seen(connected=False, port_open=True)
UNPLUGGED = Seen(connected=False, port_open=False)
LENT = Seen(connected=False, port_open=False, lent=True)
REFUSED = Seen(connected=False, port_open=True, refused=PORT)


class Site:
    """A gateway with one board. The test sets the clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 1000.0
        self.start()

    def start(self) -> None:
        """Start the gateway, for the first time or again."""
        self.expected = Expected(self.folder, lambda: self.now)

    def stop(self) -> None:
        text = self.expected.news(at_end=True)
        assert text is not None
        self.expected.write(text)

    def look(self, seen: Seen) -> str:
        self.expected.look(["roof-1"], {"roof-1": seen})
        return self.expected.states["roof-1"].word

    def wait(self, seconds: float, seen: Seen) -> str:
        """Check the board now, and then once a second for `seconds`. Return the state at the last
        check.
        """
        word = self.look(seen)
        for _ in range(round(seconds)):
            self.now += 1
            word = self.look(seen)
        return word

    def words(self, seconds: int, seen: Seen) -> set[str]:
        """Check the board once a second, for `seconds`. Return all states that were shown."""
        found = set()
        for _ in range(seconds):
            self.now += 1
            found.add(self.look(seen))
        return found

    def measure(self, count: int, interval: float) -> None:
        for _ in range(count):
            self.wait(interval, HERE)
            self.expected.hear("roof-1", self.now)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    site.measure(4, 60)
    return site


def test_silence_is_a_problem_after_three_learnt_intervals(site: Site) -> None:
    assert site.wait(179, HERE) == "fine"
    assert site.wait(1, HERE) == "silent"
    state = site.expected.states["roof-1"]
    text = "roof-1: no reading arrived for more than 3 min; one every 1 min is due"
    assert state.sentence == text
    assert "onceway device expect roof-1 1h" in state.todo
    site.expected.hear("roof-1", site.now)
    assert site.look(HERE) == "fine"


@pytest.mark.parametrize("interval", [60, 600])
def test_a_port_that_is_gone_is_a_problem_after_one_interval(tmp_path: Path, interval: int) -> None:
    site = Site(tmp_path)
    site.measure(4, interval)
    assert site.wait(interval - 1, UNPLUGGED) == "fine"
    assert site.wait(1, UNPLUGGED) == "unplugged"
    assert PORT in site.expected.states["roof-1"].sentence
    assert site.look(HERE) == "fine"


def test_board_that_left_its_cable_for_the_radio_is_not_unplugged(site: Site) -> None:
    """The firmware was written to the board by cable. The port of the cable is gone now."""
    by_radio = Seen(connected=True, without_port=True, port_open=False)
    site.measure(5, 60)
    site.look(UNPLUGGED)
    for _ in range(5):
        assert site.words(60, by_radio) == {"fine"}
        site.expected.hear("roof-1", site.now)
    assert site.words(400, UNPLUGGED) == {"fine", "silent"}
    site.stop()
    site.start()
    assert site.words(10, UNPLUGGED) == {"silent"}


def test_a_fast_board_has_thirty_seconds_to_be_replugged(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.measure(5, 2)
    assert site.wait(LEAST_S - 1, UNPLUGGED) == "fine"
    assert site.wait(1, UNPLUGGED) == "unplugged"


def test_a_board_that_is_being_written_is_no_problem_however_long_that_takes(site: Site) -> None:
    assert site.wait(600, LENT) == "fine"
    assert site.wait(179, HERE) == "fine", "it needs its three intervals from then on"
    assert site.wait(1, HERE) == "silent"


def test_a_refused_board_is_a_problem_at_once(site: Site) -> None:
    assert site.look(REFUSED) == "refused"
    assert f"rekey roof-1 --port {PORT}" in site.expected.states["roof-1"].todo
    assert site.look(HERE) == "fine"


@pytest.mark.parametrize("reason", [one for one in Refusal if one is not Refusal.STRANGER])
def test_each_refusal_has_its_own_words_and_the_remedy_of_the_port(
    site: Site, reason: Refusal
) -> None:
    """The message about the port (`gateway/links/serial_port.py`) names the same command as its
    remedy.
    """
    assert site.look(replace(REFUSED, refusal=reason)) == "refused"
    state = site.expected.states["roof-1"]
    command = state.todo.partition("sudo ")[2]
    assert f"`{command}`" in _why_refused("roof-1", reason, PORT)


def test_an_impostor_beside_the_board_itself_makes_no_problem_of_it(site: Site) -> None:
    assert site.look(Seen(connected=True, port=PORT, refused="/dev/ttyUSB1")) == "fine"
    assert site.expected.refused_duplicates == [("roof-1", "/dev/ttyUSB1")]
    site.expected.pause("roof-1", 60)
    assert site.expected.refused_duplicates == []
    site.expected.pause("roof-1", 0)
    site.look(Seen(refused="/dev/ttyUSB1"))
    assert site.expected.refused_duplicates == [], "it is the board itself that is refused"
    site.look(HERE)
    assert site.expected.refused_duplicates == []


@pytest.mark.parametrize(
    ("seen", "word"), [(HERE, "silent"), (UNPLUGGED, "unplugged"), (SILENT_LINE, "silent")]
)
def test_a_problem_outlives_a_restart(site: Site, seen: Seen, word: str) -> None:
    assert site.wait(200, seen) == word
    site.stop()
    site.now += 5
    site.start()
    assert site.look(seen) == word


def test_silence_while_the_gateway_was_off_is_no_problem(site: Site) -> None:
    site.stop()
    site.now += 7200
    site.start()
    assert site.wait(179, HERE) == "fine"
    assert site.wait(1, HERE) == "silent"


@pytest.mark.parametrize("hours", [1, 12, 24])
def test_silence_counts_over_restarts_without_the_time_between(site: Site, hours: int) -> None:
    """The gateway runs for ten hours at a time and is then off for two. The silence of a board that
    seldom measures still counts up over these restarts, but without the time in which the gateway
    is off.
    """
    interval = hours * 3600
    site.expected.want("roof-1", interval)
    word, heard, off = site.look(HERE), site.now, 0
    while word == "fine":
        for _ in range(10 * 60):
            site.now += 60
            word = site.look(HERE)
            if word != "fine":
                break
        else:
            site.stop()
            site.now, off = site.now + 7200, off + 7200
            site.start()
            word = site.look(HERE)
    assert site.now - heard - off == 3 * interval
    assert word == "silent"


def test_a_board_has_time_to_speak_after_each_start(site: Site) -> None:
    """The start of a gateway may reset the board, which then begins a new interval."""
    for _ in range(5):
        site.wait(59, HERE)
        site.stop()
        site.start()
    assert site.wait(59, HERE) == "fine"
    assert site.wait(1, HERE) == "silent"


def test_intervals_and_settings_outlive_a_restart(site: Site) -> None:
    site.look(HERE)
    site.expected.pause("roof-1", 3600)
    site.stop()
    site.start()
    assert site.look(HERE) == "paused"
    assert site.expected.states["roof-1"].interval == 60
    site.expected.pause("roof-1", 0)
    site.expected.want("roof-1", 300)
    site.stop()
    site.start()
    site.look(HERE)
    assert site.expected.states["roof-1"].interval == 300


def test_a_pause_ends_by_itself(site: Site) -> None:
    site.look(HERE)
    site.expected.pause("roof-1", 1000)
    assert site.wait(999, UNPLUGGED) == "paused"
    assert site.wait(1, UNPLUGGED) == "unplugged"


def test_the_set_interval_counts_and_not_the_learnt_one(site: Site) -> None:
    site.look(HERE)
    site.expected.want("roof-1", 5)
    assert site.wait(14, HERE) == "fine"
    assert site.wait(1, HERE) == "silent"


def test_a_board_that_speaks_on_events_may_be_silent_but_not_unplugged(site: Site) -> None:
    site.look(HERE)
    site.expected.want("roof-1", NEVER)
    assert site.wait(5000, HERE) == "fine"
    assert site.wait(60, UNPLUGGED) == "unplugged"


def test_a_registered_board_that_never_came_is_a_problem(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.wait(179, UNPLUGGED) == "new"
    assert site.wait(1, UNPLUGGED) == "silent"
    assert "has received no reading" in site.expected.states["roof-1"].sentence


def test_the_first_reading_counts_at_once(tmp_path: Path) -> None:
    """The reading of a board that was just added may arrive before the first check."""
    site = Site(tmp_path)
    site.expected.look([], {})
    site.expected.hear("roof-1", 1.0, {"name": "t", "value": 2.0, "unit": "V"})
    assert site.expected.heard_ago("roof-1") == 0
    assert site.look(HERE) == "fine"
    assert site.expected.states["roof-1"].heard == site.now
    other = Site(tmp_path / "other")
    assert other.look(HERE) == "new"
    other.expected.hear("roof-1")
    assert other.expected.states["roof-1"].word == "fine"


def test_a_connected_board_of_unknown_interval_has_three_hours(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.wait(2, HERE)
    site.expected.hear("roof-1", None)
    assert site.wait(10_000, HERE) == "fine"
    assert site.wait(900, HERE) == "silent"


def test_a_damaged_file_is_learnt_again(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"roof-1": {"since": "yesterday"}}')
    assert Site(tmp_path).look(HERE) == "new"


def test_a_board_that_left_the_registry_is_forgotten(site: Site) -> None:
    site.wait(200, HERE)
    site.expected.look([], {})
    assert site.expected.states == {}
    assert site.look(HERE) == "new"


def test_a_board_that_may_be_at_another_gateway_keeps_its_settings(site: Site) -> None:
    site.expected.want("roof-1", 300)
    site.expected.pause("roof-1", 3600)
    site.expected.look([], {}, ["roof-1"])
    assert site.expected.states == {}
    site.stop()
    site.start()
    site.expected.look([], {}, ["roof-1"])
    assert site.look(HERE) == "paused"
    assert site.expected.states["roof-1"].interval == 300


@pytest.mark.parametrize("seen", [HERE, UNPLUGGED, SILENT_LINE])
def test_silence_at_another_gateway_is_no_problem(site: Site, seen: Seen) -> None:
    assert site.wait(200, seen) != "fine"
    for _ in range(1000):
        site.now += 1
        site.expected.look([], {}, ["roof-1"])
    assert site.wait(179, SILENT_LINE) == "fine"
    assert site.wait(1, SILENT_LINE) == "silent"


def test_a_problem_has_the_same_words_while_it_lasts(site: Site) -> None:
    site.wait(200, HERE)
    before = site.expected.states["roof-1"].sentence
    site.wait(500, HERE)
    assert site.expected.states["roof-1"].sentence == before


@pytest.mark.parametrize("readings", [0, 1, 5])
@pytest.mark.parametrize("command", ["2 s", "20 min", "1000 min"])
def test_a_problem_after_a_command_has_the_same_words(
    tmp_path: Path, readings: int, command: str
) -> None:
    site = Site(tmp_path)
    site.measure(readings, 60)
    site.look(HERE)
    site.expected.command("roof-1", f"interval {command}")
    said = set()
    for _ in range(3100):
        site.now += 60
        site.look(HERE)
        said |= {state.sentence for _, state in site.expected.problems}
    assert len(said) == 1


def test_the_file_is_not_written_for_each_reading(site: Site) -> None:
    assert site.expected.news() is not None
    site.measure(5, 60)
    assert site.expected.news() is None
    site.measure(6, 60)
    assert site.expected.news() is not None, "after ten minutes"


def _gaps(take: Callable[[Gaps], None]) -> float | None:
    gaps = Gaps()
    take(gaps)
    return gaps.interval


def taken(*intervals: float) -> Gaps:
    """Return the gaps of readings without a time. intervals: seconds between the arrivals of two
    readings.
    """
    gaps, now = Gaps(), 0.0
    gaps.take(None, now)
    for interval in intervals:
        now += interval
        gaps.take(None, now)
    return gaps


def test_one_outage_does_not_change_the_learnt_interval() -> None:
    def take(gaps: Gaps) -> None:
        for second in (0, 60, 120, 7200, 7260):
            gaps.take(float(second), float(second))

    assert _gaps(take) == 60


def test_a_shorter_interval_is_known_after_three_gaps() -> None:
    for old in range(2, 9):
        gaps = taken(*[300.0] * old)
        for interval in (300.0, 300.0, 11.0):
            gaps.take(None, (gaps.received or 0.0) + 10 + (interval == 11.0))
            assert gaps.learnt == interval, old


def test_a_longer_interval_is_known_after_two_gaps() -> None:
    for old in range(2, 9):
        gaps = taken(*[10.0] * old, 300.0)
        assert gaps.learnt == 10
        gaps.take(None, (gaps.received or 0.0) + 300)
        assert gaps.learnt == 300


def test_a_board_that_measures_in_groups_has_its_long_gap() -> None:
    gaps = taken(*[10.0, 10.0, 10.0, 300.0] * 2, 10.0, 10.0, 10.0)
    assert gaps.learnt == 300


@pytest.mark.parametrize("old", [2, 3, 7])
def test_a_journal_of_a_board_without_a_clock_teaches_no_shorter_interval(old: int) -> None:
    gaps = taken(*[300.0] * old, 1800.0, 2.0, 2.0, 2.0, 2.0, 2.0)
    assert gaps.learnt == 300


@pytest.mark.parametrize(("before", "after"), [(10, 300), (300, 10)])
def test_interval_set_by_another_client_ends_and_begins_in_time(
    tmp_path: Path, before: int, after: int
) -> None:
    site = Site(tmp_path)
    site.measure(9, before)
    site.measure(3, after)
    assert site.look(HERE) == "fine"
    site.measure(5, after)
    assert site.wait(3 * after - 1, HERE) == "fine"
    assert site.wait(1, HERE) == "silent"


def test_a_journal_that_comes_at_once_does_not_change_the_learnt_interval() -> None:
    def take(gaps: Gaps) -> None:
        for number in range(20):
            gaps.take(number * 60.0, 5000 + number * 2)

    assert _gaps(take) == 60


def test_several_readings_of_one_measurement_count_once() -> None:
    def take(gaps: Gaps) -> None:
        for number in range(5):
            for part in (0.0, 0.1, 0.2):
                gaps.take(None, number * 60.0 + part)

    assert _gaps(take) == pytest.approx(60, abs=1)


@pytest.mark.parametrize("has_clock", [False, True])
@pytest.mark.parametrize("interval", [0.1, 0.5, 0.7, 0.99])
def test_a_board_that_measures_several_times_a_second_is_missed_soon(
    tmp_path: Path, interval: float, has_clock: bool
) -> None:
    site = Site(tmp_path)
    site.look(HERE)
    for _ in range(50):
        site.now += interval
        site.expected.hear("roof-1", site.now if has_clock else None)
    assert site.wait(29, HERE) == "fine"
    assert 1 <= (site.expected.states["roof-1"].interval or 0) < 2
    assert site.wait(1, HERE) == "silent"


def test_a_longer_interval_counts_at_once_and_a_shorter_one_when_gaps_show_it() -> None:
    gaps = Gaps()
    for number in range(4):
        gaps.take(number * 60.0, 0)
    gaps.tell(3600)
    assert gaps.interval == 3600
    gaps.tell(1)
    assert gaps.interval == 60
    gaps.tell(0)
    assert gaps.interval == 0, "it measures no more"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("5min", 300), ("2h", 7200), ("3d", 259_200), ("1.5h", 5400)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "0s", "-5m", "5 weeks", "1e3s", "99999d", "５m"])
def test_invalid_duration_is_read_as_none(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        ("interval 30000", 30),
        ("interval 65535", 0),
        ("interval 90 s", 90),
        ("interval 1440 min", 86_400),
        ("interval 1000 force", 1),
        ("interval 0", None),
        ("interval 0 min", None),
        ("interval 65536", None),
        ("reboot", None),
    ],
)
def test_intervals_of_commands_are_read(command: str, seconds: float | None) -> None:
    assert of_command(command) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(60, "1 min"), (90, "90 s"), (180, "3 min"), (5400, "90 min"), (7200, "2 h"),
     (86_400, "24 h"), (259_200, "3 days")],
)  # fmt: skip
def test_durations_are_reported_in_words(seconds: float, text: str) -> None:
    assert words(seconds) == text


def test_a_longer_interval_that_was_commanded_is_no_alarm(site: Site) -> None:
    site.expected.command("roof-1", "interval 60 min")
    assert site.wait(3 * 3600 - 1, HERE) == "fine"
    assert site.wait(1, HERE) == "silent"


@pytest.mark.parametrize("readings", [0, 1])
@pytest.mark.parametrize(("command", "limit"), [("2 s", 10_800), ("120 min", 21_600)])
def test_a_command_to_a_new_board_makes_no_problem(
    tmp_path: Path, readings: int, command: str, limit: int
) -> None:
    """The board may refuse the command, and then keeps its interval."""
    site = Site(tmp_path)
    site.look(HERE)
    site.measure(readings, 60)
    site.expected.command("roof-1", f"interval {command}")
    assert site.words(limit - 1, HERE) <= {"fine", "new"}
    assert site.words(1000, HERE) == {"silent"}


def test_a_command_outlives_a_restart(site: Site) -> None:
    site.expected.command("roof-1", "interval 60 min")
    site.stop()
    site.start()
    assert site.wait(3600, HERE) == "fine"


def test_a_command_to_a_silent_board_ends_no_problem(site: Site) -> None:
    assert site.wait(180, HERE) == "silent"
    site.expected.command("roof-1", "interval 1440 min")
    assert site.words(60, HERE) == {"silent"}
    site.expected.hear("roof-1", site.now)
    assert site.wait(3600, HERE) == "fine"


def test_other_commands_change_nothing(site: Site) -> None:
    for text in ("identify", "reboot", "interval", "interval x"):
        site.expected.command("roof-1", text)
    assert site.wait(180, HERE) == "silent"
