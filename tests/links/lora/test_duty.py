"""In each period of an hour, a radio sends at most as long as the law allows, even if each frame
leaves as early as possible.
"""

import json
import logging
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.links.lora.airtime import Modulation, silence_factor
from gateway.links.lora.duty import BLOCKS, Ledger
from gateway.links.lora.ledger_file import LATE, Ledgers, read, read_count, write
from gateway.system.regions import EU868

Span = tuple[float, float]
"""Start and end of a transmission, in seconds."""

HOUR = 3600.0
DUTIES = st.sampled_from([0.001, 0.01, 0.1])
TINY = 2e-6
"""Allowed rounding error of times, in seconds: the clock counts whole microseconds."""


def worst_hour(sent: list[Span], hour: float = HOUR) -> float:
    """Return the longest time sent in any window of `hour` seconds. It is enough to try windows
    that end with a transmission or begin with one.
    """
    starts = [start for start, _ in sent]
    sums = list(accumulate((end - start for start, end in sent), initial=0.0))

    def before(moment: float) -> float:
        """Return the seconds sent until `moment`."""
        count = bisect_right(starts, moment)
        late = max(sent[count - 1][1] - moment, 0.0) if count else 0.0
        return sums[count] - late

    moments = [end - hour for _, end in sent] + starts
    return max(before(moment + hour) - before(moment) for moment in moments)


def greedy(ledger: Ledger, airtimes: list[float], pauses: list[float]) -> list[Span]:
    sent, now = [], 0.0
    for airtime, pause in zip(airtimes, pauses, strict=True):
        now += pause
        while wait := ledger.wait(airtime, now):
            now += wait
        ledger.add(airtime, now)
        sent.append((now, now + airtime))
        now += airtime
    return sent


@settings(max_examples=50, deadline=None)
@given(DUTIES, st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 20.0]))
def test_earliest_sending_by_the_ledger_keeps_the_law(
    duty: float, seed: int, mean_pause: float
) -> None:
    random = Random(seed)
    airtimes = [random.uniform(0.03, min(5.0, duty * HOUR)) for _ in range(300)]
    pauses = [random.expovariate(1 / mean_pause) if mean_pause else 0.0 for _ in airtimes]
    assert worst_hour(greedy(Ledger(duty), airtimes, pauses)) <= duty * HOUR + TINY


@pytest.mark.parametrize(("late", "kept"), [(1.0, True), (0.0, False)])
def test_a_radio_that_sends_a_little_later_than_ordered_keeps_the_law(
    late: float, kept: bool
) -> None:
    """The radio sends late in the first half hour, and on time after that. So the last late frame
    and the first punctual ones are closer together than ordered. late: margin of the ledger for
    such delays, in seconds.
    """
    told = greedy(Ledger(0.1, margin=late), [20.0] * 40, [0.0] * 40)
    delays = [0.9 if start < HOUR / 2 else 0.0 for start, _ in told]
    sent = [(start + by, end + by) for (start, end), by in zip(told, delays, strict=True)]
    assert worst_hour(told) <= 360.0 + TINY
    assert (worst_hour(sent) <= 360.0 + TINY) is kept


def test_ledger_allows_99_percent_of_the_legal_airtime() -> None:
    """The gateway sends for three hours without a pause of its own."""
    airtime = Modulation(9).airtime(8)
    sent = greedy(Ledger(0.1), [airtime] * 9_000, [0.0] * 9_000)
    assert sent[-1][1] > 3 * HOUR
    assert worst_hour(sent) <= 360.0 + TINY
    later = [end - start for start, end in sent if HOUR <= start < 3 * HOUR]
    assert 0.98 < sum(later) / (2 * 360.0) <= 1.0


def test_the_first_hour_holds_no_more_than_any_other() -> None:
    """A token bucket that is full at the start would allow twice the airtime in the first hour."""
    sent = greedy(Ledger(0.1), [1.0] * 800, [0.0] * 800)
    assert sum(1 for start, _ in sent if start < HOUR) == 360


def test_frame_longer_than_the_limit_is_never_allowed() -> None:
    assert Ledger(0.001).wait(3.7, 0.0) == float("inf")
    assert Ledger(0.001).wait(3.6, 0.0) == 0.0


def test_after_an_hour_everything_is_forgotten() -> None:
    ledger = Ledger(0.01)
    ledger.add(36.0, 100.0)
    assert ledger.wait(0.1, 200.0) == pytest.approx(136.0 + HOUR - 0.1 - 200.0)
    assert ledger.used(136.0 + HOUR - 0.001) == 36.0
    assert ledger.used(136.0 + HOUR + 0.001) == 0.0
    assert ledger.wait(36.0, 136.0 + HOUR) == 0.0


def test_memory_of_the_ledger_has_a_bound() -> None:
    ledger = Ledger(0.1)
    for number in range(40_000):
        ledger.add(0.001, number * 0.2)
        assert len(ledger.blocks(number * 0.2)) <= 2 * BLOCKS
    assert ledger.used(8_000.0) == pytest.approx(18.0, rel=0.01)


