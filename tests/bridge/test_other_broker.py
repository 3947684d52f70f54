"""Changes at the other broker of a bridge: its address, its certificate, other clients, and
silence.
"""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connack, Connect, Puback, Publish, Side, Version
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode
from tests.bridge.mosquitto import Mosquitto, mosquitto
from tests.bridge.test_bridge import (
    FOREVER,
    bridged,
    configuration,
    publish,
    scripted,
    until,
)
from tests.bridge.test_retained import BRIDGE, equal, say
from tests.links.certificates import Authority
from tests.service.process import free_port, gateway, start
from tests.service.wire import Wire, wire

UP = 'up = ["up/#"]\n'
HIDDEN = ("unshare", "-m", "sh", "-c")
"""Start of a command that runs in its own mount namespace, where the test replaces /etc/hosts."""


async def test_other_broker_with_an_ipv6_address_only(tmp_path: Path) -> None:
    port = free_port("::1")
    far = Mosquitto(tmp_path / "far", f"allow_anonymous true\nlistener {port} ::1")
    await far.start()
    try:
        file = configuration(tmp_path, port, BRIDGE)
        file.write_text(file.read_text().replace("mqtt://127.0.0.1", "mqtt://[::1]"))
        async with gateway(tmp_path, "--config", str(file)) as near:
            await say(near.port, up_a="1")
            await equal(near.port, far.port, up_a="1")
    finally:
        await far.end(signal.SIGKILL)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another /etc/hosts")
async def test_other_broker_that_moves_to_another_address_is_found(tmp_path: Path) -> None:
    """The bridge resolves the name again at each attempt."""
    hosts, port = tmp_path / "hosts", free_port()
    hosts.write_text("127.0.0.2 far\n")
    file = configuration(tmp_path, port, UP, free_port())
    file.write_text(file.read_text().replace("mqtt://127.0.0.1", "mqtt://far"))
    shell = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    near = await start("--config", str(file), before=(*HIDDEN, shell, "sh"))
    servers = []
    try:
        await near.ready()
        await near.logged("cannot be reached")
        reached = asyncio.Event()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.set()
            writer.close()

        servers.append(await asyncio.start_server(accept, "127.0.0.1", port))
        # writes into the same file: the mount would not show a new one
        with hosts.open("r+") as found:
            found.write("127.0.0.1 far\n")
        await asyncio.wait_for(reached.wait(), 60)
    finally:
        for server in servers:
            server.close()
        await near.end(signal.SIGKILL)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another /etc/hosts")
async def test_next_address_is_used_if_the_first_one_takes_connections_and_no_client(
    tmp_path: Path,
) -> None:
    """At the first address, a server accepts the connection, refuses the client, and closes."""
    (tmp_path / "hosts").write_text("::1 far\n127.0.0.1 far\n")
    words = {PropertyId.REASON_STRING: "no\nroom", PropertyId.SERVER_REFERENCE: "x:1"}

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Wire(reader, writer, Version.V5, Side.CLIENT)
        await client.pick(Connect)
        client.send(Connack(False, ReasonCode.USE_ANOTHER_SERVER, words))
        writer.close()

    shell = f'mount --bind {tmp_path}/hosts /etc/hosts && exec "$@"'
    async with scripted() as far:
        server = await asyncio.start_server(refuse, "::1", far.port)
        file = configuration(tmp_path, far.port, UP)
        file.write_text(file.read_text().replace("mqtt://127.0.0.1", "mqtt://far"))
        near = await start("--config", str(file), before=(*HIDDEN, shell, "sh"))
        try:
            await near.ready()
            await far.meet(present=False)
            said = r"use another server (it says: 'no\nroom', use the server 'x:1')"
            assert any(said in line for line in near.log), near.log
        finally:
            server.close()
            await near.end(signal.SIGKILL)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another /etc/resolv.conf")
async def test_silent_name_server_delays_no_client_and_no_other_bridge(tmp_path: Path) -> None:
    """The gateway does not wait for the name server when it ends, either."""
    (tmp_path / "resolv").write_text("nameserver 127.0.0.77\noptions timeout:30 attempts:5\n")
    shell = f'mount --bind {tmp_path}/resolv /etc/resolv.conf && exec "$@"'
    async with mosquitto(tmp_path / "far") as far:
        file = configuration(tmp_path, far.port, BRIDGE)
        lost = '[[bridge]]\nname = "lost"\nserver = "mqtt://far.example"\nup = ["up/#"]\n'
        file.write_text(file.read_text() + lost)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.77", 53))
            near = await start("--config", str(file), before=(*HIDDEN, shell, "sh"))
            try:
                await near.ready()
                await asyncio.to_thread(silent.recv, 512)  # the lookup has begun
                await say(near.port, up_a="1")
                await equal(near.port, far.port, up_a="1")
                assert not any("lost: cannot" in line for line in near.log), near.log
                assert await near.end() == 0
            finally:
                await near.end(signal.SIGKILL)


