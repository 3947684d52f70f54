"""The orders that the rig gives to a simulated board before its start."""

from pathlib import Path

from hil.boards.adc_log import STEPS, STRIDE
from hil.devices.simulated import SOON, first_step

FIRMWARE = Path(__file__).parents[3] / "firmware"


def test_the_schedule_goes_on_as_the_simulator_does() -> None:
    assert f"#define STRIDE {STRIDE} " in (FIRMWARE / "sim" / "adc.c").read_text()


def test_an_end_of_the_scale_comes_soon_and_no_two_boards_begin_alike() -> None:
    for seed in range(50):
        begins = [first_step(f"uno-{number}", seed, f"uno-{number}") for number in (1, 2, 3, 4)]
        assert len(set(begins)) == len(begins)
        for number, begin in enumerate(begins):
            soon = [(begin + STRIDE * index) % STEPS for index in range(2 * SOON)]
            assert (STEPS - 1, 0)[number % 2] in soon
