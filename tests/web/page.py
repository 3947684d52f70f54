"""A gateway with the web page, users and boards, for tests."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from gateway.access.users import Users
from tests.links.board import Pty
from tests.service.boards import Sensor, configuration
from tests.service.process import GatewayProcess, start

USER, OPERATOR, PASSWORD = "lena", "otto", "correct horse"
EACH_SECOND = (
    "-c",
    "from gateway.web import live, overview; live.SAMPLE_S = overview.SAMPLE_S = 1.0;"
    " from gateway.commands.main import main; main()",
)
"""Arguments of a gateway that samples its history each second instead of each minute."""
PLAIN = '[page]\nbind = "127.0.0.1:0"\n'
TEXT = f'{PLAIN}operators = ["{OPERATOR}"]\nviewers = ["{USER}"]\n'


@dataclass
class Page:
    """A running gateway with the page. url: address of the page, without a slash at the end.
    sensors: boards in session. file: the configuration. strangers: boards that are not admitted.
    """

    running: GatewayProcess
    url: str
    sensors: list[Sensor]
    file: Path
    strangers: list[Sensor]

    async def uplink(self) -> int:
        """Land the waiting rows. Return the exit code of the uplink."""
        return await (await self._start_uplink("--once")).wait()

    @asynccontextmanager
    async def running_uplink(self) -> AsyncIterator[None]:
        process = await self._start_uplink()
        yield
        process.terminate()
        await process.wait()

    async def _start_uplink(self, *options: str) -> asyncio.subprocess.Process:
        command = "from gateway.commands.main import main; main()"
        arguments = [sys.executable, "-c", command, "uplink", "run", *options]
        return await asyncio.create_subprocess_exec(
            *arguments, "--config", str(self.file), stderr=asyncio.subprocess.DEVNULL
        )


@asynccontextmanager
async def page(
    folder: Path,
    boards: list[str],
    text: str = "",
    users: tuple[str, ...] = (USER, OPERATOR),
    program: tuple[str, ...] = ("-m", "gateway"),
    strangers: tuple[str, ...] = (),
    section: str = TEXT,
) -> AsyncIterator[Page]:
    """Run a gateway with the page and these boards in session. text: further configuration. users:
    accounts of the page. strangers: unknown boards, at ports that do not admit unknown boards.
    section: the section [page].
    """
    (folder / "data").mkdir(exist_ok=True)
    accounts = Users(folder / "data" / "users")
    for name in users:
        accounts.add(name, PASSWORD)
    lines = [Pty() for _ in boards]
    closed = [Pty() for _ in strangers]
    text += "".join(f'[[serial]]\nport = "{line.path}"\n' for line in closed)
    file = configuration(folder, lines, section + text)
    async with AsyncExitStack() as stack:
        running = await start("--config", str(file), program=program)
        stack.push_async_callback(running.end, signal.SIGKILL)
        await running.ready()
        url = await address(running)
        sensors = [Sensor(pty, name) for pty, name in zip(lines, boards, strict=True)]
        for sensor in sensors:
            await sensor.connect()
        asking = [Sensor(pty, name) for pty, name in zip(closed, strangers, strict=True)]
        yield Page(running, url, sensors, file, asking)
        for sensor in sensors + asking:
            sensor.unplug()


async def address(running: GatewayProcess) -> str:
    """Return the URL of the page, without a slash at the end."""
    await running.logged("web page: ")
    line = next(line for line in running.log if "web page: " in line)
    return line.rpartition(": ")[2].strip().rstrip("/")


class Browser:
    """A browser that sends requests as the page does."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http
        self.csrf = ""

    async def get(self, path: str) -> tuple[int, dict[str, object]]:
        async with self._http.get(self._url + path) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, dict[str, object]]:
        wanted = {"X-Onceway": self.csrf, "Origin": self._url} | headers
        async with self._http.post(self._url + path, json=body, headers=wanted) as answer:
            return answer.status, await answer.json()

    async def hear(self, path: str, text: bytes, within: float = 120) -> bytes:
        """Return the first line of an event stream that has this text. within: time limit in
        seconds.
        """
        async with asyncio.timeout(within), self._http.get(self._url + path) as stream:
            async for line in stream.content:
                if text in line:
                    return line
        raise AssertionError("the stream ended before that came")

    async def login(self, user: str = USER, password: str = PASSWORD) -> int:
        status, found = await self.post("/api/login", {"user": user, "password": password})
        self.csrf = str(found.get("csrf", ""))
        return status


@asynccontextmanager
async def browser(url: str) -> AsyncIterator[Browser]:
    # by default, aiohttp ignores cookies of servers without a host name
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        yield Browser(url, http)
