"""`onceway gateway reload` and `onceway user add` while a gateway runs."""

import asyncio
import signal
import socket
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gateway.access.cli import app as user_app
from gateway.access.users import UsersError
from gateway.commands.control_client import ask
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connect
from gateway.service.cli import app as gateway_app
from gateway.service.status_cli import app as status_app
from tests.service.process import gateway
from tests.service.wire import wire

APPS = typer.Typer()
APPS.add_typer(gateway_app, name="gateway")
APPS.add_typer(user_app, name="user")
APPS.add_typer(status_app)


def run(*arguments: str, given: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(APPS, list(arguments), input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def configuration(folder: Path, text: str = "") -> Path:
    file = folder / "gateway.toml"
    file.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{folder}/data"\n'
        f'[[listener]]\nbind = "127.0.0.1:0"\n{text}'
    )
    return file


async def test_reload_says_what_needs_a_restart_and_what_is_wrong(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    reload = ("gateway", "reload", "--config", str(file))
    async with gateway(tmp_path, "--config", str(file)):
        assert await asyncio.to_thread(run, *reload) == (0, "reloaded\n")
        configuration(tmp_path, "[mirror]\n")
        code, said = await asyncio.to_thread(run, *reload)
        assert (code, said.splitlines()[1:]) == (
            7,
            ["mirror has changed: it takes effect after a restart of the gateway"],
        )
        _, said = await asyncio.to_thread(run, "status", "--config", str(file))
        assert (
            "takes effect after a restart: mirror\n    sudo systemctl restart onceway-gateway"
            in said
        )
        uplink = '[uplink]\nlanding = "file:///tmp/nowhere"\n'
        configuration(tmp_path, uplink)
        assert await asyncio.to_thread(run, *reload) == (0, "reloaded\n")
        configuration(tmp_path, uplink + "batch_count = 8\n")
        assert (await asyncio.to_thread(run, *reload))[0] == 7
        _, said = await asyncio.to_thread(run, "status", "--config", str(file))
        assert (
            "    sudo systemctl restart onceway-uplink\n    sudo onceway gateway reload\n" in said
        )
        configuration(tmp_path, uplink + "batch_count = 7\n[mirror]\n")
        code, said = await asyncio.to_thread(run, *reload)
        assert (code, said.splitlines()[1:]) == (
            7,
            [
                "uplink.batch_count has changed: it takes effect after a restart of the uplink",
                "mirror has changed: it takes effect after a restart of the gateway",
            ],
        )
        _, said = await asyncio.to_thread(run, "status", "--config", str(file))
        assert "    sudo systemctl restart onceway-gateway onceway-uplink\n" in said
        configuration(tmp_path, "[spool]\nmax_bytes = 0\n")
        code, said = await asyncio.to_thread(
            run, "gateway", "reload", "--data", str(tmp_path / "data")
        )
        assert code == 2
        assert "the old configuration stays in force" in said
        assert f"error: {file}:7: spool.max_bytes = 0: " in said


async def test_an_error_of_the_gateway_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    async with gateway(tmp_path, "--config", str(configuration(tmp_path))):
        with pytest.raises(OncewayError) as failed:
            await asyncio.to_thread(ask, tmp_path / "data", do="log", client="roof-1")
        error = failed.value
        assert (error.what, error.where) == ("the board is not connected", "roof-1")
        assert error.hint == "See: onceway session list"


async def test_systemd_shows_what_waits_for_a_start(tmp_path: Path) -> None:
    file, address = configuration(tmp_path), str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(address)
        channel.settimeout(10)
        arguments = ("--config", str(file))
        async with gateway(tmp_path, *arguments, env={"NOTIFY_SOCKET": address}) as running:
            assert await asyncio.to_thread(channel.recv, 200) == b"READY=1"
            configuration(tmp_path, "[mirror]\n")
            running.process.send_signal(signal.SIGHUP)
            told = await asyncio.to_thread(channel.recv, 200)
            assert told == b"STATUS=Reloaded; need a restart: mirror"
            await running.logged("mirror has changed: it takes effect at the next start")
            configuration(tmp_path)
            running.process.send_signal(signal.SIGHUP)
            assert await asyncio.to_thread(channel.recv, 200) == b"STATUS="


async def test_added_user_may_connect_at_once(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    add = ("user", "add", "lena", "--password-stdin", "--config", str(file))
    async with gateway(tmp_path, "--config", str(file)) as running:
        code, said = await asyncio.to_thread(lambda: run(*add, given="correct horse\n"))
        assert (code, "the running gateway has read this change" in said) == (0, True)
        async with wire(running.port, Connect("c", username="lena", password=b"correct horse")):
            pass
        remove = ("user", "remove", "lena", "--config", str(file))
        code, said = await asyncio.to_thread(run, *remove)
        assert (code, "the running gateway has read this change" in said) == (0, True)
        assert (await asyncio.to_thread(lambda: run(*add, given="correct horse\n")))[0] == 0
        file.write_text(file.read_text().partition("[[listener]]")[0])
        code, said = await asyncio.to_thread(run, *remove)
        assert code == 1, "it may still connect"
        assert "has not accepted this change" in said
        assert "there is nothing to serve" in said
    code, said = await asyncio.to_thread(lambda: run(*add, given="correct horse\n"))
    assert "at its next start" in said


def test_a_password_has_eight_characters(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    with pytest.raises(UsersError, match="fewer than 8 characters"):
        run("user", "add", "lena", "--password-stdin", "--config", str(file), given="1234567\n")
