"""Each command line of the guides runs as it is written, on a machine as the guide describes it
(`guide_machine.py`): with the owners and modes that sudo gives, with the accounts of the services,
and on a terminal. Afterwards, the registered board can still publish, and the user alice as well if
the guide adds her.

`guide_lines.py` has the lines that cannot run here, each with another test or a reason. If a guide
gets a new line, it runs here.

Each guide takes some seconds, because each line is a process.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

from gateway.boards.admission import FILE
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.benchmarks.load import connect_packet
from tests.links.board import Pty, until
from tests.promises.evidence import fault
from tests.service.boards import Sensor
from tests.service.guide_lines import EXCEPTED, ROOT, RUN_BY, Line, all_lines, lines
from tests.service.guide_machine import PASSWORD, Machine

KEY = bytes(range(16))
EVERY = all_lines()
HERE = [line for line in EVERY if not line.begins(RUN_BY | EXCEPTED)]
GUIDES = {guide: list(some) for guide, some in groupby(HERE, key=lambda line: line.guide)}

CODES = {
    "doctor": {1},
    r"^(?!.*gateway).*onceway status": {1},
    "session (show|end) dashboard": {5},
    "bridge again cloud": {1, 5},
    "notify test": {1},
    "ingest report": {1, 5},
    "where roof-1 42": {1},
    "readings roof-1 --since": {0, 1},
    "site status": {1},
    "session list --site": {1},
}
"""Expected exit codes of the lines that may fail here, by pattern of the line. Such failures are
right: nothing has landed, no client is called `dashboard`, no other member runs, and the machine's
clock may not be synchronised.
"""

TYPED = {r"install .* /dev/stdin /etc/onceway/cloud.password": "secret\n\x04"}
STOPPED = r"onceway (restore|store (restore|salvage|downgrade))"
"""Pattern of commands for which the guides stop the gateway."""

MEMBERS = """
[site]
bind = "10.0.0.11:8884"
[site.members]
attic = "10.0.0.11:8884"
barn = "10.0.0.12:8884"
cellar = "10.0.0.13:8884"
"""
BLOCKS = {
    "gateway/docs/watch.md": '[web]\nbind = "127.0.0.1:9464"\n[notify]\ncommand = ["/bin/false"]\n',
    "gateway/docs/home-assistant.md": "[mirror]\n",
    "gateway/bridge/README.md": (
        '[[bridge]]\nname = "cloud"\nserver = "mqtt://127.0.0.1:1"\nuser = "site-1"\n'
        'password_file = "/etc/onceway/cloud.password"\nup = ["sensors/#"]\nprefix = "site-1/"\n'
    ),
}
FIRST = {
    "README.md": "onceway uplink key >site-1.key; mkdir LANDING",
    "gateway/ingest/README.md": "mkdir -p /srv/onceway/landing",
    "gateway/bridge/README.md": (
        "echo first | install -o onceway -m 400 /dev/stdin /etc/onceway/cloud.password"
    ),
    "gateway/docs/three-gateways.md": "sed -i 's/site-1/attic/' /etc/onceway/gateway.toml",
}
MODES = {
    "gateway/README.md": {
        "/etc/systemd/journald.conf.d/size.conf": "644 root",
        "/etc/onceway/backup.env": "600 root",
        "/mnt/usb/site-1.owback": "600 root",
    },
    "gateway/bridge/README.md": {"/etc/onceway/cloud.password": "400 onceway"},
    "gateway/uplink/README.md": {"/etc/onceway/uplink.env": "600 root"},
    "gateway/ingest/README.md": {
        "/etc/onceway/ingest.env": "600 root",
        "/srv/lake": "755 onceway-ingest",
    },
}
"""Mode and owner of the files that the lines of a guide create, by guide and path."""


@cache
def allowed() -> bool:
    """Return whether this account may mount file systems and make a network namespace."""
    probe = ["unshare", "--mount", "--net", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


class Reader:
    """A reader of a guide, with a machine and a board at the gateway's port."""

    def __init__(self, folder: Path, guide: str, beside: Machine | None) -> None:
        folder.mkdir(exist_ok=True)
        self.machine = Machine(folder / "machine", beside)
        self._port = Pty()
        os.chmod(self._port.path, 0o666)
        Path(self._port.path).parent.chmod(0o755)
        self._board: Sensor | None = None
        registry = Registry(folder / FILE)
        registry.finish(registry.begin(Identity("roof-1", KEY), "uno", "/dev/ttyACM0"), "ab" * 32)
        registry.admit("roof-7")
        self.machine.root(
            f"install -o onceway -g onceway -m 600 {folder}/{FILE} /var/lib/onceway/{FILE}\n"
            f"sed -i 's|/dev/serial/by-id/[*]|{self._port.path}|' /etc/onceway/gateway.toml\n"
            f"cat >>/etc/onceway/gateway.toml <<'END'\n{BLOCKS.get(guide, '')}END\n"
            f"{FIRST.get(guide, '')}"
        )

    async def start(self) -> None:
        """Start the gateway. Let the board connect, publish, and stay connected."""
        before = len(self._board.board.started) if self._board else 0
        await self.machine.start()
        if self._board is None:
            self._board = Sensor(self._port, "roof-1", key=KEY)
        board, connected = self._board.board, before

        def answered() -> bool:
            nonlocal connected
            if len(board.started) > connected:
                connected = len(board.started)
                board.write(connect_packet("roof-1", clean=True))
            return connected > before and bool(board.received)

        await until(answered)
        await self._board.measure(1.5)

    async def follow(self, line: Line) -> str:
        """Run a line. Return a text about its failure; empty if it succeeds."""
        stopped = re.search(STOPPED, line.text) and self.machine.gateway is not None
        if stopped:
            await self.machine.stop()
        typed = next((keys for words, keys in TYPED.items() if re.search(words, line.text)), "")
        code, said = await asyncio.to_thread(self.machine.line, line.text, typed)
        codes = next((some for words, some in CODES.items() if re.search(words, line.text)), {0})
        if code not in codes or "Traceback" in said:
            return f"{line}: exit code {code}: {said[-600:]}"
        done = re.search(r"systemctl (\w+) .*onceway-gateway", line.text)
        if stopped or (done and done[1] in ("stop", "restart")):
            await self.machine.stop()
        if stopped or (done and done[1] in ("start", "restart")):
            await self.start()
        return ""

    async def publish(self, user: str) -> None:
        """Publish as the board, and as this user if the name is not empty."""
        assert self._board is not None
        await self._board.measure(2.5)
        who = f"-u {user} -P {PASSWORD}" if user else ""
        self.machine.root(f"mosquitto_pub {who} -q 1 -t sensors/{user or 'all'}/one -m 1")

    def kept(self, files: Iterable[str]) -> dict[str, str]:
        """Return mode and owner of each file."""
        return {file: self.machine.root(f"stat -c '%a %U' {file}").strip() for file in files}

    async def end(self) -> None:
        if self._board is not None:
            self._board.unplug()
        await self.machine.end()


