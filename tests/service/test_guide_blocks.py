"""Each block of configuration in a guide is copied unchanged to the configuration of a running
gateway. Afterwards, the registered board and the user can still publish and receive.

In: the blocks of TOML tables in indented and fenced code of the gateway's guides. The test replaces
ports, files and host names that only a user's machine has.
"""

import asyncio
import os
import re
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from gateway.access.users import Users
from gateway.boards.admission import FILE
from gateway.site.pki.authority import found as establish
from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.links.board import Pty, until
from tests.links.certificates import Authority
from tests.links.lora.tnc import Tnc
from tests.service.boards import Sensor
from tests.service.process import free_port, gateway

ROOT = Path(__file__).parents[2]
GUIDES = ("README.md", "SECURITY.md", "gateway", "provisioning", "firmware", "systemd")
KEY = bytes(range(16))
TUNED = struct.pack("<IIBB", 869_525_000, 125_000, 9, 5)
"""Radio settings of the guide's block: frequency, bandwidth, spreading factor and coding rate."""

_BLOCK = re.compile(
    r"^( {4}|)(\[\[?[a-z_.]+\]\]?)(?=[ \n]).*\n(?:\1(?![ `]*$|```).+\n|\n(?=\1\[[a-z]+\.))*",
    re.MULTILINE,
)
"""A TOML table with its lines, and with a subtable after an empty line (`[uplink.options]`)."""


def found_blocks() -> Iterator[Any]:
    listed = subprocess.run(
        ["git", "ls-files", *(f"{guide}*.md" for guide in GUIDES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for guide in sorted(set(listed.stdout.split())):
        text = (ROOT / guide).read_text()
        for found in _BLOCK.finditer(text):
            block = re.sub(f"^{found[1]}", "", found[0], flags=re.MULTILINE)
            line = text.count("\n", 0, found.start()) + 1
            yield pytest.param(block, id=f"{guide}:{line}:{found[2]}")


BLOCKS = list(found_blocks())
_TOGETHER = [one.values[0] for one in BLOCKS if "gateway/README" in one.id]
BLOCKS.append(pytest.param("".join(_TOGETHER), id="gateway/README.md: all at once"))


class Machine:
    """The parts of a machine that blocks name: free ports, files and a modem. Other members of a
    site do not answer.
    """

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.modem = Tnc()
        self.line = Pty()
        self._folder = folder
        asyncio.get_running_loop().add_reader(self.line.master, self._answer)

    def _answer(self) -> None:
        self.modem.feed(os.read(self.line.master, 4096))
        os.write(self.line.master, self.modem.out)
        self.modem.out = b""

    def fit(self, block: str) -> str:
        block = re.sub(r'(bind = ")[^"]*:\d+', lambda found: f"{found[1]}{self._address()}", block)
        block = re.sub(
            r"^\[page\].*", f'[page]\nbind = "{self._address()}"', block, flags=re.MULTILINE
        )
        block = re.sub(r'"10\.[\d.]+:\d+"', lambda _: f'"{self._address()}"', block)
        block = block.replace("/dev/serial/by-id/usb-…", self.line.path)
        if "[site.members]" in block:
            (self._folder / "data").mkdir()
            establish(self._folder / "data" / "site", "attic")
        if "tls = {" in block:
            certificate, key = self.authority.issue("127.0.0.1")
            block = re.sub(r'"/etc/onceway/[\w.-]+\.pem"', f'"{certificate}"', block)
            block = re.sub(r'"/etc/onceway/[\w.-]+\.key"', f'"{key}"', block)
        for name in re.findall(r'password_file = "([^"]+)"', block):
            secret = self._folder / Path(name).name
            secret.write_text("secret\n")
            secret.chmod(0o400)
            block = block.replace(name, str(secret))
        return re.sub(r'(?<=")(https|smtps|mqtts)://[\w.]+', r"\1://127.0.0.1:1", block)

    @staticmethod
    def _address() -> str:
        return f"127.0.0.1:{free_port()}"


def client(block: str, port: int, authority: Path) -> aiomqtt.Client:
    """Return a client that connects as the user alice. If the block has a listener, the client uses
    it.
    """
    way: dict[str, Any] = {}
    block = re.split(r"\n(?=\[)", block)[0]
    if block.startswith("[[listener]]"):
        port = int(re.findall(r'bind = "127\.0\.0\.1:(\d+)', block)[0])
        if "tls = {" in block:
            way["tls_context"] = ssl.create_default_context(cafile=authority)
        if "websocket" in block:
            way |= {"transport": "websockets", "websocket_path": "/mqtt"}
    return aiomqtt.Client(
        "127.0.0.1",
        port,
        identifier="alice",
        username="alice",
        password="correct horse",
        protocol=aiomqtt.ProtocolVersion.V5,
        **way,
    )


@pytest.mark.parametrize("block", BLOCKS)
async def test_board_and_user_work_on_with_the_block(block: str, tmp_path: Path) -> None:
    machine, port, line = Machine(tmp_path), free_port(), Pty()
    block = machine.fit(block)
    registry = Registry(tmp_path / "data" / FILE)
    registry.finish(registry.begin(Identity("roof-1", KEY), "uno", "/dev/ttyACM0"), "ab" * 32)
    users = Users(tmp_path / "users")
    users.add("alice", "correct horse")
    config = tmp_path / "gateway.toml"
    name = f'[gateway]\nname = "attic"\ndata = "{tmp_path}/data"\n'
    data = "" if block.startswith("[gateway]") else name
    access = f'users = "{tmp_path}/users"\n'
    block = block.replace("[access]\n", f"[access]\n{access}") if "[access]" in block else block
    access = "" if "[access]" in block else f"[access]\n{access}"
    config.write_text(
        f'{data}{access}[[listener]]\nbind = "127.0.0.1:{port}"\n'
        f'[[serial]]\nport = "{line.path}"\n{block}'
    )
    readings = "commands/alice/#" if "read = " in block else "sensors/#"
    async with gateway(tmp_path / "data", "--config", str(config)):
        board = Sensor(line, "roof-1", key=KEY)
        await board.connect()
        assert board.board.received[3] == 0, "the board is let in"
        async with client(block, port, machine.authority.path) as alice:
            granted = await alice.subscribe(readings, qos=1)
            assert [code.value for code in granted] == [1]
            before = len(board.board.received)
            await board.measure(1.5)
            assert _success(bytes(board.board.received[before:])), "the reading is taken"
            await board.subscribe("commands/roof-1")
            await alice.publish("sensors/alice/one", b"1", qos=1)
            if readings == "sensors/#":
                async with asyncio.timeout(30):
                    topics = {(await anext(alice.messages)).topic.value for _ in range(2)}
                assert topics == {"sensors/roof-1/adc0", "sensors/alice/one"}
        board.unplug()
        if block.startswith("[[lora]]"):
            await until(lambda: machine.modem.radio == TUNED)
    machine.line.unplug()


def _success(puback: bytes) -> bool:
    """Return whether a PUBACK reports success. Its reason code may be left out."""
    return puback[0] == 0x40 and (puback[1] == 2 or puback[4] < 0x80)


def test_blocks_are_found() -> None:
    found = [one.id for one in BLOCKS]
    assert len(found) > 15
    assert len(set(found)) == len(found)
