"""The systemd units of the centre: systemd accepts them without a warning, and each starts an
existing command with existing options.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.systemd.unit import SYSTEMD, service

CENTRE = SYSTEMD / "centre"
SERVICES = sorted(CENTRE.glob("*.service"))
TIMERS = sorted(CENTRE.glob("*.timer"))
JOBS = {"compact", "expire", "report", "summarise"}
SETTINGS = dict(
    line.split("=", 1)
    for line in (CENTRE / "ingest.env").read_text().splitlines()
    if not line.startswith("#")
)


def test_systemd_accepts_every_unit() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, [*SERVICES, *TIMERS])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert {unit.stem.removeprefix("onceway-ingest-") for unit in TIMERS} == JOBS
    assert len(SERVICES) == len(JOBS) + 1


@pytest.mark.parametrize("timer", TIMERS, ids=lambda unit: unit.stem)
def test_a_timer_says_when_and_has_its_service(timer: Path) -> None:
    (when,) = re.findall(r"^OnCalendar=(.*)$", timer.read_text(), re.MULTILINE)
    subprocess.run(["systemd-analyze", "calendar", when], check=True, capture_output=True)
    assert timer.with_suffix(".service") in SERVICES


@pytest.mark.parametrize("job", sorted(JOBS))
def test_unit_starts_an_existing_command_with_its_settings(job: str) -> None:
    """The command of the stream is also in README.md (`tests/ingest/test_readme.py`)."""
    unit = CENTRE / f"onceway-ingest-{job}.service"
    command = shlex.split(service(unit)["ExecStart"])
    assert command[:3] == ["/usr/bin/env", "onceway", "ingest"]
    verb, options = command[3], command[4:]
    shown = subprocess.run(
        [Path(sys.executable).with_name("onceway"), "ingest", verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin"},
    )
    assert len(options) >= 4
    for option, value in zip(options[::2], options[1::2], strict=True):
        assert option in shown.stdout
        assert value.strip("${}") in SETTINGS


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_a_service_runs_with_least_privilege(unit: Path) -> None:
    settings = service(unit)
    assert settings["User"] == "onceway-ingest"
    assert settings["CapabilityBoundingSet"] == ""
    assert settings["ProtectSystem"] == "strict"
    assert settings["NoNewPrivileges"] == "yes"
    assert settings["LimitCORE"] == "0", "a core holds credentials"
