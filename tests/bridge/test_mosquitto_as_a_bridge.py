"""Debian's mosquitto as a bridge to this gateway, with the default settings of mosquitto."""

import asyncio
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connect
from tests.bridge.mosquitto import mosquitto
from tests.bridge.test_bridge import publish, subscribe, take
from tests.bridge.test_loops import section
from tests.bridge.test_topologies import held, named, retain
from tests.service.process import free_port
from tests.service.wire import wire


async def arrives(port: int, **wanted: bytes) -> None:
    """Wait until a broker has these retained messages. In the names, an underscore stands for a
    slash.
    """
    states = {topic.replace("_", "/"): text for topic, text in wanted.items()}
    async with asyncio.timeout(60):
        while not states.items() <= (await held(port)).items():
            pass


@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
async def test_mosquitto_bridges_into_this_gateway_at_its_defaults(
    tmp_path: Path, version: str
) -> None:
    """Messages, retained ones included, cross once in each direction. The gateway refuses nothing
    and logs no warning.
    """
    port = free_port()
    bridge = (
        f"allow_anonymous true\nconnection b\naddress 127.0.0.1:{port}\n"
        f"bridge_protocol_version {version}\nrestart_timeout 1\n"
        'topic up/# out 2 "" s/\ntopic down/# in 2 "" s/\ntopic both/# both 2\n'
    )
    async with (
        named(tmp_path / "here", port, "") as here,
        mosquitto(tmp_path / "far", bridge) as far,
        wire(port, Connect("here")) as ours,
        wire(far.port, Connect("there")) as there,
    ):
        await retain(port, b"1", "s/down/state")
        await retain(far.port, b"1", "up/state", "both/far")
        await arrives(far.port, down_state=b"1")
        await arrives(port, s_up_state=b"1", both_far=b"1")
        for client, topics in ((ours, ("s/up/x", "both/x")), (there, ("down/x", "both/x"))):
            for topic in topics:
                await subscribe(client, topic)
        await publish(there, "up/x", b"2", 2, 7)
        assert (await take(ours)).payload == b"2"
        await publish(ours, "s/down/x", b"3", 2, 7)
        assert (await take(there)).payload == b"3"
        await publish(ours, "both/x", b"4", 2, 8)
        assert (await take(ours)).payload == (await take(there)).payload == b"4"
        await publish(there, "up/x", b"end", 2, 8)
        assert (await take(ours)).payload == b"end", "nothing came twice"
        await publish(ours, "s/down/x", b"end", 2, 9)
        assert (await take(there)).payload == b"end", "nothing came twice"
        assert not [line for line in here.log if "WARNING" in line], here.log


@pytest.mark.soak
@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
async def test_loop_with_mosquitto_s_bridge_is_reported(tmp_path: Path, version: str) -> None:
    """If mosquitto's bridge speaks MQTT 5, the gateway does not only report the loop, but also
    stops it.
    """
    port = free_port()
    bridge = (
        f"allow_anonymous true\nconnection b\naddress 127.0.0.1:{port}\n"
        f"bridge_protocol_version {version}\nrestart_timeout 1\ntopic loop/# out 2\n"
    )
    async with mosquitto(tmp_path / "far", bridge) as far:
        ours = section("to-far", far.port, 'up = ["loop/#"]\n')
        async with named(tmp_path / "here", port, ours) as here, wire(port, Connect("c")) as client:
            await here.logged("bridge to-far: connected")
            await retain(far.port, b"1", "loop/state")
            await arrives(port, loop_state=b"1")
            await publish(client, "loop/x", b"1", 2, 7)
            stopped = "came back through a bridge that leaves no mark"
            told = "the same message was forwarded 200 times"
            await here.logged(stopped if version == "mqttv50" else told)
