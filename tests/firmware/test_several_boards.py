"""Two boards in one program with a real gateway. Each board is a `struct ow_hal` with a context."""

import asyncio
import os
import pty
import sqlite3
import subprocess
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import aiomqtt
import pytest

from provisioning.identity import Identity
from provisioning.registry import Registry
from tests.firmware.conftest import ROOT
from tests.firmware.test_host_board import gateway_at, until

NAMES = ("left", "right")
READINGS, COMMANDS = 5, 6


@pytest.fixture(scope="module")
def program() -> Path:
    subprocess.run(
        ["make", "-s", "-C", ROOT / "firmware", "../build/firmware/host/two"], check=True
    )
    return ROOT / "build/firmware/host/two"


class Boards:
    """EEPROM images and serial lines of two boards. Both boards have power while the
    program runs.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        self._folder = folder
        self._arguments: list[str | Path] = [program]
        self._masters: list[int] = []
        registry = Registry(folder / "data" / "registry.db")
        lines = []
        for name in NAMES:
            master, slave = pty.openpty()
            tty.setraw(slave)
            port = os.ttyname(slave)
            os.close(slave)
            identity, eeprom = folder / f"{name}.identity", folder / f"{name}.eeprom"
            known = Identity.create(name)
            identity.write_bytes(known.to_bytes().ljust(128, b"\xff"))
            eeprom.write_bytes(b"\xff" * 1024)
            registry.finish(registry.begin(known, "uno", port), "ab" * 32)
            self._arguments += [identity, str(master), eeprom]
            self._masters.append(master)
            lines.append(f'[[serial]]\nport = "{port}"\n')
        self.config = folder / "gateway.toml"
        self.config.write_text(
            f'[gateway]\ndata = "{folder / "data"}"\ntrust_clock = true\n'
            f'[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n{"".join(lines)}'
            '[uplink]\nlanding = "file:///landing"\n'
        )

    @asynccontextmanager
    async def powered(self) -> AsyncIterator[None]:
        process = await asyncio.create_subprocess_exec(*self._arguments, pass_fds=self._masters)
        try:
            yield
            assert process.returncode is None, "the program ended by itself"
        finally:
            process.kill()
            await process.wait()

    def close(self) -> None:
        for master in self._masters:
            os.close(master)

    def published(self, name: str) -> list[tuple[int, int, str, bytes]]:
        with closing(sqlite3.connect(self._folder / "data" / "gateway.db")) as database:
            return database.execute(
                "SELECT sequence, incarnation, topic, payload FROM spool WHERE device = ?"
                " ORDER BY id",
                (name,),
            ).fetchall()


@pytest.fixture
def boards(program: Path, tmp_path: Path) -> Iterator[Boards]:
    yield (made := Boards(program, tmp_path))
    made.close()


async def test_two_clients_live_in_one_program_and_each_has_its_own_board(boards: Boards) -> None:
    """The clients share no keys, sessions, journals or callbacks. This also holds if a callback of
    one client publishes with the other client, and after a power cut of both boards.
    """
    said = {
        name: [b"%-8s" % f"{name[0]}cmd{number}".encode() for number in range(COMMANDS)]
        for name in NAMES
    }
    async with gateway_at(boards.config) as site:
        async with boards.powered():
            await until(lambda: all(len(boards.published(name)) == READINGS for name in NAMES))
            async with aiomqtt.Client("127.0.0.1", site.gateway.port) as client:
                for number in range(COMMANDS):
                    for name in NAMES:
                        await client.publish(f"commands/{name}", said[name][number], qos=2)
                        due = READINGS + number + 1
                        other = NAMES[1 - NAMES.index(name)]
                        await until(lambda d=due, n=other: len(boards.published(n)) == d)
        async with boards.powered():
            await until(
                lambda: all(
                    len(boards.published(name)) == 2 * READINGS + COMMANDS for name in NAMES
                )
            )
    incarnations = set()
    for name, other in zip(NAMES, reversed(NAMES), strict=True):
        rows = boards.published(name)
        own = [name.encode().ljust(7, b".") + b"%d" % (number + 1) for number in range(READINGS)]
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        assert [row[3] for row in rows] == [*own, *said[other], *own]
        assert {row[2] for row in rows} == {f"two/{name}"}
        assert len({row[1] for row in rows}) == 1
        incarnations.add(rows[0][1])
    assert len(incarnations) == 2