# --- a board ---


@settings(max_examples=50, deadline=None)
@given(DUTIES, st.integers(7, 12), st.integers(0, 2**32))
def test_a_board_that_keeps_silent_keeps_the_law(duty: float, factor: int, seed: int) -> None:
    modulation, random = Modulation(factor), Random(seed)
    longest = modulation.airtime(64)
    if longest >= duty * HOUR:
        with pytest.raises(ValueError, match="is more than"):
            silence_factor(longest, duty)
        return
    quiet = silence_factor(longest, duty)
    now, sent = 0.0, []
    while now < 3 * HOUR and len(sent) < 4000:
        airtime = modulation.airtime(random.choice((8, 30, 64)))
        sent.append((now, now + airtime))
        now += airtime * (1 + quiet)
    assert worst_hour(sent[-1500:]) <= duty * HOUR + TINY


def test_the_textbook_silence_alone_is_too_short_for_the_worst_hour() -> None:
    """If the board were silent for 1/d − 1 airtimes after each frame (d: its legal share of the
    time), it would send too long in the worst hour. `silence_factor` returns a longer silence.
    """
    airtime = Modulation(12).airtime(64)
    shares = {}
    for quiet in (1 / 0.01 - 1, silence_factor(airtime, 0.01)):
        starts = [number * airtime * (1 + quiet) for number in range(40)]
        shares[quiet] = worst_hour([(start, start + airtime) for start in starts]) / 36.0
    textbook, ours = shares.values()
    assert textbook > 1.0 >= ours
    assert 99 < silence_factor(airtime, 0.01) < 108


# --- over restarts ---


def ledgers(found: bytes | None = None, *, machine: str = "m", now: float = 0.0) -> Ledgers:
    return Ledgers(EU868, machine, found, now)


def test_a_restart_forgets_nothing_and_a_killed_process_has_sent_all_that_it_might_have() -> None:
    first = ledgers()
    found = first.ask("P", 1.0, 0.0)
    first.grant()
    for number in range(3):
        first.spend("P", 1.0, number)
    again = ledgers(found, now=5.0)
    reserved = first.granted("P") + 3.0
    assert reserved > 3.0
    assert again.ledger("P").used(5.0) == pytest.approx(reserved)
    assert again.ledger("P").used(5.0 + HOUR - 0.001) == pytest.approx(reserved)
    assert again.ledger("M").used(5.0) == 0.0


def test_time_goes_on_over_a_restart_of_the_process_but_not_over_a_reboot() -> None:
    first = ledgers()
    first.ask("P", 10.0, 0.0)
    first.grant()
    first.spend("P", 10.0, 0.0)
    found = first.ask("P", 0.0, 10.0)
    assert ledgers(found, now=3611.0).ledger("P").used(3611.0) == pytest.approx(360 / 64)
    rebooted = ledgers(found, machine="another", now=3.0).ledger("P")
    assert rebooted.used(3.0) == pytest.approx(10.0 + 360 / 64)
    assert rebooted.used(3.0 + 3599.0) == pytest.approx(10.0 + 360 / 64)


def test_sent_airtime_is_granted_and_legal() -> None:
    book = ledgers()
    with pytest.raises(ValueError, match="that the file still grants"):
        book.spend("P", 1.0, 0.0)
    book.ask("P", 1.0, 0.0)
    with pytest.raises(ValueError, match="that the file still grants"):
        book.spend("P", 1.0, 0.0)
    book.grant()
    book.spend("P", 1.0, 0.0)
    book.ask("P", 360.0, 2.0)
    book.grant()
    with pytest.raises(ValueError, match="the law allows a transmission"):
        book.spend("P", 359.5, 2.0)


def test_one_write_grants_its_airtime_once() -> None:
    book = ledgers()
    book.grant()
    assert book.granted("P") == 0.0, "nothing was written"
    found = book.ask("P", 1.0, 0.0)
    book.grant()
    book.grant()
    assert book.granted("P") == json.loads(found)["bands"]["P"]["reserved"]


def test_frames_may_go_on_while_the_file_is_written() -> None:
    book = ledgers()
    book.ask("P", 1.0, 0.0)
    book.grant()
    before = book.granted("P")
    found = book.ask("P", 1.0, 0.0)
    book.spend("P", 0.5, 0.0)
    told = json.loads(found)["bands"]["P"]["reserved"]
    book.grant()
    assert book.granted("P") == pytest.approx(told - 0.5)
    assert book.granted("P") >= before - 0.5


def test_kill_during_a_transmission_does_not_use_up_the_hour() -> None:
    """The contents of the ledger's file are made while a frame is on the air. A kill then costs the
    time of the frame and the reserved time, not the whole hour.
    """
    ledgers = Ledgers(EU868, "m", None, 100.0)
    ledgers.ask("P", 1.0, 100.0)
    ledgers.grant()
    ledgers.spend("P", 1.0, 100.0)
    found = ledgers.ask("P", 1.0, 100.5)
    again = Ledgers(EU868, "m", found, 102.0)
    reserved = json.loads(found)["bands"]["P"]["reserved"]
    assert again.ledger("P").used(102.0) == pytest.approx(1.0 + reserved)


