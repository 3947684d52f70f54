"""A machine that misbehaves under one program: what is switched on happens, below its folder only, and is counted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hil.machine import Machine

PROGRAM = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
try:
    os.write(file, b"x")
    os.pwrite(file, b"x", 0)
    written = "written"
except OSError as error:
    written = error.strerror
start = time.monotonic()
os.fdatasync(file)
print(written, time.monotonic() - start > 0.2, time.time() > 2e9, sep="|")
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "data").mkdir()
    return Machine(tmp_path / "machine", tmp_path / "data")


def run(machine: Machine, file: Path) -> list[str]:
    argv = [sys.executable, "-c", PROGRAM, str(file)]
    done = subprocess.run(argv, env={**os.environ, **machine.env}, capture_output=True, text=True, check=True)
    return done.stdout.strip().split("|")


def test_a_good_machine(machine: Machine, tmp_path: Path) -> None:
    assert run(machine, tmp_path / "data" / "file") == ["written", "False", "False"]
    assert [machine[name] for name in ("refused", "slowed", "shifted")] == [0, 0, 0]


def test_a_bad_machine_is_bad_below_its_folder(machine: Machine, tmp_path: Path) -> None:
    machine["full"], machine["slow_ms"], machine["clock_ns"] = 1, 300, 10**18
    assert run(machine, tmp_path / "data" / "file") == ["No space left on device", "True", "True"]
    assert (machine["refused"], machine["slowed"]) == (1, 1)
    assert machine["shifted"] >= 1
    assert run(machine, tmp_path / "elsewhere") == ["written", "False", "True"]
    machine["full"] = machine["slow_ms"] = machine["clock_ns"] = 0
    assert run(machine, tmp_path / "data" / "file") == ["written", "False", "False"]
