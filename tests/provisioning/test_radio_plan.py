"""Radio settings in the identity page: their bytes, and settings that the law forbids."""

import pytest

from gateway.errors import OncewayError
from provisioning.radio_plan import AT, SIZE, RadioPlan


def test_radio_plan_bytes_are_those_that_the_firmware_reads() -> None:
    page = RadioPlan(network=7, device=3, factor=9, frequency=869_525_000, power=14).to_bytes()
    assert page[:-2] == b"OWLR\x01\x07\x03\x09\x0e\x00\x0a" + (0xD9619A).to_bytes(4, "big")
    assert len(page) == SIZE
    assert AT + SIZE <= 128


def test_board_is_silent_for_longer_under_a_lower_duty_cycle() -> None:
    assert RadioPlan(1, 1).silence == 10
    assert RadioPlan(1, 1, frequency=868_300_000).silence == 101


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"frequency": 868_300_000, "power": 15}, "EN 300 220-2 band M"),
        ({"frequency": 869_300_000}, "lies in no sub-band"),
        ({"frequency": 864_000_000, "factor": 12}, "band K"),
    ],
)
def test_plan_beyond_the_legal_limits_is_refused_with_the_rule(
    wrong: dict[str, int], rule: str
) -> None:
    with pytest.raises(OncewayError, match=rule):
        _ = RadioPlan(1, 1, **wrong).silence


@pytest.mark.parametrize("wrong", [{"device": 0}, {"device": 255}, {"factor": 6}, {"power": 20}])
def test_plan_beyond_the_abilities_of_a_board_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"^(network|SF)"):
        RadioPlan(**{"network": 1, "device": 1} | wrong)
