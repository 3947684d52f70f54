"""A disk that is really full (a small tmpfs): what the gateway refuses, which parts continue, and
how it recovers by itself.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.mqtt.packets import (
    Connect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.store.schema import FILE, connect
from tests.durability.disk import SmallDisk
from tests.service.process import START_S, gateway, start
from tests.service.test_gateway import client, collect
from tests.service.wire import Wire, wire
from tests.store.drain import drain

SIZE = 48 << 20
FOREVER = {PropertyId.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if os.geteuid():
        pytest.skip("mounting a tmpfs needs root")
    made = SmallDisk(tmp_path, SIZE)
    yield made
    made.close()


@pytest.fixture
def arguments(disk: SmallDisk, tmp_path: Path) -> tuple[str, str]:
    config = tmp_path / "gateway.toml"
    data = f'[gateway]\ndata = "{disk.mount / "data"}"\n[spool]\ntopics = ["spool/#"]\n'
    data += '[uplink]\nlanding = "file:///landing"\n'
    config.write_text(
        f'{data}[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\nrefuse = "reason code"\n'
    )
    return "--config", str(config)


async def publish(publisher: Wire, count: int) -> tuple[list[bytes], ReasonCode]:
    """Publish up to `count` messages, until one is refused. Return the payloads of accepted
    messages, and the last reason code.
    """
    taken: list[bytes] = []
    while len(taken) < count:
        payload = b"%05d" % len(taken) + bytes(100_000)
        publisher.send(Publish("spool/kept", payload, 1, 1))
        if reason := (await publisher.take(Puback)).reason:
            return taken, reason
        taken.append(payload)
    return taken, ReasonCode.SUCCESS


async def publish_until_taken(publisher: Wire, packet: Publish) -> None:
    """Publish a message again and again until the gateway accepts it."""
    async with asyncio.timeout(60):
        reason = ReasonCode.QUOTA_EXCEEDED
        while reason == ReasonCode.QUOTA_EXCEEDED:
            publisher.send(packet)
            reason = (await publisher.take(Puback)).reason
    assert reason == ReasonCode.SUCCESS


async def test_a_full_disk_refuses_and_recovers_and_loses_nothing(
    disk: SmallDisk, arguments: tuple[str, str]
) -> None:
    async with gateway(disk.mount, *arguments) as running:
        async with client(running.port, "away", expiry=1000) as subscriber:
            await subscriber.subscribe("spool/kept", qos=2)
        async with (
            wire(running.port, Connect("alone", properties=FOREVER)) as alone,
            wire(running.port, Connect("before 5", Version.V3_1_1)) as before_5,
            wire(running.port, Connect("needs no disk")) as other,
        ):
            other.send(Subscribe(1, [Subscription("elsewhere", 2)]))
            await other.take(Suback)
            alone.send(Publish("spool/kept", b"first", 2, 9))
            assert (await alone.take(Pubrec)).reason == ReasonCode.SUCCESS
            disk.fill()
            promised, reason = await publish(alone, 1000)
            assert reason == ReasonCode.QUOTA_EXCEEDED
            alone.send(Publish("spool/kept", b"refused", 2, 10), Pubrel(9))
            assert (await alone.take(Pubrec)).reason == ReasonCode.QUOTA_EXCEEDED
            await alone.take(Pubcomp)
            before_5.send(Publish("spool/kept", b"refused", 2, 9))
            with pytest.raises(AssertionError, match="the gateway closed the connection"):
                await before_5.take(Pubrec)
            other.send(Publish("elsewhere", b"goes on", 1, 3))
            assert {type(await other.take(Publish | Puback)) for _ in range(2)} == {Publish, Puback}  # type: ignore[arg-type]
            async with wire(running.port, Connect("comes now", properties=FOREVER)) as late:
                late.send(Subscribe(1, [Subscription("elsewhere", 2)]))
                await late.take(Suback)
            disk.free()
            await publish_until_taken(alone, Publish("spool/kept", b"after", 1, 1))
        await running.end(signal.SIGKILL)
    async with (
        gateway(disk.mount, *arguments) as running,
        client(running.port, "away", expiry=1000) as subscriber,
    ):
        messages = [message.payload for message in await collect(subscriber, len(promised) + 2)]
        assert sorted(messages) == sorted([b"first", *promised, b"after"])
        assert await running.end() == 0


async def test_a_disk_that_messages_fill_takes_them_again_when_they_are_gone(
    disk: SmallDisk, arguments: tuple[str, str]
) -> None:
    async with (
        gateway(disk.mount, *arguments) as running,
        wire(running.port, Connect("fast")) as fast,
    ):
        async with client(running.port, "away", expiry=1000) as subscriber:
            await subscriber.subscribe("spool/kept", qos=1)
        for first in ([], [b"again"]):
            promised, reason = await publish(fast, 1000)
            assert (len(promised) > 10, reason) == (True, ReasonCode.QUOTA_EXCEEDED)
            expected = first + promised
            async with client(running.port, "away", expiry=1000) as subscriber:
                assert [
                    message.payload for message in await collect(subscriber, len(expected))
                ] == expected
            with closing(connect(disk.mount / "data" / FILE)) as database:
                drain(database)
            await publish_until_taken(fast, Publish("spool/kept", b"again", 1, 1))
        assert not any("accepts no data" in line for line in running.log)


async def test_gateway_starts_on_a_full_disk_by_its_reserve_or_reports_it(
    disk: SmallDisk, arguments: tuple[str, str]
) -> None:
    async with gateway(disk.mount, *arguments) as running:
        await running.end(signal.SIGKILL)
    disk.fill()
    async with (
        gateway(disk.mount, *arguments) as running,
        wire(running.port, Connect("c", properties=FOREVER)) as connected,
    ):
        assert await publish(connected, 1) == ([], ReasonCode.QUOTA_EXCEEDED)
        await running.end(signal.SIGKILL)
    disk.fill()
    for _ in range(2):
        refused = await start(*arguments)
        _, error = await asyncio.wait_for(refused.process.communicate(), START_S)
        assert refused.process.returncode == 10
        assert "the disk is full" in error.decode()
    disk.free()
    async with gateway(disk.mount, *arguments) as running, wire(running.port, Connect("c")):
        assert await running.end() == 0
