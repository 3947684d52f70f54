"""The bridge makes the retained messages of its topics equal at mosquitto and at this gateway."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from gateway.bridge.own_topics import OwnTopics
from gateway.broker.retained import Retained
from gateway.config import Config, MirrorSection
from gateway.mqtt.packets import Connect, Puback, Publish, Suback, Subscribe, Subscription
from gateway.mqtt.properties import PropertyId
from tests.bridge.mosquitto import mosquitto
from tests.bridge.retained_bytes import Line
from tests.bridge.test_bridge import bridged, onceway, publish, until
from tests.bridge.test_topologies import held as held_of
from tests.bridge.test_topologies import settles, states
from tests.links.board import Pty
from tests.service.boards import Sensor
from tests.service.process import GatewayProcess
from tests.service.wire import wire

BRIDGE = 'up = ["up/#"]\ndown = ["down/#"]\nprefix = "s/"\n'
STATUS = ("bridge", "status")


async def held(port: int, prefix: str = "") -> dict[str, bytes]:
    """Return a broker's retained messages below the topics up and down, without `prefix`."""
    found: dict[str, bytes] = {}
    async with wire(port, Connect("reader")) as client:
        client.send(Subscribe(1, [Subscription(f"{prefix}{x}/#", 0) for x in ("up", "down")]))
        await client.pick(Suback)
        client.send(Publish("reader/end", b"", 1, 1))
        client.send(Subscribe(2, [Subscription("reader/end", 0)]))
        await client.pick(Suback)
        while True:
            try:
                packet = await client.pick(Publish, 0.1)
            except TimeoutError:
                return found
            if packet.payload:
                found[packet.topic.removeprefix(prefix)] = packet.payload


async def say(port: int, prefix: str = "", **states: str) -> None:
    """Publish retained messages at QoS 0. In the names, an underscore stands for a slash."""
    async with wire(port, Connect("writer")) as client:
        for topic, text in states.items():
            client.send(Publish(prefix + topic.replace("_", "/"), text.encode(), 0, 0, True))
        await publish(client, "other", b"", 1, 99)


async def equal(here: int, there: int, **wanted: str) -> None:
    """Wait until both brokers have exactly these retained messages. In the names, an underscore
    stands for a slash.
    """
    state = {topic.replace("_", "/"): text.encode() for topic, text in wanted.items()}
    found: tuple[dict[str, bytes], dict[str, bytes]] | None = None
    try:
        async with asyncio.timeout(20):
            while found != (state, state):
                found = await held(here), await held(there, "s/")
    except TimeoutError:
        pytest.fail(f"wanted {state}, found {found}")


@asynccontextmanager
async def near(folder: Path, port: int, more: str = BRIDGE) -> AsyncIterator[GatewayProcess]:
    async with bridged(folder, port, more) as running:
        yield running


async def test_retained_from_before_the_bridge_cross(tmp_path: Path) -> None:
    async with mosquitto(tmp_path / "far") as far:
        await say(far.port, "s/", down_a="1", down_b="2", up_c="3")
        async with near(tmp_path, far.port) as here:
            await say(here.port, up_d="4")
            await equal(here.port, far.port, down_a="1", down_b="2", up_c="3", up_d="4")
            await until(tmp_path, retained="equal", agreed=4)
            (shown,) = json.loads(await asyncio.to_thread(onceway, tmp_path, *STATUS, "--json"))
            assert (shown["differ"], shown["waiting"], shown["oldest_s"]) == (0, 0, None)
            text = await asyncio.to_thread(onceway, tmp_path, *STATUS)
            assert "retained   0 differ (equal)" in text


async def test_changes_and_deletions_at_qos_0_cross_after_an_outage(tmp_path: Path) -> None:
    async with mosquitto(tmp_path / "far") as far, near(tmp_path, far.port) as here:
        await say(here.port, up_a="1", up_b="1", up_c="1", up_gone="1", up_both="1")
        await say(far.port, "s/", down_a="1", down_gone="1", down_both="1")
        both = {"up_a": "1", "up_b": "1", "up_c": "1", "up_gone": "1", "up_both": "1"}
        both |= {"down_a": "1", "down_gone": "1", "down_both": "1"}
        await equal(here.port, far.port, **both)
        await until(tmp_path, agreed=8)
        await far.end()
        await say(here.port, up_a="2", up_gone="", up_both="ours", down_both="ours")
        await far.start()
        await say(far.port, "s/", up_b="2", up_c="", down_gone="", down_a="2")
        await say(far.port, "s/", up_both="theirs", down_both="theirs")
        wanted = {"up_a": "2", "up_b": "2", "up_both": "ours"}
        await equal(here.port, far.port, **wanted, down_a="2", down_both="theirs")
        await until(tmp_path, retained="equal", retained_here=5, retained_there=5)


