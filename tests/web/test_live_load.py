"""Ten thousand boards on the page take only little time of the gateway's event loop."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.boards.admission import Listed
from gateway.config import parse
from gateway.mirror.last import LastReadings
from gateway.payload.readings import Reading
from gateway.web.board_rows import BoardRows
from gateway.web.clients import Clients
from gateway.web.live import Live
from gateway.web.log_lines import LogLines
from gateway.web.page import Deeds, PageServer
from tests.links.board import until
from tests.web.test_web import a_source

BOARDS, UPDATES, SECONDS = 10_000, 50, 10
NOW = 1_767_225_600_000_000


RULES = {"acl": [{"users": ["lena"], "read": ["sensors/+/adc0"]}], "page": {"viewers": ["lena"]}}


def many(folder: Path) -> tuple[Live, LastReadings, BoardRows, list[str]]:
    readings, source = LastReadings(folder), a_source(folder, parse(RULES, "here"))
    names = [f"roof-{number}" for number in range(BOARDS)]
    listed = {name: Listed("ready", "uno", "ab" * 32) for name in names}
    boards = BoardRows(source, readings, lambda: listed, dict)
    for name in names:
        reading = Reading("adc0", 1.0, "V", NOW, "synchronised", None, NOW)
        readings.take(name, reading, f"sensors/{name}/adc0")
    return Live(source, readings, boards), readings, boards, names


class Everybody:
    """Accepts each login, always as the same user."""

    user, operator, csrf = "lena", False, "token"

    async def login(self, user: str, password: str, address: str) -> str:
        return "token"

    def session(self, token: str | None) -> Any:
        return self

    def logout(self, token: str | None) -> None: ...


async def nothing(*arguments: object) -> None: ...


async def no_log(*arguments: object) -> list[dict[str, Any]]:
    return []


async def nobody(client: str) -> bool:
    return False


@asynccontextmanager
async def served(folder: Path, live: Live) -> AsyncIterator[tuple[str, int]]:
    """Serve the page without a gateway. Yield its host and port."""
    clients = Clients(a_source(folder), nobody)
    watch = lambda *_: lambda: None  # noqa: E731
    actions = Deeds(nothing, no_log, nothing, lambda *_: {}, watch, nothing, nothing, None)
    page = PageServer("127.0.0.1", 0, None, live, clients, LogLines(), Everybody(), actions)
    await page.start()
    yield page.addresses[0]
    await page.close()


async def test_stream_of_a_stalled_reader_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.web.page.WRITE_S", 0.5)
    live, _, boards, _ = many(tmp_path)
    while len(boards.rows) < BOARDS:
        live._tell()
    async with served(tmp_path, live) as address:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, address)
            await loop.sock_sendall(deaf, b"GET /api/events HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: live._subscribers)
            await until(lambda: not live._subscribers)


@pytest.mark.parametrize("viewer", [False, True])
async def test_ten_thousand_boards_and_fifty_updates_a_second(tmp_path: Path, viewer: bool) -> None:
    live, readings, boards, names = many(tmp_path)
    longest = 0.0
    while len(boards.rows) < BOARDS:
        began = time.process_time()
        live._tell()
        longest = max(longest, time.process_time() - began)
    sight = live.sights.of("lena", operator=not viewer)
    assert sight.whole == (not viewer)
    subscriber = live.subscribe(sight)
    shown: set[str] = set()
    while len(shown) < BOARDS:
        began = time.process_time()
        event = await subscriber.get()
        longest = max(longest, time.process_time() - began)
        assert event is not None
        shown |= {row["name"] for row in json.loads(event)["boards"]}
    print(f"longest step: {longest * 1000:.1f} ms")
    assert longest < 0.4  # seconds; about 0.05 on a quiet machine
    spent = []
    for second in range(SECONDS):
        began = time.process_time()
        for name in names[second * UPDATES : (second + 1) * UPDATES]:
            readings.take(
                name, Reading("adc0", 2.0, "V", NOW, "synchronised", None, NOW + second + 1)
            )
            boards.touch(name)
        live._tell()
        spent.append(time.process_time() - began)
    print(f"CPU a second: {sorted(spent)[SECONDS // 2] * 1000:.1f} ms")
    assert sorted(spent)[SECONDS // 2] < 0.05
    async with asyncio.timeout(60):
        updated = 0
        while updated < UPDATES * SECONDS:
            event = await subscriber.get()
            assert event is not None
            updated += len(json.loads(event)["boards"])
