"""A wrong system clock never ends a session early, whether it is wrong at a start or becomes wrong
later.
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.runtime import clock as module
from gateway.runtime.clock import Clock
from gateway.store import schema
from gateway.store.recovery import recover
from gateway.store.schema import make_folder, open_store
from gateway.store.uptime import SEEN, Uptime, last_seen, save_axis
from gateway.system import time_of_day
from gateway.system.time_of_day import BEGIN, DAY, MOST_AWAY, doubt

TRUE = BEGIN + 700 * DAY
"""The true time at the beginning of a test, in µs since 1970."""
ERA = 1024 * 7 * DAY
LIES = {
    "1970": lambda true: 5_000_000,
    "2040": lambda true: BEGIN + 15 * 365 * DAY,
    "an era of GPS back": lambda true: true - ERA,
    "an era of GPS ahead": lambda true: true + ERA,
    "two years ahead": lambda true: true + 730 * DAY,
    "a month back": lambda true: true - 30 * DAY,
}


class Machine:
    """A machine with a clock. true: the true time, in µs since 1970. shift: error of its system
    clock, in µs. up: time since its boot, in µs.
    """

    def __init__(self) -> None:
        self.true, self.shift, self.up, self.boots = TRUE, 0, 0, 0

    @property
    def wall(self) -> int:
        return self.true + self.shift

    def sleep(self, us: int) -> None:
        self.true += us
        self.up += us

    def reboot(self, off: int, shift: int) -> None:
        self.true, self.shift, self.up, self.boots = self.true + off, shift, 0, self.boots + 1

    def clock(self) -> Clock:
        return Clock(True, lambda: self.wall * 1000, lambda: self.up * 1000)


@pytest.fixture(autouse=True)
def no_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "rtc", lambda: None)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    make_folder(tmp_path)
    with closing(open_store(tmp_path, "test")) as database:
        yield database


def start(database: sqlite3.Connection, machine: Machine) -> tuple[Clock, float]:
    """Start as a gateway does. Return its clock, and the present time of its monotonic time axis,
    in seconds.
    """
    clock = machine.clock()
    clock.know(last_seen(database))
    up = Uptime(f"boot {machine.boots}", machine.up / 1e6)
    return clock, recover(database, clock.utc(), 16, up).now


@dataclass(frozen=True)
class Step:
    """A step of a schedule. runs, off: how long the machine runs and then is off, in µs. lie: name
    of an error of the clock; empty: the clock is right. when: whether the error begins at a start
    or while the gateway runs.
    """

    runs: int
    off: int
    lie: str
    when: str


TIMES = st.integers(1_000_000, 60 * DAY)
STEPS = st.builds(
    Step, TIMES, TIMES, st.sampled_from(["", *LIES]), st.sampled_from(["start", "running"])
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=6))
def test_no_session_expires_before_its_time_in_truth(steps: list[Step]) -> None:
    """Sessions expire by the gateway's time axis, which is never ahead of the true time."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    schema.prepare(database, "test")
    machine = Machine()
    clock, axis = start(database, machine)
    for step in steps:
        if step.when == "running" and step.lie:
            machine.shift = LIES[step.lie](machine.true) - machine.true
        machine.sleep(step.runs)
        axis += step.runs / 1e6
        utc = clock.utc()
        assert utc is None or utc <= machine.true + 2 * DAY
        save_axis(database, int(axis * 1000), utc)
        lies = LIES[step.lie] if step.lie and step.when == "start" else None
        true = machine.true + step.off
        machine.reboot(step.off, lies(true) - true if lies else 0)
        clock, axis = start(database, machine)
        assert axis <= (machine.true - TRUE) / 1e6 + 1, "sessions expire too early"
    database.close()


@pytest.mark.parametrize("lie", LIES)
def test_wrong_clock_at_a_start_is_no_time_and_is_said(
    database: sqlite3.Connection, caplog: pytest.LogCaptureFixture, lie: str
) -> None:
    machine = Machine()
    clock, _ = start(database, machine)
    save_axis(database, 10_000, clock.utc())
    machine.reboot(DAY, LIES[lie](TRUE) - TRUE)
    clock, axis = start(database, machine)
    assert (clock.utc(), axis) == (None, 10.0)
    assert clock.doubt is not None
    assert "not believed" in caplog.text
    clock.utc()
    assert caplog.text.count("not believed") == 1, "said once"
    machine.shift = 0
    assert clock.utc() == machine.true
    assert clock.doubt is None


