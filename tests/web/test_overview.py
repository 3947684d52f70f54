"""The first view of the page: problems with their remedies, and how long the free space lasts."""

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
        history.add(made, None)  # the first call only records that there is no uplink
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
    history.add(made, None)  # one reading per minute, 1440 per day
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
    assert what == "bridge cloud: 2 messages were given up at their PUBREL and may have arrived"
    assert "log" in todo
    ((what, todo),) = found(not_taken=2)
    assert what == "bridge cloud: 2 messages from the other broker cannot be accepted here"
    assert "log" in todo
    ((what, todo),) = found(looped=2)
    assert what == "bridge cloud: 2 messages came back in a loop of bridges"
    assert "names both bridges" in todo
    ((what, _),) = found(lacking=("commands/#",))
    assert what == "bridge cloud: the other broker gives no subscription to commands/#"


SITE = {"members": {"attic": "10.0.0.1:8885", "barn": "10.0.0.2:8885", "den": "10.0.0.3:8885"}}
RADIO = {"port": "/dev/ttyUSB0", "network": 7, "boards": {"lora-1": 1}}


def test_first_view_has_every_part_of_the_gateway(tmp_path: Path) -> None:
    """All fields have different values, so each part must show its own."""
    state = BridgeStatus("cloud", oldest_s=4.6, waiting=2, differ=3, aside=1, last_error="gone")
    bridge = replace(state, retained_here=5, retained_there=6)
    made = a_source(
        tmp_path, parse(UPLINK | {"lora": [RADIO], "site": SITE, "gateway": {"name": "attic"}}, "")
    )
    broker = made.broker
    broker.started, broker.now = 1_000.5, 1_100.0
    broker.set_clock(NOW)
    broker.spool.size, broker.spool.lowest, broker.spool.next, broker.spool.limit = 300, 4, 7, 4096
    broker.spool.oldest = Oldest(broker.spool.boot, broker.monotonic - 9_000_000, None)
    history = History()
    history.add(made, uplink(messages=1))
    broker.spool.next = 9
    history.add(made, uplink(messages=4))
    shown = replace(made, bridges=lambda: [bridge], ways=["mail", "command"])
    found = overview(shown, uplink(messages=26), history, (1, 2))
    assert {name: found["problems"][-1][name] for name in ("part", "what")} == {
        "part": "aside",
        "what": "bridge cloud: 1 message is set aside",
    }
    del found["problems"], found["version"]
    assert found == {
        "gateway": "attic",
        "boards": {"connected": 1, "known": 2},
        "spool": {
            "used": True,
            "waiting": 5,
            "bytes": 300,
            "limit": 4096,
            "since": NOW + 99_500_000 - 9_000_000,  # the start was at NOW
            "from": 1_091_000_000,
        },
        "uplink": {
            "running": True,
            "outage": False,
            "cut": 3,
            "landed": 2,
            "at": NOW,
            "messages": 26,
            "readings": 26,
            "batches": 2,
        },
        "room_days": round((4096 - 300) / (2 * 1440 * 60), 1),
        "radios": 1,
        "members": 3,
        "clock": True,
        "started": NOW,
        "booted": 1_000_500_000,
        "history": {"came": [2], "waiting": [5], "landed": [3], "down": [0]},
        "sample_s": 60.0,
        "notify": ["mail", "command"],
        "bridges": [
            {
                "name": "cloud",
                "waiting": 2,
                "oldest_s": 5,
                "differ": 3,
                "retained_here": 5,
                "retained_there": 6,
                "aside": 1,
                "error": "gone",
                "bad": True,
            }
        ],
    }


def test_first_view_of_a_gateway_alone_is_empty(tmp_path: Path) -> None:
    state = BridgeStatus("cloud")
    made = replace(a_source(tmp_path), bridges=lambda: [state])
    made.broker.set_clock(NOW)
    found = overview(made, uplink(), History(), (0, 0))
    assert (found["members"], found["radios"], found["uplink"]) == (0, 0, None)
    assert (found["spool"]["used"], found["spool"]["since"], found["spool"]["from"]) == (
        False,
        None,
        None,
    )
    assert found["problems"] == [], "no uplink is missed where none is configured"
    assert (found["bridges"][0]["oldest_s"], found["bridges"][0]["bad"]) == (None, False)
    assert overview(source(tmp_path), None, History(), (0, 0))["uplink"] is None, "not readable"


@pytest.mark.parametrize(
    ("waited_s", "shown"), [(3600, []), (3601, ["late"]), (9000, ["late"])], ids=str
)
def test_reading_is_late_after_an_hour(tmp_path: Path, waited_s: int, shown: list[str]) -> None:
    made = source(tmp_path)
    spool = made.broker.spool
    spool.size, spool.lowest, spool.next = 100, 1, 2
    spool.oldest = Oldest(spool.boot, made.broker.monotonic - waited_s * 1_000_000, None)
    assert problems(overview(made, uplink(), History(), (0, 0))) == shown
    assert problems(overview(made, uplink(outage=True), History(), (0, 0))) == ["uplink"]
    assert problems(overview(made, None, History(), (0, 0))) == []


def test_rows_without_an_uplink_are_a_problem(tmp_path: Path) -> None:
    made = a_source(tmp_path)
    made.broker.set_clock(NOW)
    spool = made.broker.spool
    spool.size, spool.lowest, spool.next = 100, 1, 3
    (problem,) = overview(made, None, History(), (0, 0))["problems"]
    assert problem["part"] == "stranded"
    assert problem["what"] == "2 messages wait in the spool, and no uplink lands them"
    assert "sudo onceway spool discard" in problem["todo"]


def test_doubted_clock_is_not_unsynchronised_as_well(tmp_path: Path) -> None:
    made = replace(a_source(tmp_path), doubt=lambda: "it went back")
    assert "clock" not in [
        item["part"]
        for item in overview(made, None, History(), (0, 0))["problems"]
        if "synchronised" in item["what"]
    ]


def test_room_of_an_empty_spool_counts_a_reading_of_usual_size(tmp_path: Path) -> None:
    made, history = source(tmp_path), History()
    history.add(made, None)
    made.broker.spool.next = made.broker.spool.lowest = made.broker.spool.next + 1
    history.add(made, None)
    made.broker.spool.limit = 1440 * (64 + 60) * 30
    assert overview(made, None, history, (0, 0))["room_days"] == 30.0
    made.broker.disk_room = 1440 * (64 + 60) * 3
    assert overview(made, None, history, (0, 0))["room_days"] == 3.0, "the disk has less room"
    alone = a_source(tmp_path)
    for _ in range(2):
        history.add(alone, None)
    assert history.per_day() is None, "there is no uplink"


def test_history_begins_anew_if_an_uplink_comes(tmp_path: Path) -> None:
    history = History()
    for made in (source(tmp_path), a_source(tmp_path), source(tmp_path), source(tmp_path)):
        history.add(made, None)
    assert [len(series) for series in history.public().values()] == [1] * 4
