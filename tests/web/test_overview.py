"""The page's first view: problems and their remedies, and how long the free space lasts."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.bridge.status import BridgeStatus
from gateway.broker.lack import Bound
from gateway.broker.spool import Oldest
from gateway.config import parse
from gateway.system.causes import FULL
from gateway.uplink.spool import Totals
from gateway.web.overview import SAMPLE_S, SAMPLES, History, overview
from gateway.web.source import Source
from gateway.web.uplink import UplinkState
from tests.web.test_web import a_source

UPLINK = {"uplink": {"landing": "file:///landing"}}
NOW = time.time_ns() // 1000


def uplink(running: bool = True, outage: bool = False, messages: int = 0) -> UplinkState:
    error = "no route to host" if outage else None
    return UplinkState(running, outage, 3, 2, NOW, Totals(2, messages, 900, 0), error)


def source(folder: Path, **sections: Any) -> Source:
    made = a_source(folder, parse(UPLINK | sections, "here"))
    made.broker.set_clock(NOW)
    return made


def problems(found: dict[str, Any]) -> list[str]:
    return [item["part"] for item in found["problems"]]


def test_working_gateway_shows_no_problem(tmp_path: Path) -> None:
    found = overview(source(tmp_path), uplink(messages=26), History(), (1, 2))
    assert problems(found) == []
    assert found["boards"] == {"connected": 1, "known": 2}
    assert (found["uplink"]["cut"], found["uplink"]["landed"], found["uplink"]["messages"]) == (
        3,
        2,
        26,
    )


@pytest.mark.parametrize(
    ("state", "part", "words"),
    [
        (uplink(running=False), "process", "sudo systemctl start onceway-uplink"),
        (uplink(outage=True), "uplink", "sudo onceway uplink status"),
    ],
)
def test_stalled_uplink_needs_attention(
    tmp_path: Path, state: UplinkState, part: str, words: str
) -> None:
    found = overview(source(tmp_path), state, History(), (0, 0))
    (problem,) = found["problems"]
    assert problem["part"] == part
    assert words in problem["todo"]
    assert not state.outage or "no route to host" in problem["what"]


def test_unsynchronised_clock_needs_attention(tmp_path: Path) -> None:
    found = overview(a_source(tmp_path), None, History(), (0, 0))
    assert problems(found) == ["clock"]
    assert found["uplink"] is None, "none is configured"
    assert (found["clock"], found["started"]) == (False, None)


def test_waiting_time_is_known_without_a_synchronised_clock(tmp_path: Path) -> None:
    made = a_source(tmp_path, parse(UPLINK, "here"))
    spool = made.broker.spool
    spool.size, spool.lowest, spool.next = 100, 1, 2
    made.broker.now = 100.0
    spool.oldest = Oldest(spool.boot, made.broker.monotonic - 40_000_000, None)
    found = overview(made, uplink(), History(), (0, 0))
    assert (found["spool"]["since"], found["spool"]["from"]) == (None, 60_000_000)
    assert "batches wait" in found["problems"][0]["what"]
    alone = overview(a_source(tmp_path), None, History(), (0, 0))
    assert alone["problems"][0]["what"] == "the clock is not synchronised", "no batch waits"


def test_every_health_problem_has_a_remedy(tmp_path: Path) -> None:
    made = source(tmp_path, serial=[{"port": "/dev/ttyNone"}])
    made.broker.disk_lack = FULL.reason
    made.broker.spool.full = True
    made.broker.pauses.refused(1, made.broker.now, Bound.SPOOL, "t")
    silent = {"name": "barn", "connected": False, "problem": None}
    found = overview(replace(made, site=lambda: [silent]), uplink(), History(), (0, 0))
    assert problems(found) == ["store", "spool", "publishers", "serial", "site"]
    assert all(item["todo"] for item in found["problems"])


def test_history_counts_received_landed_and_waiting_messages_between_samples(
    tmp_path: Path,
) -> None:
    made, history = source(tmp_path), History()
    assert history.per_day() is None
    assert overview(made, None, history, (0, 0))["room_days"] is None
    for number in range(SAMPLES + 5):
        made.broker.spool.next += 10
        history.add(made, uplink(running=number % 2 == 0, messages=number * 8))
    found = history.public()
    assert {len(series) for series in found.values()} == {SAMPLES}
    assert set(found["came"]) == {10}
    assert set(found["landed"]) == {8}
    assert found["down"][-2:] == [1, 0]
    assert history.per_day() == pytest.approx(10 * 86_400 / SAMPLE_S)


def test_a_total_that_could_not_be_read_makes_no_peak(tmp_path: Path) -> None:
    made, history = source(tmp_path), History()
    for state in (uplink(messages=21_208), None, uplink(messages=21_273), uplink(messages=21_275)):
        history.add(made, state)
    assert history.public()["landed"] == [0, 0, 2]


def test_duplicate_packet_counts_once(tmp_path: Path) -> None:
    made, history = a_source(tmp_path), History()
    for _ in range(2):
        history.add(made, None)  # the first one notes that there is no uplink
    made.broker.statistics.received[2] += 3
    made.broker.statistics.repeated += 1
    history.add(made, None)
    assert history.public()["came"][-1] == 2


def test_count_of_one_is_written_in_the_singular(tmp_path: Path) -> None:
    state = BridgeStatus("cloud", "mqtts://far", None, 0, 0, 1, 0, 0, 0)
    bridge = replace(state, aside=1, unconfirmed=1, held=1, error="no route", waiting=1)
    found = overview(replace(source(tmp_path), bridges=lambda: [bridge]), None, History(), (0, 0))
    for problem in found["problems"]:
        assert "1 messages" not in problem["what"]


def test_spool_estimate_divides_remaining_room_by_the_present_rate(tmp_path: Path) -> None:
    made, history = source(tmp_path), History()
    spool = made.broker.spool
    history.add(made, None)
    spool.next += 1
    history.add(made, None)  # one a minute, 1440 a day
    spool.size, spool.lowest, spool.limit = 100, spool.next - 1, 100 + 1440 * 100 * 7
    assert overview(made, uplink(), history, (0, 0))["room_days"] == 7.0
    spool.limit = 50
    assert overview(made, uplink(), history, (0, 0))["room_days"] == 0.0


def test_overview_has_the_time_since_which_the_oldest_reading_waits(tmp_path: Path) -> None:
    made = source(tmp_path)
    spool = made.broker.spool
    assert overview(made, uplink(), History(), (0, 0))["spool"]["since"] is None
    spool.size, spool.lowest, spool.next = 100, 1, 2
    spool.oldest = Oldest(spool.boot, made.broker.monotonic - 7_200_000_000, None)
    found = overview(made, uplink(), History(), (0, 0))
    assert found["spool"]["since"] == NOW - 7_200_000_000
    (problem,) = found["problems"]
    assert (problem["part"], problem["what"]) == ("late", "the oldest message has waited for 2 h")


def test_message_that_a_bridge_can_never_send_is_a_problem(tmp_path: Path) -> None:
    state = BridgeStatus("cloud", "mqtts://far", None, 0, 0, 1, 0, 0, 0)
    made = source(tmp_path)

    def found(**changed: Any) -> list[tuple[str, str]]:
        bridges = [replace(state, **changed)]
        shown = overview(replace(made, bridges=lambda: bridges), uplink(), History(), (0, 0))
        return [(item["what"], item["todo"]) for item in shown["problems"]]

    assert found() == []
    ((what, todo),) = found(aside=3)
    assert what == "bridge cloud: 3 messages are set aside"
    assert "sudo onceway bridge aside" in todo
    ((what, _),) = found(aside_lost=2)
    assert what == "bridge cloud: 0 messages are set aside, 2 more were lost"
    ((what, todo),) = found(unconfirmed=2)
    assert what == "bridge cloud: 2 messages were given up at their PUBREL and may be there"
    assert "log" in todo
    ((what, todo),) = found(not_taken=2)
    assert what == "bridge cloud: 2 messages from the other broker cannot be accepted here"
    assert "log" in todo
    ((what, todo),) = found(looped=2)
    assert what == "bridge cloud: 2 messages came back in a loop of bridges"
    assert "names both bridges" in todo
    ((what, _),) = found(lacking=("commands/#",))
    assert what == "bridge cloud: the other broker gives no subscription to commands/#"
