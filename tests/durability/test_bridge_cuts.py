"""A bridge whose two ends have many outages under load. Each acknowledged message reaches a
subscriber of the other broker; at QoS 2, it arrives once and in order. At the end, both brokers
have the same retained messages.

The other broker is mosquitto or another gateway. mosquitto saves its sessions when it is stopped,
but not when it is killed. The power of the other gateway may be cut.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Protocol

import pytest

from gateway.mqtt.packets import Connect, Puback, Publish, Subscribe, Subscription, Version
from hil.faults.loop_disk import LoopDisk, missing
from tests.bridge.mosquitto import Mosquitto
from tests.durability.clients import Publisher, Subscriber
from tests.durability.ledger import Faults
from tests.links.board import until
from tests.service.process import GatewayProcess, free_port, start
from tests.service.wire import wire

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

ROUNDS = 12
LONGEST_S = 1.0
"""Longest time, in seconds, from the start of the load to an outage, and longest duration of an
outage.
"""
PATIENCE_S = 120
UP = 'up = ["load/#", "state/#"]\ndown = ["there/#"]\nqos = {}'
STATES = [f"{end}/{number}" for end in ("state", "there") for number in range(8)]
"""Topics of retained messages that both ends change."""


class Broker(Protocol):
    """A broker at one end of the bridge. port: its port while it runs."""

    port: int

    async def start(self) -> None: ...

    async def down(self) -> None:
        """End the broker in the most abrupt way that it survives without loss."""
        ...

    async def end(self) -> None: ...


class Gateway:
    """A gateway that has the same port after each restart. disk: the disk whose power `down` cuts;
    None: `down` kills the gateway. text: further lines of the configuration.
    """

    def __init__(self, folder: Path, disk: LoopDisk | None, text: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        self._disk = disk
        self._running: GatewayProcess | None = None
        self._file = folder / "gateway.toml"
        data = folder / "data" if disk is None else disk.mount / "data"
        self._file.write_text(
            f'[gateway]\nname = "{folder.name}"\ndata = "{data}"\n[[listener]]\n'
            f'bind = "127.0.0.1:{self.port}"\nanonymous = true\n{text}'
        )

    async def start(self) -> None:
        self._running = await start("--config", str(self._file))
        await self._running.ready()

    async def down(self) -> None:
        assert self._running is not None
        copy = None
        if self._disk is not None:
            self._running.process.send_signal(signal.SIGSTOP)
            # receive acknowledgements that were sent before the cut: they must be true as well
            await asyncio.sleep(0.01)
            copy = await asyncio.to_thread(self._disk.freeze)
        await self._running.end(signal.SIGKILL)
        if self._disk is not None and copy is not None:
            self._disk.restart(copy)

    async def end(self) -> None:
        if self._running is not None:
            await self._running.end(signal.SIGKILL)


class PoliteMosquitto(Mosquitto):
    """A mosquitto whose `down` is SIGTERM, so that it saves its state."""

    async def down(self) -> None:
        await Mosquitto.end(self)


class Pair:
    """Two brokers with a bridge. A publisher is at the near broker, and a subscriber at the other
    one.
    """

    def __init__(self, near: Gateway, far: Broker, qos: int, seed: int) -> None:
        self.faults: Faults = []
        self.reached: Counter[str] = Counter()
        self.publisher = Publisher("p", Version.V5, self.faults, 2)
        self.subscriber = Subscriber("there", Version.V5, self.faults)
        self._near, self._far, self._qos = near, far, qos
        self._chance = random.Random(seed)

    async def run(self, rounds: int) -> None:
        await self._far.start()
        await self._near.start()
        await self.subscriber.connect(self._far.port)
        await self.subscriber.subscribe()
        for _ in range(rounds):
            if self.faults:
                break
            await self._change_states(self._near, self._far)
            await self._outage()
        await self._compare_states()
        if not self._qos:
            self.reached["lost at QoS 0"] = len(self._lacking())
        self.reached["acknowledged"] = self.publisher.promised
        self.reached["again at QoS 1"] = self.subscriber.ledger.repeats

    async def _outage(self) -> None:
        for client, broker in ((self.publisher, self._near), (self.subscriber, self._far)):
            if client.line is None:
                await client.connect(broker.port)
        self.publisher.start()
        await asyncio.sleep(self._chance.uniform(0, LONGEST_S))
        which = self._chance.choice(("near", "far", "both"))
        self.reached[f"{which} down"] += 1
        self.reached["in flight"] += self.publisher.flying
        going = {"near": [self._near], "far": [self._far]}.get(which, [self._far, self._near])
        for broker in going:
            await broker.down()
        await self._change_states(*({self._near, self._far} - set(going)))
        self.publisher.going = False
        if self._near in going:
            self.publisher.drop()
        if self._far in going:
            self.subscriber.drop()
        await asyncio.sleep(self._chance.uniform(0, LONGEST_S))
        for broker in going:
            await broker.start()
        await self._settle()

    async def _change_states(self, *brokers: Broker) -> None:
        """Publish or delete some retained messages at these brokers, at QoS 0."""
        for broker in brokers:
            async with wire(broker.port, Connect("states")) as client:
                for topic in self._chance.sample(STATES, 4):
                    text = self._chance.choice((b"", b"%d" % self._chance.getrandbits(32)))
                    client.send(Publish(topic, text, 0, 0, True))
                client.send(Publish("end", b"", 1, 1))
                await client.pick(Puback)
            self.reached["states changed"] += 4

    async def _compare_states(self) -> None:
        """Add a fault if the retained messages of both ends still differ after PATIENCE_S."""
        found: list[dict[str, bytes]] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not found or found[0] != found[1]:
                    found = [await states(broker.port) for broker in (self._near, self._far)]
        except TimeoutError:
            self.faults.append(f"retained messages differ: {found}")
        self.reached["states at the end"] = len(found[0]) if found else 0

    async def _settle(self) -> None:
        """Wait until all exchanges in flight have ended."""
        for client, broker in ((self.publisher, self._near), (self.subscriber, self._far)):
            if client.line is None:
                await client.connect(broker.port)
        if self._qos == 0:
            await self._something_new()
        try:
            await until(self._rests, patience=PATIENCE_S)
        except TimeoutError:
            self.faults.append(f"{len(self._lacking())} had not come after {PATIENCE_S} s")
        if self._qos:
            self.subscriber.ledger.settle("p", self.publisher.published)

    async def _something_new(self) -> None:
        """Publish until a message from after the begin of this call has crossed. Messages before it
        may be lost at QoS 0.
        """
        before = self.publisher.published
        self.publisher.start()
        ledger = self.subscriber.ledger
        await until(lambda: ledger.newest("p") >= before, patience=PATIENCE_S)
        self.publisher.going = False

    def _rests(self) -> bool:
        last = self.publisher.published - 1
        if self.publisher.flying or self._qos == 0:
            return not self.publisher.flying
        return self.subscriber.ledger.newest("p") >= last and not self._lacking()

    def _lacking(self) -> list[int]:
        return self.subscriber.ledger.missing("p", self.publisher.published)


async def states(port: int) -> dict[str, bytes]:
    """Return a broker's retained messages on the topics of STATES."""
    found: dict[str, bytes] = {}
    async with wire(port, Connect("reader")) as client:
        client.send(Subscribe(1, [Subscription(topic, 0) for topic in STATES]))
        client.send(Subscribe(2, [Subscription("end/reader", 0)]))
        client.send(Publish("end/reader", b"", 1, 3))
        while (packet := await client.pick(Publish)).topic != "end/reader":
            found[packet.topic] = packet.payload
    return found


