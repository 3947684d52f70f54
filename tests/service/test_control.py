"""`onceway session`, `retained` and `gateway status`, with a running gateway and without one. Other
programs may send anything to the control socket.
"""

import asyncio
import json
import os
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gateway.boards import admission
from gateway.broker.broker import Broker
from gateway.broker.store_rows import Commit, Recovered
from gateway.commands import control_client
from gateway.config import Config
from gateway.errors import OncewayError
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from gateway.runtime.administration import end_session
from gateway.runtime.clock import Clock
from gateway.runtime.engine import Engine
from gateway.service import control, retained_cli, session_cli
from gateway.service.cli import app as gateway_app
from gateway.service.session_cli import UnknownClient
from gateway.store.apply import apply
from gateway.store.row_checks import SpoolChecks
from gateway.store.schema import open_store
from gateway.system.lock import Locked, ProcessLock
from provisioning.registry import Registry
from tests.service.process import gateway
from tests.service.wire import Wire, wire

ODD = "dash\n\x1b[2Jboard"
KEPT = {PropertyId.SESSION_EXPIRY_INTERVAL: 600}


APPS = typer.Typer()
APPS.add_typer(gateway_app, name="gateway")
APPS.add_typer(session_cli.app, name="session")
APPS.add_typer(retained_cli.app, name="retained")


