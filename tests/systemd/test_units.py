"""The unit files: systemd takes them without a word, and what they start exists."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.systemd.unit import UNITS, service


def test_systemd_accepts_every_unit() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, UNITS)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_that_a_unit_starts_exists_and_takes_its_options(unit: Path) -> None:
    command = service(unit)["ExecStart"].split()
    assert command[:2] == ["/usr/bin/env", "onceway"]
    program, group, verb, option = command[1:5]
    shown = subprocess.run(
        [Path(sys.executable).with_name(program), group, verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert option == "--config"
    assert option in shown.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_service_runs_with_least_privilege(unit: Path) -> None:
    settings = service(unit)
    assert settings["User"] == "onceway"
    assert settings["CapabilityBoundingSet"] == ""
    assert (settings["NoNewPrivileges"], settings["ProtectSystem"]) == ("yes", "strict")


def test_a_reload_with_a_wrong_file_fails_before_the_gateway_hears_of_it(tmp_path: Path) -> None:
    unit = next(unit for unit in UNITS if unit.stem == "onceway-gateway")
    check, signal = (
        line.partition("=")[2]
        for line in unit.read_text().splitlines()
        if line.startswith("ExecReload=")
    )
    assert signal == "/bin/kill -HUP $MAINPID"
    path = tmp_path / "gateway.toml"
    path.write_text('[limits]\ninflight = 0\n[[listener]]\nbind = ":1883"\n')
    _, program, *arguments = check.replace("/etc/onceway/gateway.toml", str(path)).split()
    done = subprocess.run(
        [Path(sys.executable).with_name(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "limits.inflight = 0: " in done.stderr) == (2, True)
