"""Limits of the other broker: if it refuses messages, other messages still cross, and retained
messages are still compared.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.mqtt.packets import (
    Connect,
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
from gateway.mqtt.properties import PropertyId
from tests.bridge.mosquitto import mosquitto
from tests.bridge.picky import picky
from tests.bridge.test_bridge import bridged, publish, scripted, status, take, until
from tests.bridge.test_retained import BRIDGE, equal, held, say
from tests.service.wire import wire

UP = 'up = ["up/#"]\nprefix = "s/"\n'
DEEP = "/".join(["up", *["x"] * 205])
"""A topic with more levels than mosquitto accepts."""


async def retain(client: Any, topic: str, payload: bytes, qos: int = 0) -> None:
    client.send(Publish(topic, payload, qos, 7 if qos else 0, True))
    if qos:
        await client.pick(Puback)


@pytest.mark.few(1)
@pytest.mark.mqtt("MQTT-3.2.2-11")
@pytest.mark.parametrize("most", [0, 1])
async def test_messages_go_at_the_maximum_qos_of_the_other_broker(
    tmp_path: Path, most: int
) -> None:
    """The limit also holds after a restart of the other broker."""
    far_text = f"allow_anonymous true\nmax_qos {most}"
    async with (
        mosquitto(tmp_path / "far", far_text) as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged(f"does not accept QoS 2. Messages are sent to it at QoS {most}")
        async with wire(far.port, Connect("reader")) as reader:
            reader.send(Subscribe(1, [Subscription("s/#", 1)]))
            await reader.pick(Suback)
            for number in range(20):
                await publish(board, "up/x", b"%d" % number, 2, number + 1)
            assert [(await take(reader)).payload for _ in range(20)] == [
                b"%d" % number for number in range(20)
            ]
        await until(tmp_path, waiting=0, sent=20)
        await far.end()
        for number in range(20, 25):
            await publish(board, "up/x", b"%d" % number, 1 + number % 2, number + 1)
        await say(near.port, up_a="1")
        await far.start()
        async with wire(far.port, Connect("reader")) as reader:
            reader.send(Subscribe(1, [Subscription("s/up/x", 1)]))
            await reader.pick(Suback)
            await until(tmp_path, waiting=0, error=None, retained="equal")
            reader.send(Subscribe(2, [Subscription("s/up/a", 0)]))
            while (await take(reader)).topic != "s/up/a":
                pass
        assert "".join(near.log).count("does not accept QoS") == 1


async def test_qos_0_messages_wait_until_the_other_broker_has_answered(tmp_path: Path) -> None:
    """Messages at QoS 0 have no acknowledgement. So the bridge sends PINGREQ after them, and waits
    for PINGRESP. Here, the connection ends before PINGRESP, and the bridge sends the messages
    again.
    """
    async with (
        scripted() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        there, _ = await far.meet(present=False, maximum_qos=0)
        await publish(board, "up/x", b"1", 2, 1)
        assert (await there.pick(Publish)).payload == b"1"
        there.writer.close()
        there, _ = await far.meet(present=True, maximum_qos=0)
        assert (await there.pick(Publish)).payload == b"1"
        assert (await asyncio.to_thread(status, tmp_path))["waiting"] == 1


@pytest.mark.parametrize("qos", [pytest.param(0, marks=pytest.mark.soak), 1])
async def test_retained_topic_with_too_many_levels_stops_nothing(tmp_path: Path, qos: int) -> None:
    """Debian's mosquitto closes the connection at more than 200 levels."""
    async with (
        mosquitto(tmp_path / "far") as far,
        bridged(tmp_path, far.port, f"{UP}[limits]\ntopic_levels = 300") as near,
        wire(near.port, Connect("b")) as board,
    ):
        await far.end()
        await retain(board, DEEP, b"1", qos)
        await say(near.port, up_a="1", up_b="2")
        await far.start()
        await near.logged("a message to the topic 'up/x/x/x")
        found = await until(tmp_path, retained="differ", differ=1, error=None, waiting=0)
        assert found["aside"] == 1
        assert await held(far.port, "s/") == {"up/a": b"1", "up/b": b"2"}


async def test_refused_retained_message_is_not_tried_again_after_a_restart(tmp_path: Path) -> None:
    """The message stays set aside. A new message on its topic is sent."""
    async with picky() as far:
        far.verdict = lambda packet: 0x87 if packet.topic == "s/up/a" else 0
        async with bridged(tmp_path, far.port, UP) as near:
            async with wire(near.port, Connect("b")) as board:
                await retain(board, "up/a", b"1", 1)
            await until(tmp_path, aside=1, retained="differ", differ=1)
        async with bridged(tmp_path, far.port, UP) as near:
            found = await until(tmp_path, retained="differ", differ=1)
            assert (found["aside"], found["set_aside"]) == (1, 0)
            far.verdict = lambda packet: 0
            async with wire(near.port, Connect("b")) as board:
                await retain(board, "up/a", b"2", 1)
            await until(tmp_path, sent=1, waiting=0)


