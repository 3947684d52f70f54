"""The sandbox of the units allows all system calls that the programs make. A system call that is
missing there would stop a service only at its first start on a real machine.
"""

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.access.users import Users
from gateway.store.schema import open_store
from tests.service.process import START_S
from tests.systemd.unit import BACKUP, SYSTEMD, listed, service

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
    """Run a gateway until it has stored a reading. Return the names of its system calls."""
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
    """Return the system calls in one of systemd's groups, such as `@clock`. For a system call,
    return its own name.
    """
    if not item.startswith("@"):
        return {item}
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", item], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.strip() for line in shown.splitlines()[1:]]
    return {name for line in lines if line and not line.startswith("#") for name in _members(line)}


_DENY = """
import ctypes, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0):
    sys.exit(77)
"""


def _denying(command: str) -> None:
    """Run a program that cannot make memory both writable and executable, as in the units."""
    done = subprocess.run(
        [sys.executable, "-c", _DENY + command], capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("the kernel is older than 6.3")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "import gateway.service.cli, gateway.web.page, gateway.web.server, gateway.site.links.net",
        "import gateway.links.websocket, gateway.links.lora.port, uvloop; uvloop.new_event_loop()",
        "from gateway.links.keys import NO_KEY, mac; mac(NO_KEY, b'x')",
        "from gateway.access.users import NOBODY; NOBODY.fits(b'x')",
        "import gateway.uplink.runner, gateway.uplink.cutter, pyarrow.parquet, pyarrow as pa, io;"
        "pyarrow.parquet.write_table(pa.table({'a': [1, 2]}), io.BytesIO(), compression='zstd')",
        "import gateway.backup.cli, fsspec, asyncssh, botocore",
    ],
)
def test_the_interpreter_needs_no_memory_that_is_writable_and_executable(command: str) -> None:
    _denying(command)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account")
def test_a_backup_is_made_with_the_rights_of_its_unit(tmp_path: Path) -> None:
    data, landing, config = (tmp_path / name for name in ("data", "landing", "gateway.toml"))
    config.write_text(
        f'[gateway]\nname = "site-7"\ndata = "{data}"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        f'[uplink]\nlanding = "file://{landing}"\n'
    )
    for folder in (data, landing):
        folder.mkdir(mode=0o750)
    open_store(data, "site-7").close()
    Users(data / "users").add("alice", "right")
    games, mail = pwd.getpwnam("games"), pwd.getpwnam("mail")
    for path in (data, *data.iterdir()):
        os.chown(path, games.pw_uid, games.pw_gid)
    os.chown(landing, mail.pw_uid, games.pw_gid)
    data.chmod(0o2750)
    config.chmod(0o640)
    for folder in (tmp_path, *tmp_path.parents):  # other accounts cannot enter pytest's folders
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    settings = service(BACKUP)
    right = settings["AmbientCapabilities"].removeprefix("CAP_").lower()
    command = [
        *("setpriv", f"--reuid={mail.pw_uid}", f"--regid={games.pw_gid}", "--clear-groups"),
        *(f"--inh-caps=-all,+{right}", f"--ambient-caps=-all,+{right}"),
        *(f"--bounding-set=-all,+{right}", "--no-new-privs"),
        *(Path(sys.executable).with_name("onceway"), "backup", "--to-landing", "--config", config),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ONCEWAY_PASSPHRASE": "correct horse", "HOME": str(landing)},
    )
    assert done.returncode == 0, done.stderr
    assert list(landing.rglob("*.owback"))
    note = json.loads((data / "backup.json").read_text())
    assert note["error"] is None
    assert (data / "backup.json").stat().st_gid == games.pw_gid, "the gateway reads it"
    assert not list(data.glob(".backup-*"))
