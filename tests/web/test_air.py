"""Radios on the page: how much airtime they have used, how much the law allows, and how well each
board is received.
"""

from dataclasses import replace
from pathlib import Path

from gateway.config import parse
from gateway.links.lora.status import BoardSignal, RadioStatus
from gateway.web.air import air, heard
from gateway.web.overview import History, overview
from gateway.web.source import Source
from tests.web.test_web import a_source

LORA = {"lora": [{"port": "/dev/modem", "network": 7}]}
WELL = RadioStatus(
    "/dev/modem",
    True,
    "KISS modem",
    None,
    "EN 300 220-2 band P",
    3.6,
    360.0,
    {"answers": 4, "malformed": 1},
    ["roof-1"],
    [BoardSignal("roof-1", 12.34, -75.0, 9.5, 1.25)],
    frequency=869_525_000,
    factor=7,
    network=7,
    numbers={1: "roof-1", 2: "cellar-2"},
)


def source(folder: Path, *radios: RadioStatus) -> Source:
    made = a_source(folder, parse(LORA, "here"))
    return replace(made, radios=lambda: list(radios))


def test_air_lists_heard_boards_and_unheard_boards(tmp_path: Path) -> None:
    (radio,) = air(source(tmp_path, WELL))
    assert (radio["used"], radio["limit"]) == (3.6, 360.0)
    assert radio["boards"] == [
        {
            "name": "roof-1",
            "connected": True,
            "heard": 12.3,
            "rssi": -75.0,
            "snr": 9.5,
            "airtime": 1.25,
        },
        {
            "name": "cellar-2",
            "connected": False,
            "heard": None,
            "rssi": None,
            "snr": None,
            "airtime": 0.0,
        },
    ]


def test_page_of_a_board_names_the_radio_that_heard_it_last(tmp_path: Path) -> None:
    before = replace(WELL, path="/dev/other", boards=[BoardSignal("roof-1", 90, -110, -3, 0.1)])
    made = source(tmp_path, before, WELL)
    found = heard(made, "roof-1")
    assert found is not None
    assert (found["port"], found["snr"], found["limit"]) == ("/dev/modem", 9.5, 360.0)
    assert heard(made, "cellar-2") is None


def test_first_view_shows_a_modem_in_trouble(tmp_path: Path) -> None:
    broken = replace(WELL, is_open=False, problem="no KISS modem answers")
    found = overview(source(tmp_path, broken), None, History(), (0, 0))
    assert found["radios"] == 1
    (problem,) = [item for item in found["problems"] if item["part"] == "radio"]
    assert "no KISS modem answers" in problem["what"]
    assert "onceway radio status" in problem["todo"]
