"""A gateway under a flood, and the cost of the flood: memory, disk, pauses of the event loop, and
waiting times of another client.

In: a `Flood`, for one row of the table of bounds in gateway/broker/README.md. Out: `Cost`.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from gateway.mqtt.properties import Properties, PropertyId
from tests.service.process import GatewayProcess, free_port, start
from tests.service.wire import Wire
from tests.web.test_web import Samples, address, metrics, value

V5 = Version.V5
KEPT: Properties = {PropertyId.SESSION_EXPIRY_INTERVAL: 1000}
MEGABYTE = 1_000_000
_PROGRAM = ("-m", "tests.service.watched")
_GUARDED_S = 0.01


@dataclass(frozen=True, slots=True)
class Flood:
    """A flood that exceeds a bound of the gateway. run: sends the flood and checks the answers."""

    row: str
    """The first column of the flood's row in the table of bounds."""
    run: Callable[["Site"], Awaitable[None]]
    config: str = ""
    """Text of the configuration, after the listener and `[spool]`."""
    memory: int = 30 * MEGABYTE
    """Largest growth of the process's memory, in bytes."""
    disk: int = MEGABYTE
    """Largest growth of the data directory, in bytes."""
    says: str = ""
    """Part of the log line with cause and remedy; empty: no such line is needed."""
    lines: int = 1
    """Largest number of warnings about the flood that the log may have."""
    counts: str = ""
    """Metric that counts the flood, without `onceway_`, with its labels: `refused_total
    request=connect`.
    """
    env: Callable[[Path], dict[str, str]] = lambda folder: {}
    """A function of the flood's folder. It returns additional variables for the gateway's
    environment.
    """


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a flood, in bytes and seconds."""

    memory: int
    disk: int
    pause_s: float
    waited_s: float
    """Longest time in seconds that another client waited for an answer. It includes delays of the
    test's own event loop.
    """
    served: int
    """Number of messages of the other client that were acknowledged and delivered during
    the flood.
    """


class Site:
    """A running gateway with its clients. running: the process. web: URL of its metrics."""

    def __init__(self, folder: Path, running: GatewayProcess, port: int, web: str) -> None:
        self.folder = folder
        self.running = running
        self.port = port
        self.web = web
        self._open: list[asyncio.StreamWriter] = []

    # -- clients

    async def open(self, address: str = "127.0.0.1", port: int = 0) -> Wire:
        """Open a connection without sending anything. address: address of the client; port: 0 for
        the first listener.
        """
        streams = await asyncio.open_connection(
            "127.0.0.1", port or self.port, local_addr=(address, 0)
        )
        self._open.append(streams[1])
        return Wire(*streams, V5)

    async def ask(self, connect: Connect, address: str = "127.0.0.1") -> tuple[Wire, Connack]:
        """Connect a client. Return its connection and the CONNACK."""
        client = await self.open(address)
        client.version = connect.version
        client.send(connect)
        return client, await client.take(Connack)

    async def client(self, name: str, kept: bool = False, will: Will | None = None) -> Wire:
        """Connect a client, which must be accepted. kept: its session does not end with the
        connection.
        """
        connect = Connect(name, V5, not kept, will=will, properties=KEPT if kept else None)
        client, connack = await self.ask(connect)
        assert connack.reason == 0, connack
        return client

    async def subscriber(self, name: str, *filters: str, qos: int = 1, kept: bool = False) -> Wire:
        client = await self.client(name, kept)
        client.send(Subscribe(1, [Subscription(item, qos) for item in filters]))
        await client.take(Suback)
        return client

    # -- figures

    async def metrics(self) -> Samples:
        return await metrics(self.web)

    async def count(self, name: str, **labels: str) -> float:
        """Return the value of a metric. name: the name of the metric without `onceway_`."""
        return value(await self.metrics(), name, **labels)

    @property
    def memory(self) -> tuple[int, int]:
        """Return the resident memory of the process now, and its maximum so far, in bytes."""
        text = Path(f"/proc/{self.running.process.pid}/status").read_text()
        now, most = (text.partition(f"{key}:")[2].split()[0] for key in ("VmRSS", "VmHWM"))
        return int(now) * 1024, int(most) * 1024

    @property
    def disk(self) -> int:
        """Return the size of the data directory in bytes, without the reserve file, which always
        exists.
        """
        size = 0
        for path in (self.folder / "data").iterdir():
            with suppress(FileNotFoundError):
                size += path.stat().st_size if path.name != "reserve" else 0
        return size

    async def pause_s(self) -> float:
        """Return the longest pause of the gateway's event loop since the last call, in seconds."""
        self.running.process.send_signal(signal.SIGUSR1)
        assert self.running.process.stdout is not None
        async with asyncio.timeout(30):
            told = json.loads(await self.running.process.stdout.readline())
        return float(told["pause_s"])

    def close(self) -> None:
        for writer in self._open:
            writer.close()


