"""The two brokers, each with a listener for every transport, and a proxy that cuts connections."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from tests.bridge.mosquitto import Mosquitto
from tests.links.certificates import Authority
from tests.service.process import GatewayProcess, free_port, start

Ports = dict[str, int]


class Broker(Protocol):
    """A broker under test. ports: the port of each transport."""

    ports: Ports

    async def start(self) -> None: ...

    async def end(self) -> None: ...


class Ours:
    def __init__(self, folder: Path, authority: Authority) -> None:
        certificate, key = authority.issue("onceway")
        self.ports: Ports = {way: free_port() for way in ("tcp", "tls", "ws", "wss")}
        tls = f'tls = {{ certificate = "{certificate}", key = "{key}" }}\n'
        text = f'[gateway]\ndata = "{folder / "data"}"\n'
        for way, port in self.ports.items():
            text += f'[[listener]]\nbind = "127.0.0.1:{port}"\nanonymous = true\n'
            text += 'type = "websocket"\n' * ("ws" in way) + tls * (way in ("tls", "wss"))
        self._file = folder / "gateway.toml"
        self._file.write_text(text)
        self._running: GatewayProcess | None = None

    async def start(self) -> None:
        self._running = await start("--config", str(self._file))
        await self._running.ready()

    async def end(self) -> None:
        if self._running is not None:
            await self._running.end(signal.SIGTERM)
            self._running = None


class Theirs(Mosquitto):
    def __init__(self, folder: Path, authority: Authority) -> None:
        certificate, key = authority.issue("mosquitto")
        self.ports: Ports = {way: free_port() for way in ("tls", "ws", "wss")}
        tls = f"cafile {authority.path}\ncertfile {certificate}\nkeyfile {key}\n"
        more = "allow_anonymous true\nlog_type none\n"
        for way, port in self.ports.items():
            more += f"listener {port} 127.0.0.1\n"
            more += "protocol websockets\n" * ("ws" in way) + tls * (way in ("tls", "wss"))
        super().__init__(folder / "mosquitto", more)
        self.ports["tcp"] = self.port


@asynccontextmanager
async def broker(own: Broker) -> AsyncIterator[Broker]:
    await own.start()
    try:
        yield own
    finally:
        await own.end()


class Proxy:
    """A proxy to a broker. The proxy cuts each of the first `cuts` connections after a random
    number of bytes from `least` to `most`, counted in both directions together. The attribute
    `cuts` is the number of connections cut so far.
    """

    def __init__(self, to: int, cuts: int, rng: random.Random, least: int, most: int) -> None:
        self.port = 0
        self.cuts = 0
        self._to, self._left, self._rng = to, cuts, rng
        self._bytes = least, most

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, to = await asyncio.open_connection("127.0.0.1", self._to)
            budget = [float("inf") if not self._left else self._rng.randint(*self._bytes)]
            ways = [self._pass(reader, to, budget), self._pass(there, writer, budget)]
            tasks = [asyncio.create_task(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            if budget[0] <= 0 and self._left:
                self._left -= 1
                self.cuts += 1
            to.transport.abort()
        writer.transport.abort()

    async def _pass(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, budget: list[float]
    ) -> None:
        with suppress(OSError):
            while data := await source.read(4096):
                part = data[: int(min(len(data), max(budget[0], 0)))]
                budget[0] -= len(part)
                to.write(part)
                await to.drain()
                if budget[0] <= 0:
                    return


@asynccontextmanager
async def cutting(to: int, cuts: int, seed: str) -> AsyncIterator[Proxy]:
    own = Proxy(to, cuts, random.Random(seed), 1_000, 2_500)
    listener = await asyncio.start_server(own.serve, "127.0.0.1", 0)
    own.port = listener.sockets[0].getsockname()[1]
    try:
        yield own
    finally:
        listener.close()
