"""Access to a running gateway: which clients each listener accepts, and what each client may do."""

import asyncio
import base64
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import aiomqtt
import pytest
from typer.testing import CliRunner

from gateway.access.cli import app
from gateway.access.users import Users, UsersError
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Side,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.reason import ReasonCode as R
from gateway.mqtt.stream import PacketStream
from tests.links.certificates import Authority
from tests.service.process import START_S, GatewayProcess, gateway, start
from tests.service.wire import Wire, wire
from tests.store.older import downgrade

V5 = aiomqtt.ProtocolVersion.V5
LISTENER = '[[listener]]\nbind = "127.0.0.1:0"\n'
ACL = '[[acl]]\nusers = ["alice"]\nwrite = ["sensors/%u/#"]\nread = ["commands/%c/+"]\n'

AS_SYSTEMD = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="mqtt")
os.execv(sys.argv[2], sys.argv[2:])
"""


def configured(folder: Path, text: str) -> tuple[Path, str, str]:
    """Return the data directory and the arguments of a gateway with this configuration. The gateway
    has a user alice with the password `right`.
    """
    path = folder / "gateway.toml"
    path.write_text(f'[gateway]\ndata = "{folder / "data"}"\n{text}')
    Users(folder / "data" / "users").add("alice", "right")
    return folder / "data", "--config", str(path)


async def answer(port: int, connect: Connect) -> int:
    """Return the reason code in CONNACK."""
    client = Wire(*await asyncio.open_connection("127.0.0.1", port), connect.version)
    client.send(connect)
    reason = (await client.take(Connack)).reason
    client.writer.close()
    return reason


def alice(password: bytes = b"right", client_id: str = "c1") -> Connect:
    return Connect(client_id, username="alice", password=password)


# -- passwords


async def test_a_password_opens_the_gateway_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    async with gateway(*configured(tmp_path, LISTENER)) as running:
        assert await answer(running.port, alice(b"guess")) == R.BAD_USER_NAME_OR_PASSWORD
        assert (
            await answer(running.port, Connect("c", username="bob", password=b"right"))
            == R.BAD_USER_NAME_OR_PASSWORD
        )
        assert await answer(running.port, Connect("c")) == R.NOT_AUTHORIZED
        for _ in range(2):  # first by the hash, then from memory
            assert await answer(running.port, alice()) == R.SUCCESS
        assert await answer(running.port, alice(b"guess")) == R.BAD_USER_NAME_OR_PASSWORD
        async with aiomqtt.Client(
            "127.0.0.1", running.port, username="alice", password="right", protocol=V5
        ) as client:
            await client.publish("t", "x", qos=2)
        assert await running.end() == 0
        assert not any(secret in line for secret in ("right", "guess") for line in running.log)


async def test_a_removed_user_is_out_when_the_file_is_read_again(tmp_path: Path) -> None:
    arguments = configured(tmp_path, LISTENER)
    users = Users(tmp_path / "data" / "users")
    users.add("bob", "right")
    async with (
        gateway(*arguments) as running,
        wire(running.port, alice()) as first,
        wire(running.port, Connect("b", username="bob", password=b"right")) as second,
    ):
        users.remove("alice")
        users.add("carol", "new")
        running.process.send_signal(signal.SIGHUP)
        assert (await first.take(Disconnect)).reason == R.NOT_AUTHORIZED
        assert await answer(running.port, alice()) == R.BAD_USER_NAME_OR_PASSWORD
        assert (
            await answer(running.port, Connect("d", username="carol", password=b"new")) == R.SUCCESS
        )
        second.send(Publish("t", b"x", 1, 1))
        await second.take(Puback)
        users.path.write_text("nonsense\n")
        running.process.send_signal(signal.SIGHUP)
        await running.logged("users:1: this line does not describe a user")
        assert (
            await answer(running.port, Connect("d", username="carol", password=b"new")) == R.SUCCESS
        )


async def test_a_store_from_before_users_is_taken_over(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        async with wire(running.port, Connect("c", Version.V3_1_1, False)) as client:
            client.send(Subscribe(1, [Subscription("t", 1)]))
            await client.take(Suback)
        await running.end()
    downgrade(tmp_path / "gateway.db", 1)
    async with gateway(tmp_path) as running:
        client = Wire(*await asyncio.open_connection("127.0.0.1", running.port), Version.V3_1_1)
        client.send(Connect("c", Version.V3_1_1, False))
        assert (await client.take(Connack)).session_present
        client.writer.close()
        assert await running.end() == 0


# -- what each may do


async def test_request_that_the_acl_denies_is_answered_with_0x87(tmp_path: Path) -> None:
    async with (
        gateway(*configured(tmp_path, LISTENER + ACL)) as running,
        wire(running.port, alice()) as client,
    ):
        for topic, reason in (("sensors/alice/t", R.SUCCESS), ("sensors/bob/t", R.NOT_AUTHORIZED)):
            client.send(Publish(topic, b"x", 1, 1))
            assert (await client.take(Puback)).reason == reason
        client.send(
            Subscribe(
                1, [Subscription(item, 1) for item in ("commands/c1/+", "commands/c2/+", "#")]
            )
        )
        assert (await client.take(Suback)).reasons == [
            R.GRANTED_QOS_1,
            R.NOT_AUTHORIZED,
            R.NOT_AUTHORIZED,
        ]


# -- listeners


async def test_tls_listener_accepts_clients_that_trust_its_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("gateway")
    tls = f'tls = {{ certificate = "{certificate}", key = "{key}" }}\n'
    async with gateway(*configured(tmp_path, LISTENER + tls)) as running:
        context = ssl.create_default_context(cafile=str(authority.path))
        async with aiomqtt.Client(
            "127.0.0.1",
            running.port,
            username="alice",
            password="right",
            protocol=V5,
            tls_context=context,
        ) as client:
            await client.publish("t", "x", qos=2)
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(
                "127.0.0.1", running.port, ssl=ssl.create_default_context()
            )
        assert await running.end() == 0


async def test_the_common_name_of_a_client_certificate_is_the_user(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("gateway")
    tls = (
        f'tls = {{ certificate = "{certificate}", key = "{key}", client_ca = "{authority.path}",'
        " client_required = true }\n"
    )
    async with gateway(*configured(tmp_path, LISTENER + tls + ACL)) as running:
        context = ssl.create_default_context(cafile=str(authority.path))
        context.load_cert_chain(*authority.issue("alice"))
        streams = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
        client = Wire(*streams, Version.V5)
        client.send(
            Connect("c1"),
            Publish("sensors/alice/t", b"x", 1, 1),
            Publish("sensors/bob/t", b"x", 1, 2),
        )
        assert (await client.take(Connack)).reason == R.SUCCESS
        assert (await client.take(Puback)).reason == R.SUCCESS
        assert (await client.take(Puback)).reason == R.NOT_AUTHORIZED
        client.writer.close()
        streams = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
        client = Wire(*streams, Version.V5)
        client.send(Connect("c2", username="bob"))
        assert (await client.take(Connack)).reason == R.BAD_USER_NAME_OR_PASSWORD
        client.writer.close()


async def test_a_websocket_listener_takes_a_client_and_no_strangers_page(tmp_path: Path) -> None:
    text = LISTENER + 'type = "websocket"\norigins = ["https://dashboard.example"]\n'
    async with gateway(*configured(tmp_path, text)) as running, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{running.port}/mqtt"
        async with session.ws_connect(
            url, protocols=["mqtt"], origin="https://dashboard.example"
        ) as websocket:
            await websocket.send_bytes(encode(alice(), Version.V5))
            stream = PacketStream(1 << 16, Version.V5, Side.SERVER)
            stream.feed(await websocket.receive_bytes(timeout=10))
            (connack,) = list(stream)
            assert isinstance(connack, Connack)
            assert connack.reason == R.SUCCESS
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await session.ws_connect(url, protocols=["mqtt"], origin="https://elsewhere.example")


async def test_a_socket_from_systemd_is_served(tmp_path: Path) -> None:
    _, *arguments = configured(tmp_path, '[[listener]]\nsystemd = "mqtt"\n')
    with socket.create_server(("127.0.0.1", 0)) as given:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-c",
                AS_SYSTEMD,
                str(given.fileno()),
                sys.executable,
                "-m",
                "gateway",
                "gateway",
                "run",
                *arguments,
            ),
            stderr=asyncio.subprocess.PIPE,
            pass_fds=[given.fileno()],
        )
        running = GatewayProcess(process)
        try:
            await running.ready()
            assert running.port == given.getsockname()[1]
            assert await answer(running.port, alice()) == R.SUCCESS
            assert await running.end() == 0
        finally:
            if process.returncode is None:
                await running.end(signal.SIGKILL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[listener]]\n", "needs either bind = ADDRESS:PORT or systemd = NAME"),
        ('[[listener]]\nsystemd = "mqtt"\n', "systemd passes no socket named 'mqtt'"),
        (
            LISTENER + 'origins = ["https://x"]\n',
            "origins are for listeners with type = 'websocket'",
        ),
        (
            LISTENER + 'tls = { certificate = "/c", key = "/k", client_required = true }\n',
            "client_required and client_crl need client_ca",
        ),
        (
            LISTENER + 'tls = { certificate = "/nowhere/c", key = "/nowhere/k" }\n',
            "/nowhere/c: cannot be read",
        ),
        (
            LISTENER + '[[acl]]\nread = ["a/#/b"]\n',
            "acl[1].read[1] = 'a/#/b': the topic filter has",
        ),
    ],
)
async def test_impossible_listener_is_reported_in_words(
    tmp_path: Path, text: str, said: str
) -> None:
    refused = await start(*configured(tmp_path, text)[1:])
    _, error = await asyncio.wait_for(refused.process.communicate(), START_S)
    assert refused.process.returncode not in (0, None)
    assert said in error.decode()
    assert "Traceback" not in error.decode()


# -- `onceway user`


def test_users_are_added_listed_and_removed(tmp_path: Path) -> None:
    runner, path = CliRunner(), tmp_path / "users"
    where = ["--file", str(path)]
    assert "no users in" in runner.invoke(app, ["list", *where]).output
    for name in ("bob", "alice"):
        assert (
            runner.invoke(
                app, ["add", name, "--password-stdin", *where], input="pässword\n"
            ).exit_code
            == 0
        )
    assert path.stat().st_mode & 0o777 == 0o600
    assert "pässword" not in path.read_text()
    assert runner.invoke(app, ["list", "--json", *where]).output == '["alice", "bob"]\n'
    assert Users(path).hashes["alice"].fits("pässword".encode())
    assert not Users(path).hashes["alice"].fits(b"password")
    assert Users(path).hashes["alice"].key != Users(path).hashes["bob"].key
    assert runner.invoke(app, ["remove", "bob", *where]).exit_code == 0
    assert runner.invoke(app, ["list", *where]).output == "alice\n"
    assert isinstance(runner.invoke(app, ["remove", "bob", *where]).exception, UsersError)
    assert isinstance(
        runner.invoke(app, ["add", "a:b", "--password-stdin", *where], input="x\n").exception,
        UsersError,
    )
    assert "--password-stdin" in str(
        runner.invoke(app, ["add", "carol", *where], input="").exception
    ), "nobody is there to type one"


def test_without_a_terminal_no_password_is_asked_for(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "gateway",
        "user",
        "add",
        "carol",
        "--file",
        str(tmp_path / "users"),
    ]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=60,
    )
    assert (
        done.returncode,
        "GetPassWarning" in done.stderr,
        "--password-stdin" in done.stderr,
    ) == (1, False, True)


@pytest.mark.parametrize(
    "cost", ["3:8:1", "-32768:8:1", "1073741824:8:1", "32768:0:1", "32768:8:100000000", "x:8:1"]
)
def test_a_hash_that_cannot_be_computed_is_no_user(tmp_path: Path, cost: str) -> None:
    path = tmp_path / "users"
    path.write_text(
        f"# users\nalice:scrypt:{cost}:{bytes(16).hex()}:{base64.b16encode(bytes(32)).decode()}\n"
    )
    with pytest.raises(UsersError, match="users:2: this line does not describe a user"):
        Users(path)
