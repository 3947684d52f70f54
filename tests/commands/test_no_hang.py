"""Each command ends by itself, even if the gateway and the landing place do not answer, or an open
port has no board.
"""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from gateway.commands import control_client
from gateway.commands import main as script
from gateway.commands import options as shared
from gateway.config import MayNotRead
from gateway.uplink.landing import base
from provisioning import avrdude
from provisioning.registry import Registry
from tests.commands.test_tree import TREE, _build, _is_argument, _options
from tests.links.board import Pty
from tests.uplink.conftest import GatewayData

END_S = 60.0
"""Time limit in seconds for a command. Commands end much sooner, because the tests set the timeouts
of the commands to fractions of a second.
"""
SERVICES = {"gateway run", "uplink run"}
COMMANDS = sorted(
    name for name in TREE.keys() - SERVICES if not name.startswith(("hil ", "ingest "))
)
ASK_GATEWAY = {
    *("status", "gateway status", "gateway reload", "notify test", "readings", "doctor"),
    *("session list", "session show", "session end", "radio status", "radio listen"),
    *("bridge status", "bridge again", "bridge discard"),
    *("device expect", "device pause", "device log", "device command", "device ping"),
}
ASK_PLACE = {"publish", "uplink run", "uplink claim", "doctor", "gateway check-config", "backup"}
MORE = {
    "backup": ["--to-landing"],
    "bridge again": ["--all"],
    "bridge discard": ["--all"],
    "gateway check-config": ["--connect"],
    "publish": ["sensors/roof-1/t", "1", "--wait", "1"],
    "spool discard": ["--yes"],
    "uplink run": ["--once"],
}
VALUES = {
    "name": "roof-1",
    "names": "roof-1",
    "new_name": "roof-9",
    "device": "roof-1",
    "interval": "5m",
    "time": "5m",
    "numbers": "1",
    "sequence": "1",
}


class Silent:
    """A server that accepts connections and never answers."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._take)
        listener.listen()
        self._thread.start()

    @property
    def asked(self) -> bool:
        return bool(self._taken)

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                self._taken.append(self._listener.accept()[0])

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for channel in (*self._taken, self._listener):
            channel.close()


@pytest.fixture
def place() -> Iterator[tuple[Silent, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    with closing(Silent(listener)) as server:
        yield server, listener.getsockname()[1]


@pytest.fixture
def gateway(tmp_path: Path, place: tuple[Silent, int]) -> Iterator[Silent]:
    """Make a configuration, a data directory, and the control socket of a gateway that never
    answers. Yield the server behind that socket.
    """
    data = GatewayData(tmp_path / "data")
    data.add(3)
    with closing(Registry(data.path / "registry.db")) as registry:
        registry.admit("roof-1")
    (tmp_path / "gateway.toml").write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        f'[uplink]\nlanding = "sftp://nobody@127.0.0.1:{place[1]}/landing"\n'
    )
    listener = socket.socket(socket.AF_UNIX)
    with control_client.short(data.path) as path:
        listener.bind(path)
    with closing(Silent(listener)) as server:
        yield server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(control_client, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(base, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(avrdude, "_SILENCE_S", 0.2)
    monkeypatch.setattr(script, "_command", _build)
    monkeypatch.setattr(script.signal, "signal", lambda *_: None)
    monkeypatch.setenv("ONCEWAY_CONFIG", str(tmp_path / "gateway.toml"))
    monkeypatch.setenv("ONCEWAY_PASSPHRASE", "a passphrase of this test")
    monkeypatch.chdir(tmp_path)


def _end(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run a command line. Return its exit code."""
    monkeypatch.setattr(sys, "argv", ["onceway", *words])
    codes: list[Any] = []

    def run() -> None:
        try:
            script.main()
        except SystemExit as end:
            codes.append(end.code or 0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(END_S)
    assert not thread.is_alive(), f"{' '.join(words)} does not end"
    assert codes, f"{' '.join(words)} has ended with an exception"
    return int(codes[0])


def _words(name: str, folder: Path, port: str, place: str = "") -> list[str]:
    words, values = [*name.split(), *MORE.get(name, [])], VALUES
    options = _options(TREE[name])
    if "--port" in options:
        words += ["--port", port]
    if name == "publish":
        values = VALUES | {"to": place}
    if "--board" in options and name != "radio plan":
        words += ["--board", "uno"]
    for item in TREE[name].params:
        if not item.required or item.opts[0] == "--port":
            continue
        number = item.type_descriptor.annotation in (int, float)
        value = values.get(item.name, "1" if number else str(folder / "none"))
        words += [value] if _is_argument(item) else [item.opts[0], value]
    return words


@pytest.mark.parametrize("name", [*COMMANDS, "uplink run"])
def test_each_command_ends_without_an_answer(
    name: str,
    gateway: Silent,
    place: tuple[Silent, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    line = Pty()
    code = _end(monkeypatch, *_words(name, tmp_path, line.path, f"mqtt://127.0.0.1:{place[1]}"))
    said = capfd.readouterr()
    assert code == 0 or said.err or said.out, "says what is wrong"
    if name in ASK_GATEWAY:
        assert gateway.asked
        assert code != 0
    if name in ASK_PLACE:
        assert place[0].asked
        assert code != 0


@pytest.mark.parametrize("name", sorted(ASK_GATEWAY - {"doctor"}))
def test_people_who_may_only_command_the_gateway_reach_it(
    name: str, gateway: Silent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account is in the group onceway-admin, which may not read the configuration."""

    def load(path: Path) -> None:
        raise MayNotRead("this account may not read the configuration", str(path))

    monkeypatch.delenv("ONCEWAY_CONFIG")
    monkeypatch.setattr(shared, "CONFIG_FILE", str(tmp_path / "gateway.toml"))
    monkeypatch.setattr(shared, "INSTALLED", tmp_path / "data")
    monkeypatch.setattr(shared, "load", load)
    assert _end(monkeypatch, *_words(name, tmp_path, "")) == 1
    assert gateway.asked


@pytest.mark.parametrize("length", ["1s", "soon"])
def test_listening_to_radios_ends(
    length: str,
    gateway: Silent,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The gateway sends rows without end. The command stops after the time of `--for`, or at once
    if that is not a time.
    """
    rows: dict[str, Any] = {"radios": [{}], "listen": repeat({})}

    def follow(folder: Path, do: str) -> Iterator[dict[str, Any]]:
        yield from rows[do]

    monkeypatch.setattr(control_client, "follow", follow)
    monkeypatch.setattr(control_client, "ask", lambda folder, do: rows[do])
    code = _end(monkeypatch, "radio", "listen", "--for", length)
    assert (code, capfd.readouterr().err) == (
        (0, "")
        if length == "1s"
        else (2, "error: --for: 'soon' is not a time; write for example 30s or 5m\n")
    )
