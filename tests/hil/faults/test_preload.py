"""A machine that misbehaves under one program: what is switched on happens, below its folder only,
and is counted.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hil.faults.preload import Machine

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
print(written, time.monotonic() - start, time.time() > 2e9, sep="|")
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "data").mkdir()
    return Machine(tmp_path / "machine", tmp_path / "data")


def run(machine: Machine, file: Path) -> tuple[str, float, str]:
    """What became of the writes, how long the sync took, whether the clock is ahead. How long a
    good sync takes is the disk's affair.
    """
    argv = [sys.executable, "-c", PROGRAM, str(file)]
    done = subprocess.run(
        argv, env={**os.environ, **machine.env}, capture_output=True, text=True, check=True
    )
    written, seconds, ahead = done.stdout.strip().split("|")
    return written, float(seconds), ahead


def test_a_good_machine(machine: Machine, tmp_path: Path) -> None:
    written, _, ahead = run(machine, tmp_path / "data" / "file")
    assert (written, ahead) == ("written", "False")
    assert [machine[name] for name in ("refused", "slowed", "shifted")] == [0, 0, 0]


def test_a_bad_machine_is_bad_below_its_folder(machine: Machine, tmp_path: Path) -> None:
    machine["full"], machine["slow_ms"], machine["clock_ns"] = 1, 300, 10**18
    written, seconds, ahead = run(machine, tmp_path / "data" / "file")
    assert (written, ahead) == ("No space left on device", "True")
    assert seconds >= 0.3
    assert (machine["refused"], machine["slowed"]) == (1, 1)
    assert machine["shifted"] >= 1
    written, _, ahead = run(machine, tmp_path / "elsewhere")
    assert (written, ahead) == ("written", "True")
    machine["full"] = machine["slow_ms"] = machine["clock_ns"] = 0
    written, _, ahead = run(machine, tmp_path / "data" / "file")
    assert (written, ahead) == ("written", "False")
    assert (machine["refused"], machine["slowed"]) == (1, 1)


HALVES = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print(os.write(file, b"0123456789"))
for _ in range(2):
    try:
        os.write(file, b"x")
    except OSError as error:
        print(error.strerror)
"""


def test_an_upload_is_cut_half_way_and_the_line_is_dead_then(
    machine: Machine, tmp_path: Path
) -> None:
    def upload(file: Path) -> list[str]:
        argv = [sys.executable, "-c", HALVES, str(file)]
        done = subprocess.run(
            argv, env={**os.environ, **machine.env}, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    machine["cut"] = 1
    assert upload(tmp_path / "elsewhere") == ["10"]
    assert upload(tmp_path / "data" / "file") == ["5", "Input/output error", "Input/output error"]
    assert (tmp_path / "data" / "file").read_bytes() == b"01234"
    assert machine["halved"] == 1
    machine["cut"] = 0
    assert upload(tmp_path / "data" / "other") == ["10"]


APPEARS = """
import os, sys
from pathlib import Path
folder = Path(sys.argv[1])
(folder / "a.json").write_text("a")
(folder / "b.tmp").write_text("b")
if sys.argv[2] == "rename":
    os.rename(folder / "b.tmp", folder / "b.json")
else:
    (folder / "b.json").write_text("b")
"""


@pytest.mark.parametrize("way", ["rename", "open"])
def test_a_program_is_stopped_just_before_a_file_appears(
    machine: Machine, tmp_path: Path, way: str
) -> None:
    machine.hold_before("*/data/b*.json")
    process = subprocess.Popen(
        [sys.executable, "-c", APPEARS, str(tmp_path / "data"), way],
        env={**os.environ, **machine.env},
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert machine["held"] == 1
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["a.json", "b.tmp"]
    process.kill()
    assert process.wait(30) == -9
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["a.json", "b.tmp"]


def test_a_program_goes_on_that_is_held_no_more(machine: Machine, tmp_path: Path) -> None:
    machine.hold_before("*/data/b.json")
    machine["hold"] = 0
    argv = [sys.executable, "-c", APPEARS, str(tmp_path / "data"), "rename"]
    subprocess.run(argv, env={**os.environ, **machine.env}, check=True, timeout=60)
    assert machine["held"] == 0
    with pytest.raises(ValueError, match="longer than 255 bytes"):
        machine.hold_before("x" * 256)


# before the first write, before the second, after the sync
@pytest.mark.parametrize(("steps", "size"), [(1, 0), (2, 1), (3, 1)])
def test_who_has_taken_so_many_steps_is_stopped(
    machine: Machine, tmp_path: Path, steps: int, size: int
) -> None:
    machine["steps"] = steps
    file = tmp_path / "data" / "file"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(file)],
        env={**os.environ, **machine.env},
        stdout=subprocess.PIPE,
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert (file.stat().st_size, machine["steps"]) == (size, 0)
    finally:
        process.kill()
        process.communicate()