async def test_expired_certificate_is_a_sentence_and_its_renewal_is_found(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("far", expired=True)
    more = f"allow_anonymous true\ncertfile {certificate}\nkeyfile {key}"
    far = Mosquitto(tmp_path / "far", more)
    file = configuration(tmp_path, far.port, f'{UP}ca = "{authority.path}"')
    file.write_text(file.read_text().replace("mqtt://", "mqtts://"))
    await far.start()
    try:
        async with (
            gateway(tmp_path, "--config", str(file)) as near,
            wire(near.port, Connect("b")) as board,
        ):
            await publish(board, "up/x", b"1", 2)
            await near.logged("TLS fails: certificate has expired")
            assert (await until(tmp_path, waiting=1))["sent"] == 0
            authority.issue("far")
            await far.end()
            await far.start()
            await until(tmp_path, waiting=0, sent=1, error=None)
    finally:
        await far.end(signal.SIGKILL)


@pytest.mark.parametrize("clean", [pytest.param(False, marks=pytest.mark.soak), True])
async def test_another_client_with_the_bridge_s_client_identifier(
    tmp_path: Path, clean: bool
) -> None:
    """The other client takes over the bridge's session, or ends it by Clean Start. After this
    client has gone, messages cross again.
    """
    async with mosquitto(tmp_path / "far") as far, bridged(tmp_path, far.port, BRIDGE) as near:
        await say(near.port, up_a="1")
        await equal(near.port, far.port, up_a="1")
        await until(tmp_path, agreed=1)
        (pair,) = (tmp_path / "data" / "bridges").glob("cloud.json")
        word = json.loads(pair.read_text())["word"]
        name = f"site-1-cloud-{word}"
        async with wire(far.port, Connect(name, clean_start=clean, properties=FOREVER)):
            await near.logged(
                "the other broker closed the connection"
            )  # Debian's mosquitto sends no reason
        async with wire(near.port, Connect("b")) as board:
            await publish(board, "up/x", b"1", 2)
        await say(far.port, "s/", up_a="2", down_b="3")
        await equal(near.port, far.port, up_a="2", down_b="3")
        found = await until(tmp_path, waiting=0, error=None, retained="equal")
        assert found["last_error"] is not None


async def test_silent_other_broker_is_given_up_after_its_keep_alive(tmp_path: Path) -> None:
    """The connection stays open, but no bytes come, as if the other broker were stopped by
    SIGSTOP.
    """
    async with scripted() as far, bridged(tmp_path, far.port, UP) as near:
        there, _ = await far.meet(present=False, server_keep_alive=2)
        async with wire(near.port, Connect("b")) as board:
            await publish(board, "up/x", b"1", 1)
        first = await there.pick(Publish)
        await near.logged("the other broker was silent for")
        there, _ = await far.meet(present=True, server_keep_alive=2)
        again = await there.pick(Publish)
        assert (again.payload, again.packet_id, again.dup) == (b"1", first.packet_id, True)
        there.send(Puback(again.packet_id))


@pytest.mark.soak
async def test_stopped_mosquitto_goes_on_where_it_was(tmp_path: Path) -> None:
    more = "allow_anonymous true\nmax_keepalive 10"
    async with (
        mosquitto(tmp_path / "far", more) as far,
        bridged(tmp_path, far.port, BRIDGE) as near,
    ):
        await say(near.port, up_a="1")
        await equal(near.port, far.port, up_a="1")
        await until(tmp_path, agreed=1)
        far.send(signal.SIGSTOP)
        await say(near.port, up_a="2", up_b="2")
        async with wire(near.port, Connect("b")) as board:
            for number in range(10):
                await publish(board, "up/x", b"%d" % number, 2, number + 1)
        await near.logged("the other broker was silent for")
        far.send(signal.SIGCONT)
        await equal(near.port, far.port, up_a="2", up_b="2")
        await until(tmp_path, waiting=0, error=None, retained="equal")
