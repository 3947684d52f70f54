"""The systemd units: systemd accepts them without a warning, and their commands exist."""

import os
import re
import socket
import subprocess
import sys
from ipaddress import collapse_addresses, ip_network
from pathlib import Path

import pytest

from gateway.commands.exit_codes import NO_UPLINK
from gateway.site.wiring.membership import HAND_OVER_S
from gateway.system.accounts import UPLINK
from gateway.uplink.credentials import FILE
from tests.systemd.unit import BACKUP, SYSTEMD, UNITS, listed, service

MOST_EXPOSED = 16
"""Largest exposure level of a unit by `systemd-analyze security`, in tenths."""
_BACK_OFF = ("RestartSteps", "RestartMaxDelaySec")
"""Settings of newer versions of systemd, such as 257 in Debian 13. An older systemd ignores them
with a warning.
"""


def test_systemd_accepts_every_unit() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, SYSTEMD.glob("onceway-*.*"))],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stdout + done.stderr).splitlines()
    said = [line for line in lines if not any(f"'{key}'" in line for key in _BACK_OFF)]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_service_that_fails_is_started_again_without_wearing_the_machine(unit: Path) -> None:
    settings = service(unit)
    assert settings["Restart"] == "always"
    assert int(settings["RestartMaxDelaySec"]) > int(settings["RestartSec"])
    assert int(settings["RestartSteps"]) > 1
    assert settings["MemoryMax"].endswith("%")
    assert settings["LimitCORE"] == "0", "a core holds keys"


def test_an_uplink_that_is_not_configured_ends_for_good(tmp_path: Path) -> None:
    file, address = tmp_path / "gateway.toml", str(tmp_path / "notify")
    file.write_text(f'[gateway]\ndata = "{tmp_path}"\n')
    settings = service(UNITS[1])
    _, program, *words, _ = settings["ExecStart"].split()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(address)
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *words, file],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=os.environ | {"NOTIFY_SOCKET": address},
        )
        channel.settimeout(1)
        assert channel.recv(200) == b"READY=1", "else systemd calls the service failed"
    assert done.stderr.startswith(f"error: {file}: there is no section [uplink]. ")
    assert done.stderr.count("\n") == 1
    assert done.returncode == NO_UPLINK
    assert settings["RestartPreventExitStatus"] == settings["SuccessExitStatus"] == str(NO_UPLINK)


def test_the_broker_is_watched_and_goes_last_when_memory_is_short() -> None:
    gateway, uplink = (service(unit) for unit in UNITS)
    assert int(gateway["WatchdogSec"]) >= 30, "an SD card that tidies up takes seconds"
    assert int(gateway["OOMScoreAdjust"]) < 0 < int(uplink["OOMScoreAdjust"])


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


