"""Bridges in a loop: a message crosses each bridge once, and the log names both ends of the
loop.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.bridge.counts import Counts
from gateway.bridge.pairing import FOLDER, Pairing
from gateway.bridge.translate import MARK, NO_MARK, Translator
from gateway.commands import control_client as control
from gateway.mqtt.packets import Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe
from gateway.mqtt.properties import MOST_OF_ONE, PropertyId
from gateway.system.log_throttle import LogThrottle
from tests.bridge.mosquitto import mosquitto
from tests.bridge.picky import picky
from tests.bridge.test_bridge import (
    bridged,
    publish,
    scripted,
    subscribe,
    take,
    until,
)
from tests.service.process import GatewayProcess, free_port, gateway
from tests.service.wire import Wire, wire

BOTH = 'up = ["loop/#"]\ndown = ["loop/#"]'
_USER = PropertyId.USER_PROPERTY


def section(name: str, port: int, topics: str) -> str:
    return f'[[bridge]]\nname = "{name}"\nserver = "mqtt://127.0.0.1:{port}"\n{topics}\n'


@asynccontextmanager
async def ring(
    folder: Path, bridges: dict[str, tuple[str, str]]
) -> AsyncIterator[dict[str, GatewayProcess]]:
    """Run gateways with one bridge each, and yield them by name. bridges: by gateway, the name of
    the gateway at the other end of its bridge, and the lines of its configuration with the topics.
    """
    ports = {name: free_port() for name in bridges}
    async with AsyncExitStack() as stack:
        running = {}
        for name, (other, topics) in bridges.items():
            place = folder / name
            place.mkdir()
            file = place / "gateway.toml"
            file.write_text(
                f'gateway.name = "{name}"\ngateway.data = "{place}/data"\n[[listener]]\n'
                f'bind = "127.0.0.1:{ports[name]}"\nanonymous = true\n'
                + section(f"to-{other}", ports[other], topics)
            )
            running[name] = await stack.enter_async_context(gateway(place, "--config", str(file)))
        for near in running.values():
            await near.logged(": connected")
        yield running


async def copies(here: Wire, marker: bytes) -> int:
    """Count the messages with payload `1` that arrive before the message with payload `marker`."""
    count = 0
    while (packet := await take(here)).payload != marker:
        count += packet.payload == b"1"
    return count


async def settled(folders: list[Path], **counts: int) -> list[dict[str, Any]]:
    """Wait until the sums over all bridges reach these counts, no message waits, and nothing
    changes any more. Return the bridges' states. A message counts as sent when it is acknowledged,
    which may be after it has come back.
    """
    before: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while True:
            found = [
                (await asyncio.to_thread(control.ask, folder / "data", do="status"))[0]["bridges"][
                    0
                ]
                for folder in folders
            ]
            reached = all(sum(item[key] for item in found) >= counts[key] for key in counts)
            if reached and found == before and not any(item["waiting"] for item in found):
                return found
            before = found


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_two_bridges_into_each_other_stop_at_the_second_passage(
    tmp_path: Path, qos: int
) -> None:
    topics = f"{BOTH}\nqos = {qos}"
    async with (
        ring(tmp_path, {"a": ("b", topics), "b": ("a", topics)}) as running,
        wire(running["a"].port, Connect("here")) as here,
    ):
        await publish(here, "loop/1", b"1", qos)
        found = await settled([tmp_path / "a", tmp_path / "b"], looped=1)
        # each of the two bridges carries the message at most once in each direction
        assert sum(item["sent"] + item["received"] - item["looped"] for item in found) <= 4
        said = "".join([*running["a"].log, *running["b"].log])
        assert "bridge a/to-b: a message that this bridge had forwarded came back through" in said
        assert "through b/to-a, topic 'loop/1'" in said
        before = said.count("came back through")
        for number in range(20):
            await publish(here, f"loop/{number}", b"2", qos, number + 1)
        await settled([tmp_path / "a", tmp_path / "b"])
        said = "".join([*running["a"].log, *running["b"].log])
        assert said.count("came back through") - before <= 2, "once for each pair of bridges"


async def test_a_loop_over_three_brokers_is_stopped(tmp_path: Path) -> None:
    up = 'up = ["loop/#"]'
    async with (
        ring(tmp_path, {"a": ("b", up), "b": ("c", up), "c": ("a", up)}) as running,
        wire(running["a"].port, Connect("here")) as here,
    ):
        await publish(here, "loop/1", b"1", 2)
        await running["a"].logged("came back through c/to-a")
        found = await settled([tmp_path / name for name in "abc"], sent=3)
        assert [item["sent"] for item in found] == [1, 1, 1]
        assert [item["looped"] for item in found] == [1, 0, 0]


async def test_a_loop_through_a_broker_of_another_make_is_stopped(tmp_path: Path) -> None:
    """Two bridges of one gateway lead to the same mosquitto. One bridge sends each message there,
    and the other bridge brings it back.
    """
    async with mosquitto(tmp_path / "far") as far:
        text = 'up = ["loop/#"]\n' + section("back", far.port, 'down = ["loop/#"]')
        async with (
            bridged(tmp_path, far.port, text) as near,
            wire(near.port, Connect("here")) as here,
        ):
            await near.logged("bridge cloud: connected")
            await near.logged("bridge back: connected")
            await publish(here, "loop/1", b"1", 2)
            await near.logged("came back through site-1/back")
            await until(tmp_path, looped=1, sent=1, waiting=0)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_that_comes_back_is_acknowledged_and_goes_nowhere(
    tmp_path: Path, qos: int
) -> None:
    """The test then checks that other messages cross, and that the packet identifiers are free
    again.
    """
    text = f'up = ["loop/#"]\ndown = ["loop/#"]\nqos = {qos}'
    async with (
        scripted() as far,
        bridged(tmp_path, far.port, text) as near,
        wire(near.port, Connect("here")) as here,
    ):
        there, _ = await far.meet(present=False)
        await there.pick(Subscribe)
        await publish(here, "loop/1", b"first", qos)
        first = await take(there)
        marks = (first.properties or {})[_USER]
        assert [name for name, _ in marks] == [MARK]
        await subscribe(here, "#", qos)
        marked = {_USER: [*marks, (MARK, "other/bridge/0")]}
        there.send(Publish("loop/back", b"down", qos, 9 if qos else 0, properties=marked))
        if qos == 1:
            assert (await there.pick(Puback)).reason < 0x80
        if qos == 2:
            assert (await there.pick(Pubrec)).reason < 0x80
            there.send(Pubrel(9))
            await there.pick(Pubcomp)
        here.send(Publish("loop/2", b"up", qos, 7 if qos else 0, properties=marked))
        if qos == 1:
            await here.pick(Puback)
        if qos == 2:
            await here.pick(Pubrec)
            here.send(Pubrel(7))
        assert (await take(here)).payload == b"up", "nothing came from there before it"
        await publish(here, "loop/3", b"last", qos, 8)
        last = await take(there)
        assert last.payload == b"last", "nothing went there before it"
        found = await until(tmp_path, looped=2, waiting=0)
        assert (found["aside"], found["refused"], found["dropped"]) == (0, 0, 0)
        await near.logged("came back through other/bridge, topic")


def test_message_that_crosses_again_and_again_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The loop leads through a bridge that removes the bridge's mark, as mosquitto's bridge does
    with MQTT 3.1.1.
    """
    counts = Counts("a", "b", LogThrottle(time.monotonic))
    for number in range(5000):
        counts.crosses(Publish("t", b"%d" % number))
        counts.crosses(Publish(f"t/{number}", b"on"))
    for _ in range(150):
        counts.crosses(Publish("t", b"on"))
    assert not caplog.records
    for _ in range(1000):
        counts.crosses(Publish("t", b"on"))
    assert len(caplog.records) == 1
    assert "a/b: the same message was forwarded 200 times" in caplog.text


