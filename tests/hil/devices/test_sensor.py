"""A board with a sensor. The rig sets the sensor's value. If the board reports another value, this
is a contradiction.
"""

import asyncio
from pathlib import Path
from typing import Any

import cbor2
import pytest

from hil.bench.bench import Bench
from hil.bench.plan import plan
from hil.devices.sensor import SensorBoard
from hil.judge.checker import Verdict
from hil.observe.folder import Folder
from hil.observe.history import History
from hil.programs.process import Children
from hil.run.display import Display
from hil.run.run import STAGES, Run


def board(folder: Path, kind: str, seed: int = 1) -> SensorBoard:
    bench = Bench.model_validate({"title": "t", "seed": seed, "board": [{"sensor": kind}]})
    folder.mkdir(exist_ok=True)
    history = History(folder / "history.jsonl")
    return SensorBoard(f"{kind}-1", Folder(folder), bench, Children(folder), history)


def publish(board: SensorBoard, sequence: int, *values: tuple[str, Any]) -> None:
    records: list[dict[int, Any]] = [{0: name, 2: value} for name, value in values]
    records[0][-2] = f"{board.name}:"
    data = {"id": sequence, "topic": f"t/{board.name}", "payload": cbor2.dumps(records).hex()}
    board.heard("publish", {**data, "direction": "up", "qos": 2, "dup": False})


@pytest.mark.parametrize("kind", ["ds18b20", "dht22", "tmp36"])
def test_the_true_value_stands_and_another_contradicts(kind: str, tmp_path: Path) -> None:
    one = board(tmp_path, kind)
    publish(one, 1, *one.truth.items())
    assert one.contradictions == []
    assert one.values_between(0, 9) == [1]
    for number, name in enumerate(one.truth, 2):
        wrong = {**one.truth, name: one.truth[name] + 0.7}
        publish(one, number, *wrong.items())
        assert f"{name} is {one.truth[name]}, but" in one.contradictions[-1]


async def test_faults_are_heard_behind_a_publication(tmp_path: Path) -> None:
    one = board(tmp_path, "dht22")
    publish(one, 3, ("temperature.fault", 2), ("humidity.fault", 2))
    publish(one, 5, ("temperature.fault", 0), ("humidity.fault", 0))
    assert await one.says(2, 2, 0.1) == 3
    assert await one.says(2, 3, 0.1) is None
    assert await one.says(0, 3, 0.1) == 5
    assert await one.has_value(0, 0.1) is None


def test_seeds_reach_the_whole_range_and_never_leave_it(tmp_path: Path) -> None:
    ranges = {"ds18b20": (-55, 125), "dht22": (-40, 80), "tmp36": (-40, 120)}
    for kind, (least, most) in ranges.items():
        drawn = [board(tmp_path / f"{kind}-{n}", kind, n).truth["temperature"] for n in range(60)]
        assert min(drawn) >= least
        assert max(drawn) <= most
        assert max(drawn) - min(drawn) > 0.8 * (most - least)


@pytest.mark.soak
@pytest.mark.sim
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["ds18b20", "dht22", "tmp36"])
def test_a_broken_sensor_runs_through_the_whole_rig(kind: str, tmp_path: Path) -> None:
    bench = Bench.model_validate(
        {
            "title": "t",
            "until": "batch",
            "readings": 6,
            "board": [{"sensor": kind}],
            "fault": [{"kind": "sensor-shorted"}],
        }
    )
    run = Run(bench, plan(bench), Folder(tmp_path), Display("t", STAGES, 6, 0))
    result = asyncio.run(run.go())
    assert (result.verdict, result.reasons) == (Verdict.HOLDS, [])
