"""Notifications about an uplink that does not run, and about each bridge, have the same text as on
the page.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.boards.expected import BoardState, Expected
from gateway.boards.payload_conflicts import PayloadConflicts
from gateway.boards.reports import Boards
from gateway.bridge.status import BridgeStatus
from gateway.config import parse
from gateway.links.lora.status import RadioStatus
from gateway.links.serial_port import PortStatus
from gateway.links.statistics import LinkStatistics
from gateway.mqtt.reason import ReasonCode
from gateway.payload.faults import FAULT
from gateway.store.schema import FILE
from gateway.system.causes import FULL, READ_ONLY
from gateway.system.last_backup import LastBackup
from gateway.system.lock import ProcessLock
from gateway.uplink.spool import Totals
from gateway.web.overview import all_problems
from gateway.web.source import Source
from gateway.web.told import READ_S, Told
from gateway.web.uplink import UplinkState
from tests.uplink.conftest import GatewayData
from tests.web.test_web import a_source

UPLINK = {"uplink": {"landing": "file:///landing"}}


async def test_stopped_uplink_is_notified_until_it_runs(tmp_path: Path) -> None:
    GatewayData(tmp_path)
    source = a_source(tmp_path, parse(UPLINK, "here"))
    told = Told(source)
    assert [*(await told.problems()).values()] == ["the uplink does not run: no batch lands"]
    lock = ProcessLock(tmp_path / "uplink.lock")
    source.broker.now += READ_S
    assert await told.problems() == {}
    lock.close()
    (tmp_path / FILE).rename(tmp_path / "away")  # if the state cannot be read, the last one stays
    source.broker.now += READ_S
    assert await told.problems() == {}


async def test_bridge_without_its_broker_is_notified_and_the_clock_is_not(tmp_path: Path) -> None:
    state = BridgeStatus("cloud", "mqtts://far", "refused", 0, 0, 1, 0, 0, 0)
    source = replace(a_source(tmp_path), bridges=lambda: [state])
    (text,) = (await Told(source).problems()).values()
    assert text == "bridge cloud: refused; 0 messages wait"


def _fight(source: Source, number: int) -> None:
    for turn in range(20):
        source.broker.fights.take_over("c", f"10.0.0.1:{number}", f"10.0.0.2:{number + turn}")


def _refuse(source: Source, number: int) -> None:
    assert isinstance(source.boards, Boards)
    reason = (ReasonCode.NOT_AUTHORIZED, ReasonCode.TOPIC_NAME_INVALID)[number]
    source.boards.note_publication("roof-1", f"t/{'ab'[number]}", b"", reason, 0, None)


def _conflict(source: Source, number: int) -> None:
    assert isinstance(source.boards, Boards)
    conflict = PayloadConflicts(7 + number, 1 + number, 0)
    source.boards.last_publications.payload_conflicts["roof-1"] = conflict


def _fault(source: Source, number: int) -> None:
    assert isinstance(source.boards, Boards)
    source.boards._statuses["roof-1"] = {f"temperature{FAULT}": 1 + number}


def _lack(source: Source, number: int) -> None:
    source.broker.disk_lack = (FULL.reason, READ_ONLY.reason)[number]
    source.times.error = "ab"[number]


def _silence(source: Source, number: int) -> None:
    assert source.expected is not None
    what = f"roof-1: no reading arrived for more than {('90 s', '3 min')[number]}"
    source.expected.states["roof-1"] = BoardState("silent", 30.0, 0.0, what, "")


WORDS = ("refused", "timed out after 30 s")
CHANGES: dict[str, Callable[[Source, int], object]] = {
    "fight": _fight,
    "refusal": _refuse,
    "conflict": _conflict,
    "fault": _fault,
    "store": _lack,
    "silence": _silence,
}


def _state(number: int, **more: Any) -> dict[str, Any]:
    """Return parts of a status. number: chooses the words of its problems."""
    why = WORDS[number]
    member = {"name": "b", "connected": bool(number), "problem": why, "copies": {}}
    bridge = BridgeStatus("cloud", "mqtts://far", why, 0, 0, number, 0, 0, 0)
    radio = RadioStatus("/dev/ttyR", False, "", why, "", 0, 0, {}, [], [])
    port = PortStatus("/dev/ttyA", False, None, None, why, LinkStatistics())
    return more | {
        "site": lambda: [member],
        "bridges": lambda: [bridge],
        "radios": lambda: [radio],
        "ports": lambda: [port],
    }


def test_identifier_of_a_problem_stays_while_its_words_change(tmp_path: Path) -> None:
    """A problem with one identifier causes one notification at its beginning and one at its end,
    even if its text changes in between.
    """
    config = parse(UPLINK | {"serial": [{"port": "/dev/ttyA"}]}, "here")
    LastBackup(1).begin(tmp_path)
    found: list[dict[str, str]] = []
    for number in range(2):
        source = replace(
            a_source(tmp_path, config),
            boards=Boards(tmp_path),
            expected=Expected(tmp_path),
            **_state(number),
        )
        source.broker.now = 100.0
        for change in CHANGES.values():
            change(source, number)
        LastBackup(1).fail(tmp_path, WORDS[number])
        state = UplinkState(True, True, 1, 1, 1, Totals(0, 0, 0, 0), WORDS[number])
        found.append({item.id: item.what for item in all_problems(source, state)})
        assert len(found[number]) == len(all_problems(source, state)), "one identifier each"
    first, second = found
    assert first.keys() == second.keys()
    changed = {one.split()[0] for one in first if first[one] != second[one]}
    assert changed == {
        *("store", "clients", "serial", "boards", "radio", "site", "backup", "uplink", "bridge")
    }
    assert len([one for one in first if one.startswith("boards ")]) == 4
