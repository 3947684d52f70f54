"""The command line as a whole: which commands exist, which modules each imports, and which
configuration each reads.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import accounts

ONCEWAY = Path(sys.executable).with_name("onceway")
HEAVY = ("numpy", "pandas", "pyarrow", "pyspark", "sqlite_utils", "uvloop", "hil.bench")


def _run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ONCEWAY, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "200"} | environment,
    )


def _imported(*arguments: str) -> set[str]:
    """Return the modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gateway", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_the_list_of_commands_is_whole_and_each_says_what_it_is_for() -> None:
    shown = _run("--help").stdout
    for point in entry_points(group="onceway.commands"):
        (line,) = [line for line in shown.splitlines() if line.startswith(f"│ {point.name} ")]
        assert len(line.strip("│ ").split()) > 3, line


def test_the_list_of_commands_loads_none_of_them() -> None:
    assert not _imported("--help") & set(HEAVY)


def test_a_command_of_the_gateway_loads_no_part_of_the_centre(tmp_path: Path) -> None:
    found = _imported("device", "list", "--registry", str(tmp_path / "registry.db"), "--help")
    assert "sqlite_utils" in found
    assert not found & {"pandas.core", "numpy._core", "pyarrow", "pyspark"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    "words",
    [
        "gateway check-config --config {0}/gateway.toml",
        "store check --data {0}/data",
        "store backup --to {0}/copy --data {0}/data",
        "retained list --data {0}/data",
        "uplink status --data {0}/data",
        "user list --config {0}/open.toml",
        "device list --registry {0}/data/registry.db",
        "device admit roof-1 --registry {0}/data/registry.db",
    ],
)
def test_account_without_file_access_is_pointed_to_sudo(words: str) -> None:
    with TemporaryDirectory() as name:  # other accounts cannot enter pytest's folders
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "data").mkdir(mode=0o700)
        (folder / "gateway.toml").touch(0o600)
        (folder / "open.toml").write_text(
            f'gateway.data = "{folder}/data"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        )
        done = subprocess.run(
            accounts.onceway(*words.format(folder).split()),
            capture_output=True,
            text=True,
            check=False,
            **accounts.under(65534, 65534),
        )
    assert done.returncode == 6
    assert done.stderr.startswith(f"error: {folder}")
    assert done.stderr.count("\n") == 1
    assert any(word in done.stderr for word in ("sudo", "as root")), done.stderr


@pytest.mark.parametrize(
    ("typed", "offered"), [("gate", "gateway"), ("gateway ch", "check-config")]
)
def test_a_shell_completes_commands_and_their_own_commands(typed: str, offered: str) -> None:
    words = f"onceway {typed}"
    done = _run(
        _ONCEWAY_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert offered in done.stdout.split()


def test_a_command_whose_packages_are_missing_says_what_brings_them(tmp_path: Path) -> None:
    (tmp_path / "asyncio.py").write_text("raise ModuleNotFoundError(name='asyncio')")
    done = _run("hil", "list", "--json", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    told = json.loads(done.stderr)
    assert "asyncio, which is not installed" in told["error"]
    clone = Path(__file__).parents[2]
    assert told["hint"] == f"Run: {sys.executable} -m pip install --editable '{clone}[hil]'"


def test_a_package_that_is_missed_while_a_command_runs_is_reported_alike(tmp_path: Path) -> None:
    (tmp_path / "arro3").mkdir()
    (tmp_path / "arro3" / "__init__.py").write_text("")
    done = _run("uplink", "run", "--data", str(tmp_path), PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "`onceway uplink` needs the Python package arro3." in done.stderr
    assert "[gateway]'" in done.stderr


@pytest.mark.parametrize(
    "command", [("gateway", "check-config"), ("user", "list"), ("session", "list")]
)
def test_the_configuration_is_found_by_itself(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f"[gateway]\ndata = '{tmp_path}'\n[[listener]]\nbind = ':1883'\n")
    done = _run(*command, ONCEWAY_CONFIG=str(file))
    assert (done.returncode, str(tmp_path) in done.stdout + done.stderr) in ((0, True), (10, True))
    assert _run("gateway", "config", ONCEWAY_CONFIG=str(file)).stdout == f"{file}\n"


@pytest.mark.parametrize(
    "command",
    ["gateway run", "gateway status", "uplink status", "store check", "user list", "where a 1"],
)
def test_missing_configuration_is_reported_with_what_to_name(tmp_path: Path, command: str) -> None:
    missing = tmp_path / "gateway.toml"
    done = _run(*command.split(), ONCEWAY_CONFIG=str(missing))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {missing}: there is no configuration here. ")
    assert "--config FILE" in done.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("device show ro", {"roof-1", "roof-2"}),
        ("device expect roof-1", {"roof-1"}),
        ("readings ro", {"roof-1", "roof-2"}),
        ("device add new --board nano-", {"nano-old"}),
        ("hil run demo-l", {"demo-lora"}),
        ("readings nobody", set()),
    ],
)
def test_a_shell_completes_names(tmp_path: Path, typed: str, offered: set[str]) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f"[gateway]\ndata = '{tmp_path}'\n[[listener]]\nbind = ':1883'\n")
    registry = str(tmp_path / "registry.db")
    assert _run("device", "admit", "roof-1", "roof-2", "--registry", registry).returncode == 0
    words = f"onceway {typed}"
    done = _run(
        ONCEWAY_CONFIG=str(file),
        _ONCEWAY_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert set(done.stdout.split()) == offered
    assert done.stderr == ""
