"""The MQTT clients under test. For each client there is a driver: a program that is started with
the options in `drivers/options.py`.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.mirror import home_assistant

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DRIVERS = HERE / "drivers"
BUILD = ROOT / "build" / "clients"
NODE = {"mqtt": "5.16.0", "node-red": "5.0.7"}
WAYS = ("tcp", "tls", "ws", "wss")
END_S = 20


@dataclass(frozen=True)
class Client:
    """A client under test. names: its name in the table, by version of MQTT (4 means 3.1.1).
    command: command line of its driver. ways: transports that it supports. alone: whether its
    driver reports a message as published without waiting for the acknowledgement. ordered: whether
    its driver publishes the messages in order.
    """

    names: dict[int, str]
    command: tuple[str, ...]
    ways: tuple[str, ...] = WAYS
    alone: bool = False
    ordered: bool = True


def clients() -> list[Client]:
    """Return the clients that are installed on this machine."""

    def python(name: str, file: str, **more: object) -> Client:
        return Client({4: name, 5: name}, (sys.executable, str(DRIVERS / file)), **more)  # type: ignore[arg-type]

    def node(name: str, file: str) -> Client:
        return Client({4: name, 5: name}, ("node", str(DRIVERS / file)))

    plain = ("tcp", "tls")
    found = [
        python(f"paho {version('paho-mqtt')}", "with_paho.py"),
        python(f"aiomqtt {version('aiomqtt')}", "with_aiomqtt.py"),
    ]
    for package, title, file in (
        ("mqtt", "mqtt.js", "with_mqttjs.cjs"),
        ("node-red", "Node-RED", "with_node_red.cjs"),
    ):
        if (BUILD / "node_modules" / package).exists():
            found.append(node(f"{title} {NODE[package]}", file))
    if shutil.which("mosquitto_pub"):
        title = _mosquitto()
        found.append(
            python(f"mosquitto_pub, mosquitto_sub {title}", "with_mosquitto.py", ways=plain)
        )
        bridge = f"bridge of mosquitto {title}"
        found.append(python(bridge, "with_bridge.py", ways=plain, alone=True))
    if (home_assistant.HOME / "ready").exists():
        python_of = str(home_assistant.HOME / "bin" / "python")
        command = (python_of, str(DRIVERS / "with_home_assistant.py"))
        title = f"Home Assistant {home_assistant.VERSION}"
        found.append(Client({4: title, 5: title}, command, ordered=False))
    if (rust := BUILD / "target" / "release" / "with-rumqttc").exists():
        found.append(Client({4: "rumqttc 0.25.1", 5: "rumqttc 0.25.1 (v5)"}, (str(rust),)))
    if (go := BUILD / "paho_go").exists():
        names = {4: "Paho Go (paho.mqtt.golang 1.5.1)", 5: "Paho Go (autopaho 0.23.0)"}
        found.append(Client(names, (str(go),), ordered=False))
    return found


def _mosquitto() -> str:
    said = subprocess.run(
        ["mosquitto_pub", "--version"], capture_output=True, text=True, check=False
    )
    return said.stdout.split()[2]


def install() -> None:
    """Install and build the clients in build/. Skip a client if that fails."""
    if (python := home_assistant.interpreter()) is not None:
        with suppress(subprocess.CalledProcessError):
            home_assistant.install(python)
    words = [f"{name}@{number}" for name, number in NODE.items()]
    BUILD.mkdir(parents=True, exist_ok=True)
    manifest = str(DRIVERS / "rumqttc" / "Cargo.toml")
    for command, folder in (
        (("npm", "install", "--no-audit", "--no-fund", "--prefix", str(BUILD), *words), ROOT),
        (("go", "build", "-o", str(BUILD / "paho_go"), "."), DRIVERS / "paho_go"),
        (
            (
                *("cargo", "build", "--release", "--manifest-path", manifest),
                *("--target-dir", str(BUILD / "target")),
            ),
            ROOT,
        ),
    ):
        try:
            done = subprocess.run(command, cwd=folder, check=False).returncode == 0
        except FileNotFoundError:
            done = False
        if not done:
            print(f"{command[0]} did not install its clients: they are left out", file=sys.stderr)


class Driver:
    """A running driver. lines: its output so far. payloads: the numbers of the messages in its
    output.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.payloads: list[int] = []
        self._more = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            async with self._more:
                self.lines.append(text := line.decode(errors="replace").strip())
                self.payloads += [int(text)] if text.isdecimal() else []
                self._more.notify_all()
        async with self._more:
            self._more.notify_all()

    async def until(self, done: Callable[[], object], within: float) -> bool:
        """Wait until the driver's output meets a condition; return whether it does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within), self._more:
                await self._more.wait_for(lambda: done() or self._reading.done())
        return bool(done())

    async def ready(self, within: float = 180) -> bool:
        return await self.until(lambda: "ready" in self.lines, within)

    async def verdict(self, within: float) -> str:
        """Return the first line that a driver prints after it has published, or "nothing" if no
        line comes in time. within: time limit of the driver, in seconds.
        """
        await self.until(lambda: self.lines, within + 5)
        return self.lines[0] if self.lines else "nothing"

    async def kill(self) -> None:
        """End the driver and all programs that it has started."""
        for number, within in ((signal.SIGTERM, 3), (signal.SIGKILL, END_S)):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), within)
        await self._reading


@asynccontextmanager
async def running(client: Client, does: str, **options: object) -> AsyncIterator[Driver]:
    """Run a driver until the block ends. does: publish or subscribe. options: as in
    `drivers/options.py`.
    """
    given = {"does": does, "way": "tcp", "version": 5, "ca": None, "topic": "t", "qos": 2}
    given |= {"count": 1, "within_s": 15, "folder": ""} | options
    given["id"] = f"{does}-{given['topic']}"
    env = os.environ | {"NODE_PATH": str(BUILD / "node_modules"), "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *(*client.command, json.dumps(given)),
        stdout=asyncio.subprocess.PIPE,
        stderr=None if "TRACE" in os.environ else asyncio.subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    )
    driver = Driver(process)
    try:
        yield driver
    finally:
        await driver.kill()
