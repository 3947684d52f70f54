"""A simulated board with a foreign sketch, about which the rig knows nothing. Here it is the sensor
sketch, built with another interval.
"""

import asyncio
import subprocess
from pathlib import Path

import pytest

from hil.bench.bench import Bench
from hil.bench.plan import plan
from hil.judge.checker import Verdict
from hil.observe.folder import Folder
from hil.run.display import Display
from hil.run.run import STAGES, Run

ROOT = Path(__file__).parents[3]


@pytest.mark.soak
@pytest.mark.sim
@pytest.mark.timeout(300)
def test_publications_of_a_sketch_are_judged_under_resets_and_kills(tmp_path: Path) -> None:
    file = tmp_path / "build" / "uno" / "sensor.hex"
    make = ["make", "-s", "-C", str(ROOT / "firmware"), f"BUILD={tmp_path / 'build'}"]
    subprocess.run([*make, "DEFINES=-DSENSOR_INTERVAL_MS=300", str(file)], check=True)
    bench = Bench.model_validate(
        {
            "title": "t",
            "until": "batch",
            "readings": 20,
            "board": [{"sketch": str(file)}],
            "fault": [
                {"kind": kind} for kind in ("board-reset", "board-switched-off", "gateway-kill")
            ],
        }
    )
    display = Display("t", STAGES, 20, 0)
    run = Run(bench, plan(bench), Folder(tmp_path), display)
    result = asyncio.run(run.go())
    assert (result.verdict, result.reasons) == (Verdict.HOLDS, [])
    assert result.produced >= 20