class Guard:
    """Another client during a flood. It publishes to itself, one message after the other. durable:
    its session does not end with the connection.
    """

    def __init__(self, site: Site, durable: bool) -> None:
        self.site = site
        self.served = 0
        self.waited_s = 0.0
        self.disk = site.disk
        self._durable = durable

    async def begin(self) -> None:
        self._client = await self.site.subscriber("guard", "guard", kept=self._durable)
        await self._exchange()

    async def run(self) -> None:
        while True:
            begin = time.monotonic()
            await self._exchange()
            self.waited_s = max(self.waited_s, time.monotonic() - begin)
            self.served += 1
            self.disk = max(self.disk, self.site.disk)
            await asyncio.sleep(_GUARDED_S)

    async def _exchange(self) -> None:
        client = self._client
        client.send(Publish("guard", b"x", 1, 1))
        packets = [await client.take(object) for _ in range(2)]  # type: ignore[type-var]
        said = next(packet for packet in packets if isinstance(packet, Publish))
        answer = next(packet for packet in packets if isinstance(packet, Puback))
        assert answer.reason == 0, answer
        client.send(Puback(said.packet_id))


def _prepare(folder: Path, flood: Flood) -> tuple[Path, int]:
    """Write the configuration. Return its path, and the port of its first listener."""
    folder.mkdir()
    text = flood.config.replace("FOLDER", str(folder))
    for name in ("TLS-WEB", "WEB", "TLS", "FEW", "PROXY", "PAGE"):
        if f"{name}-PORT" in text:
            (folder / name).write_text(str(free_port()))
            text = text.replace(f"{name}-PORT", (folder / name).read_text())
    path, port = folder / "gateway.toml", free_port()
    path.write_text(
        f'[gateway]\ndata = "{folder / "data"}"\n[[listener]]\nbind = "127.0.0.1:{port}"\n'
        f'anonymous = true\nrefuse = "reason code"\n[web]\nbind = "127.0.0.1:0"\n[uplink]\n'
        f'landing = "file:///landing"\n[spool]\ntopics = ["spool/#"]\n{text}'
    )
    return path, port


@asynccontextmanager
async def site(folder: Path, flood: Flood) -> AsyncIterator[Site]:
    """Run a gateway with the configuration of a flood. Kill it when the block ends."""
    path, port = _prepare(folder, flood)
    running = await start("--config", str(path), program=_PROGRAM, env=flood.env(folder))
    try:
        await running.ready()
        found = Site(folder, running, port, await address(running))
        yield found
        found.close()
    finally:
        if running.process.returncode is None:
            await running.end(signal.SIGKILL)


async def cost(target: Site, flood: Flood) -> Cost:
    """Run a flood while another client publishes. Return the cost of the flood."""
    guard = Guard(target, durable="disk" not in flood.row)
    await guard.begin()
    await target.pause_s()
    memory, disk = target.memory[0], target.disk
    task = asyncio.create_task(guard.run())
    try:
        async with asyncio.timeout(180):
            await flood.run(target)
            served = guard.served
            # wait for the other client's present message, whose time counts as well
            while guard.served == served and not task.done():  # noqa: ASYNC110
                await asyncio.sleep(_GUARDED_S)
        if task.done():
            await task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return Cost(
        max(0, target.memory[1] - memory),
        max(0, guard.disk - disk),
        await target.pause_s(),
        guard.waited_s,
        guard.served,
    )


def bytes_of(*packets: object) -> bytes:
    """Return the bytes of these MQTT 5 packets, one after the other."""
    return b"".join(encode(packet, V5) for packet in packets)  # type: ignore[arg-type]


async def pour(client: Wire, data: bytes, within: float = 30) -> None:
    """Send all bytes in pieces, as fast as the gateway reads them. within: time limit in
    seconds.
    """
    async with asyncio.timeout(within):
        for at in range(0, len(data), 1 << 18):
            client.writer.write(data[at : at + (1 << 18)])
            await client.writer.drain()


async def gone(client: Wire, within: float = 30) -> bytes:
    """Read until the gateway closes the connection. Return the bytes."""
    data = bytearray()
    with suppress(ConnectionError):
        async with asyncio.timeout(within):
            while part := await client.reader.read(1 << 16):
                data += part
    return bytes(data)


async def drink(client: Wire, quiet_s: float = 0.3) -> bytes:
    """Read until nothing has arrived for `quiet_s` seconds. Return the bytes."""
    data = bytearray()
    with suppress(TimeoutError, ConnectionError):
        while part := await asyncio.wait_for(client.reader.read(1 << 16), quiet_s):
            data += part
    return bytes(data)


async def together(calls: list[Awaitable[object]], at_once: int = 50) -> list[object]:
    """Run all coroutines, at most `at_once` at a time, and return their results."""
    room = asyncio.Semaphore(at_once)

    async def one(call: Awaitable[object]) -> object:
        async with room:
            return await call

    return await asyncio.gather(*map(one, calls))


def files_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
