"""One cell of the store is damaged, then the gateway starts and every client comes: all is
delivered, or the session is told and the log has a line, or the start is refused with a sentence.
"""

import random
import sqlite3
from contextlib import suppress

import pytest

from gateway.mqtt.packets import Connack, Publish
from tests.broker.harness import FOREVER, World
from tests.store.test_references import world

assert world
VALUES = ("NULL", "-1", "9223372036854775807", "x'ff'", "''", "'x'", "CAST(x'ff' AS TEXT)")
CLIENTS = {"waiting": 600, "flying": 19, "shared": 20, "willing": 0}
UNSEEN = {
    # a bit of a value that no rule binds (gateway/store/README.md)
    ("message", "body"),
    ("session", "client"),
    ("session", "user"),
    ("subscription", "filter"),
    ("subscription", "options"),
    ("subscription", "session"),
}


def cells(database: sqlite3.Connection) -> list[tuple[str, str]]:
    tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return [
        (table, column[1])
        for (table,) in tables
        for column in database.execute(f"PRAGMA table_info({table})")
    ]


def come(world: World, client: str) -> tuple[bool, int]:
    """Session Present, and how many messages come."""
    found = world.connect(client, clean=False, properties=FOREVER, answers=True)
    for _ in range(4):
        world.commit()
    (connack,) = found.take_all(Connack) or [None]
    if connack is None or found.closed:
        return come_again(world, client)
    return connack.session_present, len(found.take_all(Publish))


def come_again(world: World, client: str) -> tuple[bool, int]:
    found = world.connect(client, clean=False, properties=FOREVER, answers=True)
    connack = found.take(Connack)
    world.commit()
    return connack.session_present, len(found.take_all(Publish))


def damage(world: World, table: str, column: str, value: str, chosen: random.Random) -> bool:
    """Put a value into one row of a table. False: SQLite does not take it."""
    database = world.database
    keys = [c[1] for c in database.execute(f"PRAGMA table_info({table})") if c[5]]
    rows = database.execute(f"SELECT {','.join(keys)} FROM {table}").fetchall()
    if not rows:
        return False
    row = chosen.choice(rows)
    where = " AND ".join(f"{key} IS ?" for key in keys)
    with suppress(sqlite3.IntegrityError):
        query = f"UPDATE {table} SET {column} = {value} WHERE {where}"
        return database.execute(query, row).rowcount > 0
    return False


def outcome(world: World, caplog: pytest.LogCaptureFixture, case: str) -> None:
    """What may follow from damage follows, and nothing else."""
    try:
        world.power_cut()
    except Exception:
        return
    for client, wanted in CLIENTS.items():
        present, count = come(world, client)
        if not present:
            assert "Session Present 0" in caplog.text or "new session" in caplog.text, (
                case,
                client,
                caplog.text,
            )
        else:
            assert count == wanted, (case, client, count, caplog.text)
    assert "internal error" not in caplog.text, case


@pytest.mark.parametrize("seed", range(1))
def test_damage_of_one_cell_is_never_silent(
    world: World, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    chosen = random.Random(seed)
    whole = world.database
    tried, failed = 0, list[str]()
    for table, column in cells(world.database):
        if table not in ("session", "flow", "queue", "message", "subscription", "meta"):
            continue
        if (table, column) in UNSEEN:
            continue
        for value in VALUES:
            world.database = sqlite3.connect(":memory:", isolation_level=None)
            whole.backup(world.database)
            if not damage(world, table, column, value, chosen):
                continue
            tried += 1
            caplog.clear()
            case = f"{table}.{column} = {value}"
            try:
                outcome(world, caplog, case)
            except Exception as error:
                failed.append(f"{case}: {type(error).__name__} {str(error).splitlines()[0]}")
    assert not failed, "\n".join(failed)
    assert tried > 50
