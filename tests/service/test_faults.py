"""A gateway process in which one call raises an exception, with real clients and a real store.

`tests/broker/test_faults.py` tries every function. Here, a few are tried over sockets: the log, the
exit code, and what clients see.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.bridge.near import NearClient
from gateway.config import BridgeSection
from gateway.mirror.json_topics import tell
from gateway.mqtt.packets import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.runtime.internal_client import InternalClient
from gateway.store.schema import FILE
from tests.broker.harness import World
from tests.service import faulty
from tests.service.faulty import POISON, VICTIM
from tests.service.process import GatewayProcess, gateway, start
from tests.service.wire import Wire, wire

KEPT = {PropertyId.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}
ROUNDS = 20


def connect(client: str) -> Connect:
    return Connect(client, clean_start=False, properties=KEPT)


def config(folder: Path) -> list[str]:
    """Write a configuration with an uplink, which does not run. Return the gateway's arguments."""
    file = folder / "gateway.toml"
    file.write_text(
        f'[gateway]\nname = "faulty"\ndata = "{folder / "data"}"\n'
        '[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n'
        f'[uplink]\nlanding = "file://{folder / "landing"}"\n'
    )
    return ["--config", str(file)]


@asynccontextmanager
async def faulty_gateway(folder: Path, fault: str) -> AsyncIterator[GatewayProcess]:
    program = "-m", "tests.service.faulty"
    env = {"ONCEWAY_FAULT": fault}
    running = await start(*config(folder), env=env, program=program)
    try:
        await running.ready()
        yield running
    finally:
        if running.process.returncode is None:
            running.process.kill()
            await running.process.wait()


async def publish(writer: Wire, number: int, dup: bool = False) -> None:
    """Publish a message at QoS 2, and complete its exchange."""
    writer.send(Publish("by", b"%d" % number, 2, number, dup=dup))
    assert (await writer.take(Pubrec)).reason == ReasonCode.SUCCESS
    await release(writer, number)


async def release(writer: Wire, number: int) -> None:
    writer.send(Pubrel(number))
    await writer.take(Pubcomp)


async def read(reader: Wire) -> bytes:
    """Return the next message at QoS 2, and complete its exchange."""
    message = await reader.take(Publish)
    reader.send(Pubrec(message.packet_id))
    await reader.take(Pubrel)
    reader.send(Pubcomp(message.packet_id))
    return message.payload


async def subscribe(client: Wire, *topics: str) -> None:
    client.send(Subscribe(1, [Subscription(topic, 2) for topic in topics]))
    await client.take(Suback)


async def ended(client: Wire) -> None:
    """Read and ignore everything until the gateway closes the connection."""
    with suppress(ConnectionError):
        async with asyncio.timeout(20):
            while await client.reader.read(65536):
                pass


async def provoke(victim: Wire, fault: str) -> None:
    # wait until CONNECT was handled: both packets could otherwise come in one read
    if fault == "decode":
        await victim.pick(Suback)
    victim.send(Publish("v", b"x", 1, 1), Publish(POISON, b"x", 1, 2))
    if fault == "close":
        victim.send(Disconnect())
    await ended(victim)


@pytest.mark.parametrize("fault", faulty.OWN)
async def test_an_exception_of_one_connection_is_noticed_by_no_other(
    tmp_path: Path, fault: str
) -> None:
    async with faulty_gateway(tmp_path, fault) as running:
        async with (
            wire(running.port, connect("reader")) as reader,
            wire(running.port, connect("writer")) as writer,
        ):
            await subscribe(reader, "by")
            victim = Wire(*await asyncio.open_connection("127.0.0.1", running.port), 5)
            victim.send(connect(VICTIM), Subscribe(1, [Subscription("#", 1)]))
            trouble = asyncio.create_task(provoke(victim, fault))
            for number in range(1, ROUNDS + 1):
                await publish(writer, number)
                assert await read(reader) == b"%d" % number
                reader.send(Pingreq())
                await reader.take(Pingresp)
            await trouble
            await running.logged("internal error while")
        (line,) = [line for line in running.log if "internal error while" in line]
        assert VICTIM in line
        assert "ArithmeticError: injected into" in line
        assert await running.end() == 0


