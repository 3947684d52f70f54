"""Airtime, compared with published figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import OncewayError
from gateway.links.lora.airtime import LONGEST, Modulation
from gateway.system.regions import EU868

FACTORS = st.integers(7, 12)


@pytest.mark.parametrize(
    ("factor", "length", "milliseconds"),
    [
        (7, 20, 56.576),
        (8, 20, 102.912),
        (9, 20, 185.344),
        (10, 20, 370.688),
        (11, 20, 741.376),
        (12, 20, 1318.912),
        (9, 13, 164.864),
        (7, 0, 25.856),
        (12, 255, 9019.392),
    ],
)
def test_airtime_at_125_khz(factor: int, length: int, milliseconds: float) -> None:
    assert Modulation(factor).airtime(length) * 1000 == pytest.approx(milliseconds, abs=1e-6)


def test_airtime_follows_the_data_sheet() -> None:
    """SX1276 data sheet, 4.1.1.7, calculated by hand: ⌈(8·10 − 4·8 + 28 + 0 − 20)/(4·8)⌉·8 + 8."""
    bare = Modulation(8, 250_000, coding=4, preamble=12, header=False, crc=False)
    assert bare.symbols(10) == 8 + 2 * 8
    assert bare.airtime(10) == pytest.approx((12 + 4.25 + 24) * 256 / 250_000)


def test_long_symbols_take_the_low_data_rate_optimisation() -> None:
    assert [Modulation(factor).slow for factor in range(7, 13)] == [False] * 4 + [True] * 2
    assert not Modulation(11, 250_000).slow
    assert Modulation(12, 250_000).slow


def test_a_longer_preamble_costs_its_symbols() -> None:
    """A KISS modem has preambles of 16 symbols at SF9, and 32 at SF7."""
    for factor, preamble in ((9, 16), (7, 32)):
        longer = Modulation(factor, preamble=preamble).airtime(8) - Modulation(factor).airtime(8)
        assert longer == pytest.approx((preamble - 8) * Modulation(factor).symbol)


@given(FACTORS, st.integers(0, LONGEST - 1))
def test_no_byte_makes_a_frame_shorter(factor: int, length: int) -> None:
    modulation = Modulation(factor)
    assert modulation.airtime(length) <= modulation.airtime(length + 1)
    assert modulation.airtime(length) * 1e6 == pytest.approx(
        round(modulation.airtime(length) * 1e6)
    )


@pytest.mark.parametrize(
    "wrong", [{"factor": 6}, {"factor": 13}, {"bandwidth": 62_500}, {"coding": 5}, {"preamble": 5}]
)
def test_impossible_lora_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="not"):
        Modulation(**{"factor": 9} | wrong)


@pytest.mark.parametrize("length", [-1, 256])
def test_no_frame_is_longer_than_a_radio_sends(length: int) -> None:
    with pytest.raises(ValueError, match="0…255"):
        Modulation(9).airtime(length)


@pytest.mark.parametrize(
    ("frequency", "name", "duty"),
    [
        (863_062_500, "K", 0.001),
        (868_100_000, "M", 0.01),
        (868_537_500, "M", 0.01),
        (868_950_000, "N", 0.001),
        (869_525_000, "P", 0.1),
        (869_850_000, "R", 0.01),
    ],
)
def test_a_channel_has_the_rules_of_its_sub_band(frequency: int, name: str, duty: float) -> None:
    band = EU868.band(frequency)
    assert (band.name, band.duty) == (name, duty)
    assert f"EN 300 220-2 band {name}: duty cycle {duty:.1%}" in band.rule


@pytest.mark.parametrize("frequency", [868_550_000, 868_650_000, 869_300_000, 915_000_000])
def test_a_channel_that_leaves_its_sub_band_is_refused(frequency: int) -> None:
    with pytest.raises(OncewayError, match="lies in no sub-band of EU868") as raised:
        EU868.band(frequency)
    assert "869.4…869.65 (P)" in str(raised.value)


def test_a_wide_channel_fits_the_band_of_ten_percent_but_no_wider_one() -> None:
    assert EU868.band(EU868.frequency, 250_000).name == "P"
    with pytest.raises(OncewayError):
        EU868.band(EU868.frequency, 500_000)