async def test_other_broker_with_a_small_packet_size(tmp_path: Path) -> None:
    """SUBSCRIBE and UNSUBSCRIBE packets also respect the other broker's Maximum Packet Size."""
    topics = {f"up_{number:02}{'x' * 60}": "1" for number in range(20)}
    async with mosquitto(tmp_path / "far", "allow_anonymous true\nmax_packet_size 400") as far:
        async with bridged(tmp_path, far.port, UP) as near:
            await say(near.port, **topics)
            await until(tmp_path, agreed=20)
        await say(far.port, "s/", **dict.fromkeys(list(topics)[:15], ""))
        async with bridged(tmp_path, far.port, UP) as near:
            await equal(near.port, far.port, **dict.fromkeys(list(topics)[15:], "1"))


async def test_other_broker_without_retained_messages(tmp_path: Path) -> None:
    async with (
        picky(retain_available=0) as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await retain(board, "up/a", b"1", 1)
        await far.until(1)
        assert not far.taken[0].retain
        assert (await until(tmp_path, waiting=0))["error"] is None


async def test_retained_messages_come_at_their_qos_with_their_properties(tmp_path: Path) -> None:
    kind = {PropertyId.CONTENT_TYPE: "text/plain", PropertyId.MESSAGE_EXPIRY_INTERVAL: 1000}
    async with mosquitto(tmp_path / "far") as far:
        async with wire(far.port, Connect("writer")) as there:
            for qos in range(3):
                packet = Publish(f"s/up/{qos}", b"1", qos, qos, True, properties=dict(kind))
                there.send(packet)
            await there.pick(Pubrec)
            there.send(Pubrel(2))
            await there.pick(Pubcomp)
        async with (
            bridged(tmp_path, far.port, BRIDGE) as near,
            wire(near.port, Connect("reader")) as reader,
        ):
            await until(tmp_path, retained="equal", retained_there=3)
            reader.send(Subscribe(1, [Subscription("up/#", 2)]))
            found = [await take(reader) for _ in range(3)]
            assert sorted((one.topic, one.qos) for one in found) == [
                (f"up/{qos}", qos) for qos in range(3)
            ]
            for one in found:
                properties = one.properties or {}
                assert properties[PropertyId.CONTENT_TYPE] == "text/plain"
                assert 900 < properties[PropertyId.MESSAGE_EXPIRY_INTERVAL] <= 1000


async def test_changed_property_crosses_after_an_outage(tmp_path: Path) -> None:
    async with mosquitto(tmp_path / "far") as far, bridged(tmp_path, far.port, UP) as near:
        async with wire(near.port, Connect("writer")) as here:
            for kind in ("a", "b"):
                properties = {PropertyId.CONTENT_TYPE: kind}
                here.send(Publish("up/a", b"1", 0, 0, True, properties=properties))
                await publish(here, "other", b"", 1, 9)
                if kind == "a":
                    await until(tmp_path, agreed=1)
                    await far.end()
        await far.start()
        async with wire(far.port, Connect("reader")) as there:
            async with asyncio.timeout(30):
                while True:
                    there.send(Subscribe(1, [Subscription("s/up/#", 0)]))
                    packet = await there.pick(Publish)
                    if (packet.properties or {})[PropertyId.CONTENT_TYPE] == "b":
                        break
                    await asyncio.sleep(0.2)


async def test_each_missing_feature_of_the_other_broker_is_reported(tmp_path: Path) -> None:
    """The other broker lacks wildcards and retained messages, ends sessions early, and grants a
    lower QoS than its Maximum QoS. The bridge does not report missing features that it does not
    use.
    """
    lacks = dict.fromkeys(
        ("wildcard_subscription", "subscription_identifier", "shared_subscription", "retain"), 0
    )
    limits = {f"{name}_available": value for name, value in lacks.items()}
    text = f'{UP}down = ["down/#", "+", "one"]\n'
    async with (
        picky(
            **limits, session_expiry_interval=10, server_keep_alive=65_535, topic_alias_maximum=5
        ) as far,
        bridged(tmp_path, far.port, text) as near,
        wire(near.port, Connect("b")) as board,
    ):
        far.properties[PropertyId.ASSIGNED_CLIENT_IDENTIFIER] = "other"
        await retain(board, "up/a", b"1", 1)
        await far.until(1)
        found = await until(tmp_path, waiting=0, error=None)
        await near.logged("grants QoS 0 for s/one")
        asked = [
            item.topic_filter
            for one in far.came
            if isinstance(one, Subscribe)
            for item in one.subscriptions
        ]
        assert asked == ["s/one"], "[MQTT-3.2.2.3.11]: a wildcard would be a protocol error"
        assert sorted(found["lacking"]) == ["s/+", "s/down/#"]
        assert "retained = false" in found["retained"]
        lines = [line for line in near.log if "WARNING" in line]
        for words in (
            "s/down/#: the other broker offers no wildcards",
            "keeps a session for 10 s only",
        ):
            assert sum(words in line for line in lines) == 1, lines
        assert len(lines) == 4, lines


@pytest.mark.mqtt("MQTT-3.2.2-4")
async def test_unknown_session_at_the_other_broker_is_ended(tmp_path: Path) -> None:
    async with scripted() as far, bridged(tmp_path, far.port, UP) as near:
        first, hello = await far.meet(present=True)
        bye = await first.pick(Disconnect)
        assert (bye.properties or {}) == {PropertyId.SESSION_EXPIRY_INTERVAL: 0}
        await near.logged("has a session that the bridge did not begin")
        _, again = await far.meet(present=False)
        assert again.client_id != hello.client_id
        await near.logged("connected after")
