"""Clients that people use, together: mosquitto's, paho, and aiohttp's WebSocket, over every kind of
listener.
"""

import asyncio
import shutil
import signal
import socket
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from gateway.access.users import Users
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connack, Connect, Puback, Publish, Pubrec, Version
from gateway.mqtt.reason import ReasonCode as R
from tests.links.certificates import Authority
from tests.service.process import START_S, GatewayProcess, free_port, gateway
from tests.service.wire import READS, Wire, wire

VERSIONS = {"mqttv31": Version.V3_1, "mqttv311": Version.V3_1_1, "mqttv5": Version.V5}


def configured(folder: Path, *parts: str) -> tuple[Path, str, str]:
    """Return the data directory and arguments of a gateway with this configuration."""
    path = folder / "gateway.toml"
    path.write_text(f'[gateway]\ndata = "{folder / "data"}"\n' + "".join(parts))
    return folder / "data", "--config", str(path)


async def run(*arguments: str) -> tuple[int | None, str]:
    """Run a program. Return its exit code and its output."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), START_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode()


async def test_every_version_over_every_way_in_reaches_every_other(tmp_path: Path) -> None:
    """mosquitto_sub gets the messages of mosquitto_pub over IPv4, IPv6 and TLS, and of paho over
    WebSocket, in each version of MQTT. While these messages are published, mosquitto_sub is
    disconnected.
    """
    authority = Authority(tmp_path)
    certificate, key = authority.issue("gateway")
    v4, v6, tls, web = free_port(), free_port("::1"), free_port(), free_port()
    parts = (
        f'[[listener]]\nbind = "127.0.0.1:{v4}"\n',
        f'[[listener]]\nbind = "[::1]:{v6}"\n',
        (
            f'[[listener]]\nbind = "127.0.0.1:{tls}"\ntls = {{ certificate = "{certificate}", key ='
            f' "{key}" }}\n'
        ),
        f'[[listener]]\ntype = "websocket"\nbind = "127.0.0.1:{web}"\n',
    )
    async with gateway(*configured(tmp_path, *parts)) as running:
        ways = {
            "ipv4": ("-h", "127.0.0.1", "-p", str(v4)),
            "ipv6": ("-h", "::1", "-p", str(v6)),
            "tls": ("-h", "127.0.0.1", "-p", str(tls), "--cafile", str(authority.path)),
        }
        expected = {
            f"{way} {version} {qos}"
            for way in (*ways, "websocket")
            for version in VERSIONS
            for qos in (1, 2)
        }
        listeners = []
        for version, way in zip(VERSIONS, ways, strict=True):
            expiry = ("-x", "100") if version == "mqttv5" else ()
            listeners.append(
                (
                    "mosquitto_sub",
                    *ways[way],
                    "-V",
                    version,
                    "-i",
                    version,
                    "-c",
                    "-q",
                    "2",
                    "-t",
                    "t/#",
                    *expiry,
                )
            )
        for listener in listeners:
            assert await run(*listener, "-E") == (0, "")
        for way, where in ways.items():
            for version in VERSIONS:
                for qos in (0, 1, 2):
                    message = f"{way} {version} {qos}"
                    assert await run(
                        "mosquitto_pub",
                        *where,
                        "-V",
                        version,
                        "-t",
                        "t/x",
                        "-m",
                        message,
                        "-q",
                        str(qos),
                    ) == (0, "")
        for version, protocol in zip(
            VERSIONS, (paho.MQTTv31, paho.MQTTv311, paho.MQTTv5), strict=True
        ):
            await asyncio.to_thread(over_websocket, web, protocol, version)
        for listener in listeners:
            code, heard = await run(*listener, "-C", str(len(expected)), "-W", "10")
            assert (code, sorted(heard.split("\n"))) == (0, sorted(["", *expected]))
        assert await running.end() == 0


def over_websocket(port: int, protocol: int, version: str) -> None:
    """Publish a message at each QoS over WebSocket, with paho."""
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2,
        protocol=protocol,
        transport="websockets",
        client_id=f"web-{version}",
    )
    client.ws_set_options("/mqtt")
    client.connect("127.0.0.1", port)
    client.loop_start()
    for qos in (0, 1, 2):
        client.publish("t/x", f"websocket {version} {qos}", qos).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize(
    ("option", "taken"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)]
)
async def test_tls_1_2_and_up(tmp_path: Path, option: str, taken: bool) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("gateway")
    tls = (
        f'[[listener]]\nbind = "127.0.0.1:0"\ntls = {{ certificate = "{certificate}", key = "{key}"'
        " }\n"
    )
    async with gateway(*configured(tmp_path, tls)) as running:
        arguments = (
            "s_client",
            "-connect",
            f"127.0.0.1:{running.port}",
            option,
            "-cipher",
            "DEFAULT@SECLEVEL=0",
            "-brief",
        )
        _, said = await run("openssl", *arguments)
        assert ("CONNECTION ESTABLISHED" in said) is taken, said
        assert await running.end() == 0


async def test_a_client_certificate_is_wanted_where_it_is_required_and_names_the_user(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("gateway")
    # Python 3.13 would refuse such a certificate, but Python 3.11 accepts it
    mine, my_key = authority.issue("alice", identifiers=False)
    files = (
        f'certificate = "{certificate}", key = "{key}", client_ca = "{authority.path}",'
        " client_required = true"
    )
    acl = '[[acl]]\nusers = ["alice"]\nwrite = ["from/%u"]\n'
    async with gateway(
        *configured(tmp_path, f'[[listener]]\nbind = "127.0.0.1:0"\ntls = {{ {files} }}\n', acl)
    ) as running:
        where = ("-h", "127.0.0.1", "-p", str(running.port), "--cafile", str(authority.path))
        pub = ("mosquitto_pub", *where, "-V", "mqttv5", "-q", "1", "-m", "x")
        assert await run(*pub, "--cert", str(mine), "--key", str(my_key), "-t", "from/alice") == (
            0,
            "",
        )
        code, said = await run(*pub, "--cert", str(mine), "--key", str(my_key), "-t", "from/bob")
        assert "Not authorized" in said
        code, said = await run(*pub, "-t", "from/alice")
        assert code != 0
        assert await running.end() == 0


async def test_systemd_socket_activation(tmp_path: Path) -> None:
    port = free_port()
    _, *arguments = configured(tmp_path, '[[listener]]\nsystemd = "mqtt"\nanonymous = true\n')
    activate = shutil.which("systemd-socket-activate")
    assert activate, "Debian's package systemd has it"
    process = await asyncio.create_subprocess_exec(
        *(
            activate,
            "-l",
            f"127.0.0.1:{port}",
            "--fdname=mqtt",
            sys.executable,
            "-m",
            "gateway",
            "gateway",
            "run",
            *arguments,
        ),
        stderr=asyncio.subprocess.PIPE,
    )
    running = GatewayProcess(process)
    try:
        assert process.stderr is not None
        # the program now listens: the first connection starts the gateway
        await asyncio.wait_for(process.stderr.readline(), START_S)
        async with wire(port, Connect("c")) as client:
            client.send(Publish("t", b"x", 1, 1))
            assert (await client.take(Puback)).reason == R.SUCCESS
        await running.ready()
        assert await running.end() == 0
    finally:
        if process.returncode is None:
            await running.end(signal.SIGKILL)


async def test_thousand_half_open_connections_disturb_no_client_and_time_out(
    tmp_path: Path,
) -> None:
    parts = (
        '[[listener]]\nbind = "127.0.0.1:0"\n',
        "[limits]\nconnect_timeout_s = 3\nconnections = 2000\n",
    )
    async with gateway(*configured(tmp_path, *parts)) as running:
        streams = await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", running.port) for _ in range(1000))
        )
        streams[0][1].write(b"\x10\xff")  # one of them sends the beginning of a CONNECT
        loop = asyncio.get_running_loop()
        slowest = 0.0
        async with wire(running.port, Connect("c")) as client:
            for number in range(1, 101):
                start = loop.time()
                client.send(Publish("t", b"x", 1, number))
                await client.take(Puback)
                slowest = max(slowest, loop.time() - start)
            assert slowest < 2, "the gateway answers while the silent ones wait for their end"
            ends = await asyncio.wait_for(
                asyncio.gather(*(reader.read() for reader, _ in streams)), 15
            )
            assert set(ends) == {b""}
            client.send(Publish("t", b"x", 1, 101))
            await client.take(Puback)
        for _, writer in streams:
            writer.close()
        assert len([line for line in running.log if "no CONNECT arrived" in line]) == 1
        assert await running.end() == 0


@pytest.mark.parametrize("version", list(VERSIONS.values()))
async def test_packets_that_come_byte_by_byte_are_taken(tmp_path: Path, version: Version) -> None:
    async with gateway(tmp_path) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Wire(reader, writer, version)
        for packet in (Connect("c", version), Publish("t", b"x" * 200, 1, 1)):
            for byte in encode(packet, version):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
        await client.take(Connack)
        assert (await client.take(Puback)).packet_id == 1
        writer.close()
        assert await running.end() == 0


@pytest.mark.parametrize(
    ("qos", "bound"),
    [(1, "max_bytes = 20_000"), (2, "max_bytes = 20_000"), (2, "max_share = {:.20f}")],
)
async def test_paho_3_1_1_that_runs_into_a_full_spool_loses_nothing_that_was_acknowledged(
    tmp_path: Path, qos: int, bound: str
) -> None:
    parts = (
        '[[listener]]\nbind = "127.0.0.1:0"\n',
        f"[spool]\n{bound.format(20_000 / shutil.disk_usage(tmp_path).total)}\n",
        '[uplink]\nlanding = "file:///landing"\n',
    )
    async with gateway(*configured(tmp_path, *parts)) as running:
        acknowledged = await asyncio.to_thread(publish_until_closed, running.port, qos)
        assert await running.end() == 0
    with closing(sqlite3.connect(tmp_path / "data" / "gateway.db")) as database:
        kept = {int(payload) for (payload,) in database.execute("SELECT payload FROM spool")}
    assert 0 < len(kept) < 2000
    assert set() < acknowledged <= kept


def publish_until_closed(port: int, qos: int) -> set[int]:
    """Publish until the gateway closes the connection. Return the numbers of the acknowledged
    messages.
    """
    closed = threading.Event()
    acknowledged: set[int] = set()
    numbers: dict[int, int] = {}
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311, client_id="c", clean_session=False
    )
    client.max_inflight_messages_set(100)
    client.on_disconnect = lambda *_: closed.set()
    client.on_publish = lambda client, userdata, mid, *_: acknowledged.add(mid)
    client.connect("127.0.0.1", port)
    for number in range(2000):
        numbers[client.publish("t", str(number), qos).mid] = number
    while not closed.is_set():
        client.loop(0.1)
    return {numbers[mid] for mid in acknowledged}


@pytest.mark.parametrize(
    ("full", "left"),
    [
        ("end the session", []),
        ("drop the oldest", list(range(6, 16))),
        ("refuse the publisher", list(range(1, 11))),
    ],
)
async def test_cost_of_a_full_queue_is_in_the_configuration(
    tmp_path: Path, full: str, left: list[int]
) -> None:
    parts = (
        '[[listener]]\nbind = "127.0.0.1:0"\n',
        "[limits]\nqueue_messages = 10\n",
        f'[[queue]]\nclients = "slow"\nfull = "{full}"\n',
    )
    async with gateway(*configured(tmp_path, *parts)) as running:
        sub = ("mosquitto_sub", "-p", str(running.port), "-i", "slow", "-c", "-q", "1", "-t", "t")
        assert await run(*sub, "-E") == (0, "")
        async with wire(running.port, Connect("p", properties=READS)) as publisher:
            reasons = []
            for number in range(1, 16):
                publisher.send(Publish("t", str(number).encode(), 2, number))
                reasons.append((await publisher.take(Pubrec)).reason)
        refused = R.QUOTA_EXCEEDED if full == "refuse the publisher" else R.SUCCESS
        assert reasons == [R.SUCCESS] * 10 + [refused] * 5
        back = Wire(*await asyncio.open_connection("127.0.0.1", running.port), Version.V3_1_1)
        back.send(Connect("slow", Version.V3_1_1, clean_start=False))
        assert (await back.take(Connack)).session_present is bool(left)
        assert [int((await back.take(Publish)).payload) for _ in left] == left
        back.writer.close()
        assert (any("queue is full" in line for line in running.log)) is (
            full != "refuse the publisher"
        )
        assert await running.end() == 0


@pytest.mark.parametrize("keep", [True, False])
async def test_qos_0_waits_for_an_absent_client_if_configured(tmp_path: Path, keep: bool) -> None:
    queue = f'[[queue]]\nclients = "sleepy*"\nqos_0 = {str(keep).lower()}\n'
    async with gateway(
        *configured(tmp_path, '[[listener]]\nbind = "127.0.0.1:0"\n', queue)
    ) as running:
        sub = (
            "mosquitto_sub",
            "-p",
            str(running.port),
            "-i",
            "sleepy-1",
            "-c",
            "-q",
            "1",
            "-t",
            "t",
        )
        assert await run(*sub, "-E") == (0, "")
        for number in range(4):
            pub = (
                "mosquitto_pub",
                "-p",
                str(running.port),
                "-t",
                "t",
                "-m",
                str(number),
                "-q",
                str(number % 2),
            )
            assert await run(*pub) == (0, "")
        expected = ["0", "1", "2", "3"] if keep else ["1", "3"]
        # no -C: with it, mosquitto_sub may end before its last PUBACK is sent
        assert await run(*sub, "-W", "3") == (27, "\n".join([*expected, "Timed out", ""]))
        assert await run(*sub, "-W", "1") == (27, "Timed out\n"), "nothing comes twice"
        assert await running.end() == 0


@pytest.mark.parametrize(
    ("limits", "refused_from", "reasons"),
    [
        (
            "connects_per_s = 1",
            10,
            (R.CONNECTION_RATE_EXCEEDED, R.SERVER_UNAVAILABLE, R.SERVER_UNAVAILABLE),
        ),
        ("connections = 4", 4, (R.QUOTA_EXCEEDED, R.SERVER_UNAVAILABLE, R.SERVER_UNAVAILABLE)),
    ],
)
async def test_excess_clients_are_refused_in_their_version_and_logged_once(
    tmp_path: Path, limits: str, refused_from: int, reasons: tuple[R, ...]
) -> None:
    async with gateway(
        *configured(tmp_path, '[[listener]]\nbind = "127.0.0.1:0"\n', f"[limits]\n{limits}\n")
    ) as running:
        clients: list[Wire] = []

        async def answer(version: Version) -> int:
            client = Wire(*await asyncio.open_connection("127.0.0.1", running.port), version)
            clients.append(client)
            client.send(Connect(f"c{len(clients)}", version))
            return (await client.take(Connack)).reason

        assert [await answer(Version.V5) for _ in range(refused_from)] == [R.SUCCESS] * refused_from
        for version, reason in zip(
            (Version.V5, Version.V3_1_1, Version.V3_1), reasons, strict=True
        ):
            for _ in range(5):  # when a second has passed, another CONNECT is accepted
                found = await answer(version)
                if found != R.SUCCESS:
                    break
            assert found == reason
        for client in clients:
            client.writer.close()
        assert len([line for line in running.log if "CONNECT refused" in line]) == 1
        assert await running.end() == 0


async def test_network_clients_are_refused_without_users_and_the_log_says_why(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with gateway(
        *configured(
            tmp_path, f'[[listener]]\nbind = ":{port}"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        )
    ) as running:
        await running.logged(f":{port}: no client can connect")
        code, said = await run(
            "mosquitto_pub", "-p", str(port), "-V", "mqttv5", "-t", "t", "-m", "x", "-q", "1"
        )
        assert code != 0
        assert "not authorised" in said.lower() or "not authorized" in said.lower()
        assert await run(
            "mosquitto_pub", "-p", str(running.port), "-t", "t", "-m", "x", "-q", "1"
        ) == (0, "")
        Users(tmp_path / "data" / "users").add("alice", "right")
        running.process.send_signal(signal.SIGHUP)
        await running.logged("read again")
        assert await run(
            "mosquitto_pub",
            "-p",
            str(port),
            "-t",
            "t",
            "-m",
            "x",
            "-q",
            "1",
            "-u",
            "alice",
            "-P",
            "right",
        ) == (0, "")
        for where in (port, running.port):
            code, said = await run(
                "mosquitto_pub", "-p", str(where), "-t", "t", "-m", "x", "-q", "1"
            )
            assert code != 0
        assert await running.end() == 0
