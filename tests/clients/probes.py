"""Probes of MQTT clients. Each returns the text of a result."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import aiomqtt

from gateway.mqtt.packets import Connack, Disconnect
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from tests.clients.brokers import Broker, cutting
from tests.clients.clients import Client, running
from tests.publisher.server import server

MANY, CUTS = 1_000, 10
REASONS = (R.NOT_AUTHORIZED, R.TOPIC_NAME_INVALID, R.QUOTA_EXCEEDED)
KEEP_ALIVE_S = 2
LONG_S = 240.0
"""Time limit in seconds for a probe with many messages."""
START_S = 180.0
"""Time limit in seconds for the report of a driver. On a busy machine, Home Assistant takes two
minutes to start.
"""
QUIET_S = 60.0
"""Time in seconds without a message, after which a probe waits for no more messages."""


# -- with the test's own server


async def refused(client: Client, reason: R | None, qos: int) -> str:
    """Refuse each message of a client. Return what the client reports, and how many times it
    published. reason: reason code of each answer; None: the server sends DISCONNECT 0x97 instead of
    the first answer.
    """
    async with server() as own:
        if reason is None:
            own.farewell = Disconnect(R.QUOTA_EXCEEDED)
        else:
            own.refuse = lambda packet: reason
            own.complete = lambda packet: R.PACKET_IDENTIFIER_NOT_FOUND
        async with running(client, "publish", port=own.port, qos=qos, within_s=20) as driver:
            said = await driver.verdict(START_S)
            await asyncio.sleep(4 if client.alone else 1)
            said = "no program is told" if client.alone else said
            return f"{said} ({len(own.publishes)} ×)"


async def most_in_flight(client: Client) -> str:
    """Run a client whose CONNACK has a Receive Maximum of 1. Return the verdict for the page:
    "kept" if at most one message was in flight, and how many messages arrived if some are missing.
    """
    async with server() as own:
        own.connack = Connack(False, properties={PropertyId.RECEIVE_MAXIMUM: 1})
        async with running(client, "publish", port=own.port, count=50, within_s=20) as driver:
            await driver.verdict(START_S)
            await until(lambda: len(own.taken) >= 50, 20)
            left = "" if len(own.taken) == 50 else f", {len(own.taken)} of 50 arrived"
            return ("kept" if own.most == 1 else f"**{own.most} in flight**") + left


async def keep_alive(client: Client) -> str:
    """Run a client whose CONNACK has a Server Keep Alive. Return the verdict for the page: "kept"
    if the client sends PINGREQ in time.
    """
    async with server() as own:
        own.connack = Connack(False, properties={PropertyId.SERVER_KEEP_ALIVE: KEEP_ALIVE_S})
        async with running(client, "subscribe", port=own.port) as driver:
            if not await driver.ready():
                return "not connected"
            start = time.monotonic()
            await asyncio.sleep(4 * KEEP_ALIVE_S)
            gaps = [start, *(at for at in own.pings if at > start), time.monotonic()]
            longest = max(later - one for one, later in pairwise(gaps))
            return "kept" if longest < 1.5 * KEEP_ALIVE_S else "**ignored**"


# -- with brokers


@dataclass(frozen=True)
class Where:
    """The target of a probe. own: the broker. ca: file with the CA of its certificate. version: of
    MQTT (4 means 3.1.1). topic: a topic that no other probe uses.
    """

    own: Broker
    ca: Path
    version: int
    topic: str

    def options(self, way: str = "tcp") -> dict[str, object]:
        ca = str(self.ca) if way in ("tls", "wss") else None
        return {
            "port": self.own.ports[way],
            "way": way,
            "ca": ca,
            "version": self.version,
            "topic": self.topic,
        }


Probe = Callable[[Client, Where], Awaitable[str]]


def by(way: str) -> Probe:
    """Return a probe that sends ten messages at QoS 2 from a client over one transport, and
    receives them with the same client.
    """

    async def probe(client: Client, at: Where) -> str:
        if way not in client.ways:
            return "–"
        common = at.options(way) | {"count": 10, "within_s": 60}
        async with running(client, "subscribe", **common) as ear:
            if not await ear.ready():
                return "**no subscription**"
            async with running(client, "publish", **common) as mouth:
                await ear.until(lambda: len(ear.payloads) >= 10, 60)
                said = await mouth.verdict(5)
                if said != "published":
                    return f"**{said}**"
                came = count(ear.payloads, 10, client.ordered)
                return "yes" if came == "once" else came

    return probe


async def restart(client: Client, at: Where) -> str:
    """Restart the broker while it keeps the session of a disconnected subscriber. Publish messages
    to this session before and after the restart. Return how many arrive when the subscriber
    connects again.
    """
    with tempfile.TemporaryDirectory() as folder:
        common = at.options() | {"folder": folder}
        async with running(client, "subscribe", **common) as ear:
            if not await ear.ready():
                return "**no subscription**"
        await give(at, range(10))
        await at.own.end()
        await at.own.start()
        await give(at, range(10, 20))
        async with running(client, "subscribe", **common) as ear:
            await ear.until(lambda: len(ear.payloads) >= 20, 30)
            await asyncio.sleep(0.5)
            return count(ear.payloads, 20)


async def cut_publisher(client: Client, at: Where) -> str:
    """Let the client publish many messages over a proxy that cuts its connections. Return how many
    arrived, and what the client reports.
    """
    came: list[int] = []
    more = at.options() | {"count": MANY, "within_s": LONG_S}
    async with (
        hearing(at, came),
        cutting(at.own.ports["tcp"], CUTS, "publisher") as proxy,
        running(client, "publish", **more | {"port": proxy.port}) as driver,
    ):
        said = await driver.verdict(LONG_S)
        await progress(came, MANY)
        said = "" if said == "published" else f", {said}"
        return count(came, MANY, client.ordered) + said + few(proxy.cuts)


async def cut_subscriber(client: Client, at: Where) -> str:
    """Let the client receive many messages over a proxy that cuts its connections. Return how many
    arrived.
    """
    async with (
        cutting(at.own.ports["tcp"], CUTS, "subscriber") as proxy,
        running(client, "subscribe", **at.options() | {"port": proxy.port}) as driver,
    ):
        if not await driver.ready():
            return "**no subscription**"
        await give(at, range(MANY))
        await progress(driver.payloads, MANY)
        return count(driver.payloads, MANY) + few(proxy.cuts)


def few(cuts: int) -> str:
    return "" if cuts == CUTS else f", {cuts} cuts"


def count(found: list[int], wanted: int, ordered: bool = True) -> str:
    """Return "once" if each wanted message arrived exactly once. Otherwise return how many were
    lost and how many duplicates arrived. ordered: whether the first arrivals must be in order; if
    they are not, the result says so.
    """
    lost, doubled = wanted - len({*found}), len(found) - len({*found})
    if not lost and not doubled:
        first = [*dict.fromkeys(found)]
        return "once" if not ordered or first == sorted(first) else "once, not in order"
    words = [f"**{lost} lost**"] * bool(lost) + [f"**{doubled} twice**"] * bool(doubled)
    return ", ".join(words)


async def progress(came: list[int], wanted: int) -> None:
    """Wait until all messages have arrived, or until none has arrived for QUIET_S. Then wait
    another half second for duplicates.
    """
    size, since = -1, time.monotonic()
    while time.monotonic() - since < (QUIET_S if len(came) < wanted else 0.5):
        if len(came) != size:
            size, since = len(came), time.monotonic()
        await asyncio.sleep(0.1)


async def until(done: Callable[[], bool], within: float) -> None:
    end = time.monotonic() + within
    while not done() and time.monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@asynccontextmanager
async def hearing(at: Where, came: list[int]) -> AsyncIterator[None]:
    """Subscribe over a connection that no proxy cuts. Add the number of each received message to
    `came`.
    """

    async def hear(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            came.append(int(message.payload))

    async with aiomqtt.Client("127.0.0.1", at.own.ports["tcp"]) as client:
        await client.subscribe(at.topic, 2)
        task = asyncio.create_task(hear(client))
        yield
        task.cancel()


async def give(at: Where, numbers: range) -> None:
    """Publish messages with these numbers over a connection that no proxy cuts."""
    async with aiomqtt.Client("127.0.0.1", at.own.ports["tcp"]) as client:
        for number in numbers:
            await client.publish(at.topic, str(number), 2)
