"""A restore drops commands that wait for boards. It lists them before it drops them."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.access.peer import DeviceIdentity
from gateway.store import backup as store_backup
from gateway.store.board_queues import MOST_LINES, dropped_by_restore
from tests.backup.test_backup import onceway, registry, site
from tests.broker.harness import FOREVER, World
from tests.service.process import gateway

__all__ = ["site"]
COMMANDS = [b"interval 60", b"reboot"]
LINES = [f"roof-1: 'commands/roof-1' {text.decode()!r}" for text in COMMANDS]


def store_with_commands(folder: Path, *payloads: bytes) -> None:
    """Make a store with waiting messages: a command for a board with each payload, and one message
    for a client.
    """
    world = World()
    board = DeviceIdentity("roof-1", 7, 1)
    for name, device in (("roof-1", board), ("client", None)):
        client = world.accepted(name, clean=False, properties=FOREVER, device=device)
        client.subscribe(f"commands/{name}" if device else "news", qos=2)
        client.drop()
    publisher = world.accepted(answers=True)
    publisher.publish("news", "stays", qos=1)
    for payload in payloads:
        publisher.publish("commands/roof-1", payload, qos=2)
    world.commit()
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / "gateway.db")) as copy:
        world.database.backup(copy)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_store_s_restore_lists_them(tmp_path: Path, as_json: bool) -> None:
    store_with_commands(tmp_path / "data", *COMMANDS)
    store_backup.backup(tmp_path / "data", tmp_path / "copy.db")
    done = onceway(
        *("store", "restore", "--from", tmp_path / "copy.db", "--data", tmp_path / "data"),
        *(["--json"] if as_json else []),
    )
    assert done.returncode == 0, done.stderr
    if as_json:
        assert json.loads(done.stdout)["dropped"] == LINES
        return
    said = done.stdout.splitlines()
    assert [line.partition("sessions: ")[2] for line in said[:2]] == LINES
    assert "restored from" in said[2], "they are listed before"


async def test_restore_and_the_log_list_them(site: Path, tmp_path: Path) -> None:
    config, file, data = site / "gateway.toml", tmp_path / "b.owback", site / "data"
    store_with_commands(data, *COMMANDS)
    registry(data / "registry.db", "roof-1")
    assert onceway("backup", file, "--config", config).returncode == 0
    done = onceway("restore", file, "--config", config)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert [line.partition("sessions: ")[2] for line in said[:2]] == LINES
    assert "restored the gateway" in said[2]
    async with gateway(data, "--config", str(config)) as running:
        await running.logged(f"dropped, because boards begin new sessions: {LINES[1]}")
        await running.end()


def test_many_are_counted_and_none_is_silent(tmp_path: Path) -> None:
    store_with_commands(tmp_path, *[b"reboot"] * (MOST_LINES + 5))
    lines = dropped_by_restore(tmp_path / "gateway.db")
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "and 5 more"


@pytest.mark.parametrize("cell", ["body = 'text'", "body = 7", "body = NULL", "topic = 7"])
def test_damaged_rows_are_listed_as_far_as_they_can_be_read(tmp_path: Path, cell: str) -> None:
    store_with_commands(tmp_path, *COMMANDS)
    file = tmp_path / "gateway.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("PRAGMA writable_schema = 1")
        database.execute("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '')")
        database.execute("UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', '')")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"UPDATE message SET {cell} WHERE topic LIKE 'commands/%'")
    lines = dropped_by_restore(file)
    assert len(lines) == 2
    assert all(line.startswith("roof-1: ") for line in lines)


def test_list_of_a_store_without_commands_is_empty(tmp_path: Path) -> None:
    store_with_commands(tmp_path)
    assert dropped_by_restore(tmp_path / "gateway.db") == []
    (tmp_path / "no.db").write_bytes(b"no database")
    assert dropped_by_restore(tmp_path / "no.db") == []