def test_ledger_file_is_written_at_most_100_times_an_hour() -> None:
    book, now, writes = ledgers(), 0.0, 0
    airtime = Modulation(7).airtime(8)
    while now < HOUR:
        if book.low("P"):
            book.ask("P", airtime, now)
            book.grant()
            writes += 1
        now += book.ledger("P").wait(airtime, now)
        if book.ledger("P").wait(airtime, now) == 0.0:
            book.spend("P", airtime, now)
            now += airtime
    assert 64 <= writes <= 130


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"null",
        b"[1]",
        b'{"machine":"m","at":1}',
        b'{"machine":"m","at":"x","bands":{}}',
        b'{"machine":"m","at":1,"bands":{"P":{"reserved":NaN,"sent":[]}}}',
        b'{"machine":"m","at":1,"bands":{"P":{"reserved":-5,"sent":[]}}}',
        b'{"machine":"m","at":1,"bands":{"P":{"reserved":0,"sent":[[1,2],[3,4]]}}}',
        b'{"machine":"m","at":1,"bands":{"P":{"reserved":0,"sent":[[1,2,3]]}}}',
        b'{"machine":"m","at":1,"bands":{"P":{"reserved":0,"sent":%s}}}'
        % json.dumps([[1, 1]] * 1000).encode(),
        b'{"machine":"m","at":1,"bands":{"P":{"reserved":1e305,"sent":[]}}}',
        b'{"machine":"m","at":1%s,"bands":{}}' % (b"0" * 400),
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_damaged_file_counts_as_an_hour_that_is_used_up(
    damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        book = ledgers(damage, now=10.0)
    assert "counts as used" in caplog.text
    assert book.ledger("P").wait(0.1, 10.0) == pytest.approx(HOUR + LATE, abs=1)
    assert book.ledger("P").wait(0.1, 10.0 + HOUR + LATE) == 0.0


@given(st.binary(max_size=200))
def test_no_file_stops_the_gateway(data: bytes) -> None:
    ledgers(data)


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "airtime.json"
    assert read(file) is None
    write(file, b"one")
    write(file, b"two")
    assert read(file) == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["airtime.json"]


def saved(folder: Path, airtime: float) -> Ledgers:
    """Return the ledgers of a gateway that has sent for `airtime` seconds and has written its
    file.
    """
    file = folder / "airtime.json"
    book = Ledgers(EU868, "m", read(file), 0.0, read_count(file))
    write(file, book.ask("P", airtime, 0.0), book.count)
    book.grant()
    book.spend("P", airtime, 0.0)
    write(file, book.ask("P", 0.0, airtime), book.count)
    return book


def used(folder: Path, machine: str = "m") -> float:
    file = folder / "airtime.json"
    return Ledgers(EU868, machine, read(file), 9.0, read_count(file)).ledger("P").used(9.0)


@pytest.mark.parametrize("machine", ["m", "another"])
@pytest.mark.parametrize("copied", ["older", "0.2", "none", "without its count", "damaged count"])
def test_a_copy_that_is_put_back_counts_as_an_hour_used_up(
    tmp_path: Path, machine: str, copied: str
) -> None:
    file = tmp_path / "airtime.json"
    saved(tmp_path, 1.0)
    copy = file.read_bytes()
    saved(tmp_path, 2.0)
    assert used(tmp_path, machine) < 30.0
    if copied == "older":
        file.write_bytes(copy)
    elif copied == "0.2":
        told = json.loads(copy)
        del told["count"]
        file.write_text(json.dumps(told))
    elif copied == "none":
        file.unlink()
    elif copied == "damaged count":
        file.with_suffix(".count").write_bytes(b"\xff\x00")
    else:
        file.with_suffix(".count").unlink()
    assert used(tmp_path, machine) == pytest.approx(360.0)
    again = saved_after(tmp_path)
    assert read_count(file) > again


def saved_after(folder: Path) -> int:
    """Write the airtime file once more, as a gateway does. Return the file's count of writes before
    that.
    """
    file = folder / "airtime.json"
    before = read_count(file)
    book = Ledgers(EU868, "m", read(file), 9.0, before)
    write(file, book.ask("P", 0.0, 9.0), book.count)
    return before


def test_a_record_of_0_2_counts_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "airtime.json"
    saved(tmp_path, 1.0)
    told = json.loads(file.read_bytes())
    del told["count"]
    file.write_text(json.dumps(told))
    file.with_suffix(".count").unlink()
    assert 1.0 < used(tmp_path) < 30.0


def test_a_power_cut_between_the_record_and_its_number_costs_no_hour(tmp_path: Path) -> None:
    file = tmp_path / "airtime.json"
    saved(tmp_path, 1.0)
    before = file.with_suffix(".count").read_bytes()
    saved(tmp_path, 2.0)
    file.with_suffix(".count").write_bytes(before)
    assert 3.0 < used(tmp_path) < 30.0
