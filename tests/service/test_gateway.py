"""The gateway as a process, with real clients, real signals and one data directory."""

import asyncio
import os
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.config import ConfigError, parse
from tests.service.process import START_S, gateway, start

V5 = aiomqtt.ProtocolVersion.V5


def client(
    port: int, identifier: str | None = None, version: aiomqtt.ProtocolVersion = V5, expiry: int = 0
) -> aiomqtt.Client:
    """Return an aiomqtt client. expiry: Session Expiry Interval in seconds. If it is not 0, the
    client resumes its session.
    """
    properties = None
    if version == V5:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = expiry
    kept: dict[str, bool] = (
        {"clean_start": not expiry} if version == V5 else {"clean_session": not expiry}
    )
    return aiomqtt.Client(
        "127.0.0.1", port, identifier=identifier, protocol=version, properties=properties, **kept
    )


async def collect(subscriber: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
    messages: list[aiomqtt.Message] = []
    async with asyncio.timeout(30):
        async for message in subscriber.messages:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


async def test_aiomqtt_gets_all_messages_on_hash_in_each_version_and_qos(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with client(running.port) as subscriber:
            await subscriber.subscribe("#", qos=2)
            for version in (V5, aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V31):
                async with client(running.port, "publisher", version) as publisher:
                    for qos in (0, 1, 2):
                        await publisher.publish("sensors/ü", f"{version}-{qos}", qos=qos)
            messages = await collect(subscriber, 9)
        assert [(message.payload, message.qos) for message in messages] == [
            (f"{version}-{qos}".encode(), qos)
            for version in (V5, aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V31)
            for qos in (0, 1, 2)
        ]
        assert await running.end() == 0


async def test_acknowledged_messages_survive_kill_9(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with client(running.port, "subscriber", expiry=1000) as subscriber:
            await subscriber.subscribe("t", qos=2)
        await running.end()
    acknowledged = 0
    for _ in range(3):
        async with (
            gateway(tmp_path) as running,
            client(running.port, "publisher", expiry=1000) as publisher,
        ):
            for _ in range(20):
                await publisher.publish("t", str(acknowledged), qos=2)
                acknowledged += 1
            await running.end(signal.SIGKILL)
            with pytest.raises(aiomqtt.MqttError):
                await publisher.publish("t", "never acknowledged", qos=2, timeout=5)
    async with (
        gateway(tmp_path) as running,
        client(running.port, "subscriber", expiry=1000) as subscriber,
    ):
        messages = await collect(subscriber, acknowledged)
        assert [message.payload for message in messages] == [
            str(number).encode() for number in range(acknowledged)
        ]
    with closing(sqlite3.connect(tmp_path / "gateway.db")) as database:
        assert database.execute(
            "SELECT CAST(payload AS TEXT) FROM spool ORDER BY id"
        ).fetchall() == [(str(n),) for n in range(acknowledged)]
        assert database.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone() == ("5",)


async def test_second_gateway_on_the_same_data_names_the_lock_holder(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        second = await start("--listen", "127.0.0.1:0", "--anonymous", "--data", str(tmp_path))
        _, error = await asyncio.wait_for(second.process.communicate(), START_S)
        assert second.process.returncode == 4
        assert f"gateway.lock: already in use by process {running.process.pid}" in error.decode()
        assert await running.end() == 0
    async with gateway(tmp_path) as again:
        assert await again.end() == 0


async def test_systemd_learns_when_clients_may_connect(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(address)
        channel.settimeout(10)
        async with gateway(tmp_path / "data", env={"NOTIFY_SOCKET": address}) as running:
            assert await asyncio.to_thread(channel.recv, 100) == b"READY=1"
            assert await running.end() == 0
            assert await asyncio.to_thread(channel.recv, 100) == b"STOPPING=1"


async def test_a_clean_stop_tells_the_clients_and_leaves_one_database_file(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path) as running,
        client(running.port, "subscriber", expiry=1000) as subscriber,
    ):
        await subscriber.subscribe("t", qos=1)
        stopping = asyncio.create_task(running.end())
        with pytest.raises(aiomqtt.MqttError, match=r"(?i)shutting down|disconnected"):
            await collect(subscriber, 1)
        assert await stopping == 0
        assert "connections closed" not in "".join(running.log), "a stop is no warning"
    files = ["expected.json", "gateway.db", "gateway.lock", "generation"]
    assert sorted(os.listdir(tmp_path)) == files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gateway]\nname = 'a/b'", "gateway.name = 'a/b': must be usable as a folder name"),
        ("[gateway]\ncolour = 1", "gateway.colour: there is no such key"),
        ("[gateway]\nnam = 'site-1'", "gateway.nam: there is no such key. Did you mean 'name'?"),
        (
            "[[listener]]\nbind = ':1'\ntls = { certifcate = 'x' }",
            "listener[1].tls.certifcate: there is no such key. Did you mean 'certificate'?",
        ),
        (
            "[uplink]\nlanding = 'srv/landing'",
            (
                "uplink.landing = 'srv/landing': must be a URL, such as file:///srv/landing, or an"
                " absolute path"
            ),
        ),
        (
            "[[listener]]\nbind = '127.0.0.1'",
            "listener[1].bind = '127.0.0.1': must be ADDRESS:PORT",
        ),
        ("[[listener]]\nbind = ':1'\n[[listener]]\nbind = ':1'", "two sections have the bind ':1'"),
        ("[[listener]]\nbind = ':1'\n[web]\nbind = ':1'", "two sections have the bind ':1'"),
        (
            "[spool]\ntopics = ['a/#/b']",
            "spool.topics[1] = 'a/#/b': the topic filter has a # that is not its last level",
        ),
        ("[spool]\nmax_bytes = '1'", "spool.max_bytes = '1': write a number without quotes"),
        ("[gateway", "not TOML"),
    ],
)
async def test_a_bad_file_is_refused_with_key_value_and_reason(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    refused = await start("--config", str(path))
    _, error = await asyncio.wait_for(refused.process.communicate(), START_S)
    assert refused.process.returncode == 2
    assert f"error: {path}:" in error.decode()
    assert said in error.decode()


@pytest.mark.parametrize(
    "uplink",
    [
        {"landing": "ftpx://roof:hunter2@host/x"},
        {"landing": "file:///x", "options": "secret=hunter2"},
        "sftp://roof:hunter2@host/x",
    ],
)
def test_an_error_in_the_file_repeats_no_password(uplink: object) -> None:
    with pytest.raises(ConfigError, match="uplink") as refused:
        parse({"uplink": uplink}, "gateway.toml")
    assert "hunter2" not in str(refused.value)
