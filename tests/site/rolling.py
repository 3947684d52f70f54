"""A rolling restart with clients that hop at once: `python -m tests.site.rolling --clients 1000`.

In: gateways as processes, which are stopped and started again one after the other, and clients in
one event loop. A client that loses its gateway connects to the next one without a pause. With
`--one`, all clients are at one gateway, and only this gateway restarts. Out: the number of
connections, and of sessions that clients did not find again. Then the longest times of a CONNACK, a
stop and a start, and the largest delay of this program's own event loop, which shows the load of
the machine. Exit code 1 if a session is lost.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from gateway.mqtt.packets import Connack, Connect, Version
from gateway.mqtt.properties import PropertyId
from tests.service.wire import Wire
from tests.site.gateways import Gateways, gateways

NAMES = ("attic", "barn", "cellar")
PATIENCE_S = 10.0
"""Longest time that a client waits for CONNACK, in seconds."""
AGAIN_S = 0.02
SETTLED_S = 300.0


@dataclass(slots=True)
class Crowd:
    """Counts and times of all clients and restarts. come: number of accepted connections. lost:
    clients whose session was not found again. waits, stops, starts: durations in seconds. late:
    largest delay of the event loop in seconds.
    """

    connected: set[str] = field(default_factory=set)
    come: int = 0
    lost: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    late: float = 0.0


async def stay(site: Gateways, crowd: Crowd, client: str, at: int) -> None:
    """Run one client until it is cancelled. It begins at gateway number `at`, and connects to the
    next one whenever its connection ends.
    """
    known = False
    while True:
        running = site.running[NAMES[at % len(NAMES)]]
        wire = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            wire = Wire(reader, writer, Version.V5)
            properties = {PropertyId.SESSION_EXPIRY_INTERVAL: 3600}
            wire.send(Connect(client, Version.V5, clean_start=False, properties=properties))
            begun = time.monotonic()
            connack = await wire.take(Connack, within=PATIENCE_S)
            if connack.reason == 0:
                crowd.waits.append(time.monotonic() - begun)
                crowd.come += 1
                if known and not connack.session_present:
                    crowd.lost.append(f"{client} at {NAMES[at % len(NAMES)]}")
                known = True
                crowd.connected.add(client)
                while await reader.read(4096):
                    pass
        except (OSError, AssertionError, TimeoutError):
            pass
        finally:
            crowd.connected.discard(client)
            if wire is not None:
                wire.writer.transport.abort()
        at += 1
        await asyncio.sleep(AGAIN_S)


async def roll(folder: Path, clients: int, *, one: bool = False) -> Crowd:
    """Restart all gateways, one after the other. one: whether to restart only the first gateway, to
    which all clients are connected.
    """
    crowd = Crowd()
    async with gateways(folder, *NAMES) as site:
        tasks = [
            asyncio.create_task(stay(site, crowd, f"client-{number}", 0 if one else number))
            for number in range(clients)
        ]
        tasks.append(asyncio.create_task(_watch(crowd)))
        try:
            await _all_there(crowd, clients)
            for name in NAMES[:1] if one else NAMES:
                begun = time.monotonic()
                code = await site.running[name].end()
                assert code == 0, f"exit code {code}: {''.join(site.running[name].log[-20:])}"
                crowd.stops.append(time.monotonic() - begun)
                await site.start(name)
                crowd.starts.append(time.monotonic() - begun - crowd.stops[-1])
                await _all_there(crowd, clients)
                await site.joined()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return crowd


async def _watch(crowd: Crowd) -> None:
    while True:
        begun = time.monotonic()
        await asyncio.sleep(0.05)
        crowd.late = max(crowd.late, time.monotonic() - begun - 0.05)


async def _all_there(crowd: Crowd, clients: int) -> None:
    async with asyncio.timeout(SETTLED_S):
        while len(crowd.connected) < clients:  # noqa: ASYNC110 - of many things
            await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--one", action="store_true", help="restart one gateway with all clients")
    arguments = parser.parse_args()
    lost = 0
    for _ in range(arguments.times):
        with tempfile.TemporaryDirectory() as folder:
            crowd = asyncio.run(roll(Path(folder), arguments.clients, one=arguments.one))
        lost += len(crowd.lost)
        print(
            f"{arguments.clients} clients came {crowd.come} times, lost {len(crowd.lost)} sessions,"
            f" waited {max(crowd.waits):.2f} s at most, stops {max(crowd.stops):.1f} s, starts"
            f" {max(crowd.starts):.1f} s, own loop late by {crowd.late:.2f} s {crowd.lost[:5]}",
            flush=True,
        )
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