@asynccontextmanager
async def pair(
    folder: Path, far: Broker, qos: int, seed: int, disk: LoopDisk | None = None
) -> AsyncIterator[Pair]:
    bridge = f'[[bridge]]\nname = "far"\nserver = "mqtt://127.0.0.1:{far.port}"\n{UP.format(qos)}\n'
    near = Gateway(folder / "near", disk, bridge)
    try:
        yield Pair(near, far, qos, seed)
    finally:
        await near.end()
        await far.end()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_kills_of_the_gateway_and_ends_of_mosquitto(
    tmp_path: Path, qos: int, seed: int
) -> None:
    async with pair(tmp_path, PoliteMosquitto(tmp_path / "far"), qos, seed) as both:
        await both.run(ROUNDS)
    print(f"QoS {qos}, seed {seed}: {dict(both.reached)}")
    assert both.faults == []
    assert both.reached["in flight"]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("qos", [1, 2])
async def test_power_cuts_of_two_gateways(tmp_path: Path, qos: int, seed: int) -> None:
    if reason := missing():
        pytest.skip(reason)
    with closing(LoopDisk(tmp_path / "a")) as one, closing(LoopDisk(tmp_path / "b")) as other:
        far = Gateway(tmp_path / "far", other)
        async with pair(tmp_path, far, qos, seed, one) as both:
            await both.run(ROUNDS)
    print(f"QoS {qos}, seed {seed}: {dict(both.reached)}")
    assert both.faults == []
    assert both.reached["in flight"]