def run(*arguments: str, code: int = 0) -> str:
    """Run `onceway` with these arguments. Check its exit code, and return its output."""
    result = CliRunner().invoke(APPS, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


async def session(*arguments: str) -> Any:
    """Return the JSON output of `onceway session`."""
    return json.loads(await asyncio.to_thread(run, "session", *arguments, "--json"))


async def test_a_port_is_lent_to_one_command_at_a_time_and_for_as_long_as_it_lasts(
    tmp_path: Path,
) -> None:
    def twice() -> None:
        with control_client.lent(tmp_path, "/dev/null"):
            with control_client.lent(tmp_path, "/dev/zero"):
                pass
            with pytest.raises(OncewayError, match="another command uses the port"):
                control_client.lent(tmp_path, "/dev/null").__enter__()

    def free() -> bool:
        try:
            with control_client.lent(tmp_path, "/dev/null"):
                return True
        except OncewayError:
            return False

    with pytest.raises(control_client.NotRunning):
        control_client.lent(tmp_path, "/dev/null").__enter__()
    async with gateway(tmp_path):
        await asyncio.to_thread(twice)
        async with asyncio.timeout(30):
            while not await asyncio.to_thread(free):  # the port is given back a moment later
                pass


async def test_sessions_of_a_running_gateway_and_of_its_store(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    async with gateway(tmp_path) as running:
        async with wire(running.port, Connect("away", Version.V3_1_1, False)) as away:
            away.send(Subscribe(1, [Subscription("t/#", 1)]))
            await away.take(Suback)
        async with wire(running.port, Connect(ODD, clean_start=False, properties=KEPT)) as client:
            client.send(Publish("t/1", b"four", 1, 1))
            await client.take(Puback)
            live = {row["client"]: row for row in await session("list", *data)}
            assert (live[ODD]["connected"], live[ODD]["version"], live[ODD]["expiry_s"]) == (
                True,
                "5.0",
                600,
            )
            assert live[ODD]["address"].startswith("127.0.0.1:")
            assert (
                live["away"]["connected"],
                live["away"]["address"],
                live["away"]["expiry_s"],
            ) == (False, None, None)
            assert (live["away"]["queued"], live["away"]["subscriptions"]) == (1, 1)
            shown = await session("show", "away", *data)
            assert shown["subscriptions"] == [
                {
                    "topic_filter": "t/#",
                    "qos": 1,
                    "no_local": False,
                    "retain_as_published": False,
                    "identifier": None,
                }
            ]
            text = await asyncio.to_thread(run, "session", "list", *data)
            assert len(text.splitlines()) == 2
            assert "dash\\x0a\\x1b[2Jboard  connected from 127.0.0.1:" in text
            assert "subscription   t/#  QoS 1" in await asyncio.to_thread(
                run, "session", "show", "away", *data
            )
        with pytest.raises(OncewayError, match="not a member of a site"):
            await session("list", "--site", *data)
        await running.end()
    with pytest.raises(OncewayError, match="the gateway does not run"):
        await session("list", "--site", *data)
    stored = {row["client"]: row for row in await session("list", *data)}
    assert stored.keys() == live.keys()
    assert not any(row["connected"] for row in stored.values())
    assert stored["away"] | {"away_s": 0} == live["away"] | {"away_s": 0}
    assert (await session("show", "away", *data))["subscriptions"] == shown["subscriptions"]


async def test_places_of_a_site_are_reported_without_a_gateway(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, "a")) as database:
        database.execute("INSERT INTO session VALUES (1, 'here', 600, 0, 0, NULL)")
        database.execute("INSERT INTO session VALUES (2, 'doubted', 600, 0, 0, NULL)")
        database.execute("INSERT INTO place VALUES ('doubted', 2, 1, '[]')")
        database.execute("INSERT INTO given VALUES (?, 'barn', 0, 0, NULL)", ("left\0device",))
    rows = await session("list", "--data", str(tmp_path))
    assert {row["client"]: row.get("place") for row in rows} == {
        "here": None,
        "doubted": "in doubt",
        "left": "given to barn",
    }


async def test_ending_a_session_tells_its_client_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    async with gateway(tmp_path) as running, wire(running.port, Connect("watcher")) as watcher:
        watcher.send(Subscribe(1, [Subscription("wills/#", 0)]))
        await watcher.take(Suback)
        async with wire(
            running.port,
            Connect("c1", clean_start=False, properties=KEPT, will=Will("wills/c1", b"gone", 0)),
        ) as client:
            client.send(Subscribe(1, [Subscription("t", 1)]))
            await client.take(Suback)
            assert await session("end", "c1", *data) == {"client": "c1", "ended": True}
            assert (await client.take(Disconnect)).reason == R.ADMINISTRATIVE_ACTION
        assert (await watcher.take(Publish)).payload == b"gone"
        with pytest.raises(UnknownClient, match="there is no session of 'c1'"):
            await session("end", "c1", *data)
        with pytest.raises(UnknownClient):
            await session("show", "c1", *data)
        await running.logged("c1: the session was ended by request")
        running.process.kill()  # the change was on disk before the answer
    async with gateway(tmp_path) as running:
        again = Wire(*await asyncio.open_connection("127.0.0.1", running.port), Version.V5)
        again.send(Connect("c1", clean_start=False, properties=KEPT))
        assert not (await again.take(Connack)).session_present
        again.writer.close()


async def test_the_answer_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, let_go = threading.Event(), threading.Event()

    def slowly(database: sqlite3.Connection, commit: Commit, *more: SpoolChecks) -> float:
        entered.set()
        assert let_go.wait(10)
        return apply(database, commit, *more)

    open_store(tmp_path, "test").close()
    monkeypatch.setattr("gateway.store.writer.apply", slowly)
    engine = Engine(Broker(Config(), Recovered()), Clock(trust=True), tmp_path)
    engine.broker.new_session("c1", 600, 0, None)
    ending = asyncio.create_task(end_session(engine, "c1"))
    assert await asyncio.to_thread(entered.wait, 10)
    assert not ending.done()
    let_go.set()
    assert await asyncio.wait_for(ending, 10)
    assert not await end_session(engine, "c1")
    await engine.stop()


async def test_ending_a_session_without_a_gateway(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    async with gateway(tmp_path) as running:
        for client in ("stays", "goes"):
            async with wire(running.port, Connect(client, clean_start=False, properties=KEPT)):
                pass
        await running.end()
    with closing(ProcessLock(tmp_path / "gateway.lock")), pytest.raises(Locked):
        await session("end", "goes", *data)
    assert await session("end", "goes", *data) == {"client": "goes", "ended": True}
    with pytest.raises(UnknownClient):
        await session("end", "goes", *data)
    assert [row["client"] for row in await session("list", *data)] == ["stays"]
    async with gateway(tmp_path):
        assert [row["client"] for row in await session("list", *data)] == ["stays"]


async def test_retained_messages_are_listed_while_the_gateway_runs(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, wire(running.port, Connect("p")) as client:
        client.send(Publish("a\x85b", b"four", 1, 1, retain=True))
        await client.take(Puback)
        arguments = ("retained", "list", "--data", str(tmp_path))
        found = json.loads(await asyncio.to_thread(run, *arguments, "--json"))
        assert found == [
            {"topic": "a\x85b", "client": "p", "qos": 1, "bytes": 4, "expires_s": None}
        ]
        assert await asyncio.to_thread(run, *arguments) == "a\\x85b  QoS 1, 4 bytes from p\n"


async def test_status_says_what_is_wrong_and_so_does_its_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    text = (
        f'[gateway]\ndata = "{tmp_path}/data"\n[[listener]]\nbind = "127.0.0.1:0"\n[[serial]]\nport'
        f' = "{tmp_path}/none"\n'
    )
    await asyncio.to_thread(path.write_text, f'{text}[[serial]]\nport = "{tmp_path}/gateway.*"\n')
    arguments = ("gateway", "status", "--config", str(path))
    with pytest.raises(OncewayError, match="no gateway runs here"):
        run(*arguments)
    async with gateway(tmp_path / "data", "--config", str(path)):
        found = json.loads(await asyncio.to_thread(run, *arguments, "--json", code=1))
        assert (found["status"], found["figures"]["clients/connected"]) == ("failing", 0)
        assert [(port["port"], port["open"], port["device"]) for port in found["ports"]] == [
            (f"{tmp_path}/none", False, None),
            (str(path), False, None),
        ]
        text = await asyncio.to_thread(run, *arguments, code=1)
        assert f"problem with the serial: {tmp_path}/none" in text
        assert f"port {path}: this is not a serial port" in text
    with pytest.raises(OncewayError, match="no gateway runs here"):
        run(*arguments)


async def test_only_the_gateways_own_account_may_ask(tmp_path: Path) -> None:
    async with gateway(tmp_path):
        assert stat.filemode((tmp_path / control_client.FILE).stat().st_mode) == "srw-------"
    assert (
        tmp_path / control_client.FILE
    ).exists()  # the killed gateway has left its socket, and the next one replaces it
    async with gateway(tmp_path) as running:
        assert await asyncio.to_thread(control_client.ask, tmp_path, do="sessions") == []
        await running.end()
    assert not (tmp_path / control_client.FILE).exists()


async def test_gateway_serves_without_its_control_socket(tmp_path: Path) -> None:
    (tmp_path / control_client.FILE).mkdir()
    async with gateway(tmp_path) as running:
        assert any("cannot listen on the control socket" in line for line in running.log)
        async with wire(running.port, Connect("c")):
            pass
        assert await running.end() == 0


async def test_a_data_directory_may_lie_deep(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with gateway(deep):
        assert await session("list", "--data", str(deep)) == []
        assert (
            await asyncio.to_thread(run, "session", "list", "--data", str(deep)) == "no sessions\n"
        )
        assert (
            await asyncio.to_thread(run, "retained", "list", "--data", str(deep))
            == "no retained messages\n"
        )


async def test_invalid_request_is_answered_and_does_no_harm(tmp_path: Path) -> None:
    no_requests = [
        b"\n",
        b"{}\n",
        b"[]\n",
        b'"end"\n',
        b'{"do": "rm"}\n',
        b'{"do": "end", "client": 7}\n',
        b'{"do": "log", "client": "c", "wait": "0"}\n',
        b"\xff\n",
        b"[" * 200_000 + b"\n",
        b"x" * 2_000_000,
        b"",
    ]
    async with gateway(tmp_path):
        for line in no_requests:
            reader, writer = await asyncio.open_unix_connection(sock=_connected(tmp_path))
            writer.write(line)
            writer.write_eof()
            answer = json.loads(await asyncio.wait_for(reader.readline(), 10))
            assert answer["error"].startswith("this is not a valid request"), line[:10]
            writer.close()
        assert await asyncio.to_thread(control_client.ask, tmp_path, do="sessions") == []


async def test_concurrent_requests_are_bounded(tmp_path: Path) -> None:
    def is_refused() -> bool:
        try:
            control_client.ask(tmp_path, do="sessions")
        except OncewayError as error:
            return "too many requests" in str(error)
        return False

    async with gateway(tmp_path), asyncio.timeout(30):
        silent = [_connected(tmp_path) for _ in range(control.MOST_REQUESTS)]
        assert await asyncio.to_thread(is_refused)
        for channel in silent:
            channel.close()
        while await asyncio.to_thread(is_refused):
            pass


def _connected(folder: Path) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX)
    with control_client.short(folder) as path:
        channel.connect(path)
    channel.setblocking(False)
    return channel


def test_control_socket_is_silent_without_a_gateway(tmp_path: Path) -> None:
    with pytest.raises(control_client.NotRunning):
        control_client.ask(tmp_path, do="sessions")
    with socket.socket(socket.AF_UNIX) as stale, control_client.short(tmp_path) as path:
        stale.bind(path)
    with pytest.raises(control_client.NotRunning):
        control_client.ask(tmp_path, do="sessions")
    assert os.listdir(tmp_path) == [control_client.FILE]


@pytest.mark.parametrize(
    "command", ["gateway status", "session list", "session show", "session end", "retained list"]
)
def test_each_command_exists_and_has_an_example(command: str) -> None:
    program = Path(sys.executable).with_name("onceway")
    shown = subprocess.run(
        [program, *command.split(), "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert f"Example: onceway {command}" in shown
    assert "--json" in shown


async def test_unknown_board_has_one_exit_code_and_a_hint(tmp_path: Path) -> None:
    requests = [
        {"do": "expect", "interval": "5m"},
        {"do": "pause", "interval": "3d"},
        {"do": "log"},
        {"do": "command", "text": "identify"},
        {"do": "command", "text": "identify", "wait": "5"},
    ]
    async with gateway(tmp_path):
        for request in requests:
            with pytest.raises(OncewayError) as wrong:
                await asyncio.to_thread(
                    control_client.ask, tmp_path, **request | {"client": "nobody"}
                )
            assert (wrong.value.exit_code, wrong.value.where) == (5, "nobody"), request
            assert "See: onceway" in str(wrong.value) or "`onceway device list`" in str(wrong.value)


async def test_answers_know_the_registry_as_it_is_now(tmp_path: Path) -> None:
    """A script may change the registry and then ask the gateway at once."""
    registry = Registry(tmp_path / "registry.db")
    registry.admit("roof-1")

    async def names(do: str) -> list[str]:
        rows = await asyncio.to_thread(control_client.ask, tmp_path, do=do)
        return [row["name"] for row in (rows[0]["boards"] if do == "everything" else rows)]

    async with gateway(tmp_path):
        for number in range(2, 7):
            registry.admit(f"roof-{number}")
            do = ("everything", "boards")[number % 2]
            assert await names(do) == [f"roof-{one}" for one in range(1, number + 1)]
        registry.revoke("roof-6")
        assert "roof-6" not in await names("everything")
        registry.admit("roof-7")
        (row,) = await asyncio.to_thread(
            control_client.ask, tmp_path, do="expect", client="roof-7", interval="never"
        )
        assert row["never"]


async def test_answer_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the registry cannot be read, the answer has its last known state."""
    Registry(tmp_path / "registry.db").admit("roof-1")
    hangs = threading.Event()
    async with gateway(tmp_path):
        (row,) = await asyncio.to_thread(control_client.ask, tmp_path, do="boards")
        with monkeypatch.context() as patch:
            patch.setattr(admission.Registry, "refresh", lambda _: hangs.wait(60))
            for _ in range(3):
                asked = asyncio.to_thread(control_client.ask, tmp_path, do="boards")
                (again,) = await asyncio.wait_for(asked, 30)
                assert (again["name"], again["state"]) == (row["name"], row["state"])
            hangs.set()
