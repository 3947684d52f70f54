"""A gateway that has many outages under load, and a check of its promises after each outage.

In: a data directory, on any disk. Out: `faults`, texts of broken promises; and `reached`, counts of
the situations in which the outages came. Publishers send at QoS 1 and 2. Some subscribers stay
connected, and one connects from time to time. Clients speak MQTT 5 or 3.1.1. After each outage, all
clients reconnect with their session state and finish their exchanges. Then every message must be at
every subscriber and in the spool; at QoS 2, it must be there once and in order.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gateway.mqtt.packets import Version
from gateway.store.check import check
from gateway.store.schema import FILE, connect
from hil.faults.loop_disk import LoopDisk
from tests.durability.clients import Client, Publisher, Subscriber, label
from tests.durability.ledger import Faults, Ledger
from tests.service.process import GatewayProcess, spooling, start
from tests.store.drain import drain

LONGEST_S = 1.0
"""Longest time, in seconds, from the begin of the load, or from the start of the gateway, to an
outage.
"""
AGAIN = 0.3
"""Probability that another outage comes while the gateway starts after an outage."""


class Site:
    """A gateway process with its data and clients. program: arguments of `sys.executable` that run
    the gateway. patience: seconds to wait for a message before it counts as missing.
    """

    def __init__(
        self,
        data: Path,
        seed: int,
        *,
        program: tuple[str, ...] = ("-m", "gateway"),
        patience: float = 30,
    ) -> None:
        self.data = data
        self.faults: Faults = []
        self.reached: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._program = program
        self._patience = patience
        self._gateway: GatewayProcess | None = None
        v5, v4 = Version.V5, Version.V3_1_1
        self._publishers = [
            Publisher("p5-2", v5, self.faults, 2),
            Publisher("p4-2", v4, self.faults, 2, size=300),
            Publisher("p5-1", v5, self.faults, 1),
        ]
        self._present = [Subscriber("s5", v5, self.faults), Subscriber("s4", v4, self.faults)]
        self._away = Subscriber("away", v5, self.faults)
        self._spool = Ledger("spool", self.faults)

    async def open(self) -> None:
        """Start the gateway for the first time, and let the subscribers subscribe."""
        await self._start()
        for subscriber in (*self._present, self._away):
            await subscriber.connect(self._port)
            await subscriber.subscribe()
        self._away.drop()

    async def close(self) -> None:
        """Stop the gateway. Add a fault if it does not end cleanly."""
        assert self._gateway is not None
        for client in self._clients:
            client.drop()
        if code := await self._gateway.end():
            self.faults.append(f"the gateway ended with exit code {code}: {self._gateway.log[-3:]}")

    async def abandon(self) -> None:
        """Kill the gateway if it still runs."""
        if self._gateway is not None and self._gateway.process.returncode is None:
            await self._gateway.end(signal.SIGKILL)

    @property
    def _clients(self) -> list[Client]:
        return [*self._publishers, *self._present, self._away]

    @property
    def _port(self) -> int:
        assert self._gateway is not None
        return self._gateway.port

    async def _start(self) -> None:
        self._gateway = await self._spawn()
        await self._gateway.ready()

    async def _spawn(self) -> GatewayProcess:
        return await start(*spooling(self.data), program=self._program)

    async def outages(
        self, times: int, disk: LoopDisk | None, progress: Callable[[], None] = lambda: None
    ) -> None:
        """Start the gateway, run `times` outages, and stop the gateway. If a promise is broken, end
        earlier. disk: the disk whose power is cut; None: the gateway is killed.
        """
        try:
            await self.open()
            while times and not self.faults:
                times -= 1
                await self.outage(disk)
                progress()
            if not self.faults:
                await self.close()
        finally:
            await self.abandon()

    async def outage(self, disk: LoopDisk | None) -> None:
        """Run the load for a while, then cut the power of the disk or kill the gateway. Sometimes
        do that again while the gateway starts.
        """
        await self._load()
        await self._down(disk)
        self.reached["power cuts" if disk else "kills"] += 1
        while self._chance.random() < AGAIN:
            self._gateway = await self._spawn()
            await asyncio.sleep(self._chance.uniform(0, LONGEST_S))
            await self._down(disk)
            self.reached["while the gateway started"] += 1
        log = self.data / f"{FILE}-wal"
        self.reached["log not empty"] += log.exists() and log.stat().st_size > 0
        if findings := check(self.data):
            self.faults.append(f"the store is damaged: {findings[0]}")
        try:
            await self._start()
        except AssertionError as error:
            self.faults.append(f"the store does not open: {error}")
        else:
            await self._settle()

    async def _load(self) -> None:
        for client in (*self._present, *self._publishers):
            if client.line is None:
                await client.connect(self._port)
        for publisher in self._publishers:
            publisher.start()
        await asyncio.sleep(self._chance.uniform(0, LONGEST_S))

    async def _down(self, disk: LoopDisk | None) -> None:
        assert self._gateway is not None
        copy = None
        if disk is not None:
            self._gateway.process.send_signal(signal.SIGSTOP)
            # receive acknowledgements that were sent before the cut: they must be true as well
            await asyncio.sleep(0.01)
            copy = await asyncio.to_thread(disk.freeze)
        for publisher in self._publishers:
            self.reached["in the middle of a publication"] += (
                publisher.going and publisher.flying > 0
            )
            publisher.going = False
        for client in self._clients:
            client.drop()
        await self._gateway.end(signal.SIGKILL)
        if disk is not None and copy is not None:
            disk.restart(copy)

    async def _settle(self) -> None:
        """Reconnect all clients, wait until all exchanges have ended, and check that every message
        has arrived everywhere.
        """
        for client in self._clients:
            await client.connect(self._port)
        try:
            async with asyncio.timeout(self._patience):
                for publisher in self._publishers:
                    await _until(publisher, lambda publisher=publisher: not publisher.flying)  # type: ignore[misc]
                for subscriber in (*self._present, self._away):
                    await _until(
                        subscriber, lambda subscriber=subscriber: not self._lacks(subscriber)
                    )  # type: ignore[misc]
        except TimeoutError:
            self.faults.append(f"not at rest after {self._patience} s")
        await asyncio.sleep(0.02)  # time for messages that arrive twice
        self._away.drop()
        await asyncio.to_thread(self._read_spool)
        for publisher in self._publishers:
            for ledger in (
                self._spool,
                *(subscriber.ledger for subscriber in (*self._present, self._away)),
            ):
                ledger.settle(publisher.name, publisher.published)

    def _lacks(self, subscriber: Subscriber) -> bool:
        return any(
            subscriber.ledger.missing(publisher.name, publisher.published)
            for publisher in self._publishers
        )

    def _read_spool(self) -> None:
        """Check the rows of the spool, and remove them as the uplink does."""
        exact = {publisher.name: publisher.qos == 2 for publisher in self._publishers}
        with closing(connect(self.data / FILE)) as database:
            rows = database.execute("SELECT id, payload FROM spool ORDER BY id").fetchall()
            for _, payload in rows:
                name, number = label(payload)
                self._spool.arrived(name, number, exact[name])
            if rows:
                drain(database, rows[-1][0])

    def table(self) -> Counter[str]:
        """Return the counts of all events of the run."""
        subscribers = (*self._present, self._away)
        return self.reached + Counter(
            {
                "messages acknowledged": sum(publisher.promised for publisher in self._publishers),
                "QoS 2 repeats that subscribers held back": sum(
                    subscriber.held_back for subscriber in subscribers
                ),
                "QoS 1 messages that came again": sum(
                    subscriber.ledger.repeats for subscriber in subscribers
                ),
            }
        )


async def _until(client: Client, true: Callable[[], bool]) -> None:
    while not true():
        client.changed.clear()
        await client.changed.wait()
