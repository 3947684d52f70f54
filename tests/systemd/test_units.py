"""The unit files: systemd takes them without a word, and what they start exists."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.systemd.unit import UNITS, service


def test_systemd_accepts_every_unit() -> None:
    done = subprocess.run(["systemd-analyze", "verify", *map(str, UNITS)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_that_a_unit_starts_exists_and_takes_its_options(unit: Path) -> None:
    command = service(unit)["ExecStart"].split()
    assert command[:2] == ["/usr/bin/env", "onceway"]
    program, group, verb, option = command[1:5]
    shown = subprocess.run([Path(sys.executable).with_name(program), group, verb, "--help"], capture_output=True, text=True, check=True)
    assert option == "--config"
    assert option in shown.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_service_runs_with_least_privilege(unit: Path) -> None:
    settings = service(unit)
    assert settings["User"] == "onceway"
    assert settings["CapabilityBoundingSet"] == ""
    assert (settings["NoNewPrivileges"], settings["ProtectSystem"]) == ("yes", "strict")
