"""The airtime that a site needs, and the error about a plan that cannot work."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from math import e, exp
from pathlib import Path
from random import Random

import pytest

from gateway.links.lora.exchange import Radio, exchange
from gateway.links.lora.plan import MOST_TRIES, Site, most_heard, plan, remedies, say

ONCEWAY = Path(sys.executable).with_name("onceway")
HOUR = 3600.0
SITE = Site(sensors=100, every=600.0, factor=7)


def _radio(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [ONCEWAY, "radio", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("radio", "goal"), [(Radio.SX127X, 400), (Radio.KISS, 490), (Radio.RYLR998, 500)]
)
def test_an_exchange_at_sf9_is_within_its_goal(radio: Radio, goal: int) -> None:
    assert exchange(20, 9, radio).airtime * 1000 <= goal


def test_an_exchange_costs_what_the_table_in_the_readme_says() -> None:
    readme = (Path(__file__).parents[3] / "gateway/links/lora/README.md").read_text()
    rows = re.findall(r"^\| (sx127x|kiss|rylr998) \|(.*)\|$", readme, re.MULTILINE)
    assert [name for name, _ in rows] == ["sx127x", "kiss", "rylr998"]
    for name, cells in rows:
        for factor, cell in zip((7, 9, 12), cells.split("|"), strict=True):
            if cell.strip() != "–":
                told = exchange(20, factor, Radio(name)).airtime * 1000
                assert float(cell.replace(",", "")) == round(told, 1)


def test_a_site_without_collisions_needs_what_its_frames_take() -> None:
    """A single board sends 6 readings an hour in the band that allows ten percent, so there are no
    collisions.
    """
    alone = plan(replace(SITE, sensors=1))
    cost = exchange(20, 7)
    assert alone.board.used == pytest.approx(6 * cost.up, rel=1e-3)
    assert alone.gateway.used == pytest.approx(6 * cost.down, rel=1e-3)
    assert alone.collisions < 1e-3


def test_collisions_are_those_of_pure_aloha() -> None:
    """To first order, an exchange collides with each exchange of another board that begins up to
    one airtime before or after its own begin.
    """
    cost, rate = exchange(20, 7), 99 / 600
    expected = 1 - exp(-rate * 2 * cost.airtime)
    assert plan(SITE).collisions == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("factor", [7, 9, 12])
def test_reception_on_a_full_channel_matches_the_plan(factor: int) -> None:
    """A plan allows sensors up to just below the limit. The limit is about 1/2e, as in pure ALOHA,
    less the airtime of the gateway's answers.
    """
    site = Site(1, 100_000 * exchange(20, factor).up, factor)
    most = most_heard(factor, Radio.SX127X)
    heard = [
        made.site.exchange.up / made.site.exchange.down * made.gateway.used / HOUR
        for sensors in range(100, 20_000, 100)
        if (made := plan(replace(site, sensors=sensors))).tries <= MOST_TRIES
    ]
    assert 0.97 * most < heard[-1] <= most
    assert heard == sorted(heard)
    assert 0.15 < most < 1 / (2 * e)


def test_the_channel_behaves_as_the_model_says() -> None:
    """Boards with random phases send on a simulated channel. The share of their first attempts that
    collide is compared with the model.
    """
    site = Site(sensors=60, every=60.0, factor=8)
    cost, random = site.exchange, Random(7)
    sends: list[tuple[float, float]] = []
    for _ in range(site.sensors):
        moment = random.uniform(0, site.every)
        while moment < 20_000:
            sends.append((moment, moment + cost.up))
            moment += random.expovariate(1 / site.every)
    sends.sort()
    spoiled, busy_until, last_answer_end = 0, 0.0, 0.0
    for index, (start, end) in enumerate(sends):
        following = sends[index + 1][0] if index + 1 < len(sends) else float("inf")
        heard = start >= busy_until and start >= last_answer_end and following >= end
        if heard:
            last_answer_end = end + cost.down
        spoiled += not heard or following < end + cost.down
        busy_until = max(busy_until, end)
    once = 1 - exp(-2 * cost.airtime * site.sensors / site.every)
    assert spoiled / len(sends) == pytest.approx(once, rel=0.1)
    assert plan(site).collisions > once


def test_loss_costs_tries_of_the_board_and_answers_of_the_gateway() -> None:
    clean, lossy = plan(replace(SITE, sensors=1)), plan(replace(SITE, sensors=1, loss=0.2))
    assert lossy.tries == pytest.approx(1 / 0.8**2, rel=1e-2)
    assert lossy.gateway.used / clean.gateway.used == pytest.approx(1 / 0.8, rel=1e-2)


def test_the_longer_preamble_of_a_kiss_modem_is_charged_to_the_gateway_alone() -> None:
    kiss, bare = plan(replace(SITE, radio=Radio.KISS)), plan(SITE)
    assert kiss.gateway.used > 1.6 * bare.gateway.used
    assert kiss.site.exchange.up == bare.site.exchange.up


@pytest.mark.parametrize(
    ("site", "problem"),
    [
        (replace(SITE, factor=9, frequency=868_100_000), "the gateway would have to send"),
        (replace(SITE, sensors=2, every=20.0, factor=10, frequency=868_100_000), "each board"),
        (replace(SITE, every=6.0), "the channel is full"),
        (replace(SITE, every=1.0), "ever more tries"),
        (replace(SITE, sensors=100_000, every=1.0), "ever more tries"),
    ],
)
def test_a_site_that_cannot_work_hears_why_and_what_would(site: Site, problem: str) -> None:
    worked_out = plan(site)
    assert not worked_out.works
    assert problem in " ".join(worked_out.problems)
    assert remedies(site)


def test_plan_holds_for_its_boards_and_fails_for_one_more() -> None:
    site = replace(SITE, factor=9, frequency=868_100_000)
    (sensors, every, *_) = remedies(site)
    most = int(sensors.split()[0])
    assert plan(replace(site, sensors=most)).works
    assert not plan(replace(site, sensors=most + 1)).works
    assert every == "a reading every 24 min"
    assert plan(replace(site, every=24 * 60.0)).works
    assert plan(replace(site, sensors=most)).tries < MOST_TRIES


def test_a_remedy_is_named_only_if_it_is_enough() -> None:
    """Ten million sensors overload the channel even with one reading a day."""
    crowd = replace(SITE, sensors=10_000_000, frequency=868_100_000)
    (only,) = remedies(crowd)
    assert plan(replace(crowd, sensors=int(only.removesuffix(" sensors at most")))).works
    assert remedies(replace(crowd, every=1.0)) == [], "one sensor alone would send too long"


def test_a_single_sensor_that_sends_too_much_has_no_smaller_site() -> None:
    """A frame of SF12 takes longer than a second."""
    site = Site(sensors=1, every=1.0, factor=12, frequency=868_100_000)
    assert not plan(replace(site, every=120.0)).works
    assert plan(replace(site, every=180.0)).works
    assert remedies(site)[0] == "a reading every 3 min"


def test_the_command_says_that_more_tries_overload_the_channel() -> None:
    done = _radio("plan", "--sensors", "100000", "--every", "1s", "--sf", "7")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == (
        "channel     overloaded: more tries bring fewer readings"
    )
    assert "inf" not in done.stdout + done.stderr


def test_the_command_tells_the_figures() -> None:
    done = _radio("plan", "--sensors", "100", "--every", "10m", "--sf", "7", "--json")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert told["works"] is True
    assert told["airtime"]["exchange"] == pytest.approx(exchange(20, 7).airtime)
    assert told["every"] == 600
    assert told["gateway"]["limit"] == 360
    assert 0 < told["gateway"]["share"] < 0.1
    assert "band P" in told["rule"]
    text = _radio("plan", "--sensors", "100", "--every", "10m", "--sf", "7").stdout
    assert "108.0 ms together" in text


def test_the_command_refuses_a_site_that_cannot_work_and_names_the_rule() -> None:
    site = ("--sensors", "100", "--every", "10m", "--sf", "9", "--frequency", "868.1")
    done = _radio("plan", *site)
    assert done.returncode == 1
    assert "EN 300 220-2 band M: duty cycle 1.0%" in done.stderr
    assert "What would work: " in done.stderr
    as_json = _radio("plan", *site, "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["works"] is False
    assert "sensors at most" in json.loads(as_json.stderr)["hint"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--every", "10"), "not a time from 1 s to 7 d"),
        (("--every", "0s"), "not a time from 1 s to 7 d"),
        (("--every", "-3m"), "not a time from 1 s to 7 d"),
        (("--region", "EU999"), "Use one of EU868"),
        (("--frequency", "915"), "lies in no sub-band"),
        (("--frequency", "nan"), "not a frequency"),
        (("--frequency", "868.59"), "lies in no sub-band"),
        (("--sf", "12", "--radio", "rylr998"), "RYLR998 has no SF12"),
        (("--sf", "12", "--payload", "200", "--frequency", "868.9"), "is more than 0.1%"),
    ],
)
def test_impossible_plan_is_reported(arguments: tuple[str, ...], said: str) -> None:
    options = {"--sensors": "5", "--every": "1h", "--sf": "7"}
    options |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    done = _radio("plan", *(word for pair in options.items() for word in pair))
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 s"), (90, "90 s"), (60, "1 min"), (600, "10 min"), (5400, "90 min"), (7200, "2 h")],
)
def test_times_are_said_in_their_largest_whole_unit(seconds: int, words: str) -> None:
    assert say(seconds) == words
