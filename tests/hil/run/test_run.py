"""If a run cannot continue, its report has a verdict and the cause: the program's error, if a
program under test has ended by itself, otherwise the rig's error.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.errors import OncewayError
from hil.bench.bench import Bench
from hil.bench.plan import plan
from hil.judge.checker import Result, Verdict
from hil.observe.counters import wait_until
from hil.observe.folder import Folder
from hil.observe.history import Event, read
from hil.programs.process import EndedError
from hil.report.files import read_json
from hil.run.display import Display
from hil.run.run import STAGES, Run
from tests.hil.run.test_interrupt import running

BENCH = """
title = "one whose gateway dies"
until = "batch"
readings = 1000
"""


async def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> Result:
    """Return the result of a run that ends with these errors."""

    async def carry_out(_: Run) -> None:
        raise ExceptionGroup("many", [*errors]) if len(errors) > 1 else errors[0]

    monkeypatch.setattr(Run, "_carry_out", carry_out)
    bench = Bench(title="t", readings=20, until="batch")
    return await Run(bench, plan(bench), Folder(folder), Display("t", STAGES, 20, 0)).go()


def ended(folder: Path, name: str) -> EndedError:
    log = folder / f"{name}.log"
    log.write_text("Traceback\nMemoryError\n")
    return EndedError(name, -6, log)


@pytest.mark.parametrize("name", ["gateway", "uplink", "ingest", "second ingest"])
async def test_a_program_under_test_that_ends_by_itself_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    result = await run(tmp_path, monkeypatch, ended(tmp_path, name), OncewayError("a consequence"))
    assert result.verdict is Verdict.FAILS
    assert result.reasons[0] == f"{name} ended by itself (signal 6)"
    assert result.last_words[name] == ["Traceback", "MemoryError"]
    # a campaign would run an interrupted run again
    assert "the history breaks off" not in result.reasons


@pytest.mark.parametrize(
    ("make", "why", "words"),
    [
        (
            lambda folder: ended(folder, "wire-uno-1"),
            "the rig broke: wire-uno-1 ended by itself (signal 6)",
            "MemoryError",
        ),
        (
            lambda _: OncewayError("the board has died", "uno-1", "See\nthere"),
            "the rig broke: uno-1: the board has died. See there",
            None,
        ),
        (lambda _: KeyError("x"), "the rig broke: KeyError: 'x'", "KeyError: 'x'"),
    ],
)
async def test_failure_of_the_rig_leaves_the_verdict_open(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], Exception],
    why: str,
    words: str | None,
) -> None:
    result = await run(tmp_path, monkeypatch, make(tmp_path))
    assert result.verdict is Verdict.UNKNOWN
    assert result.reasons[0] == why
    assert [lines[-1] for lines in result.last_words.values()] == ([words] if words else [])
    assert "the history breaks off" not in result.reasons


async def test_a_board_that_cannot_be_set_up_ends_the_setting_up_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its end, the run ends all programs. A board that is set up after that could start another
    program.
    """
    said: list[str] = []

    class Device:
        def __init__(self, name: str, *_: object) -> None:
            self.name = name

        async def start(self) -> None:
            pass

        async def provision(self) -> None:
            if self.name == "uno-2":
                raise OncewayError("the boot loader does not answer")
            try:
                await asyncio.Event().wait()
            finally:
                said.append("no more setting up")

        async def stop(self) -> None:
            said.append(f"{self.name} stopped")

    monkeypatch.setattr("hil.run.run.SimulatedDevice", Device)
    bench = Bench(title="t", readings=20, until="batch")
    result = await Run(bench, plan(bench), Folder(tmp_path), Display("t", STAGES, 20, 0)).go()
    assert said == ["no more setting up", "uno-1 stopped", "uno-2 stopped"]
    assert result.reasons[0] == "the rig broke: the boot loader does not answer"


def sampling(folder: Path, faults: Callable[[str], Awaitable[None]]) -> Awaitable[None]:
    """Run the rig's loop for a board that never stops sampling. faults: the task of the board's
    faults.
    """
    bench = Bench(title="t", readings=20, until="batch")
    device: Any = SimpleNamespace(name="uno-1", contradictions=[], look=lambda: 0)
    injector: Any = SimpleNamespace(run=faults)
    return Run(bench, plan(bench), Folder(folder), Display("t", STAGES, 20, 0))._sample(
        device, injector
    )


async def test_an_error_in_a_fault_of_a_board_is_not_waited_for(tmp_path: Path) -> None:
    async def break_it(_: str) -> None:
        raise OncewayError("the simulated board has died")

    with pytest.raises(OncewayError, match="has died"):
        await asyncio.wait_for(sampling(tmp_path, break_it), 20)


async def test_interrupted_fault_ends_its_programs_before_the_run_continues(
    tmp_path: Path,
) -> None:
    said: list[str] = []

    async def swap(_: str) -> None:
        said.append("another board")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            said.append("stopped")

    running = asyncio.ensure_future(sampling(tmp_path, swap))
    await wait_until(lambda: said)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert said == ["another board", "stopped"]


def events(folder: Path) -> list[Event]:
    """Return the events recorded so far."""
    history = folder / "history.jsonl"
    return list(read(history)) if history.exists() else []


@pytest.mark.sim
@pytest.mark.timeout(120)
def test_a_gateway_that_dies_leaves_a_report_and_no_process(tmp_path: Path) -> None:
    (tmp_path / "dies.toml").write_text(BENCH)
    folder = tmp_path / "run"
    argv = [
        Path(sys.executable).with_name("onceway"),
        "hil",
        "run",
        tmp_path / "dies.toml",
        "--dir",
        folder,
    ]
    with (
        (tmp_path / "said").open("w+") as said,
        subprocess.Popen(argv, stdout=said, stderr=said) as process,
    ):
        try:
            while {("spool", "publication"), ("gateway", "usage")} - {
                (event.hop, event.event)
                for event in events(folder)
                if event.data.get("topic") != "onceway/devices"
            }:
                assert process.poll() is None, (tmp_path / "said").read_text()
                time.sleep(0.1)
            os.kill(
                next(
                    event.data["pid"]
                    for event in events(folder)
                    if event.event == "usage" and event.hop == "gateway"
                ),
                signal.SIGKILL,
            )
            process.wait(60)
        finally:
            process.send_signal(signal.SIGINT)  # no effect on a process that has ended
    out = (tmp_path / "said").read_text()
    assert process.returncode == 1, out
    report = read_json(folder / "report.json")
    assert (report["verdict"], report["reasons"][0]) == (
        "fails",
        "gateway ended by itself (signal 9)",
    )
    assert report["readings"]["produced"] > 0
    assert "gateway" in report["last_words"]
    assert "the last log lines of gateway" in out
    assert running(folder) == []
