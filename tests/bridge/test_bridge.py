"""`[[bridge]]`: messages of this gateway appear at another broker, and messages of that broker at
this gateway.
"""

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config import parse
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from tests.bridge.mosquitto import Mosquitto, mosquitto
from tests.links.certificates import Authority
from tests.service.process import GatewayProcess, free_port, gateway
from tests.service.wire import Wire, wire

FOREVER = {PropertyId.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}


def configuration(folder: Path, port: int, bridge: str, listen: int = 0) -> Path:
    """Configure a gateway with a bridge to a port of this machine. bridge: lines of its section."""
    file = folder / "gateway.toml"
    file.write_text(
        f'gateway.name = "site-1"\ngateway.data = "{folder}/data"\n[[listener]]\n'
        f'bind = "127.0.0.1:{listen}"\nanonymous = true\n[[bridge]]\nname = "cloud"\n'
        f'server = "mqtt://127.0.0.1:{port}"\n{bridge}\n'
    )
    return file


def onceway(folder: Path, *words: str) -> str:
    """Run `onceway` with this gateway's control socket. Return its output."""
    command = [sys.executable, "-m", "gateway", *words, "--data", str(folder / "data")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def doctor(folder: Path) -> str:
    command = [sys.executable, "-m", "gateway", "doctor", "--config", str(folder / "gateway.toml")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def status(folder: Path) -> dict[str, Any]:
    """Return the part about the bridge in `onceway gateway status --json`."""
    found: dict[str, Any] = json.loads(onceway(folder, "gateway", "status", "--json"))
    bridge: dict[str, Any] = found["bridges"][0]
    return bridge


async def until(folder: Path, **wanted: object) -> dict[str, Any]:
    """Wait until the bridge's status has these values."""
    async with asyncio.timeout(60):
        while True:
            found = await asyncio.to_thread(status, folder)
            if all(found[key] == value for key, value in wanted.items()):
                return found


async def publish(client: Wire, topic: str, payload: bytes, qos: int, number: int = 1) -> None:
    client.send(Publish(topic, payload, qos, number if qos else 0))
    if qos == 1:
        assert (await client.pick(Puback)).reason < 0x80
    elif qos == 2:
        assert (await client.pick(Pubrec)).reason < 0x80
        client.send(Pubrel(number))
        await client.pick(Pubcomp)


async def subscribe(client: Wire, topic_filter: str, qos: int = 2) -> None:
    client.send(Subscribe(1, [Subscription(topic_filter, qos)]))
    assert (await client.pick(Suback)).reasons == [qos]


async def take(client: Wire) -> Publish:
    """Return the next message, and acknowledge it completely."""
    packet = await client.pick(Publish)
    if packet.qos == 1:
        client.send(Puback(packet.packet_id))
    elif packet.qos == 2:
        client.send(Pubrec(packet.packet_id))
        await client.pick(Pubrel)
        client.send(Pubcomp(packet.packet_id))
    return packet


class Far:
    """Another broker whose packets the test reads and writes itself."""

    def __init__(self, server: asyncio.Server, met: "asyncio.Queue[Wire]") -> None:
        self.port = int(server.sockets[0].getsockname()[1])
        self._met = met

    async def meet(self, present: bool, **properties: int) -> tuple[Wire, Connect]:
        """Accept the bridge's next connection. Return the connection and its CONNECT. present:
        Session Present in CONNACK. properties: properties of CONNACK.
        """
        client = await asyncio.wait_for(self._met.get(), 30)
        hello = await client.pick(Connect)
        told = {PropertyId[name.upper()]: value for name, value in properties.items()}
        client.send(Connack(present, properties=told))
        return client, hello


@asynccontextmanager
async def scripted() -> AsyncIterator[Far]:
    met: asyncio.Queue[Wire] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await met.put(Wire(reader, writer, Version.V5, Side.CLIENT))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield Far(server, met)
    server.close()


@asynccontextmanager
async def bridged(folder: Path, port: int, bridge: str) -> AsyncIterator[GatewayProcess]:
    file = configuration(folder, port, bridge)
    async with gateway(folder, "--config", str(file)) as running:
        yield running


@asynccontextmanager
async def subscribed(
    far: Mosquitto, near: GatewayProcess, topic_filter: str
) -> AsyncIterator[Wire]:
    """Start the other broker, and yield a subscriber there. The gateway is stopped until the
    subscriber is connected. Otherwise, a quick bridge would send its messages too early.
    """
    near.process.send_signal(signal.SIGSTOP)
    await far.start()
    try:
        async with wire(far.port, Connect("there")) as there:
            await subscribe(there, topic_filter)
            near.process.send_signal(signal.SIGCONT)
            yield there
    finally:
        await far.end(signal.SIGKILL)


UP = 'up = ["sensors/#"]'
READING = "sensors/roof-1/adc0"


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_readings_go_up_and_commands_come_down(tmp_path: Path, qos: int) -> None:
    text = f'{UP}\ndown = ["commands/#"]\nprefix = "site-1/"\nqos = {qos}'
    async with (
        mosquitto(tmp_path / "far") as far,
        bridged(tmp_path, far.port, text) as near,
        wire(near.port, Connect("here")) as here,
        wire(near.port, Connect("board")) as board,
        wire(far.port, Connect("there")) as there,
        wire(far.port, Connect("operator")) as operator,
    ):
        await near.logged("bridge cloud: connected")
        await subscribe(there, "#", qos)
        await subscribe(board, "#", qos)
        await publish(here, READING, b"21.5", qos)
        packet = await take(there)
        assert (packet.topic, packet.payload) == (f"site-1/{READING}", b"21.5")
        assert packet.qos == qos
        assert (await take(board)).topic == READING
        await publish(operator, "site-1/commands/roof-1", b"blink", qos)
        packet = await take(board)
        assert (packet.topic, packet.payload) == ("commands/roof-1", b"blink")
        found = await until(tmp_path, sent=1, received=1, waiting=0)
        assert (found["error"], found["refused"], found["dropped"]) == (None, 0, 0)


@pytest.mark.mqtt("MQTT-3.8.3-3")
async def test_message_from_the_remote_broker_is_not_sent_back(tmp_path: Path) -> None:
    async with (
        mosquitto(tmp_path / "far") as far,
        bridged(tmp_path, far.port, 'up = ["#"]\ndown = ["#"]') as near,
        wire(near.port, Connect("here")) as here,
        wire(far.port, Connect("there")) as there,
        wire(far.port, Connect("operator")) as operator,
    ):
        await near.logged("bridge cloud: connected")
        await subscribe(there, "#")
        await publish(operator, "commands/roof-1", b"blink", 2)
        await until(tmp_path, received=1)
        await publish(here, "sensors/1", b"1", 2)
        assert [(await take(there)).payload for _ in range(2)] == [b"blink", b"1"]
        found = await until(tmp_path, sent=1)
        assert (found["received"], found["waiting"]) == (1, 0)


async def test_an_outage_stops_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """All messages arrive, from the first one on. Retained messages are also retained at the other
    broker.
    """
    far = Mosquitto(tmp_path / "far")
    async with bridged(tmp_path, far.port, UP) as near, wire(near.port, Connect("b")) as board:
        await near.logged("cannot be reached")
        said = await asyncio.to_thread(doctor, tmp_path)
        assert "bridge cloud: mqtt://127.0.0.1" in said
        for number in range(50):
            await publish(board, READING, b"%d" % number, 2, number + 1)
        board.send(Publish("sensors/place", b"roof", 1, 60, retain=True))
        await board.pick(Puback)
        assert (await until(tmp_path, waiting=51))["dropped"] == 0
        async with subscribed(far, near, READING) as there:
            await near.logged("bridge cloud: connected after")
            assert [(await take(there)).payload for _ in range(50)] == [
                b"%d" % number for number in range(50)
            ]
            await until(tmp_path, waiting=0, sent=51)
            await subscribe(there, "sensors/place", 1)
            assert (await take(there)).retain


async def test_at_its_bound_the_oldest_are_dropped_and_counted(tmp_path: Path) -> None:
    far = Mosquitto(tmp_path / "far")
    text = f"{UP}\nmax_messages = 5"
    async with bridged(tmp_path, far.port, text) as near, wire(near.port, Connect("b")) as board:
        for number in range(8):
            await publish(board, READING, b"%d" % number, 2, number + 1)
        await until(tmp_path, dropped=3, waiting=5)
        async with subscribed(far, near, "#") as there:
            came = [(await take(there)).payload for _ in range(5)]
            assert came == [b"3", b"4", b"5", b"6", b"7"]


@pytest.mark.mqtt("MQTT-4.4.0-1", "MQTT-4.3.3-7")
async def test_after_a_power_cut_each_exchange_goes_on_where_it_was(tmp_path: Path) -> None:
    """The bridge sends PUBREL again if PUBREC was stored. Otherwise, it sends PUBLISH again, with
    DUP.
    """
    async with scripted() as far:
        async with bridged(tmp_path, far.port, UP) as near, wire(near.port, Connect("b")) as board:
            there, first = await far.meet(present=False)
            await publish(board, READING, b"1", 2, 1)
            await publish(board, READING, b"2", 2, 2)
            released, open_ = await there.pick(Publish), await there.pick(Publish)
            there.send(Pubrec(released.packet_id))
            assert (await there.pick(Pubrel)).packet_id == released.packet_id
            await near.end(signal.SIGKILL)
        async with bridged(tmp_path, far.port, UP):
            there, again = await far.meet(present=True)
            assert (again.client_id, again.clean_start) == (first.client_id, False)
            assert (await there.pick(Pubrel)).packet_id == released.packet_id
            repeated = await there.pick(Publish)
            assert (repeated.packet_id, repeated.payload) == (open_.packet_id, b"2")
            assert repeated.dup
            there.send(Pubcomp(released.packet_id), Pubrec(open_.packet_id))
            assert (await there.pick(Pubrel)).packet_id == open_.packet_id
            there.send(Pubcomp(open_.packet_id))
            await until(tmp_path, waiting=0, sent=2)


async def test_a_session_that_one_side_lost_is_not_met_again(tmp_path: Path) -> None:
    """If one side has lost the session, the bridge connects with a new client identifier. In the
    old session, the other side would drop a new message whose packet identifier it still knows.
    """
    async with (
        scripted() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        there, first = await far.meet(present=False)
        await publish(board, READING, b"1", 2, 1)
        open_ = await there.pick(Publish)
        there.writer.close()
        there, _ = await far.meet(present=False)  # the other broker has forgotten the session
        await there.pick(Disconnect)
        await near.logged("has forgotten the session")
        there, second = await far.meet(present=False)
        assert second.client_id != first.client_id
        assert (await there.pick(Publish)).packet_id == open_.packet_id
        await asyncio.to_thread(onceway, tmp_path, "session", "end", "onceway-bridge:cloud")
        there, third = await far.meet(present=False)
        assert third.client_id not in (first.client_id, second.client_id)
        await publish(board, READING, b"2", 2, 2)
        assert (await there.pick(Publish)).payload == b"2"


async def test_quota_of_the_other_broker_means_a_retry_and_a_refusal_means_never(
    tmp_path: Path,
) -> None:
    async with (
        scripted() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        there, hello = await far.meet(present=False)
        asked = (hello.properties or {})[PropertyId.USER_PROPERTY]
        assert ("onceway-reads-reason-codes", "1") in asked
        await publish(board, READING, b"1", 2, 1)
        packet = await there.pick(Publish)
        there.send(Pubrec(packet.packet_id, ReasonCode.QUOTA_EXCEEDED))
        await near.logged("has no room")
        there, _ = await far.meet(present=True)
        assert (await there.pick(Publish)).payload == b"1"
        there.send(Pubrec(packet.packet_id, ReasonCode.NOT_AUTHORIZED))
        await near.logged("refuses a message for good: NOT_AUTHORIZED")
        await until(tmp_path, refused=1, waiting=0)


@pytest.mark.mqtt("MQTT-3.3.4-7", "MQTT-3.1.2-24")
async def test_the_other_brokers_bounds_are_kept(tmp_path: Path) -> None:
    async with (
        scripted() as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        there, _ = await far.meet(present=False, receive_maximum=2, maximum_packet_size=200)
        await publish(board, READING, b"long" * 100, 2, 1)
        for number in range(4):
            await publish(board, READING, b"%d" % number, 2, number + 2)
        two = [await there.pick(Publish), await there.pick(Publish)]
        assert [packet.payload for packet in two] == [b"0", b"1"]
        there.send(Pubrec(two[0].packet_id))
        await there.pick(Pubrel)
        there.send(Pubcomp(two[0].packet_id))
        assert (await there.pick(Publish)).payload == b"2"


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.soak), 2])
async def test_each_message_arrives_once_after_any_kill(tmp_path: Path, seed: int) -> None:
    """The gateway is killed at random moments. The other broker saves its sessions before it
    restarts.
    """
    chance = random.Random(seed)
    text = f'{UP}\ndown = ["commands/#"]'
    count = 120
    async with mosquitto(tmp_path / "far", "allow_anonymous true\nautosave_interval 1") as far:
        again = Connect("there", clean_start=False, properties=FOREVER)
        async with wire(far.port, again) as there:
            await subscribe(there, "sensors/#")
        file = configuration(tmp_path, far.port, text, free_port())
        sent = 0
        taken: list[bytes] = []
        for cut in range(6):
            async with gateway(tmp_path, "--config", str(file)) as near:
                async with wire(near.port, Connect("b", clean_start=False)) as board:
                    if not cut:
                        await near.logged("bridge cloud: connected")
                        await subscribe(board, "commands/#", 2)
                    for _ in range(count // 6):
                        await publish(board, READING, b"%d" % sent, 2, sent + 1)
                        sent += 1
                if cut % 3 == 1:
                    await far.end()
                    await far.start()
                await asyncio.sleep(chance.uniform(0, 0.15))  # the moment of the kill
                await near.end(signal.SIGKILL)
        async with gateway(tmp_path, "--config", str(file)):
            await until(tmp_path, waiting=0)
            async with wire(far.port, again) as there:
                while len(taken) < count:
                    taken.append((await take(there)).payload)
                # no other message is in front of this one
                await publish(there, "sensors/end", b"-1", 2)
                assert (await take(there)).payload == b"-1"
        assert sorted(map(int, taken)) == list(range(count))


async def test_commands_arrive_once_after_any_kill(tmp_path: Path) -> None:
    """The gateway also stores the packet identifiers of the other broker between PUBREC and
    PUBREL.
    """
    async with scripted() as far:
        file = configuration(tmp_path, far.port, 'down = ["commands/#"]', free_port())
        board = Connect("b", clean_start=False, properties=FOREVER)
        async with gateway(tmp_path, "--config", str(file)) as near:
            async with wire(near.port, board) as here:
                await subscribe(here, "commands/#")
            there, _ = await far.meet(present=False)
            await there.pick(Subscribe)
            there.send(Publish("commands/b", b"blink", 2, 7))
            assert (await there.pick(Pubrec)).packet_id == 7
            await near.end(signal.SIGKILL)
        async with gateway(tmp_path, "--config", str(file)) as near:
            there, _ = await far.meet(present=True)
            await there.pick(Subscribe)
            there.send(Publish("commands/b", b"blink", 2, 7, dup=True))
            assert (await there.pick(Pubrec)).packet_id == 7
            there.send(Pubrel(7))
            assert (await there.pick(Pubcomp)).reason == ReasonCode.SUCCESS
            there.send(Publish("commands/b", b"reboot", 2, 7))
            await there.pick(Pubrec)
            async with wire(near.port, board) as here:
                assert [(await take(here)).payload for _ in range(2)] == [b"blink", b"reboot"]


async def test_a_killed_broker_is_found_again(tmp_path: Path) -> None:
    """mosquitto loses state that it has not saved. The bridge reconnects and continues."""
    async with (
        mosquitto(tmp_path / "far") as far,
        bridged(tmp_path, far.port, UP) as near,
        wire(near.port, Connect("b")) as board,
    ):
        await near.logged("bridge cloud: connected")
        await publish(board, READING, b"1", 2, 1)
        await until(tmp_path, sent=1)
        await far.end(signal.SIGKILL)
        await publish(board, READING, b"2", 2, 2)
        await until(tmp_path, waiting=1)
        async with subscribed(far, near, "#") as there:
            await until(tmp_path, waiting=0)
            assert (await take(there)).payload == b"2"


@pytest.mark.parametrize("trusted", [True, False])
async def test_bridge_checks_the_other_broker_over_tls(tmp_path: Path, trusted: bool) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "another")
    certificate, key = authority.issue("far")
    ca = authority.path if trusted else other.path
    more = f"allow_anonymous true\ncafile {authority.path}\ncertfile {certificate}\nkeyfile {key}"
    far = Mosquitto(tmp_path / "far", more)
    await far.start()
    file = configuration(tmp_path, far.port, f'{UP}\nca = "{ca}"')
    file.write_text(file.read_text().replace("mqtt://", "mqtts://"))
    try:
        async with (
            gateway(tmp_path, "--config", str(file)) as near,
            wire(near.port, Connect("b")) as board,
        ):
            await publish(board, READING, b"1", 2)
            if trusted:
                await until(tmp_path, sent=1)
            else:
                await near.logged("TLS fails: self-signed certificate in certificate chain")
                assert (await until(tmp_path, waiting=1))["sent"] == 0
    finally:
        await far.end(signal.SIGKILL)


async def test_a_wrong_password_is_a_sentence_and_stops_nothing(tmp_path: Path) -> None:
    users, password = tmp_path / "users", tmp_path / "password"
    command = ["mosquitto_passwd", "-c", "-b", str(users), "site-1", "right"]
    await asyncio.to_thread(subprocess.run, command, check=True)
    users.chmod(0o644)
    password.write_text("wrong-secret\n")
    async with mosquitto(tmp_path / "far", f"password_file {users}") as far:
        text = f'{UP}\nuser = "site-1"\npassword_file = "{password}"'
        async with (
            bridged(tmp_path, far.port, text) as near,
            wire(near.port, Connect("b")) as board,
        ):
            await near.logged("refuses the connection: ")
            await publish(board, READING, b"1", 2)
            found = await until(tmp_path, waiting=1)
            assert "user and password_file" in found["error"]
            password.write_text("right\n")  # the bridge reads the file at each attempt
            await until(tmp_path, waiting=0, sent=1)
            assert "secret" not in "".join(near.log)


async def test_a_bridge_that_is_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    async with bridged(tmp_path, free_port(), UP) as near, wire(near.port, Connect("b")) as board:
        await publish(board, READING, b"1", 2)
        await until(tmp_path, waiting=1)
    file = tmp_path / "gateway.toml"
    file.write_text(file.read_text().partition("[[bridge]]")[0])
    async with gateway(tmp_path, "--config", str(file)):
        pass
    assert not list((tmp_path / "data" / "bridges").iterdir())
    listed = await asyncio.to_thread(onceway, tmp_path, "session", "list", "--json")
    assert "onceway-bridge" not in listed


@pytest.mark.parametrize("count", [1, 2, 3, 16, 64])
@pytest.mark.parametrize("given", [(), (50_000_000,)])
def test_any_number_of_bridges_at_their_defaults_share_the_memory(
    count: int, given: tuple[int, ...]
) -> None:
    whole = {"server": "mqtt://127.0.0.1", "up": ["#"]}
    sections: list[dict[str, Any]] = [whole | {"name": f"b{number}"} for number in range(count)]
    sections += [whole | {"name": f"own{size}", "max_bytes": size} for size in given]
    config = parse({"bridge": sections}, "a file")
    most = [config.queueing(section.client).bytes or 0 for section in config.bridge]
    assert most[count:] == list(given)
    assert len(set(most[:count])) == 1
    assert sum(most) <= config.limits.memory_bytes // 2
    assert most[0] == min(100_000_000, (128_000_000 - sum(given)) // count)
