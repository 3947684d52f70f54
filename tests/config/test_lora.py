"""[[lora]]: a setting that the law forbids is refused, and the message names the rule."""

from typing import Any

import pytest

from gateway.config import ConfigError, parse


def lora(**keys: Any) -> dict[str, Any]:
    return {"lora": [{"port": "/dev/modem"} | keys]}


def test_the_default_is_the_channel_with_ten_percent() -> None:
    (section,) = parse(lora(boards={"roof-7": 7}), "file").lora
    assert (section.frequency, section.spreading_factor, section.power) == (869_525_000, 9, 14)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"power": 15, "frequency": 868_100_000}, "EN 300 220-2 band M: duty cycle 1.0%, 14 dBm"),
        ({"power": 28}, "EN 300 220-2 band P: duty cycle 10.0%, 27 dBm"),
        ({"power": -10}, "power"),
        ({"modem": "rylr998", "spreading_factor": 10}, "an RYLR998 allows at most 9"),
        ({"modem": "rylr998", "power": 23}, "an RYLR998 sends with 0 to 22 dBm"),
        ({"modem": "rnode"}, "modem"),
        ({"frequency": 869_300_000}, "869.3 MHz with 125 kHz lies in no sub-band of EU868"),
        ({"frequency": 869_400_000}, "869.4 MHz with 125 kHz lies in no sub-band of EU868"),
        ({"spreading_factor": 6}, "spreading_factor"),
        ({"region": "US915"}, "region"),
        ({"boards": {"a": 0}}, "boards"),
        ({"boards": {"a": 255}}, "boards"),
        ({"boards": {"a": 1, "b": 1}}, "two boards have the same number"),
    ],
)
def test_impossible_settings_are_refused_with_the_reason(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(lora(**wrong), "file")
    assert why in str(error.value)


def test_one_port_is_for_one_section() -> None:
    with pytest.raises(ConfigError, match="two sections have the port"):
        parse(lora() | {"serial": [{"port": "/dev/modem"}]}, "file")