def test_the_mark_names_the_last_bridge() -> None:
    own, other = (MARK, "a/x/1"), (MARK, "b/y/2")
    translator = Translator("", True, own[1])

    def back(*user: tuple[str, str]) -> str | None:
        return translator.came_back_from(Publish("t", b"", 0, 0, properties={_USER: list(user)}))

    assert translator.came_back_from(Publish("t", b"", 0, 0)) is None
    assert back(("x", "a/x/1")) is None
    assert back(other) is None
    assert back((MARK, "a/x/2")) is None, "another gateway may have the same names"
    assert back(own, other) == "b/y"
    assert back(own) == NO_MARK


def test_a_message_with_too_many_user_properties_crosses_without_the_mark() -> None:
    translator = Translator("", True, "a/x/1")
    for count, left in ((MOST_OF_ONE, 0), (MOST_OF_ONE - 1, 1)):
        found = [("k", "v")] * count
        packet = Publish("t", b"", 0, 0, properties={_USER: found})
        for carried in (translator.to_far(packet, with_mark=True), translator.to_near(packet)):
            assert carried is not None
            assert (carried.properties or {})[_USER] == found + [(MARK, "a/x/1")] * left


async def test_a_message_that_fits_only_without_the_mark_crosses_without_it(
    tmp_path: Path,
) -> None:
    async with (
        picky(maximum_packet_size=200) as far,
        bridged(tmp_path, far.port, 'up = ["loop/#"]') as near,
        wire(near.port, Connect("here")) as here,
    ):
        await publish(here, "loop/1", bytes(180), 1, 1)
        await publish(here, "loop/1", bytes(100), 1, 2)
        await far.until(2)
        assert [bool((packet.properties or {}).get(_USER)) for packet in far.taken] == [False, True]


async def test_a_message_of_the_largest_size_comes_down_with_the_mark(tmp_path: Path) -> None:
    """The message with the bridge's mark is larger than limits.packet_bytes, but must
    still arrive.
    """
    async with (
        picky() as far,
        bridged(tmp_path, far.port, 'down = ["loop/#"]\n[limits]\npacket_bytes = 2000') as near,
        wire(near.port, Connect("here")) as here,
    ):
        await subscribe(here, "loop/#", 1)
        await near.logged("bridge cloud: connected")
        far.send(Publish("loop/1", bytes(1_986), 1, 5))
        assert len((await take(here)).payload) == 1_986
        far.send(Publish("loop/1", b"next", 1, 6))
        assert (await take(here)).payload == b"next"


def test_the_identity_of_a_bridge_outlives_its_pairs_and_an_older_file(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    old = {"word": "0a0b0c0d", "joined": True, "down": ["commands/#"]}
    (folder / "cloud.json").write_text(json.dumps(old))
    pairing = Pairing(tmp_path, "cloud")
    held = pairing.read()
    assert held is not None
    pair = pairing.identify(held)
    assert (pair.word, pair.joined, pair.down) == ("0a0b0c0d", True, ("commands/#",))
    assert pair.mark
    assert pairing.read() == pair
    assert pairing.identify(pair) == pair
    drawn = pairing.draw()
    assert (drawn.mark, drawn.word != pair.word) == (pair.mark, True)
