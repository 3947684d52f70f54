"""Disks that misbehave: nothing is acknowledged that is not on them, and the service goes on when they recover."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connect, Disconnect, Puback, Publish
from gateway.mqtt.reason import ReasonCode
from tests.service.process import gateway
from tests.service.test_gateway import client, collect
from tests.service.wire import wire

SOURCE = Path(__file__).parents[1] / "store" / "faults.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", built, SOURCE, "-ldl"], check=True)
    return built


def faulty(library: Path, plan: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(library), "ONCEWAY_FAULTS": str(plan)}


@pytest.mark.parametrize("fault", ["eio", "enospc"])
async def test_nothing_is_acknowledged_while_the_disk_fails_and_all_goes_on_afterwards(tmp_path: Path, library: Path, fault: str) -> None:
    plan = tmp_path / "plan"
    async with gateway(tmp_path / "data", env=faulty(library, plan)) as running:
        async with client(running.port, "subscriber", expiry=1000) as subscriber:
            await subscriber.subscribe("t", qos=2)
        async with client(running.port, "publisher", expiry=1000) as publisher:
            await publisher.publish("t", "before", qos=2)
            plan.write_text(fault)
            stuck = asyncio.create_task(publisher.publish("t", "meanwhile", qos=2, timeout=30))
            await running.logged("the store takes no data")
            async with wire(running.port, Connect("other")) as other:
                other.send(Publish("t", b"refused", 1, 7))
                assert (await other.take(Puback)).reason == ReasonCode.QUOTA_EXCEEDED
            assert not stuck.done()
            plan.write_text("")
            await stuck
            await publisher.publish("t", "after", qos=2)
        async with client(running.port, "subscriber", expiry=1000) as subscriber:
            assert [message.payload for message in await collect(subscriber, 3)] == [b"before", b"meanwhile", b"after"]
        assert await running.end() == 0


async def test_a_gateway_stops_though_its_disk_fails(tmp_path: Path, library: Path) -> None:
    plan = tmp_path / "plan"
    async with gateway(tmp_path / "data", env=faulty(library, plan)) as running, wire(running.port, Connect("c")) as publisher:
        plan.write_text("eio")
        publisher.send(Publish("t", b"lost", 1, 7))
        await running.logged("the store takes no data")
        assert await running.end() == 0
        assert (await publisher.take(Disconnect)).reason == ReasonCode.SERVER_SHUTTING_DOWN