def test_the_backup_s_command_takes_its_options_and_its_timer_says_when() -> None:
    program, verb, *options = service(BACKUP)["ExecStart"].split()[1:]
    shown = subprocess.run(
        [Path(sys.executable).with_name(program), verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    file = service(BACKUP)["EnvironmentFile"]
    assert file.startswith("-"), "the command itself notes that there is no passphrase"
    assert options == ["--to-landing", "--config", "/etc/onceway/gateway.toml"]
    assert all(option in shown.stdout for option in options[:2])
    (when,) = re.findall(
        r"^OnCalendar=(.*)$", BACKUP.with_suffix(".timer").read_text(), re.MULTILINE
    )
    subprocess.run(["systemd-analyze", "calendar", when], check=True, capture_output=True)


@pytest.mark.parametrize("unit", [*UNITS, BACKUP], ids=lambda unit: unit.stem)
def test_little_of_the_machine_is_open_to_a_service_that_was_taken_over(unit: Path) -> None:
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout.splitlines()[-1]
    settings = service(unit)
    assert settings["MemoryDenyWriteExecute"] == "yes"
    assert settings["CapabilityBoundingSet"] == "" or unit == BACKUP
    assert (settings["NoNewPrivileges"], settings["ProtectSystem"]) == ("yes", "strict")


def test_the_gateway_cannot_read_the_credentials_of_the_uplink() -> None:
    gateway, uplink, backup = (service(unit) for unit in (*UNITS, BACKUP))
    assert (gateway["User"], uplink["User"]) == ("onceway", "onceway-uplink")
    assert gateway["Group"] == uplink["Group"], "they share what waits"
    assert (gateway["StateDirectory"], gateway["StateDirectoryMode"]) == ("onceway", "2750")
    for settings in (uplink, backup):
        assert settings["LoadCredential"] == f"{FILE}:/etc/onceway/{FILE}"
        assert settings["SetCredential"].startswith(f"{FILE}:"), "there may be no such file"
    assert not any("uplink.env" in line for line in gateway.values())


@pytest.mark.parametrize("unit", [*UNITS, BACKUP], ids=lambda unit: unit.stem)
def test_a_service_reaches_every_machine_and_no_group_of_them(unit: Path) -> None:
    assert listed(unit, "IPAddressDeny") == ["any"]
    words = " ".join(listed(unit, "IPAddressAllow")).split()
    for version, several in ((4, "224.0.0.0/3"), (6, "ff00::/8")):
        nets = [net for net in map(ip_network, words) if net.version == version]
        one = ip_network("0.0.0.0/0" if version == 4 else "::/0")
        (most,) = collapse_addresses([*nets, ip_network(several)])
        assert most == one
        assert not any(net.overlaps(ip_network(several)) for net in nets)


def test_the_accounts_are_those_of_the_services() -> None:
    accounts = (SYSTEMD / "onceway.sysusers").read_text()
    made = re.findall(r"^u (\S+)", accounts, re.MULTILINE)
    assert made == [service(unit)["User"] for unit in UNITS]
    assert made[1] == UPLINK
    assert "m onceway dialout\n" in accounts, "it opens serial ports"


def test_a_backup_reads_the_files_of_all_accounts_and_does_nothing_else_of_root() -> None:
    settings = service(BACKUP)
    assert settings["User"] != "root"
    assert settings["AmbientCapabilities"] == settings["CapabilityBoundingSet"]
    assert settings["CapabilityBoundingSet"] == "CAP_DAC_OVERRIDE"
    assert (settings["NoNewPrivileges"], settings["ProtectSystem"]) == ("yes", "strict")


def test_a_backup_knows_the_servers_that_the_uplink_knows() -> None:
    """The backup uses the uplink's home, where the known hosts are, because it cannot read
    root's.
    """
    accounts = (SYSTEMD / "onceway.sysusers").read_text()
    (home,) = re.findall(rf'^u {UPLINK} \S+ ".*" (\S+)', accounts, re.MULTILINE)
    assert listed(BACKUP, "Environment") == [f"HOME={home}"]


@pytest.mark.parametrize("unit", [*UNITS, BACKUP], ids=lambda unit: unit.stem)
def test_journal_lines_have_the_service_name(unit: Path) -> None:
    assert service(unit)["SyslogIdentifier"] == unit.stem


def test_a_reload_with_a_wrong_file_fails_before_the_gateway_hears_of_it(tmp_path: Path) -> None:
    unit = next(unit for unit in UNITS if unit.stem == "onceway-gateway")
    check, signal = (
        line.partition("=")[2]
        for line in unit.read_text().splitlines()
        if line.startswith("ExecReload=")
    )
    assert signal == '/bin/sh -c "kill -HUP $MAINPID"'
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


def test_a_stop_may_take_as_long_as_sessions_move_to_other_gateways() -> None:
    """If systemd killed the gateway earlier, sessions that have not moved yet would be lost."""
    (stop,) = re.findall(
        r"^TimeoutStopSec=(\d+)$", (SYSTEMD / "onceway-gateway.service").read_text(), re.M
    )
    assert int(stop) >= HAND_OVER_S + 20
