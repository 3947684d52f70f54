"""Debian's mosquitto as a process, for tests: the other broker of a bridge."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.service.process import free_port

PROGRAM = "/usr/sbin/mosquitto"


class Mosquitto:
    """mosquitto in a folder of its own. It saves its sessions there when it is stopped by SIGTERM.
    more: lines of its configuration. before: words in front of mosquitto's command line.
    """

    def __init__(
        self,
        folder: Path,
        more: str = "allow_anonymous true",
        before: tuple[str, ...] = (),
    ) -> None:
        self._before = before
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            f"user root\nlistener {self.port} 127.0.0.1\npersistence true\n"
            f"persistence_location {folder}/\nmax_queued_messages 0\n{more}\n"
        )
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start mosquitto, and wait until it accepts connections."""
        self._process = await asyncio.create_subprocess_exec(
            *self._before, PROGRAM, "-c", str(self._config), stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(20):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                await asyncio.sleep(0.02)

    def send(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    async def end(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            await asyncio.wait_for(self._process.wait(), 20)
            self._process = None


@asynccontextmanager
async def mosquitto(folder: Path, more: str = "allow_anonymous true") -> AsyncIterator[Mosquitto]:
    broker = Mosquitto(folder, more)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.end(signal.SIGKILL)
