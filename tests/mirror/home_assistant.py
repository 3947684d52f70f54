"""A real Home Assistant from PyPI, for tests. A test uses its API like a new user: the test creates
an account, adds the MQTT integration, and reads the entities.

Home Assistant is installed once, into a virtual environment in build/. It installs the packages of
its integrations by itself. Both installations need the internet and take minutes.
"""

import asyncio
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp

from gateway.boards.bundled_firmware import ROOT
from tests.service.process import free_port

VERSION = "2025.4.4"
"""The newest version for Python 3.13.0. It requires exact versions of its packages."""
HOME = ROOT / "build" / "home-assistant"
FIRST_START_S = 1200
START_S = 600
PATIENCE_S = 180
CONFIGURATION = """\
homeassistant:
http:
  server_host: 127.0.0.1
  server_port: {port}
logger:
  default: warning
"""

State = dict[str, Any]


def interpreter() -> str | None:
    """Return a Python 3.13 with the module venv, from Debian or pyenv; None if there is none."""
    pyenv = Path.home().glob(".pyenv/versions/3.13.*/bin/python")
    for path in filter(None, [shutil.which("python3.13"), *map(str, sorted(pyenv))]):
        # pyenv has a python3.13 that fails if this version is not installed
        with suppress(subprocess.CalledProcessError):
            subprocess.run([path, "-c", "import venv"], check=True, capture_output=True)
            return path
    return None


def install(python: str) -> None:
    """Install Home Assistant, if it is not installed yet."""
    if (HOME / "ready").exists():
        return
    shutil.rmtree(HOME, ignore_errors=True)
    subprocess.run([python, "-m", "venv", HOME], check=True)
    # use uv, because pip would try old releases of the packages for an hour
    subprocess.run([HOME / "bin/python", "-m", "pip", "install", "--quiet", "uv"], check=True)
    there = ("--quiet", "--python", HOME / "bin/python")
    subprocess.run(
        [HOME / "bin/uv", "pip", "install", *there, f"homeassistant=={VERSION}"], check=True
    )
    (HOME / "ready").touch()


class HomeAssistant:
    """A Home Assistant with a folder of its own. A test can start and end it several times."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._port = free_port()
        self._url = f"http://127.0.0.1:{self._port}"
        self._client_id = f"{self._url}/"
        self._token = ""
        self._process: asyncio.subprocess.Process | None = None
        (folder / "configuration.yaml").write_text(CONFIGURATION.format(port=self._port))

    async def start(self, within: float = START_S) -> None:
        with (self._folder / "output").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *(HOME / "bin/python", "-m", "homeassistant", "--config", self._folder),
                stdout=output,
                stderr=output,
            )
        async with asyncio.timeout(within):
            while not await self._answers():
                assert self._process.returncode is None, self.said()
                await asyncio.sleep(0.5)

    async def end(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await asyncio.wait_for(self._process.wait(), START_S)

    def said(self) -> str:
        return (self._folder / "output").read_text()

    def complaints(self) -> list[str]:
        """Return the log lines in which the MQTT integration complains about a message."""
        return [
            line
            for line in self.said().splitlines()
            if "components.mqtt" in line and (" ERROR " in line or " WARNING " in line)
        ]

    async def _answers(self) -> bool:
        with suppress(aiohttp.ClientError):
            async with self._get("/api/onboarding") as answer:
                return answer.status in (200, 404)
        return False

    async def begin(self) -> None:
        """Create the owner's account, and log in."""
        owner = {"name": "Lena", "username": "lena", "password": "one of hers", "language": "en"}
        found = await self._ask("/api/onboarding/users", owner | {"client_id": self._client_id})
        form = {
            "grant_type": "authorization_code",
            "code": found["auth_code"],
            "client_id": self._client_id,
        }
        async with aiohttp.request("POST", f"{self._url}/auth/token", data=form) as answer:
            tokens = await answer.json()
        self._token = tokens["access_token"]

    async def add_mqtt(self, port: int, user: str, password: str) -> State:
        """Add the MQTT integration with this broker and user. Return the answer of its dialog."""
        flow = await self._ask("/api/config/config_entries/flow", {"handler": "mqtt"})
        broker = {"broker": "127.0.0.1", "port": port, "username": user, "password": password}
        place = f"/api/config/config_entries/flow/{flow['flow_id']}"
        return await self._ask(place, broker)

    async def state(self, entity: str) -> State | None:
        """Return the state of an entity, or None if there is none."""
        async with self._get(f"/api/states/{entity}") as answer:
            if answer.status == 404:
                return None
            found: State = await answer.json()
            return found

    async def until(self, entity: str, wanted: Callable[[State | None], bool]) -> State | None:
        """Wait until the state of an entity is as wanted, and return it."""
        until = time.monotonic() + PATIENCE_S
        while not wanted(found := await self.state(entity)):
            assert time.monotonic() < until, f"{entity}: {found}\n{self.said()}"
            await asyncio.sleep(0.2)
        return found

    async def is_(self, entity: str, state: str) -> State:
        found = await self.until(entity, lambda item: item is not None and item["state"] == state)
        assert found is not None
        return found

    async def call(self, service: str, entity: str, **data: object) -> None:
        """Call a service of Home Assistant for an entity. service: for example `button/press`."""
        await self._ask(f"/api/services/{service}", {"entity_id": entity} | data)

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    async def _ask(self, path: str, body: object) -> Any:
        place = self._url + path
        async with aiohttp.request("POST", place, json=body, headers=self._headers) as answer:
            assert answer.status == 200, f"{path}: {answer.status} {await answer.text()}"
            return await answer.json()

    def _get(self, path: str) -> Any:
        return aiohttp.request("GET", self._url + path, headers=self._headers)