@pytest.mark.parametrize("fault", faulty.SHARED)
async def test_an_exception_in_shared_state_ends_the_process_before_anything_is_acknowledged(
    tmp_path: Path, fault: str
) -> None:
    async with faulty_gateway(tmp_path, fault) as running:
        async with (
            wire(running.port, connect("reader")) as reader,
            wire(running.port, connect("writer")) as writer,
            wire(running.port, connect(VICTIM)) as victim,
        ):
            await subscribe(reader, "by")
            await publish(writer, 1)
            assert await read(reader) == b"1"
            # publications before and after the poison, in the same bytes
            victim.send(
                Publish("v", b"before", 2, 1), Publish(POISON, b"x", 1, 2), Publish("v", b"", 2, 3)
            )
            writer.send(Publish("by", b"2", 2, 2))
            answers = [await rest(client) for client in (victim, writer)]
        code = await asyncio.wait_for(running.process.wait(), 30)
        assert code == 70
        assert running._reader is not None
        await running._reader
        assert "the gateway has stopped after an internal error" in running.log[-1]
        assert "Traceback" in "".join(running.log)
    spooled = rows(tmp_path)
    assert spooled[b"1"] == 1
    for answer in answers[0]:
        assert isinstance(answer, Pubrec)
        assert answer.packet_id == 1
        assert spooled[b"before"] == 1
    recorded = [answer for answer in answers[1] if isinstance(answer, Pubrec)]
    assert not recorded or spooled[b"2"] == 1
    async with (
        gateway(tmp_path, *config(tmp_path)) as running,
        wire(running.port, connect("reader")) as reader,
        wire(running.port, connect("writer")) as writer,
    ):
        if recorded:
            await release(writer, 2)
        else:
            await publish(writer, 2, dup=True)
        assert (await reader.pick(Publish)).payload == b"2"
        await publish(writer, 3)
        assert (await reader.pick(Publish)).payload == b"3"
    spooled = rows(tmp_path)
    assert [spooled[b"%d" % number] for number in (1, 2, 3)] == [1, 1, 1]


async def rest(client: Wire) -> list[Packet]:
    """Return all packets until the end of the connection."""
    with suppress(AssertionError, ConnectionError):
        async with asyncio.timeout(20):
            while True:
                await client._read()
    return client._packets


def rows(folder: Path) -> Counter[bytes]:
    """Return how many times each payload is in the spool."""
    with closing(sqlite3.connect(folder / "data" / FILE)) as database:
        return Counter(payload for (payload,) in database.execute("SELECT payload FROM spool"))


# -- internal clients


def boom(*args: Any) -> None:
    raise ArithmeticError("boom")


def test_an_exception_in_what_the_gateway_itself_hears_ends_that_client_alone() -> None:
    world = World()
    reader = world.accepted("reader")
    reader.subscribe("t")
    heard: list[Publish] = []
    bad = InternalClient(world.engine, ["t"], boom)
    good = InternalClient(world.engine, ["t"], heard.append)
    world.turn()
    world.accepted("writer").publish("t", "1", 1)
    assert (bad.closed, good.closed) == (True, False)
    assert [message.payload for message in heard] == reader.payloads == [b"1"]
    world.accepted("writer").publish("t", "2", 1)
    assert [message.payload for message in heard] == reader.payloads == [b"1", b"2"]


def test_a_topic_that_no_longer_fits_behind_a_prefix_ends_the_bridges_connection_alone() -> None:
    """The topic with the bridge's prefix is too long, here simulated by an error. Only the bridge's
    connection ends. Other clients get their messages.
    """
    world = World()
    first, last = world.accepted("first"), world.accepted("last")
    first.subscribe("#", qos=0)
    section = BridgeSection(name="far", server="mqtt://far:1883", up=["#"], prefix="p/")
    near = NearClient(world.engine, section, None, {})
    ends: list[str] = []
    near.ended = lambda: ends.append("ended")
    near.take([Subscribe(1, [Subscription("#", 1)])])
    world.turn()
    last.subscribe("#", qos=0)
    near.on_packets = boom
    world.accepted("writer").publish("t", "1", 1)
    last.send(Pingreq())
    assert first.payloads == last.payloads == [b"1"]
    assert last.take_all(Pingresp)
    assert ends == ["ended"]
    assert world.broker.sessions[section.client].send_flow.messages == 1


def test_an_exception_in_what_other_parts_say_ends_the_engine_before_the_next_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller catches the exception, but the broker may have done half of its work. So the
    engine ends.
    """
    world = World()
    writer = world.accepted("writer")
    monkeypatch.setattr(type(world.broker.retained), "put", boom)
    with suppress(ArithmeticError):
        tell(world.engine, {"$own/topic": b"x"})
    commits = len(world.commits)
    writer.publish("spool/t", "1", 1)
    assert world.engine.broken
    assert writer.take_all(Puback) == []
    assert len(world.commits) == commits
