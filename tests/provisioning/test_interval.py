"""The sampling interval: which values are valid, and how long the EEPROM lasts with each."""

import pytest

from gateway.errors import OncewayError
from provisioning.interval import parse


@pytest.mark.parametrize(
    ("text", "command", "seconds"),
    [
        ("90s", "interval 90 s", 90),
        (" 15 min ", "interval 15 min", 900),
        ("15m", "interval 15 min", 900),
        ("2h", "interval 120 min", 7200),
        ("1d", "interval 1440 min", 86_400),
        ("65534ms", "interval 65534", 65.534),
        ("65535s", "interval 65535 s", 65_535),
        ("65535min", "interval 65535 min", 65_535 * 60),
    ],
)
def test_typed_interval_becomes_the_command_of_the_board(
    text: str, command: str, seconds: float
) -> None:
    found = parse(text)
    assert (found.command, found.seconds) == (command, seconds)


@pytest.mark.parametrize(
    "text", ["", "15", "s", "0s", "-5s", "1.5s", "65535ms", "65536s", "46d", "10 weeks", "5s force"]
)
def test_invalid_interval_is_an_error(text: str) -> None:
    with pytest.raises(OncewayError, match="is not an interval of a sensor"):
        parse(text)


@pytest.mark.parametrize(("text", "years"), [("60s", 11.4), ("1s", 0.19), ("1h", 100)])
def test_estimated_eeprom_life_matches_the_firmware_readme(text: str, years: float) -> None:
    """The guide says 11.4 years at one reading a minute, 69 days at one a second, and more than 100
    years at one an hour.
    """
    assert parse(text).years() == pytest.approx(years, rel=0.01)


def test_short_eeprom_life_is_shown_in_days_and_counts_earlier_writes() -> None:
    with pytest.raises(OncewayError, match="every 1s, the board's EEPROM lasts only 69"):
        parse("1s").check()
    parse("1min").check()
    with pytest.raises(OncewayError, match="every 1min, the board's EEPROM lasts only 0"):
        parse("1min").check(next_sequence=6_000_000)
