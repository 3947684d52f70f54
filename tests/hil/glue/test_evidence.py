"""The glue (a hand-made pipeline in place of Onceway): a fault counts as happened only if there is
evidence.
"""

import asyncio
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hil.bench.bench import Bench
from hil.bench.plan import plan
from hil.glue.evidence import harmed, newest_start
from hil.glue.run import GlueRun
from hil.programs.process import children


def count(**up: int) -> str:
    return json.dumps({"event": "count", "up": up, "down": {"lose": 1}}) + "\n"


def test_harms_are_those_of_the_last_count_that_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "wire.log"
    log.write_text(count(lose=1) + '{"event":"open"}\n' + count(lose=2, insert=1) + count()[:9])
    assert harmed(log) == {"lose": 3, "insert": 1}


def test_a_start_is_that_of_the_newest_whole_line(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.write_text('{"boot": 1, "n": 1}\n{"boot": 2, "n": 1}\n{"boot": 3')
    assert newest_start(ledger) == 2
    ledger.write_text("")
    assert newest_start(ledger) == 0


@pytest.fixture
def glue(tmp_path: Path) -> GlueRun:
    faults = [{"kind": "line-noise", "rate": 0.01}, {"kind": "uplink-kill"}]
    bench = Bench.model_validate({"title": "t", "until": "batch", "fault": faults})
    return GlueRun(bench, plan(bench), tmp_path)


async def test_noise_that_has_harmed_nothing_has_not_happened(
    glue: GlueRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hil.glue.run.LOG_EVERY", 0.01)
    log = tmp_path / "wire.log"
    log.write_text(count(lose=1, corrupt=1))
    glue._wires["uno-1"] = SimpleNamespace(log=log)  # type: ignore[assignment]
    noise: Any = SimpleNamespace(kind="line-noise", table=1, target="uno-1")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(glue._inject(noise, Any), 0.1)
    log.write_text(count(lose=1, corrupt=1, insert=4))
    assert await glue._inject(noise, Any) == "corrupt: 1, lose: 2, insert: 4"


async def test_process_that_ended_before_was_not_killed(glue: GlueRun, tmp_path: Path) -> None:
    async with children(tmp_path / "logs") as programs:
        gone, alive = [
            await programs.start(name, argv)
            for name, argv in (("collect", ["true"]), ("stream", ["sleep", "60"]))
        ]
        await gone.process.wait()
        glue._running = {"collect": gone, "stream": alive}
        assert await glue._kill("collect") == ""
        assert await glue._kill("stream") == f"stream ({alive.pid}) killed"
        assert alive.process.returncode == -signal.SIGKILL
