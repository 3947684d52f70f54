"""The process `onceway uplink`, as people and systemd see it."""

import json
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from gateway.config import LogSection, UplinkSection
from gateway.uplink import cli
from gateway.uplink.landing import Unreachable


def wait_for(condition, timeout=30):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_once_lands_everything_and_empties_the_spool(data, onceway, landed, tmp_path):
    data.add(1200)
    data.add(3, device=None)
    done = onceway(
        "uplink",
        "run",
        "--data",
        data.path,
        "--landing",
        f"file://{tmp_path}/landing",
        "--name",
        "site-1",
        "--once",
    )
    assert done.returncode == 0, done.stderr
    rows = landed(tmp_path / "landing")
    assert [row[0:3] for row in rows] == [("sensor-1", 77, n) for n in range(1, 1201)] + [
        ("@site-1", 0x00C0FFEE, n) for n in (1, 2, 3)
    ]
    assert data.spool_ids() == []
    assert [(number, rows, done) for number, _, _, rows, _, _, done in data.batches()] == [
        (1, 500, 1),
        (2, 500, 1),
        (3, 203, 1),
    ]
    assert list((data.path / "batches").iterdir()) == []


@pytest.mark.parametrize("place", ["file", "s3"])
def test_uplink_loads_no_large_unneeded_module(data, onceway, s3, tmp_path, place):
    """pyarrow would take 50 MB of memory, and would also import numpy and pandas if they are
    installed.
    """
    data.add(10)
    url, options = (s3.url(), s3.options()) if place == "s3" else (f"file://{tmp_path}/landing", {})
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n[uplink]\nlanding ='
        f' "{url}"\n[uplink.options]\n'
    )
    with config.open("a") as file:
        file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
    process = onceway.start(
        "uplink", "run", "--once", "--config", config, env={"PYTHONPROFILEIMPORTTIME": "1"}
    )
    _, said = process.communicate(timeout=60)
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in said.splitlines()
        if line.startswith("import time:")
    }
    assert process.returncode == 0
    assert "arro3" in loaded
    assert not loaded & {"numpy", "pandas", "pyarrow"}


def test_runs_from_the_gateway_s_config_until_sigterm(data, onceway, landed, tmp_path):
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n'
        f'[uplink]\nlanding = "file://{tmp_path}/landing"\nbatch_count = 10\nbatch_age_s = 0.1\n'
    )
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ready.bind(str(tmp_path / "notify"))
    ready.settimeout(30)
    process = onceway.start(
        "uplink", "run", "--config", config, env={"NOTIFY_SOCKET": str(tmp_path / "notify")}
    )
    assert ready.recv(100) == b"READY=1"
    data.add(25)
    wait_for(lambda: not data.spool_ids())
    assert len(landed(tmp_path / "landing")) == 25
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_uplink_waits_before_the_first_start_of_the_gateway_and_logs_once(
    make_data, onceway, landed, tmp_path
):
    (tmp_path / "data").mkdir()
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ready.bind(str(tmp_path / "notify"))
    ready.settimeout(30)
    landing = ("--landing", f"file://{tmp_path}/landing")
    process = onceway.start(
        "uplink",
        "run",
        "--data",
        tmp_path / "data",
        *landing,
        env={"NOTIFY_SOCKET": str(tmp_path / "notify")},
    )
    assert ready.recv(100) == b"READY=1", "systemd must not wait for the gateway"
    assert "there is no gateway database" in process.stderr.readline()
    data = make_data(tmp_path / "data")
    assert ready.recv(100) == b"READY=1", "now it goes on"
    data.add(500)
    wait_for(lambda: not data.spool_ids())
    assert len(landed(tmp_path / "landing")) == 500
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert "no gateway database" not in process.stderr.read()


def test_a_second_start_names_the_holder_of_the_lock(data, onceway, tmp_path):
    args = ("uplink", "run", "--data", data.path, "--landing", f"file://{tmp_path}/landing")
    first = onceway.start(*args)
    wait_for((data.path / "uplink.lock").exists)
    wait_for(lambda: (data.path / "uplink.lock").read_text())
    second = onceway(*args)
    assert second.returncode != 0
    assert f"already in use by process {first.pid}" in second.stderr
    assert first.poll() is None


def test_uplink_ends_with_an_error_if_its_database_was_replaced(data, make_data, onceway, tmp_path):
    """The database is replaced when a backup is restored while the uplink runs. systemd then starts
    the uplink again.
    """
    data.add(500)
    process = onceway.start("uplink", "run", "--data", data.path, "--landing", tmp_path / "landing")
    wait_for(lambda: not data.spool_ids())
    other = make_data(tmp_path / "other")
    (other.path / "gateway.db").rename(data.path / "gateway.db")
    assert process.wait(20) == 1
    assert (
        "gateway.db: the gateway's database was removed or replaced. Start the uplink again"
        in process.stderr.read()
    )


