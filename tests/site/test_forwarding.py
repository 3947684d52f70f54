"""Two gateways of a site as processes. A publication at one of them reaches a subscriber at the
other one, even if a gateway is killed in between.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.mqtt.packets import (
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from gateway.store.check import check
from gateway.store.views import retained
from tests.links.board import until
from tests.service.wire import Wire
from tests.site.gateways import SOON_S, Gateways, gateways

MESSAGES = 600


class Reader:
    """A client with a persistent session that reads at QoS 2. got: payloads. A repeated packet
    identifier counts once, until its PUBREL.
    """

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self._held: set[int] = set()

    async def read(self, wire: Wire) -> None:
        """Read until the connection ends."""
        with suppress(AssertionError, OSError):
            while True:
                self._take(wire, await wire.take(Packet))

    def _take(self, wire: Wire, packet: Packet) -> None:
        if isinstance(packet, Pubrel):
            self._held.discard(packet.packet_id)
            wire.send(Pubcomp(packet.packet_id))
        elif isinstance(packet, Publish):
            if packet.packet_id not in self._held:
                self._held.add(packet.packet_id)
                self.got.append(packet.payload)
            wire.send(Pubrec(packet.packet_id))

    async def has(self, count: int) -> None:
        await until(lambda: len(self.got) >= count, patience=60)


async def figure(site: Gateways, name: str, figure: str, count: int) -> None:
    """Wait until a figure of the gateway's status has this value."""
    async with asyncio.timeout(SOON_S):
        while True:
            if (await site.figures(name))[figure] == count:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("victim", ["a", "b"])
async def test_a_kill_in_the_middle_loses_nothing_and_doubles_nothing(
    tmp_path: Path, victim: str
) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        reader = Reader()
        wire, _ = await site.connect("b", "reader")
        wire.send(Subscribe(1, [Subscription("t", 2)]))
        await wire.take(Suback)
        reading = asyncio.create_task(reader.read(wire))
        await figure(site, "a", "filters", 1)
        source, _ = await site.connect("a", "source")
        for number in range(MESSAGES):
            source.send(Publish("t", b"%d" % number, 2, number + 1))
        for number in range(MESSAGES):
            assert await source.pick(Pubrec) == Pubrec(number + 1)
        await reader.has(MESSAGES // 20)
        await site.kill(victim)
        await site.start(victim)
        if victim == "b":
            await reading
            wire, present = await site.connect("b", "reader")
            assert present
            reading = asyncio.create_task(reader.read(wire))
        await reader.has(MESSAGES)
        await figure(site, "a", "forward_waiting", 0)
        await asyncio.sleep(0.3)  # time for a message that should not arrive
        assert reader.got == [b"%d" % number for number in range(MESSAGES)]
        reading.cancel()
        for name in site.names:
            await site.kill(name)
            assert check(site.data(name)) == []


async def test_a_reader_that_moves_while_all_publish_gets_each_message_once(
    tmp_path: Path,
) -> None:
    """After the last move, all forwarders of the reader's session end."""
    async with gateways(tmp_path, "a", "b", "c") as site:
        reader = Reader()
        wire, _ = await site.connect("a", "reader")
        wire.send(Subscribe(1, [Subscription("t", 2)]))
        await wire.take(Suback)
        await figure(site, "b", "filters", 1)
        await figure(site, "c", "filters", 1)
        sources = [(await site.connect(name, f"source-{name}"))[0] for name in site.names]

        async def publish() -> None:
            for number in range(1, MESSAGES // 3 + 1):
                for name, source in zip(site.names, sources, strict=True):
                    source.send(Publish("t", f"{name}{number}".encode(), 2, number))
                await asyncio.sleep(0.005)

        publishing = asyncio.create_task(publish())
        for place in "bcab":
            reading = asyncio.create_task(reader.read(wire))
            await reader.has(len(reader.got) + 60)
            wire, present = await site.connect(place, "reader")
            assert present
            await reading  # the previous gateway has closed its connection
        reading = asyncio.create_task(reader.read(wire))
        await publishing
        await reader.has(MESSAGES)
        for name in site.names:
            await figure(site, name, "followers", 0)
            await figure(site, name, "forward_waiting", 0)
        said = [f"{name}{n}".encode() for name in site.names for n in range(1, MESSAGES // 3 + 1)]
        assert sorted(reader.got) == sorted(said)
        reading.cancel()
        for name in site.names:
            await site.kill(name)
            assert check(site.data(name)) == []


async def test_absent_member_gets_missed_messages_later(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        wire, _ = await site.connect("b", "reader")
        wire.send(Subscribe(1, [Subscription("t", 1)]))
        await wire.take(Suback)
        await figure(site, "a", "filters", 1)
        await site.kill("b")
        source, _ = await site.connect("a", "source")
        for number in range(100):
            source.send(Publish("t", b"%d" % number, 1, number + 1))
            assert await source.take(Puback) == Puback(number + 1)
        await site.kill("a")
        await site.start("b")
        await site.start("a")
        wire, present = await site.connect("b", "reader")
        assert present
        for number in range(100):
            packet = await wire.take(Publish)
            assert packet.payload == b"%d" % number
            wire.send(Puback(packet.packet_id))


async def holds(site: Gateways, name: str, *topics: str) -> None:
    """Wait until the disk of a gateway has exactly these retained messages."""
    await until(
        lambda: [item.topic for item in retained(site.data(name), None)] == [*topics], patience=20
    )


async def test_retained_messages_and_deletions_reach_a_member_that_was_killed(
    tmp_path: Path,
) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        source, _ = await site.connect("a", "source")
        for number, topic in enumerate(("t/1", "t/2"), 1):
            source.send(Publish(topic, b"m", 1, number, retain=True))
            await source.take(Puback)
        await holds(site, "b", "t/1", "t/2")
        await site.kill("b")
        source.send(Publish("t/1", b"", 1, 3, retain=True))
        source.send(Publish("t/3", b"m", 1, 4, retain=True))
        assert [(await source.take(Puback)).packet_id for _ in range(2)] == [3, 4]
        await site.start("b")
        await holds(site, "b", "t/2", "t/3")
        await holds(site, "a", "t/2", "t/3")
        wire, _ = await site.connect("b", "reader")
        wire.send(Subscribe(1, [Subscription("t/#", 0)]))
        await wire.take(Suback)
        assert [(await wire.take(Publish)).topic for _ in range(2)] == ["t/2", "t/3"]
