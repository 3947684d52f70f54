"""The units allow what the programs call. Otherwise a service fails at its first start on a real
machine, and nowhere earlier.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.service.process import START_S
from tests.systemd.unit import SYSTEMD, listed, service

CONFIG = """
[gateway]
data = "{folder}/data"
trust_clock = {trust}

[[listener]]
bind = "127.0.0.1:0"
anonymous = true

[[serial]]
port = "{folder}/no-such-port*"

[uplink]
landing = "file://{folder}/landing"
"""
REFUSED_BY = {
    "ProtectKernelModules": "@module",
    "ProtectKernelLogs": "syslog",
    "ProtectClock": "@clock",
}


def test_the_gateway_calls_nothing_that_its_unit_refuses(tmp_path: Path) -> None:
    called = _serve_one_reading(tmp_path, trust_clock=False)
    assert {"fdatasync", "accept4", "clock_adjtime"} <= called
    assert called - _allowed("gateway") == set()


def test_the_uplink_calls_nothing_that_its_unit_refuses(tmp_path: Path) -> None:
    _serve_one_reading(tmp_path, trust_clock=True)
    done = subprocess.run(
        _traced(tmp_path, "uplink", "run", "--once"),
        capture_output=True,
        text=True,
        timeout=4 * START_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert any((tmp_path / "landing").glob("*/[!.]*/*.parquet"))
    called = _calls(tmp_path)
    assert {"fdatasync", "rename"} & called
    assert called - _allowed("uplink") == set()


def _serve_one_reading(folder: Path, trust_clock: bool) -> set[str]:
    """Run a gateway until it took a reading; the names of the system calls that it made."""
    (folder / "config.toml").write_text(
        CONFIG.format(folder=folder, trust=str(trust_clock).lower())
    )
    with subprocess.Popen(
        _traced(folder, "gateway", "run"), stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        try:
            port = next(
                found[1]
                for line in running.stderr
                if (found := re.search(r"listening on 127\.0\.0\.1:(\d+)", line))
            )
            subprocess.run(
                ["mosquitto_pub", "-p", port, "-t", "a", "-m", "1", "-q", "2"],
                check=True,
                timeout=START_S,
            )
        finally:
            pid = (folder / "trace").read_text().split(maxsplit=1)[0]
            subprocess.run(["kill", pid], check=True)
            running.communicate(timeout=START_S)
    return _calls(folder)


def _traced(folder: Path, *command: str) -> list[str]:
    tracer = ("strace", "-f", "-qq", "-e", "signal=none", "-o", str(folder / "trace"))
    return [
        *tracer,
        sys.executable,
        "-m",
        "gateway",
        *command,
        "--config",
        str(folder / "config.toml"),
    ]


def _calls(folder: Path) -> set[str]:
    return set(re.findall(r"^\d+ +(\w+)\(", (folder / "trace").read_text(), re.MULTILINE))


def _allowed(program: str) -> set[str]:
    unit = SYSTEMD / f"onceway-{program}.service"
    settings = service(unit)
    taken = {
        name
        for setting, group in REFUSED_BY.items()
        if settings.get(setting) == "yes"
        for name in _members(group)
    }
    allowed: set[str] = set()
    for line in listed(unit, "SystemCallFilter"):
        names = {name for item in line.lstrip("~").split() for name in _members(item)}
        allowed = allowed - names if line.startswith("~") else allowed | names
    return allowed - taken


def _members(item: str) -> set[str]:
    """The system calls in a group of systemd's, such as `@clock`; a call's name stands for
    itself.
    """
    if not item.startswith("@"):
        return {item}
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", item], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.strip() for line in shown.splitlines()[1:]]
    return {name for line in lines if line and not line.startswith("#") for name in _members(line)}