@pytest.mark.parametrize("lie", LIES)
def test_wrong_clock_while_running_leaves_the_time_going_on(
    database: sqlite3.Connection, caplog: pytest.LogCaptureFixture, lie: str
) -> None:
    machine = Machine()
    clock, _ = start(database, machine)
    clock.utc()
    machine.sleep(1_000_000)
    machine.shift = LIES[lie](machine.true) - machine.true
    assert clock.utc() == machine.true
    assert clock.times()["doubt"] == clock.doubt
    assert caplog.text.count("not believed") == 1
    clock.trust()
    assert (clock.utc(), clock.doubt) == (machine.wall, None)
    machine.sleep(DAY)
    assert clock.utc() == machine.wall


def test_right_clock_is_believed_without_a_word(
    database: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    machine = Machine()
    for off in (1, DAY, 30 * DAY, MOST_AWAY):
        clock, axis = start(database, machine)
        assert clock.utc() == machine.true
        assert axis == pytest.approx((machine.true - TRUE) / 1e6)
        save_axis(database, int(axis * 1000), clock.utc())
        machine.shift += DAY // 2 if machine.shift <= 0 else -DAY // 2  # NTP corrects the clock
        assert clock.utc() == machine.wall
        machine.reboot(off, 0)
    assert caplog.text == ""


def test_sessions_that_expire_while_the_gateway_is_off_are_counted_in_the_log(
    database: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    clock, _ = start(database, machine)
    rows = [(1, "soon", 3600, 5000, 0, None), (2, "late", 360_000, 5000, 0, None)]
    database.executemany("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?)", rows)
    save_axis(database, 10_000, clock.utc())
    machine.reboot(DAY, 0)
    start(database, machine)
    assert (
        "by the clock, the gateway was off for 24.0 h: meanwhile 1 session expired" in caplog.text
    )


def test_person_settles_a_doubt_for_all_later_starts(database: sqlite3.Connection) -> None:
    machine = Machine()
    clock, _ = start(database, machine)
    save_axis(database, 10_000, clock.utc())
    machine.reboot(3 * 365 * DAY, 0)
    clock, axis = start(database, machine)
    assert (clock.utc(), axis) == (None, 10.0), "after three years on a shelf the time is asked for"
    save_axis(database, 20_000, clock.utc())
    clock.trust()
    save_axis(database, 30_000, clock.utc())
    machine.reboot(DAY, 0)
    clock, axis = start(database, machine)
    assert (clock.utc(), axis) == (machine.true, 30.0 + 86_400)


def test_doubt_outlives_starts_that_know_no_time(database: sqlite3.Connection) -> None:
    machine = Machine()
    clock, _ = start(database, machine)
    save_axis(database, 10_000, clock.utc())
    for _ in range(3):
        machine.reboot(DAY, ERA)
        clock, _ = start(database, machine)
        save_axis(database, 20_000, clock.utc())
        assert clock.utc() is None
    assert last_seen(database) == TRUE


def test_newest_row_of_a_store_of_an_older_version_tells_the_time(
    database: sqlite3.Connection,
) -> None:
    database.execute("DELETE FROM meta WHERE key IN ('axis', ?)", (SEEN,))
    assert last_seen(database) is None
    row = (1, None, None, None, "c", "t", b"1", 1, 1, TRUE)
    database.execute("INSERT INTO spool VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert last_seen(database) == TRUE


def test_clock_chip_bounds_the_time_away() -> None:
    month = TRUE + 30 * DAY
    assert doubt(month, TRUE, None) is None
    assert doubt(month, TRUE, month) is None
    assert "clock chip" in (doubt(month, TRUE, TRUE + 2 * DAY) or "")
    assert doubt(month, TRUE, 946_684_800_000_000) is None, "a chip without a battery"
    assert time_of_day.day(1 << 62) == "an impossible year"
