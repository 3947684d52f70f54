"""Benches must fail when the product breaks a promise: they run on copies of the tree that break
one. The product has no such switch.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hil.bench.bench import load
from hil.bench.plan import plan

ROOT = Path(__file__).parents[2]
READINGS = 40

pytestmark = [pytest.mark.sim, pytest.mark.spark, pytest.mark.timeout(900)]

Sabotage = tuple[str, str, str]
"""A file, what stands in it, what stands there in the sabotaged copy."""

ACK_BEFORE_COMMIT: Sabotage = (
    "gateway/service/engine.py",
    "        self._writer.submit(commit)\n",
    "        self._loop.call_later(5.0, self._writer.submit, commit)\n"
    "        self._writing = 0\n"
    "        self._on_disk(commit.number)\n"
    "        self._write()\n",
)
"""Five seconds of whole exchanges are in memory only: whenever the gateway is killed, it takes them
along.
"""

NO_DEDUPLICATION: Sabotage = (
    "gateway/ingest/dedup/claim.py",
    "in earlier.overlaps(ranges):\n",
    "in ():\n",
)


def sabotaged(folder: Path, *sabotages: Sabotage) -> Path:
    """A copy of the tree with these sabotages."""
    tree = folder / "tree"
    for package in ("gateway", "hil", "provisioning", "firmware"):
        shutil.copytree(
            ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copytree(ROOT / "build" / "firmware", tree / "build" / "firmware")
    for name, before, after in sabotages:
        text = (tree / name).read_text()
        assert text.count(before) == 1, f"{name} has changed: this sabotage no longer fits"
        (tree / name).write_text(text.replace(before, after))
    return tree


def start(tree: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`onceway hil …` of a copy."""
    program = Path(sys.executable).with_name("onceway")
    argv = [program, "hil", *arguments, "--keep", "--dir", folder / "run"]
    return subprocess.run(
        argv,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def demo(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the demo on a copy of the tree with these sabotages."""

    def run(seed: int, *sabotages: Sabotage) -> subprocess.CompletedProcess[str]:
        return start(
            sabotaged(tmp_path, *sabotages),
            tmp_path,
            "demo",
            "--readings",
            str(READINGS),
            "--seed",
            str(seed),
        )

    return run


def counts(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """The last line, `40 produced · 38 in the table · …`, as a dictionary."""
    found = {
        name: int(count)
        for count, name in re.findall(r"(\d+) ([a-z ]+?)(?: ·|$)", done.stdout.splitlines()[-1])
    }
    assert "produced" in found, done.stdout + done.stderr
    return found


def seed_with(step: str) -> int:
    """A seed whose plan kills the ingest before this step."""
    return next(
        seed
        for seed in range(100)
        if plan(load("demo", seed=seed, readings=READINGS)).lanes()["ingest"][0].detail["before"]
        == step
    )


def test_the_copy_itself_holds(demo: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = demo(seed_with("its readings are appended"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert counts(done) == {
        "produced": READINGS,
        "in the table": READINGS,
        "lost": 0,
        "doubled": 0,
        "altered": 0,
    }


def test_acknowledging_before_the_commit_is_caught(tmp_path: Path) -> None:
    done = start(
        sabotaged(tmp_path, ACK_BEFORE_COMMIT),
        tmp_path,
        "run",
        "gateway-kills",
        "--readings",
        str(READINGS),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert counts(done)["lost"] > 0, done.stdout
    assert "wrong from spool on" in done.stdout


def test_an_ingest_without_deduplication_is_caught(
    demo: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = demo(seed_with("its readings are appended"), NO_DEDUPLICATION)
    assert done.returncode == 1, done.stdout + done.stderr
    assert counts(done)["doubled"] > 0, done.stdout
    assert re.search(r"duplicate: uno-\d sequence \d+, wrong from (batch|table) on", done.stdout)
