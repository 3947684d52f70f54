"""Each `onceway` command of the guides, run as it is written beside a running gateway with a
registered board and a user, who still publish afterwards.

In: the lines of code in a guide that begin with `onceway`, with or without sudo or a folder.
Out: the exit code that a user gets. NOT_RUN has the other commands, with the tests that run them.

It takes some seconds: each command is a process, as a user starts it.
"""

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from gateway.access.users import Users
from gateway.boards.admission import FILE
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.links.board import Pty
from tests.service.boards import Sensor
from tests.service.process import START_S, gateway

ROOT = Path(__file__).parents[2]
GUIDES = (
    "README.md",
    "gateway/README.md",
    "gateway/docs/three-gateways.md",
    "gateway/docs/home-assistant.md",
    "gateway/docs/watch.md",
    "provisioning/README.md",
)
ONCEWAY = str(Path(sys.executable).with_name("onceway"))
KEY = bytes(range(16))

NOT_RUN = {
    r"gateway run": "tests/test_readme.py",
    r"ingest ": "tests/ingest/test_readme.py",
    r"device (add|update)": "tests/provisioning/test_device.py",
    r"board probe": "tests/provisioning/test_probe.py",
    r"user add": "tests/access/test_access.py",
    r"site (init|invite|join)|.*--site": "tests/site/test_cli.py",
    r"site (status|remove)": "tests/site/test_cli.py",
    r"store (downgrade|restore)": "tests/store/test_downgrade.py",
    r"store salvage": "tests/store/test_cli.py",
    r"(backup|restore) ": "tests/backup/test_backup.py",
    r"device log": "tests/boards/test_log.py",
    r"radio ": "tests/hil/air/test_look.py",
}
"""Commands that need hardware, a passphrase, a stopped gateway or a site, and what runs them."""

CODES = {
    "doctor": {0, 1},
    "status": {1},
    "uplink status": {0, 1},
    "session show dashboard": {5},
    "session end dashboard": {5},
    "notify test": {1},
    "device pending": {0, 5},
}
"""Exit codes other than 0 beside a gateway without an uplink and without such a client."""

_LINE = re.compile(r"^ {4}(?:sudo )?(?:\.venv/bin/)?onceway ([^#|\n]+)", re.MULTILINE)


def commands() -> list[str]:
    found = [
        " ".join(line.split())
        for guide in GUIDES
        for line in _LINE.findall((ROOT / guide).read_text())
    ]
    return list(dict.fromkeys(found))


RUN = [one for one in commands() if not any(re.match(pattern, one) for pattern in NOT_RUN)]


async def run(command: str, config: Path, folder: Path) -> str:
    """Return the fault of a command's outcome; empty if there is none."""
    words = [word.replace("/mnt/usb", str(folder)) for word in shlex.split(command)]
    process = await asyncio.create_subprocess_exec(
        ONCEWAY,
        *words,
        env=os.environ | {"ONCEWAY_CONFIG": str(config)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), START_S)
    said = out.decode()
    fits = process.returncode in CODES.get(command, {0}) and "Traceback" not in said
    return "" if fits else f"{command}: exit code {process.returncode}: {said}"


async def test_commands_run_as_written_and_the_board_works_on(tmp_path: Path) -> None:
    line, config = Pty(), tmp_path / "gateway.toml"
    registry = Registry(tmp_path / "data" / FILE)
    registry.finish(registry.begin(Identity("roof-1", KEY), "uno", "/dev/ttyACM0"), "ab" * 32)
    registry.admit("roof-7")
    Users(tmp_path / "data" / "users").add("alice", "correct horse")
    config.write_text(
        f'[gateway]\ndata = "{tmp_path}/data"\ntrust_clock = true\n'
        f'[[listener]]\nbind = "127.0.0.1:0"\n[[serial]]\nport = "{line.path}"\n'
        f'[uplink]\nlanding = "file://{tmp_path}/landing"\n[notify]\ncommand = ["/bin/false"]\n'
    )
    async with gateway(tmp_path / "data", "--config", str(config)):
        board = Sensor(line, "roof-1", key=KEY)
        await board.connect()
        await board.measure(1.5)
        wrong = [await run(command, config, tmp_path) for command in RUN]
        assert [one for one in wrong if one] == []
        await board.measure(2.5)
        board.unplug()


def test_guide_command_not_run_here_is_run_by_another_test() -> None:
    every = commands()
    assert len(RUN) > 15
    for pattern, test in NOT_RUN.items():
        assert (ROOT / test).is_file()
        if not pattern.startswith("radio"):
            assert any(re.match(pattern, one) for one in every), pattern


@pytest.mark.parametrize("command", sorted(CODES))
def test_codes_are_of_commands_in_a_guide(command: str) -> None:
    assert command in RUN
