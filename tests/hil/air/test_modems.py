"""Each kind of modem in the ether: the airtime of a reading, and a modem that resets, hangs, or
differs from the configuration.
"""

import asyncio
import signal
from pathlib import Path

import pytest

from gateway.commands.control_client import ask
from gateway.links.lora.frames import ANSWER, TURN
from hil.air.physics import Channel, airtime
from tests.hil.air.radio_site import RadioSite

pytestmark = pytest.mark.sim

CHANNEL = Channel(869_525_000, 125_000, 9)
PAYLOAD = 22
"""Largest payload that the board of tests/lora.c sends, in bytes. The goals for the airtime assume
20 bytes.
"""


@pytest.mark.parametrize(
    ("modem", "preamble", "goal"), [("kiss", 16, 0.490), ("rylr998", 8, 0.500)]
)
async def test_readings_arrive_and_cost_on_the_air_no_more_than_the_goal(
    tmp_path: Path, modem: str, preamble: int, goal: float
) -> None:
    site = RadioSite(tmp_path, "roof-1", factor=9, modem=modem)
    try:
        await site.begin("--tell")
        await site.start_gateway()
        await site.start_board("roof-1")
        assert len(await site.rows("roof-1", 4, 90)) >= 4
        head = 8 if modem == "rylr998" else 0
        spent = {TURN: 0.0, ANSWER: 0.0}
        for told in await site.frames(10):  # of each kind, the airtime of the last frame stays
            frame = bytes.fromhex(told["frame"])
            kind, of_board = frame[head + 2] >> 6, told["from"] == "roof-1"
            if kind in spent:
                spent[kind] = airtime(CHANNEL, 1, 8 if of_board else preamble, len(frame))
        assert 0.2 < sum(spent.values()) <= goal
        (radio,) = await asyncio.to_thread(ask, tmp_path, do="radios")
        assert radio["is_open"]
        assert radio["told"].startswith("KISS" if modem == "kiss" else "RYLR998")
    finally:
        code, report = await site.end()
    assert code == 0, report["breaches"]


async def test_an_rylr998_that_resets_and_one_that_hangs_are_opened_again(tmp_path: Path) -> None:
    site = RadioSite(tmp_path, "roof-1", modem="rylr998")
    try:
        await site.begin()
        gateway = await site.start_gateway()
        await site.start_board("roof-1")
        before = len(await site.rows("roof-1", 2, 60))
        site.signal("modem", signal.SIGUSR1)
        await gateway.logged("the modem was reset")
        before = len(await site.rows("roof-1", before + 2, 60))
        site.signal("modem", signal.SIGUSR2)
        await gateway.logged("the modem hangs")
        site.signal("modem", signal.SIGUSR1)
        rows = await site.rows("roof-1", before + 2, 60)
        assert [number for number, _ in rows] == list(range(1, len(rows) + 1))
    finally:
        await site.end()


@pytest.mark.parametrize(
    ("configured", "plugged_in", "said"),
    [
        ("kiss", "rylr998", 'the modem accepts AT commands: write modem = "rylr998" in [[lora]]'),
        ("rylr998", "kiss", "no RYLR998 answers"),
    ],
)
async def test_other_modem_than_configured_is_reported(
    tmp_path: Path, configured: str, plugged_in: str, said: str
) -> None:
    site = RadioSite(tmp_path, "roof-1", modem=configured)
    try:
        await site.begin_without_modem()
        await site.plug_in(plugged_in)
        gateway = await site.start_gateway()
        await gateway.logged(said)
        (row,) = await asyncio.to_thread(ask, tmp_path, do="status")
        assert [problem["part"] for problem in row["problems"]] == ["radio"]
    finally:
        await site.end()
