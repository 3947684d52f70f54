"""Count the bytes that a bridge sends for 1,000 retained topics (`python -m
tests.bridge.retained_bytes`).

In: nothing. Out: bytes in each direction in five cases. The first comparison; a comparison after an
outage in which one topic changed; one topic that both ends change at the same time; another topic
that both ends change every second for two minutes; five minutes in which the connection breaks
every 10 s. The program needs Debian's mosquitto.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from gateway.mqtt.packets import Connect, Publish
from tests.bridge.mosquitto import mosquitto
from tests.bridge.test_bridge import bridged, publish, until
from tests.service.wire import wire

TOPICS = 1_000
CUTS, CUT_S = 30, 10.0
COLLIDING_S = 120
RESTING_S = 70.0
"""Pause in seconds after which the bridge no longer counts earlier messages as on the way."""
PREFIX = "site-1/"


class Line:
    """A proxy to a port of this machine that counts the bytes in each direction."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.up = self.down = 0
        self.open = asyncio.Event()
        """While this event is set, the proxy forwards bytes."""
        self.open.set()
        self._ends = set[asyncio.StreamWriter]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._ends |= {writer, there_writer}

        async def copy(
            source: asyncio.StreamReader, target: asyncio.StreamWriter, up: bool
        ) -> None:
            while data := await source.read(65536):
                await self.open.wait()
                if up:
                    self.up += len(data)
                else:
                    self.down += len(data)
                target.write(data)
            target.close()

        await asyncio.gather(
            copy(reader, there_writer, True),
            copy(there_reader, writer, False),
            return_exceptions=True,
        )

    def cut(self) -> None:
        """End all connections."""
        while self._ends:
            self._ends.pop().close()


async def _say(port: int, topics: range, payload: bytes, prefix: str = "") -> None:
    async with wire(port, Connect("writer")) as client:
        for number in topics:
            client.send(Publish(f"{prefix}up/sensor/{number:04}", payload, 0, 0, True))
        await publish(client, "other", b"", 1, 1)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with mosquitto(folder / "far") as far:
            line = Line(far.port)
            server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
            port = int(server.sockets[0].getsockname()[1])
            section = 'up = ["up/#"]\ndown = ["up/#"]\nprefix = "site-1/"\n'
            async with bridged(folder, port, section) as near:
                await _say(near.port, range(TOPICS), b"x" * 50)
                await until(folder, agreed=TOPICS)
                sys.stdout.write(f"first comparison: {line.up:,} up, {line.down:,} down\n")
                await until(folder, retained="equal")
            await _say(far.port, range(7, 8), b"y", PREFIX)
            line.up = line.down = 0
            async with bridged(folder, port, section) as near:
                await until(folder, retained="equal")
                await asyncio.sleep(1)
                sys.stdout.write(f"one topic changed: {line.up:,} up, {line.down:,} down\n")
                await asyncio.sleep(RESTING_S)
                line.up = line.down = 0
                for number, seconds in ((1, 1), (2, COLLIDING_S)):
                    for at in range(seconds):
                        line.open.clear()
                        await _say(near.port, range(number, number + 1), b"here%d" % at)
                        await _say(far.port, range(number, number + 1), b"there%d" % at, PREFIX)
                        line.open.set()
                        await asyncio.sleep(1)
                    text = f"{seconds} times changed at both ends at once"
                    sys.stdout.write(f"{text}: {line.up:,} up, {line.down:,} down; ")
                    await until(folder, retained="equal")
                    sys.stdout.write(f"equal after {line.up:,} up, {line.down:,} down\n")
                    line.up = line.down = 0
                for _ in range(CUTS):
                    line.cut()
                    await asyncio.sleep(CUT_S)
                sys.stdout.write(f"{CUTS} breaks: {line.up:,} up, {line.down:,} down\n")
            server.close()


if __name__ == "__main__":
    asyncio.run(main())