@asynccontextmanager
async def follower(
    folder: Path, guide: str, beside: Machine | None = None
) -> AsyncIterator[Reader]:
    reader = Reader(folder, guide, beside)
    try:
        if beside is None:
            await reader.start()
        yield reader
    finally:
        await reader.end()


@pytest.mark.parametrize("guide", sorted(GUIDES.keys() - {"gateway/docs/three-gateways.md"}))
async def test_lines_run_as_written_and_the_board_works_on(guide: str, tmp_path: Path) -> None:
    if not allowed():
        pytest.skip("needs the right to mount: run it as root")
    async with follower(tmp_path, guide) as reader:
        wrong = [await reader.follow(line) for line in GUIDES[guide]]
        assert not any(wrong), "\n".join(filter(None, wrong))
        added = re.findall(r"user add (\S+)", "\n".join(line.text for line in GUIDES[guide]))
        await reader.publish(added[0] if added else "")
        modes = MODES.get(guide, {})
        assert reader.kept(modes) == modes


@pytest.mark.soak
async def test_a_second_gateway_joins_by_the_lines_of_the_guide(tmp_path: Path) -> None:
    """From `site join` on, the lines run on another machine. scp copies the invitation there."""
    if not allowed():
        pytest.skip("needs the right to mount: run it as root")
    guide = "gateway/docs/three-gateways.md"
    every = GUIDES[guide]
    members = f"cat >>/etc/onceway/gateway.toml <<'END'{MEMBERS}END\n"
    join = next(index for index, line in enumerate(every) if "site join" in line.text)
    async with follower(tmp_path / "attic", guide) as attic:
        attic.machine.serve_ssh()
        attic.machine.root(members)
        wrong = [await attic.follow(line) for line in every[:join]]
        wrong += [await attic.follow(line) for line in every if "site status" in line.text]
        assert not any(wrong), "\n".join(filter(None, wrong))
        await attic.publish("")
        assert attic.kept(["/home/pi/barn.invitation"]) == {"/home/pi/barn.invitation": "600 pi"}
        invitation = attic.machine.root("base64 /home/pi/barn.invitation")
        async with follower(tmp_path / "barn", guide, attic.machine) as barn:
            name = 's/"attic"/"barn"/; s/127.0.0.1:1883/127.0.0.2:1883/'
            barn.machine.root(
                f"sed -i '{name}' /etc/onceway/gateway.toml\n"
                f"{members.replace('11:8884', '12:8884', 1)}"
                f"base64 -d >barn.invitation <<'END'\n{invitation}END\n"
                "chown pi barn.invitation"
            )
            wrong = [await barn.follow(line) for line in every[join:]]
            assert not any(wrong), "\n".join(filter(None, wrong))


def test_each_line_is_run_or_has_a_test_or_a_reason() -> None:
    assert len(HERE) > 60
    for words, evidence in RUN_BY.items():
        assert any(line.begins(RUN_BY | EXCEPTED) == evidence for line in EVERY), words
        assert not fault(evidence, "", ROOT)
    for words, reason in EXCEPTED.items():
        assert any(line.text.startswith(words) for line in EVERY), words
        assert len(reason) > 20, words


@pytest.mark.parametrize("words", [*CODES, *TYPED, STOPPED])
def test_outcomes_are_of_lines_in_a_guide(words: str) -> None:
    assert any(re.search(words, line.text) for line in HERE)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("    curl http://x/    # a comment", ["curl http://x/"]),
        ("    sudo install -m 600 a \\\n        b\n", ["sudo install -m 600 a b"]),
        ("```sh bucket\nexport A=1\n```", ["export A=1"]),
        ("    A=1 .venv/bin/onceway status", ["A=1 .venv/bin/onceway status"]),
        ("    echo x | sudo tee /etc/y", ["echo x | sudo tee /etc/y"]),
        ("```toml\nset = 1\n```\ncurl in a sentence\n    src/  curl", []),
    ],
)
def test_a_line_of_shell_is_seen(text: str, found: list[str]) -> None:
    assert [line.text for line in lines("g.md", text)] == found
