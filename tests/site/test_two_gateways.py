"""Two gateways of a site as processes: a client moves between them."""

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

from gateway.mqtt.packets import (
    Connack,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from tests.site.gateways import Gateways, gateways


async def published(wire, packet_id: int = 9, payload: bytes = b"m") -> None:  # type: ignore[no-untyped-def]
    """A PUBLISH at QoS 2 whose PUBREC has come."""
    wire.send(Publish("x", payload, 2, packet_id))
    assert (await wire.take(Pubrec)).reason == 0


@pytest.mark.mqtt("MQTT-4.3.3-8")
async def test_a_client_moves_between_pubrec_and_pubrel(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, present = await site.connect("a")
        assert not present
        await published(client)
        moved, present = await site.connect("b")
        assert present
        assert (await client.take(Disconnect)).reason == 0x8E
        moved.send(Pubrel(9))
        assert await moved.take(Pubcomp) == Pubcomp(9)
        assert await site.sessions("a") == []
        assert await site.sessions("b") == ["c"]


async def test_queued_messages_come_along_once_each_and_in_order(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        client.send(Subscribe(1, [Subscription("t", 1)]))
        await client.take(Suback)
        client.writer.close()
        publisher, _ = await site.connect("a", "p", clean=True)
        for number in range(500):
            publisher.send(Publish("t", b"%04d" % number, 1, number + 1))
        for _ in range(500):
            await publisher.take(Puback)
        moved, present = await site.connect("b")
        assert present
        for number in range(500):
            packet = await moved.take(Publish)
            assert packet.payload == b"%04d" % number
            moved.send(Puback(packet.packet_id))
        with pytest.raises(TimeoutError):
            await moved.take(Publish, within=0.3)


async def test_a_silent_member_costs_a_second_and_is_marked(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        site.running["b"].process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        _, present = await site.connect("a")
        took = time.monotonic() - begun
        assert not present
        assert took < 1.5, "a second, and what the machine needs"
        await site.running["a"].logged("b did not answer")
        assert (await site.figures("a"))["marked"] == 1
        site.running["b"].process.send_signal(signal.SIGCONT)


async def test_a_stale_holder_swallows_no_publish(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        await published(client, 7, b"old")
        client.writer.close()
        site.running["a"].process.send_signal(signal.SIGSTOP)
        moved, present = await site.connect("b")
        assert not present
        moved.writer.close()
        site.running["b"].process.send_signal(signal.SIGSTOP)
        site.running["a"].process.send_signal(signal.SIGCONT)
        listener, _ = await site.connect("a", "listener", clean=True)
        listener.send(Subscribe(1, [Subscription("x", 0)]))
        await listener.take(Suback)
        back, present = await site.connect("a")
        if present:
            pytest.fail("its identifiers may stand for other messages by now")
        await published(back, 7, b"new")
        assert (await listener.take(Publish)).payload == b"new"
        site.running["b"].process.send_signal(signal.SIGCONT)
        await site.joined()
        await until_one_place(site)


async def until_one_place(site: Gateways, client: str = "c") -> str:
    """Where the session is, when it is in one place."""
    async with asyncio.timeout(10):
        while True:
            places = [name for name in site.names if client in await site.sessions(name)]
            given = [await site.figures(name) for name in site.names]
            if len(places) == 1 and not any(figures["given"] for figures in given):
                return places[0]
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("victim", ["a", "b"])
@pytest.mark.parametrize("delay_ms", [0, 10, 30, 40, 50, 70])
async def test_a_kill_in_the_middle_of_a_move_leaves_the_session_in_one_place(
    tmp_path: Path, victim: str, delay_ms: int
) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        await published(client)
        client.writer.close()
        moving = asyncio.create_task(site.connect("b"))
        await asyncio.sleep(delay_ms / 1000 + random.random() / 100)  # noqa: S311 - no secret
        await site.kill(victim)
        await asyncio.wait([moving])
        if not moving.cancelled() and moving.exception() is None and victim == "a":
            moved, present = moving.result()
            moved.writer.close()
            if not present:  # it was silent: the client was told so, and publishes again
                await site.start(victim)
                await site.joined()
                assert await until_one_place(site) == "b"
                return
        await site.start(victim)
        await site.joined()
        moved, present = await site.connect("b", within=10)
        assert present
        moved.send(Pubrel(9))
        assert await moved.take(Pubcomp) == Pubcomp(9)
        assert await until_one_place(site) == "b"


async def test_clean_start_ends_the_session_at_the_other_gateway(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        _, present = await site.connect("b", clean=True)
        assert not present
        assert (await client.take(Disconnect)).reason == 0x8E
        assert await until_one_place(site) == "b"


async def test_a_client_that_stays_costs_no_call(tmp_path: Path) -> None:
    async with gateways(tmp_path, "a", "b") as site:
        client, _ = await site.connect("a")
        before = [await site.figures(name) for name in site.names]
        for number in range(1, 300):
            client.send(Publish("x", b"m", 2, number))
            await client.take(Pubrec)
            client.send(Pubrel(number))
            await client.take(Pubcomp)
        client.writer.close()
        _, present = await site.connect("a")
        assert present
        assert [await site.figures(name) for name in site.names] == before
