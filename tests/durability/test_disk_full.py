"""A disk that is really full (a small tmpfs): what is refused, what goes on, and that it ends by itself."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connect, Puback, Publish, Pubrec, Pubrel, Suback, Subscribe, Subscription, Version
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from tests.durability.disk import SmallDisk
from tests.service.process import gateway, start
from tests.service.test_gateway import client, collect
from tests.service.wire import Wire, wire

SIZE = 8 << 20
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
    config.write_text(f'{data}[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n')
    return "--config", str(config)


async def publish_until_stuck(publisher: Wire) -> list[bytes]:
    """The payloads that were acknowledged before one was not."""
    promised: list[bytes] = []
    while True:
        payload = b"%05d" % len(promised) + bytes(20_000)
        publisher.send(Publish("spool/kept", payload, 1, 1))
        try:
            answer = await publisher.take(Puback, within=1.5)
        except TimeoutError:
            return promised
        assert answer.reason == ReasonCode.SUCCESS
        promised.append(payload)


async def test_a_full_disk_refuses_and_recovers_and_loses_nothing(disk: SmallDisk, arguments: tuple[str, str]) -> None:
    async with gateway(disk.mount, *arguments) as running:
        async with client(running.port, "away", expiry=1000) as subscriber:
            await subscriber.subscribe("spool/kept", qos=2)
        async with (
            wire(running.port, Connect("stuck")) as stuck,
            wire(running.port, Connect("refused", properties=FOREVER)) as refused,
            wire(running.port, Connect("before 5", Version.V3_1_1)) as before_5,
            wire(running.port, Connect("needs no disk")) as other,
        ):
            other.send(Subscribe(1, [Subscription("elsewhere", 2)]))
            await other.take(Suback)
            disk.fill()
            promised = await publish_until_stuck(stuck)
            refused.send(Publish("spool/kept", b"refused", 1, 9), Publish("spool/kept", b"refused", 2, 10))
            assert (await refused.take(Puback)).reason == ReasonCode.QUOTA_EXCEEDED
            assert (await refused.take(Pubrec)).reason == ReasonCode.QUOTA_EXCEEDED
            before_5.send(Publish("spool/kept", b"refused", 2, 9))
            with pytest.raises(AssertionError, match="the gateway closed the connection"):
                await before_5.take(Pubrec)
            stuck_still = asyncio.create_task(stuck.take(Puback))
            other.send(Publish("elsewhere", b"goes on", 1, 3))
            assert {type(await other.take(Publish | Puback)) for _ in range(2)} == {Publish, Puback}  # type: ignore[arg-type]
            assert not stuck_still.done()
            disk.free()
            assert (await stuck_still).reason == ReasonCode.SUCCESS
            await running.logged("the store takes data again")
            refused.send(Publish("spool/kept", b"after", 2, 9))
            assert (await refused.take(Pubrec)).reason == ReasonCode.SUCCESS
            refused.send(Pubrel(9))
        await running.end(signal.SIGKILL)
    async with gateway(disk.mount, *arguments) as running, client(running.port, "away", expiry=1000) as subscriber:
        messages = [message.payload for message in await collect(subscriber, len(promised) + 2)]
        assert messages[:-2] == promised
        assert messages[-1] == b"after"
        assert await running.end() == 0


async def test_a_gateway_that_starts_on_a_full_disk_says_so(disk: SmallDisk, arguments: tuple[str, str]) -> None:
    async with gateway(disk.mount, *arguments) as running:
        await running.end(signal.SIGKILL)
    disk.fill()
    for _ in range(2):
        refused = await start(*arguments)
        _, error = await asyncio.wait_for(refused.process.communicate(), 20)
        assert refused.process.returncode == 3
        assert "Is the disk full" in error.decode()
    disk.free()
    async with gateway(disk.mount, *arguments) as running, wire(running.port, Connect("c")):
        assert await running.end() == 0