@pytest.mark.parametrize(
    "state", ["theirs", pytest.param("", marks=pytest.mark.soak)], ids=["change", "deletion"]
)
async def test_topic_that_both_ends_change_at_once_ends_equal(tmp_path: Path, state: str) -> None:
    """Both changes are on the way at the same time. So each end first replaces its own message by
    the other end's message.
    """
    both = 'up = ["up/#"]\ndown = ["up/#"]\nprefix = "s/"\n'
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(mosquitto(tmp_path / "far"))
        line = Line(far.port)
        server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        here = await stack.enter_async_context(near(tmp_path, port, both))
        await say(here.port, up_a="1", up_b="1")
        await equal(here.port, far.port, up_a="1", up_b="1")
        await until(tmp_path, retained="equal", agreed=2)
        line.open.clear()
        await say(here.port, up_a="ours")
        await say(far.port, "s/", up_a=state)
        line.open.set()
        ends: list[dict[str, bytes]] = []

        async def right() -> bool:
            ends[:] = [await held(here.port), await held(far.port, "s/")]
            return ends[0] == ends[1]

        await settles([tmp_path], right, lambda: ends)
        assert ends[0].get("up/a", b"") in {b"ours", state.encode()}
        assert ends[0]["up/b"] == b"1"


async def test_deletions_cross_after_an_outage_of_the_gateway(tmp_path: Path) -> None:
    async with mosquitto(tmp_path / "far") as far:
        async with near(tmp_path, far.port) as here:
            await say(here.port, up_a="1", up_b="1")
            await say(far.port, "s/", down_a="1", down_b="1")
            await equal(here.port, far.port, up_a="1", up_b="1", down_a="1", down_b="1")
            await until(tmp_path, agreed=4)
        await say(far.port, "s/", up_a="", down_a="", down_b="2")
        async with near(tmp_path, far.port) as here:
            await equal(here.port, far.port, up_b="1", down_b="2")


@pytest.mark.soak
@pytest.mark.parametrize("loses", ["everything", "the last messages"])
async def test_a_far_broker_that_loses_its_store_takes_nothing_away(
    tmp_path: Path, loses: str
) -> None:
    async with mosquitto(tmp_path / "far") as far, near(tmp_path, far.port) as here:
        await say(here.port, up_a="1")
        await equal(here.port, far.port, up_a="1")
        await until(tmp_path, agreed=1)
        if loses == "the last messages":
            await far.end()
            await far.start()
            await until(tmp_path, retained="equal")
        await say(here.port, up_b="1")
        await say(far.port, "s/", down_a="1")
        await equal(here.port, far.port, up_a="1", up_b="1", down_a="1")
        await until(tmp_path, agreed=3)
        await far.end(signal.SIGKILL)
        await far.start()
        await say(far.port, "s/", down_new="1")
        await equal(here.port, far.port, up_a="1", up_b="1", down_a="1", down_new="1")


async def test_retained_false_compares_nothing(tmp_path: Path) -> None:
    async with mosquitto(tmp_path / "far") as far:
        await say(far.port, "s/", up_a="1")
        async with near(tmp_path, far.port, BRIDGE + "retained = false\n") as here:
            async with wire(here.port, Connect("writer")) as client:
                client.send(Publish("up/b", b"2", 1, 1, True))
                await client.pick(Puback)
            assert (await until(tmp_path, sent=1))["retained"] == "off"
            assert await held(here.port) == {"up/b": b"2"}


async def test_access_rules_hold_for_retained_messages(tmp_path: Path) -> None:
    clients = 'users = ["*"]\nclients = ["writer", "reader"]\n'
    rule = f'{BRIDGE}[[acl]]\n{clients}read = ["#"]\nwrite = ["#"]\n'
    async with mosquitto(tmp_path / "far") as far:
        await say(far.port, "s/", up_a="theirs", up_new="theirs", down_b="theirs")
        await far.end()
        async with near(tmp_path, far.port, rule) as here:
            await say(here.port, up_a="ours", down_b="ours", down_new="ours")
            await far.start()
            await until(tmp_path, retained="equal")
            there = {"up/a": b"ours", "up/new": b"theirs", "down/b": b"theirs"}
            assert await held(far.port, "s/") == there
            ours = {"up/a": b"ours", "down/b": b"theirs", "down/new": b"ours"}
            assert await held(here.port) == ours


async def test_unreadable_agreements_are_reported_and_delete_nothing(tmp_path: Path) -> None:
    async with mosquitto(tmp_path / "far") as far:
        async with near(tmp_path, far.port) as here:
            await say(here.port, up_a="1", up_b="1")
            await equal(here.port, far.port, up_a="1", up_b="1")
            await until(tmp_path, agreed=2)
        file = tmp_path / "data" / "bridges" / "cloud.agreed"
        for path in file.parent.glob("cloud.agreed*"):
            path.write_bytes(b"no database" * 1000)
        await say(far.port, "s/", up_a="")
        async with near(tmp_path, far.port) as here:
            await here.logged("the agreements about retained messages cannot be read")
            assert any(str(file) in line for line in here.log)
            await equal(here.port, far.port, up_a="1", up_b="1")
            await until(tmp_path, retained="equal", agreed=2)
        async with near(tmp_path, far.port) as here:
            await until(tmp_path, retained="equal", agreed=2)
            assert not any("cannot be read" in line for line in here.log)


