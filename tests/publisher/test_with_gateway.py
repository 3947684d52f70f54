"""The publisher with a real gateway. Tests kill the publisher and the gateway. At the end, the
spool has each message once, by its identity. CONNACK says whether the gateway uses identities.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from gateway.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Version
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from onceway_publisher import NoIdentity, Publisher
from tests.service.process import GatewayProcess, free_port, gateway
from tests.service.wire import Wire

WRITES = '[[acl]]\nwrite = ["#"]\n'
MAY = 'identity = ["boiler"]\n'
PROGRAM = """
import asyncio, sys
from onceway_publisher import Publisher
async def main():
    publisher = Publisher(sys.argv[1], device="boiler", journal=sys.argv[2])
    async with publisher as p:
        first = int(sys.argv[3])
        for number in range(first, first + 1000):
            await p.publish("sensors/boiler/n", number)
            print(number, flush=True)
asyncio.run(main())
"""


def configure(folder: Path, port: int, more: str = "") -> tuple[Path, str, str]:
    path = folder / "gateway.toml"
    path.write_text(
        f'[gateway]\ndata = "{folder / "data"}"\n[uplink]\nlanding = "file:///landing"\n'
        f'[[listener]]\nbind = "127.0.0.1:{port}"\nanonymous = true\n{more}'
    )
    return folder, "--config", str(path)


def spooled(folder: Path) -> list[tuple[int, int, object]]:
    """Return incarnation, sequence and value of each row of the spool."""
    with closing(sqlite3.connect(folder / "data" / "gateway.db")) as database:
        rows = database.execute("SELECT incarnation, sequence, payload FROM spool ORDER BY id")
        return [(row[0], row[1], json.loads(row[2])[0]["v"]) for row in rows]


@asynccontextmanager
async def connected(port: int, client: str) -> AsyncIterator[tuple[Wire, Connack]]:
    wire = Wire(*await asyncio.open_connection("127.0.0.1", port), Version.V5)
    wire.send(Connect(client))
    yield wire, await wire.take(Connack)
    wire.writer.close()


async def counts(port: int, client: str) -> list[tuple[str, str]]:
    async with connected(port, client) as (_, connack):
        found: list[tuple[str, str]] = (connack.properties or {})[PropertyId.USER_PROPERTY]
        return found


async def test_connack_says_whether_identity_counts(tmp_path: Path) -> None:
    port = free_port()
    async with gateway(*configure(tmp_path, port)):
        assert await counts(port, "boiler") == [("onceway-identity", "counts")]
    async with gateway(*configure(tmp_path, port, WRITES)):
        assert await counts(port, "boiler") == [("onceway-identity", "ignored")]
    async with gateway(*configure(tmp_path, port, WRITES + MAY)):
        assert await counts(port, "boiler") == [("onceway-identity", "counts")]
        assert await counts(port, "other") == [("onceway-identity", "ignored")]


async def test_the_line_that_the_publisher_names_lets_it_start(tmp_path: Path) -> None:
    port = free_port()
    url, journal = f"mqtt://127.0.0.1:{port}", tmp_path / "boiler.db"
    async with gateway(*configure(tmp_path, port, WRITES)) as running:
        with pytest.raises(NoIdentity) as error:
            async with Publisher(url, device="boiler", journal=journal):
                raise AssertionError
        line = str(error.value).partition("reload the gateway: ")[2]
        configure(tmp_path, port, WRITES + line + "\n")
        await reloaded(running)
        async with Publisher(url, device="boiler", journal=journal) as p:
            await p.publish("sensors/boiler/n", 1, wait=True)
        assert [row[1:] for row in spooled(tmp_path)] == [(1, 1)]


async def reloaded(running: GatewayProcess) -> None:
    running.process.send_signal(signal.SIGHUP)
    await running.logged("read again")


async def test_an_identity_that_counts_no_more_ends_the_connection(tmp_path: Path) -> None:
    """A reload removes the client's right to publish with identities. The gateway would then ignore
    identities and could not recognise duplicates, so it closes the connection.
    """
    port = free_port()
    pairs = {PropertyId.USER_PROPERTY: [("incarnation", "1"), ("seq", "1")]}
    async with gateway(*configure(tmp_path, port, WRITES + MAY)) as running:
        async with connected(port, "boiler") as (wire, _), connected(port, "other") as (other, _):
            configure(tmp_path, port, WRITES)
            await reloaded(running)
            wire.send(Publish("t", b"[]", 1, 1, properties=pairs))
            assert (await wire.take(Disconnect)).reason == R.ADMINISTRATIVE_ACTION
            other.send(Publish("t", b"{}", 1, 1, properties=pairs))
            assert (await other.take(Puback)).reason < 0x80, "it was told, and goes on"
        with closing(sqlite3.connect(tmp_path / "data" / "gateway.db")) as database:
            assert database.execute("SELECT payload FROM spool").fetchall() == [(b"{}",)]


async def test_kills_of_both_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Each message in the journal gets one identity and is in the spool once at the end. The spool
    may have a message twice only if a power cut lost the session. Here, programs are only killed.
    """
    port = free_port()
    told: list[int] = []
    for round_ in range(4):
        async with gateway(*configure(tmp_path, port)) as running:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, f"mqtt://127.0.0.1:{port}"),
                *(str(tmp_path / "boiler.db"), str(round_ * 1000)),
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            for _ in range(150):
                told.append(int(await process.stdout.readline()))
            if round_ % 2:
                os.kill(running.process.pid, signal.SIGKILL)
            process.kill()
            told += [int(line) for line in (await process.stdout.read()).split()]
            await process.wait()
    async with gateway(*configure(tmp_path, port)):
        url = f"mqtt://127.0.0.1:{port}"
        async with Publisher(url, device="boiler", journal=tmp_path / "boiler.db", stop_s=60) as p:
            last = await p.publish("sensors/boiler/n", -1)
        assert p.waiting == 0
    rows = spooled(tmp_path)
    assert len({incarnation for incarnation, _, _ in rows}) == 1, "the journal knew itself"
    values = {sequence: value for _, sequence, value in rows}
    assert len({*rows}) == len(values), "one identity, one payload"
    assert sorted(values) == list(range(1, last.sequence + 1)), "no number is missing"
    assert {*told} <= {*values.values()}
    assert len({*values.values()}) == len(values)
