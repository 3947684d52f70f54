"""After Ctrl-C, the rig reports the finished part, and no process is left."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hil.cli import until_terminated
from hil.report.files import read_json

pytestmark = [pytest.mark.sim, pytest.mark.timeout(120)]

BENCH = """
title = "a long one"
until = "batch"
readings = 1000
[[fault]]
kind = "line-noise"
rate = 0.002
"""


def running(folder: Path) -> list[str]:
    """Return the command lines of the running processes that name this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            here = os.readlink(process / "cwd")
        except OSError:
            continue
        if str(folder) in line or here.startswith(str(folder)):
            found.append(line)
    return found


def test_an_interrupted_run_leaves_a_report_and_no_process(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(BENCH)
    folder = tmp_path / "run"
    program = Path(sys.executable).with_name("onceway")
    argv = [program, "hil", "run", tmp_path / "long.toml", "--dir", folder]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "journalled" in line and " 0 journalled" not in line:
            break
    assert len(running(folder)) >= 5  # two boards, two wires, gateway, uplink
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "interrupted; everything that was started has ended" in out
    assert running(folder) == []
    report = read_json(folder / "report.json")
    assert report["verdict"] != "holds"
    assert "the history breaks off" in report["reasons"]
    assert (folder / "report.html").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_does_not_stop_what_takes_the_programs_down(number: signal.Signals) -> None:
    ended = []

    async def run() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.05)
            ended.append("what was started")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(until_terminated(run()))
    assert ended == ["what was started"]
