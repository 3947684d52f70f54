"""`onceway device log`: a board sends its log on request."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiomqtt
import pytest
from typer.testing import CliRunner

from gateway.access.rules import Acl
from gateway.boards import log as board_log
from gateway.config import Config
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connect, Suback, Subscribe, Subscription
from gateway.runtime.engine import Engine
from provisioning.listing_cli import app
from tests.service.process import gateway
from tests.service.wire import wire

NAME = "roof-1"
LINES = ("1767225600 start, cause 0", "+7 odd \x1b[2J text", "nonsense", "12")


@asynccontextmanager
async def board(
    port: int, lines: tuple[str, ...], late: float = 0.0
) -> AsyncIterator[aiomqtt.Client]:
    """Connect as a board that answers each command with these lines, after this delay in
    seconds.
    """
    async with aiomqtt.Client(
        "127.0.0.1", port, identifier=NAME, protocol=aiomqtt.ProtocolVersion.V5
    ) as client:
        await client.subscribe(f"commands/{NAME}", 2)

        async def answer() -> None:
            async for message in client.messages:
                assert (message.payload, message.qos) == (b"log", 2)
                await asyncio.sleep(late)
                for line in lines:
                    await client.publish(f"logs/{NAME}", line)

        task = asyncio.create_task(answer())
        try:
            yield client
        finally:
            task.cancel()


async def log(folder: Path, *arguments: str) -> str:
    """Return the output of `onceway device log`."""
    registry = ("--registry", str(folder / "registry.db"))
    result = await asyncio.to_thread(CliRunner().invoke, app, ["log", NAME, *registry, *arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


async def test_log_lines_and_the_number_of_lost_ones(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, board(running.port, LINES):
        for _ in range(2):
            assert await log(tmp_path) == (
                "(12 earlier lines were overwritten)\n"
                "2026-01-01T00:00:00Z  start, cause 0\n"
                "7 s after its start  odd \\x1b[2J text\n"
            )
        assert json.loads(await log(tmp_path, "--json")) == [
            {"utc": 1767225600, "uptime": None, "text": "start, cause 0"},
            {"utc": None, "uptime": 7, "text": "odd \x1b[2J text"},
            {"lost": 12},
        ]


async def test_board_that_does_not_answer_or_is_unplugged(tmp_path: Path) -> None:
    with pytest.raises(OncewayError, match="no gateway runs here"):
        await log(tmp_path)
    async with gateway(tmp_path) as running:
        with pytest.raises(OncewayError, match="roof-1: the board is not connected"):
            await log(tmp_path)
        async with board(running.port, ("1 a line, and no end",)) as client:
            refused = r"has received the command.*within 1 s.*OW_LOG_SIZE"
            with pytest.raises(OncewayError, match=refused):
                await log(tmp_path, "--wait", "1")
            await client.unsubscribe(f"commands/{NAME}")
            with pytest.raises(OncewayError, match="no subscription to its commands"):
                await log(tmp_path)


async def test_board_without_a_log_answers_at_once(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running, board(running.port, ("unknown command: log",)):
        with pytest.raises(OncewayError, match=r"roof-1: the board keeps no log.*OW_LOG_SIZE"):
            await log(tmp_path)


async def test_a_board_that_answers_late_is_waited_for(tmp_path: Path) -> None:
    """The output does not say that the board has not answered yet."""
    async with gateway(tmp_path) as running, board(running.port, ("3 here", "0"), late=6):
        assert json.loads(await log(tmp_path, "--json", "--wait", "30")) == [
            {"utc": 3, "uptime": None, "text": "here"},
            {"lost": 0},
        ]


async def test_command_not_taken_by_the_board_is_reported(tmp_path: Path) -> None:
    """The board is connected but sends no PUBREC, like a radio board that is silent."""
    async with gateway(tmp_path) as running, wire(running.port, Connect(NAME)) as silent:
        silent.send(Subscribe(1, [Subscription(f"commands/{NAME}", 2)]))
        await silent.take(Suback)
        with pytest.raises(
            OncewayError, match=r"has not acknowledged the command within 1 s.*logs/roof"
        ):
            await log(tmp_path, "--wait", "1")


async def test_impossible_log_line_is_cut(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as running, board(running.port, ("3 " + "x" * 100_000, "0")):
        line, _ = json.loads(await log(tmp_path, "--json"))
    assert line["text"] == "x" * (board_log.LONGEST - len("3 "))


async def test_a_log_without_an_end_does_not_keep_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page reads only one board's log at a time. It gives an endless log up after WHOLE_S."""

    async def endless(*_: object) -> AsyncIterator[dict[str, Any]]:
        while True:
            await asyncio.sleep(0.01)
            yield {"text": "again"}

    monkeypatch.setattr(board_log, "read", endless)
    monkeypatch.setattr(board_log, "WHOLE_S", 0.1)
    broker = SimpleNamespace(acl=Acl([]))
    async with asyncio.timeout(60):
        with pytest.raises(OncewayError, match="has not ended within"):
            await board_log.whole(cast(Engine, SimpleNamespace(broker=broker)), "otto", NAME)


def test_gateway_may_read_board_logs_under_access_rules() -> None:
    config = Config.model_validate(
        {"gateway": {"name": "g"}, "acl": [{"clients": ["roof-*"], "write": ["logs/%c"]}]}
    )
    assert any(section.read == ["logs/+"] for section in config.acl)
