"""The rig's plugin for pytest: a bench that holds is a passed test, an invalid bench is an error
with its reason, and the fixture `run_bench` runs a bench.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.sim, pytest.mark.timeout(300)]

HOLDS = """
title = "a short one"
until = "batch"
readings = 8
interval_ms = 100
stall_s = 60
[[fault]]
kind = "line-trace"
trace = "outages"
[[fault]]
kind = "gateway-kill"
[[fault]]
kind = "board-reset"
"""
TEST = """
import pytest
from gateway.errors import OncewayError

def test_mine(run_bench):
    with pytest.raises(OncewayError, match="seed = 'x': input should be a valid integer"):
        run_bench("holds.toml", seed="x")
"""


def pytest_(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "holds.toml").write_text(HOLDS)
    (folder / "test_mine.py").write_text(TEST)
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--rootdir",
        str(folder),
        f"--basetemp={folder}/runs",
        *arguments,
    ]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def test_passing_bench_passes_invalid_bench_is_an_error_and_the_fixture_changes_one(
    tmp_path: Path,
) -> None:
    # this timeout is for tests, not for benches
    benches = ("--bench", "holds.toml", "--bench", "none.toml")
    done = pytest_(tmp_path, "test_mine.py", *benches, "--timeout=10")
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "cannot read the bench" in done.stdout
    assert (tmp_path / "runs" / "holds0" / "report.html").exists()