def test_status_counts_what_waits_and_what_landed(data, onceway, tmp_path):
    data.add(700)
    assert (
        onceway(
            "uplink", "run", "--data", data.path, "--landing", tmp_path / "landing", "--once"
        ).returncode
        == 0
    )
    data.add(5)
    status = onceway("uplink", "status", "--data", data.path, "--json")
    found = json.loads(status.stdout)
    assert {
        key: found[key] for key in ("gateway", "epoch", "rows", "waiting", "cut", "landed")
    } == {
        "gateway": "site-1",
        "epoch": "00c0ffee",
        "rows": 5,
        "waiting": 5,
        "cut": 2,
        "landed": 2,
    }
    lines = onceway("uplink", "status", "--data", data.path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "gateway",
        "uplink",
        "spool",
        "batches",
        "sent",
        "held",
        "room",
    ]
    assert "2 landed" in lines[3]
    assert "messages: 700," in lines[4]


def test_bad_starts_say_what_to_do(data, onceway, tmp_path):
    for args, text in [
        (("--data", tmp_path / "nowhere", "--landing", "/x"), "Start `onceway gateway run`"),
        (
            ("--data", data.path, "--landing", "/x", "--name", "other"),
            "belongs to the gateway site-1, not other",
        ),
        ((), "--config FILE"),
        (("--data", data.path, "--landing", "nosuch://x", "--once"), "nosuch"),
    ]:
        done = onceway("uplink", "run", *args)
        assert done.returncode != 0
        assert text in done.stderr
        assert "Traceback" not in done.stderr


def test_a_damaged_database_and_a_file_in_the_way_are_one_line_each(data, onceway, tmp_path):
    data.add(2000)
    (data.path / "batches").write_text("in the way")
    landing = ("--landing", tmp_path / "landing")
    blocked = onceway("uplink", "run", "--data", data.path, *landing, "--once")
    assert (
        blocked.stderr
        == f"error: {data.path}/batches: cannot create the folder of batches (File exists)\n"
    )
    (data.path / "batches").unlink()
    with data.db() as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file = data.path / "gateway.db"
    file.write_bytes(file.read_bytes()[:24_576] + b"\xff" * (file.stat().st_size - 24_576))
    for args in (
        ("uplink", "run", *landing, "--once"),
        ("uplink", "status"),
        ("where", "sensor-1", "7"),
    ):
        done = onceway(*args, "--data", data.path)
        assert done.returncode == 10
        last = done.stderr.splitlines()[-1]
        assert last.startswith(
            f"error: {file}: the gateway's database cannot be used: the database is damaged ("
        ), done.stderr
        assert "onceway store check" in last
        assert "Traceback" not in done.stderr


def test_no_password_is_logged_at_the_start_of_an_uplink_or_by_claim(data, onceway, tmp_path):
    data.add(1)
    landing = "sftp://me:verysecret@127.0.0.1:1/landing"
    done = onceway("uplink", "run", "--data", data.path, "--landing", landing, "--once")
    first = done.stderr.splitlines()[0]
    assert first.endswith(
        "uplink of site-1, epoch 00c0ffee, to sftp://me@127.0.0.1:1/landing; next batch: 1"
    )
    refused = onceway("uplink", "claim", "--data", data.path, "--landing", landing)
    assert refused.returncode == 1
    assert "verysecret" not in done.stderr + done.stdout + refused.stderr + refused.stdout
    claimed = onceway(
        "uplink",
        "claim",
        "--data",
        data.path,
        "--landing",
        f"memory://me:verysecret@host{tmp_path}",
        "--json",
    )
    assert json.loads(claimed.stdout) == {
        "gateway": "site-1",
        "epoch": "00c0ffee",
        "landing": f"memory://me@host{tmp_path}",
    }


def test_an_unwritable_landing_place_is_one_line_and_heals(data, onceway, landed, tmp_path):
    blocked: Path = tmp_path / "landing"
    blocked.write_text("a file where the folder should be")
    data.add(20)
    process = onceway.start("uplink", "run", "--data", data.path, "--landing", f"file://{blocked}")
    assert "next batch: 1" in process.stderr.readline()
    first = process.stderr.readline()
    assert "outage" in first
    assert str(blocked) in first
    blocked.unlink()
    assert "outage over after" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_stop_before_the_first_start_of_the_gateway_is_no_error(onceway, tmp_path):
    (tmp_path / "data").mkdir()
    landing = ("--landing", f"file://{tmp_path}/landing")
    process = onceway.start("uplink", "run", "--data", tmp_path / "data", *landing)
    assert "there is no gateway database" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert process.stderr.read() == ""
    assert list((tmp_path / "data").iterdir()) == []


def test_uplink_that_waits_for_the_gateway_looks_again_and_logs_once(
    data, tmp_path, monkeypatch, caplog
):
    """The gateway makes the database while the uplink waits."""
    waits = []

    class Stop(threading.Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            if len(waits) == 3:
                (tmp_path / "away").rename(data.path / "gateway.db")
            return False

    (data.path / "gateway.db").rename(tmp_path / "away")
    job = cli.Job(data.path, None, UplinkSection(landing="/x"), LogSection())
    with cli._open_when_there(job, Stop()) as spool:
        assert spool.origin().gateway == "site-1"
    assert waits == [cli.LOOK_S] * 3
    assert caplog.text.count("The uplink waits until the gateway creates it") == 1


def test_credentials_that_cannot_be_read_are_an_outage(tmp_path):
    """A person may be writing them at this moment."""
    (tmp_path / "uplink.env").write_text("no assignment")
    config = tmp_path / "gateway.toml"
    job = cli.Job(tmp_path, None, UplinkSection(landing="/x"), LogSection(), config)
    with pytest.raises(Unreachable, match="the credentials cannot be read: "):
        job.connect()
