"""Faulty disks: the gateway acknowledges only messages that are on disk, and continues when the
disk works again.
"""

import asyncio
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from gateway.commands import control_client as control
from gateway.config import parse
from gateway.mqtt.packets import Connect, Disconnect, Puback, Publish
from gateway.mqtt.reason import ReasonCode
from gateway.service.gateway import Gateway
from gateway.store.schema import FILE, StoreError
from tests.service.process import START_S, gateway, spooling, start
from tests.service.test_gateway import client, collect
from tests.service.test_power_cut import read_notes
from tests.service.wire import READS, wire

SOURCES = Path(__file__).parents[1] / "store"


def build(name: str, folder: Path, sources: Path = SOURCES) -> Path:
    built = folder / f"{name}.so"
    checks = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *checks, "-o", built, sources / f"{name}.c", "-ldl"], check=True)
    return built


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("faults", tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("recorder", tmp_path_factory.mktemp("recorder"))


def faulty(library: Path, plan: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(library), "ONCEWAY_FAULTS": str(plan)}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("eio", "the disk fails: it reports an error"),
        ("enospc", "the disk is full"),
        ("erofs", "the disk or the file is read-only"),
        ("edquot", "the disk quota of this account is used up"),
    ],
)
async def test_failing_disk_stops_acknowledgements_until_it_works_again(
    tmp_path: Path, library: Path, fault: str, words: str
) -> None:
    plan = tmp_path / "plan"
    async with gateway(tmp_path / "data", env=faulty(library, plan)) as running:
        async with client(running.port, "subscriber", expiry=1000) as subscriber:
            await subscriber.subscribe("t", qos=2)
        async with client(running.port, "publisher", expiry=1000) as publisher:
            await publisher.publish("t", "before", qos=2)
            plan.write_text(fault)
            stuck = asyncio.create_task(publisher.publish("t", "meanwhile", qos=2, timeout=30))
            await running.logged(f"the store accepts no data: {words} (")
            async with wire(running.port, Connect("other", properties=READS)) as other:
                other.send(Publish("t", b"refused", 1, 7))
                assert (await other.take(Puback)).reason == ReasonCode.QUOTA_EXCEEDED
            (told,) = control.ask(tmp_path / "data", do="everything")
            assert any(words in item["what"] for item in told["problems"]), told["problems"]
            assert not stuck.done()
            plan.write_text("")
            await stuck
            await publisher.publish("t", "after", qos=2)
        async with client(running.port, "subscriber", expiry=1000) as subscriber:
            assert [message.payload for message in await collect(subscriber, 3)] == [
                b"before",
                b"meanwhile",
                b"after",
            ]
        assert await running.end() == 0


async def test_a_gateway_stops_though_its_disk_fails(tmp_path: Path, library: Path) -> None:
    plan = tmp_path / "plan"
    async with (
        gateway(tmp_path / "data", env=faulty(library, plan)) as running,
        wire(running.port, Connect("c")) as publisher,
    ):
        plan.write_text("eio")
        publisher.send(Publish("t", b"lost", 1, 7))
        await running.logged("the store accepts no data")
        assert await running.end() == 0
        assert (await publisher.take(Disconnect)).reason == ReasonCode.SERVER_SHUTTING_DOWN


async def test_log_content_is_written_again_before_it_is_trusted(
    tmp_path: Path, recorder: Path
) -> None:
    """After an fsync that failed, the log can be read, although the disk does not have it. After a
    restart, the gateway must not rely on the log before it has written it again.
    """
    async with gateway(tmp_path) as running, wire(running.port, Connect("c")) as publisher:
        publisher.send(Publish("t", b"x", 1, 7))
        await publisher.take(Puback)
        await running.end(signal.SIGKILL)
    left = (tmp_path / "gateway.db-wal").read_bytes()
    assert left
    record = tmp_path / "record"
    async with gateway(
        tmp_path, env={"LD_PRELOAD": str(recorder), "ONCEWAY_RECORD": str(record)}
    ) as running:
        await running.end(signal.SIGKILL)
    written = bytearray(len(left))
    for note in read_notes(record):
        if note.file == "l" and note.operation == "s":
            break
        if note.file == "l":
            written[note.offset : note.offset + len(note.data)] = note.data
    assert written == left


async def test_a_store_whose_log_the_disk_does_not_take_is_not_started(
    tmp_path: Path, library: Path
) -> None:
    async with gateway(tmp_path / "data") as running, wire(running.port, Connect("c")) as publisher:
        publisher.send(Publish("t", b"x", 1, 7))
        await publisher.take(Puback)
        await running.end(signal.SIGKILL)
    plan = tmp_path / "plan"
    plan.write_text("eio")
    refused = await start(
        "--listen",
        "127.0.0.1:0",
        "--anonymous",
        "--data",
        str(tmp_path / "data"),
        env=faulty(library, plan),
    )
    _, error = await asyncio.wait_for(refused.process.communicate(), START_S)
    assert refused.process.returncode == 10
    assert "the store's log cannot be written to the disk (Input/output error)" in error.decode()


async def test_page_that_is_damaged_under_a_running_gateway_stops_it_before_an_acknowledgement(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path / "data") as running, wire(running.port, Connect("c")) as publisher:
        publisher.send(Publish("t", b"x", 1, 1))
        await publisher.take(Puback)
        path = tmp_path / "data" / FILE
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (page,) = database.execute("PRAGMA page_size").fetchone()
            query = "SELECT rootpage FROM sqlite_schema WHERE name = 'spool'"
            (root,) = database.execute(query).fetchone()
            with path.open("r+b") as file:
                file.seek((root - 1) * page)
                file.write(b"\xff" * 16)
            # a write by another process makes the gateway read its pages again
            database.execute("INSERT INTO meta VALUES ('of a test', '')")
        publisher.send(Publish("t", b"y", 1, 2))
        assert await asyncio.wait_for(running.process.wait(), 30) == 70
        with pytest.raises(AssertionError, match="closed the connection"):
            await publisher.take(Puback)
        await running.end()
    log = "".join(running.log)
    assert "the store is damaged (database disk image is malformed, SQLITE_CORRUPT)" in log
    assert "Nothing more is acknowledged, and the gateway stops. See: onceway store check" in log
    refused = await start(*spooling(tmp_path / "data"))
    _, error = await asyncio.wait_for(refused.process.communicate(), START_S)
    assert refused.process.returncode == 10
    assert "onceway store salvage" in error.decode()


def test_a_disk_that_is_full_when_the_store_is_read_is_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recover(*_: object, **__: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr("gateway.service.gateway.recover", recover)
    with pytest.raises(StoreError, match="cannot be opened: the disk is full"):
        asyncio.run(Gateway(parse({"gateway": {"data": str(tmp_path)}}, "here")).run())
