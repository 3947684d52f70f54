"""Faults of boards and lines happen at the same places on a busy machine as on an idle one."""

import time
from pathlib import Path
from typing import Any

import pytest

from hil.bench.bench import Bench
from hil.bench.plan import plan
from hil.judge.checker import Result, Verdict
from hil.observe.folder import fresh
from hil.observe.history import Event, read
from hil.observe.spool import SpoolHop
from hil.run.display import Display
from hil.run.run import STAGES, Run

pytestmark = [pytest.mark.soak, pytest.mark.sim, pytest.mark.timeout(280)]

SLOW = 0.5  # s that each look of the observer takes
KINDS = {
    "board-power-cut": 2,
    "board-reset": 1,
    "board-brown-out": 1,
    "board-switched-off": 1,
    "board-watchdog": 1,
    "line-cut": 1,
    "line-duplicate": 1,
    "port-unplugged": 1,
}
BENCH = {
    "title": "a busy machine",
    "until": "batch",
    "boards": 1,
    "readings": 60,
    "interval_ms": 100,
    "seed": 5,
    "fault": [{"kind": kind, "count": count} for kind, count in KINDS.items()],
}


async def run(folder: Path) -> tuple[Result, list[Event]]:
    bench = Bench.model_validate(BENCH)
    made = plan(bench)
    with Display("t", STAGES, bench.readings, made.breaks) as display:
        result = await Run(bench, made, fresh(folder), display).go()
    return result, list(read(folder / "history.jsonl"))


def hits(events: list[Event]) -> dict[str, Any]:
    return {
        event.data["fault"]: (event.data["hit"], event.data["behind"])
        for event in events
        if event.event == "happened"
    }


async def test_a_busy_machine_breaks_the_same_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, idle = await run(tmp_path / "idle")
    assert result.verdict is Verdict.HOLDS, result.reasons
    look = SpoolHop.look

    def slow(hop: SpoolHop) -> None:
        time.sleep(SLOW)
        look(hop)

    monkeypatch.setattr(SpoolHop, "look", slow)
    result, busy = await run(tmp_path / "busy")
    assert result.verdict is Verdict.HOLDS, result.reasons
    assert hits(busy) == hits(idle)
    assert len(hits(busy)) == sum(KINDS.values())
    for name, events in (("idle", idle), ("busy", busy)):
        [armed] = [e for e in events if (e.hop, e.event) == ("rig", "armed")]
        assert armed.data["held"] == ["uno-1"]
        published = [event for event in events if event.event == "publication"]
        assert min(event.t for event in published) > armed.t
        # it was not journalled before either: the board's time begins with its first power-on
        first = min(event.data["cycle"] for event in published if event.hop == "board")
        log = (tmp_path / name / "boards" / "uno-1" / "eeprom.log").read_text()
        assert log.splitlines()[0].endswith("start power-on")
        assert int(log.split()[0]) < first
