"""SIGKILL at each step of a batch, and at random moments. Each reading lands once, and a batch
number keeps its bytes.
"""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gateway.config import UplinkSection
from gateway.uplink.batch import sha256
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import open_landing
from gateway.uplink.runner import Uplink
from gateway.uplink.signing import load_or_make
from gateway.uplink.spool import Spool
from tests.uplink.conftest import ROOT

CUTTER, SPOOL, LOCAL = (
    "gateway.uplink.cutter",
    "gateway.uplink.spool",
    "gateway.uplink.landing.local",
)

# Each step of the second of three batches, in order: a kill before a step comes after the step
# above it. Some calls come before batch 1: for the key, for the proof and for the owner mark.
STEPS = [
    (f"{CUTTER}:encode", 2),
    (f"{CUTTER}:Cutter._write", 2),
    (f"{SPOOL}:Spool.record", 2),
    (f"{CUTTER}:Cutter.load", 2),
    (
        f"{LOCAL}:LocalLanding._hide",
        4,
    ),  # calls 1 to 3 are for the owner mark and for batch 1
    (f"{LOCAL}:os.link", 8),
    (f"{LOCAL}:sync", 5),
    (f"{LOCAL}:LocalLanding.holds", 2),
    (f"{LOCAL}:LocalLanding._hide", 5),
    (f"{LOCAL}:os.link", 9),
    ("gateway.uplink.lander:Signer.publish", 2),
    (f"{LOCAL}:LocalLanding.create", 5),
    (f"{SPOOL}:Spool.landed", 2),
    (f"{CUTTER}:Cutter.forget", 2),
]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("0*")} if folder.exists() else {}


@pytest.mark.parametrize(
    ("when", "step", "count"), [*(("before", *step) for step in STEPS), ("after", *STEPS[-1])]
)
def test_killed_at_a_step_and_started_again(data, drain, landed, tmp_path, when, step, count):
    landing = tmp_path / "landing"
    data.add(1100)
    data.add(100, device=None)
    args = ("uplink", "run", "--data", str(data.path), "--landing", str(landing), "--once")
    command = [sys.executable, "-m", "tests.uplink.die", when, step, str(count), *args]
    killed = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert killed.returncode == -signal.SIGKILL, f"the step was not reached: {killed.stderr}"
    published, cut = files(landing / "site-1" / "00c0ffee"), data.batches()
    assert len(cut) in (1, 2)

    drain(data, landing, count=500)
    assert [row[:3] for row in landed(landing)] == [("sensor-1", 77, n) for n in range(1, 1101)] + [
        ("@site-1", 0x00C0FFEE, n) for n in range(1, 101)
    ]
    assert data.spool_ids() == []
    now = files(landing / "site-1" / "00c0ffee")
    assert {name: now[name] for name in published} == published
    assert [row[:6] for row in data.batches()[: len(cut)]] == [row[:6] for row in cut]
    assert list((data.path / "batches").iterdir()) == []


@pytest.mark.parametrize("kind", ["sftp", "s3"])
def test_killed_on_a_real_server_once_more_at_each_start(request, data, tmp_path, kind):
    """The kills come after the upload of the batch, after the upload of the manifest, and before
    the rows are deleted. Each start finds the state after the previous kill.
    """
    server = request.getfixturevalue(kind)
    url, options = f"{server.url()}/killed", server.options if kind == "sftp" else server.options()
    config = tmp_path / "gateway.toml"
    lines = "".join(
        f"{key} = {json.dumps(value)}\n" for key, value in options.items() if value is not None
    )
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n[uplink]\nlanding ='
        f' "{url}"\nbatch_count = 10\n[uplink.options]\n{lines}'
    )
    data.add(10)
    put = f"gateway.uplink.landing.{kind}:{kind.capitalize()}Landing.create"
    landing = open_landing(url, options)
    stands: dict[str, bytes] = {}
    try:
        # the first call writes the owner mark
        for when, step, count in (
            ("after", put, 2),
            ("after", put, 2),
            ("before", f"{SPOOL}:Spool.landed", 1),
        ):
            command = [
                sys.executable,
                "-m",
                "tests.uplink.die",
                when,
                step,
                str(count),
                "uplink",
                "run",
                "--config",
                str(config),
                "--once",
            ]
            killed = subprocess.run(
                command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
            )
            assert killed.returncode == -signal.SIGKILL, (
                f"the step was not reached: {killed.stderr}"
            )
            now = {
                name: landing.read(f"site-1/00c0ffee/000000000001.{name}")
                for name in ("parquet", "json")
            }
            assert {name: now[name] for name in stands} == stands
            stands = {name: content for name, content in now.items() if content is not None}
            assert len(data.spool_ids()) == 10
        assert list(stands) == ["parquet", "json"]
        assert (
            json.loads(stands["json"])["sha256"]
            == sha256(stands["parquet"])
            == data.batches()[0][5]
        )
    finally:
        landing.close()
    with Spool(data.path) as spool:
        settings = UplinkSection(landing=url, batch_count=10)
        Uplink(
            spool,
            Cutter(spool, data.path, settings),
            settings,
            lambda: open_landing(url, options),
            load_or_make(data.path),
        ).run(threading.Event(), once=True)
    assert data.spool_ids() == []
    assert data.meta("epoch") == "00c0ffee"


def test_killed_again_and_again_while_readings_arrive(data, onceway, landed, tmp_path):
    rng = random.Random(7)
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n'
        f'[uplink]\nlanding = "file://{tmp_path}/landing"\nbatch_count = 20\nbatch_age_s = 0.05\n'
    )
    for _ in range(3):
        process = onceway.start("uplink", "run", "--config", config)
        assert "uplink of site-1, epoch 00c0ffee" in process.stderr.readline()
        assert "landed" in process.stderr.readline() if data.added else True
        until = time.monotonic() + rng.uniform(0.05, 0.4)
        while time.monotonic() < until:
            data.add(rng.randrange(1, 40), rng.choice(["sensor-1", None]))
        process.kill()
        process.wait()
        data.add(5)
    assert onceway("uplink", "run", "--config", config, "--once").returncode == 0
    assert [int.from_bytes(row[5][:8], "big") for row in landed(tmp_path / "landing")] == list(
        range(1, data.added + 1)
    )
