"""The rig computes the expected payloads of a simulated board from what the simulator logs about
its ADC, not from the records of the board's program.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.boards.adc_log import AdcLog, Conversion, Started
from hil.devices.samples import ImpossibleContentError, Samples
from hil.judge.senml import Record

EXTERNAL, POWER_ON = 2, 0


def made(
    conversions: Sequence[int],
    starts: Sequence[tuple[int, str]] = ((0, "power-on"),),
    *,
    tells: bool = False,
    earlier: int = 0,
) -> Samples:
    """Return the samples of a board. conversions, starts: cycles at which they happen. Conversion
    n, from 0, has the value n. tells: whether the board is known to report its starts. earlier:
    number of starts before the run.
    """
    log = AdcLog(Path("nowhere"))
    log.conversions += [
        Conversion(cycle, 1000 + cycle, 0, 5_000_000 * (2 * n + 1) // 2048)
        for n, cycle in enumerate(conversions)
    ]
    log.starts += [Started(cycle, 1000 + cycle, cause) for cycle, cause in starts]
    return Samples("uno-1", log, tells=tells, earlier=earlier)


def test_a_reading_is_the_last_conversion_before_its_slot_was_written() -> None:
    samples = made([10, 20])
    first, second = samples.reading(12), samples.reading(23)
    assert first.records == (Record("uno-1:adc0", 0.0, None, "V"),)
    assert second.records == (Record("uno-1:adc0", 5 / 1024, None, "V"),)
    assert (second.ns, second.cycle, second.topic) == (1020, 20, "sensors/uno-1/adc0")


def test_a_board_that_is_known_to_tell_its_starts_tells_the_first_one_too() -> None:
    with pytest.raises(ImpossibleContentError, match="has not reported its start"):
        made([10], tells=True).reading(12)
    told = made([10], tells=True)
    told.status(5, 1, POWER_ON)
    assert told.reading(12).cycle == 10


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30))
def test_conversions_that_became_no_reading_are_missed(gaps: list[int]) -> None:
    """gaps: for each reading, the number of ADC conversions since the previous reading. The last
    conversion is the reading's own; the others were missed.
    """
    samples = made(range(10, 10 * sum(gaps) + 11, 10))
    at = 0
    for gap in gaps:
        at += gap
        told = [record.value for record in samples.reading(10 * at + 1).records[1:]]
        assert told == [gap - 1] * (gap > 1)


def test_a_start_forgets_what_was_missed_before() -> None:
    samples = made([10, 20, 30, 110, 120], [(0, "power-on"), (100, "external")])
    assert len(samples.reading(11).records) == 1
    assert samples.reading(121).records[1] == Record("uno-1:missed", 1, None)


@pytest.mark.parametrize("begun", [5, 12])
def test_a_conversion_serves_one_reading(begun: int) -> None:
    samples = made([10])
    if begun > 10:
        samples.reading(11)
    with pytest.raises(ImpossibleContentError, match="no new ADC conversion for this reading"):
        samples.reading(begun)


def test_a_status_tells_a_number_that_its_starts_allow() -> None:
    starts = [(0, "power-on"), (100, "external"), (200, "external"), (300, "external")]
    assert made([], starts).status(116, 2, POWER_ON).ns == 1100 + 1000  # 16 cycles a µs
    samples = made([], starts)
    samples.status(10, 1, POWER_ON)
    assert samples.status(20, 1, POWER_ON).cycle == 20  # sent again in the same start
    told = samples.status(310, 3, EXTERNAL)
    assert told.topic == "sensors/uno-1/status"
    assert [record[:2] for record in told.records] == [("uno-1:boot", 3), ("uno-1:cause", EXTERNAL)]


def test_starts_of_a_used_board_count_beyond_their_16_bits() -> None:
    """A status message contains only the low 14 bits of the count of starts."""
    starts = [(0, "power-on"), (100, "power-on"), (200, "power-on")]
    samples = made([], starts, tells=True, earlier=0xFFFE)
    told = [
        samples.status(at, boot, POWER_ON).records[0].value
        for at, boot in [(10, 0x3FFF), (110, 0), (210, 1)]
    ]
    assert told == [0x3FFF, 0, 1]


@pytest.mark.parametrize("second", [0x3FFD, 0x3FFE, 0x3FFF, 3])
def test_a_used_board_whose_starts_do_not_go_up_by_one_or_a_few(second: int) -> None:
    samples = made([], [(0, "power-on"), (100, "power-on")], earlier=0xFFFE)
    samples.status(10, 0x3FFF, POWER_ON)
    with pytest.raises(ImpossibleContentError, match=f"start {second} follows start 16383"):
        samples.status(110, second, POWER_ON)


@pytest.mark.parametrize(
    ("second", "boot", "cause", "why"),
    [
        (210, 1, EXTERNAL, "start 1 follows start 1, but this run started the board 3 ×"),
        (210, 7, EXTERNAL, "start 7 follows start 1"),
        (210, 3, POWER_ON, "reported cause 0, but the real one was external"),
        (310, 3, EXTERNAL, "reported cause 2, but the real one was power-on"),
        (20, 2, POWER_ON, "boot and cause were (1, 0), now (2, 0)"),
        (20, 1, EXTERNAL, "boot and cause were (1, 0), now (1, 2)"),
    ],
)
def test_a_status_that_its_starts_do_not_allow(
    second: int, boot: int, cause: int, why: str
) -> None:
    starts = [(0, "power-on"), (100, "external"), (200, "external"), (300, "power-on")]
    samples = made([], starts)
    samples.status(10, 1, POWER_ON)
    with pytest.raises(ImpossibleContentError, match=re.escape(why)):
        samples.status(second, boot, cause)


def test_a_board_that_tells_its_starts_tells_each() -> None:
    samples = made([20, 120], [(0, "power-on"), (100, "external")])
    samples.status(10, 1, POWER_ON)
    samples.reading(21)
    with pytest.raises(ImpossibleContentError, match="has not reported its start"):
        samples.reading(121)
    samples.status(122, 2, EXTERNAL)
    samples.reading(123)


def test_a_power_on_just_before_may_show_behind_the_boot_loader() -> None:
    """The reset at 200 may happen before the program has marked its RAM after a power-on. The
    program then still reports the power-on, so both causes are allowed.
    """
    starts = [(0, "power-on"), (100, "power-on"), (200, "external")]
    for cause in (POWER_ON, EXTERNAL):
        samples = made([], starts)
        samples.status(10, 1, POWER_ON)
        samples.status(210, 2, cause)


def test_a_board_that_never_started_has_no_status() -> None:
    with pytest.raises(ImpossibleContentError, match="the board had not started"):
        made([], [(100, "power-on")]).status(50, 1, POWER_ON)
