"""`python -m hil.wire.members`: the network between the gateways of a site, in one process. SIGTERM
ends it.

In: for each link the two members, a port of this machine to listen on, and its target; orders as
JSON Lines on standard input:

- `{"do": "cut", "member"}`: no byte passes on the links of this member, without an error; bytes on
  their way arrive later;
- `{"do": "slow", "member", "seconds"}`: all bytes take this long, in each direction;
- `{"do": "mend", "member"}`: end both.

Out: JSON Lines on standard output: `ready`, and for each order `done`, with the order and the
number of bytes that passed and were held on the member's links since the last order.
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

CHUNK = 65_536  # bytes


@dataclass(slots=True)
class Link:
    """A link from one member to another. mended: not set while the link is cut. delay: seconds, in
    each direction. counts: bytes that `passed` and were `held`.
    """

    ends: tuple[str, str]
    listen: int
    target: int
    mended: asyncio.Event = field(default_factory=asyncio.Event)
    delay: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    async def start(self) -> asyncio.Server:
        self.mended.set()
        return await asyncio.start_server(self._carry, "127.0.0.1", self.listen)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, until either end closes it."""
        await self.mended.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        ways = (self._pass(reader, far_writer), self._pass(far_reader, writer))
        tasks = [asyncio.create_task(way) for way in ways]
        await asyncio.wait(tasks)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def arrive() -> None:
            while True:
                at, data = await due.get()
                await asyncio.sleep(at - loop.time())
                if not self.mended.is_set():
                    self.counts["held"] += len(data)
                    await self.mended.wait()
                self.counts["passed"] += len(data)
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        arriving = asyncio.create_task(arrive())
        with suppress(OSError):
            while not arriving.done():
                data = await reader.read(CHUNK)
                await due.put((loop.time() + self.delay, data))
                if not data:
                    break
        with suppress(OSError):
            await arriving
        writer.close()


def emit(event: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def obey(order: dict[str, Any], links: list[Link]) -> None:
    counts: Counter[str] = Counter()
    for link in links:
        if order["member"] not in link.ends:
            continue
        counts += link.counts
        match order["do"]:
            case "cut":
                link.mended.clear()
            case "slow":
                link.delay = order["seconds"]
            case "mend":
                link.delay = 0.0
                link.mended.set()
        link.counts.clear()
    emit({"event": "done", **order, **counts})


async def run(links: list[Link]) -> None:
    loop, orders = asyncio.get_running_loop(), asyncio.StreamReader()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    # Ctrl-C in the terminal is for the rig, which ends this process by SIGTERM
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)

    async def obey_all() -> None:
        async for line in orders:
            obey(json.loads(line), links)

    servers = [await link.start() for link in links]
    obeying = asyncio.create_task(obey_all())
    emit({"event": "ready"})
    await ended.wait()
    obeying.cancel()
    for server in servers:
        server.close()


def main(
    link: Annotated[
        list[str],
        typer.Option(help="DIALLER:OTHER:PORT:TARGET of a link."),
    ],
) -> None:
    """Carry bytes between the members of a site."""
    links = []
    for one in link:
        dialler, other, listen, target = one.split(":")
        links.append(Link((dialler, other), int(listen), int(target)))
    asyncio.run(run(links))


if __name__ == "__main__":
    typer.run(main)