@pytest.mark.soak
async def test_message_that_expires_at_both_ends_is_not_sent_again(tmp_path: Path) -> None:
    async with mosquitto(tmp_path / "far") as far, near(tmp_path, far.port) as here:
        async with wire(here.port, Connect("writer")) as client:
            properties = {PropertyId.MESSAGE_EXPIRY_INTERVAL: 4}
            client.send(Publish("up/short", b"1", 0, 0, True, properties=dict(properties)))
            await publish(client, "other", b"", 1, 99)
        await say(here.port, up_a="1")
        await equal(here.port, far.port, up_short="1", up_a="1")
        await until(tmp_path, agreed=2)
        await far.end()
        await asyncio.sleep(4)
        await far.start()
        found = await until(tmp_path, retained="equal", error=None)
        assert await held(here.port) == await held(far.port, "s/") == {"up/a": b"1"}
        assert (found["sent"], found["received"]) == (2, 0), "neither the message nor its deletion"


async def test_state_and_mirrored_messages_are_retained_at_the_other_broker(
    tmp_path: Path,
) -> None:
    text = 'up = ["#"]\nprefix = "s/"\n[mirror]\n'
    async with mosquitto(tmp_path / "far") as far, near(tmp_path, far.port, text) as here:
        await here.logged(": connected")
        async with asyncio.timeout(30):
            while await retained_there(far.port) != b"online":
                pass
        await until(tmp_path, retained="equal", differ=0)


async def test_readings_at_the_other_broker_survive_a_kill_of_the_gateway(tmp_path: Path) -> None:
    """The gateway keeps mirrored readings only in memory. After a kill it has lost them, but the
    bridge does not delete them at the other broker.
    """
    line = Pty()
    board = f'[mirror]\n[[serial]]\nport = "{line.path}"\nopen = true\n'
    text = f'up = ["readings/#"]\nprefix = "s/"\n{board}'
    async with mosquitto(tmp_path / "far") as far:
        async with near(tmp_path, far.port, text) as here:
            sensor = Sensor(line, "roof-1")
            await sensor.connect()
            await sensor.measure(3.25)
            shown = await readings(far.port)
            assert json.loads(shown["s/readings/roof-1/adc0"])["value"] == 3.25
            async with asyncio.timeout(60):
                while (await states(tmp_path))[0]["agreed"] < 3:
                    pass
            await here.end(signal.SIGKILL)
        async with near(tmp_path, far.port, text):
            async with asyncio.timeout(60):
                while (await states(tmp_path))[0]["retained"] != "equal":
                    pass
            assert await readings(far.port) == shown
    os.close(line.master)


def test_later_reading_at_the_other_broker_is_not_replaced() -> None:
    own = OwnTopics(Config(mirror=MirrorSection(topic="r")))

    def is_newer(topic: str, theirs: bytes, ours: bytes) -> bool:
        return own.is_newer(topic, Publish(topic, theirs), Retained(topic, "", 0, ours))

    early, late = b'{"time": "2026-01-01T00:00:00Z"}', b'{"time": "2026-01-01T00:00:01Z"}'
    assert is_newer("r/a/b", late, early)
    for topic, theirs, ours in (("r/a/b", early, late), ("r/a/b", late, late), ("x", late, early)):
        assert not is_newer(topic, theirs, ours)
    for strange in (b"", b"1", b"online", b'{"time": 3}', b'{"time": "x"}', b"[" * 100_000):
        assert not is_newer("r/a/b", strange, early)
        assert not is_newer("r/a/b", late, strange)


async def readings(port: int) -> dict[str, bytes]:
    """Wait at most 60 s until the broker at `port` has retained readings from the bridge. Return
    them by topic.
    """
    async with asyncio.timeout(60):
        while not (found := await held_of(port, "s/readings/+/adc0")):
            pass
    return found


async def retained_there(port: int) -> bytes:
    async with wire(port, Connect("reader")) as client:
        client.send(Subscribe(1, [Subscription("s/readings/$state", 0)]))
        await client.pick(Suback)
        with suppress(TimeoutError):
            packet = await client.pick(Publish, 0.3)
            return packet.payload if packet.retain else b""
        return b""


@pytest.mark.soak
async def test_qos_alone_is_no_difference(tmp_path: Path) -> None:
    """The bridge subscribes at QoS 0 to compare retained messages, so it does not learn
    their QoS.
    """
    async with mosquitto(tmp_path / "far") as far:
        async with wire(far.port, Connect("writer")) as client:
            client.send(Publish("s/up/a", b"1", 1, 7, True))
            await client.pick(Puback)
        async with near(tmp_path, far.port) as here:
            await say(here.port, up_a="1")
            found = await until(tmp_path, retained="equal", agreed=1)
            assert found["sent"] + found["received"] <= 1
