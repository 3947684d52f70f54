"""Rows with a twin: a row that has changed or is missing is always reported."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.broker.store_rows import Commit
from gateway.errors import OncewayError
from gateway.mqtt.message_ids import unpack_set
from gateway.store import meta, twins
from gateway.store.apply import apply
from gateway.store.check import check
from gateway.store.downgrade import downgrade
from gateway.store.recovery import Refused, recover
from gateway.store.row_checks import sealed
from gateway.store.salvage import salvage
from gateway.store.schema import FILE, open_store, prepare
from gateway.uplink.spool import Spool
from tests.broker.harness import World
from tests.store.test_references import present, world
from tests.store.test_salvage import PAGE, damage, root_of

assert world
COLUMNS = [(table, column) for table in twins.TABLES for column in (*twins.columns(table), None)]


def behind(database: sqlite3.Connection, statement: str) -> None:
    """Change a row as a faulty card does, without the triggers that would change its twin."""
    query = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
    triggers = database.execute(query).fetchall()
    for name, _ in triggers:
        database.execute(f"DROP TRIGGER {name}")
    assert database.execute(statement).rowcount == 1, statement
    for _, text in triggers:
        database.execute(text)


def write(database: sqlite3.Connection, folder: Path) -> Path:
    (folder / FILE).write_bytes(database.serialize())
    return folder


def go_on(folder: Path) -> None:
    with Spool(folder) as spool:
        spool.unlanded()
        spool.counted_before(spool.last_cut()[1] + 1)


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_changed_or_lost_row_is_reported_and_never_used(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str, column: str | None
) -> None:
    database = world.database
    key = twins.columns(table)[0]
    one = f"{key} = (SELECT max({key}) FROM {table})"
    if table == "meta":
        one = "key = 'boot'"
    if table == "subscription":
        one = "filter = 'w/#'"
    (kind,) = database.execute(f"SELECT typeof({column or 1}) FROM {table} WHERE {one}").fetchone()
    other = {"text": f"{column} || '1'", "null": "5"}.get(kind, f"{column} + 1")
    change = f"UPDATE {table} SET {column} = {other}" if column else f"DELETE FROM {table}"
    behind(database, f"{change} WHERE {one}")
    told = check(write(database, tmp_path))
    assert any(f"of {table}: " in line or "(meta.boot)" in line for line in told)
    caplog.clear()
    try:
        if meta.refusal(database):
            raise Refused
        world.power_cut()
    except Refused:
        assert table in ("meta", "place", "batch")
        return
    assert f"of {table}: " in caplog.text
    if table == "subscription":
        assert not present(world, "waiting")
    assert not [line for line in check(write(world.database, tmp_path)) if "changed" in line]


@pytest.mark.parametrize("row", ["value = 'boot'", "kind = 'session'", "kind = 'place'"])
def test_lost_copy_is_reported(world: World, tmp_path: Path, row: str) -> None:
    database = world.database
    row = "kind = 'meta' AND key = 'boot'" if "value" in row else row
    database.execute(
        f"DELETE FROM twin WHERE {row} AND key = (SELECT max(key) FROM twin WHERE {row})"
    )
    assert any("have changed since" in line for line in check(write(database, tmp_path)))


def test_version_that_does_not_know_the_copies_keeps_them_right(
    world: World, tmp_path: Path
) -> None:
    """The test changes rows with SQL statements of version 0.2.0. Triggers of the store must update
    the twins.
    """
    database = world.database
    run = database.execute
    run("INSERT OR REPLACE INTO session SELECT id, client, 7, 9, 5, user FROM session")
    run("INSERT OR REPLACE INTO session VALUES (900, 'n' || char(0) || 'x', 600, NULL, 0, '')")
    run("INSERT OR REPLACE INTO subscription VALUES (900, 'x', 1, 0)")
    run("DELETE FROM session WHERE id IN (SELECT value FROM json_each('[900]'))")
    run("DELETE FROM subscription WHERE session = 900")
    run("UPDATE place SET epoch = epoch + 1")
    run("INSERT OR REPLACE INTO meta VALUES ('boot', '9')")
    run("UPDATE batch SET landed = 8 WHERE number = 2")
    for table in twins.TABLES:
        assert twins.changed(database, table) == []


def test_store_without_copies_gets_them(world: World) -> None:
    database = world.database
    twins.drop(database)
    assert not any(twins.changed(database, table) for table in twins.TABLES)
    database.execute("UPDATE session SET expiry = 9")
    prepare(database, "test")
    count = "SELECT count(*) FROM {}"
    rows = sum(database.execute(count.format(table)).fetchone()[0] for table in twins.TABLES)
    assert database.execute(count.format("twin")).fetchone() == (rows,)
    (text,) = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'journey'").fetchone()
    database.execute("DROP TABLE journey")
    database.execute(text)
    prepare(database, "test")
    for table in twins.TABLES:
        assert twins.changed(database, table) == []


def test_0_2_0_writes_the_store_with_schema_1_and_no_session_ends(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`onceway store downgrade` of version 0.2.0 leaves the triggers of the twins, but drops the
    column `user`.
    """
    database = world.database
    database.execute("DELETE FROM given_part")
    database.execute("DELETE FROM given")
    database.execute("UPDATE session SET user = 'anna' WHERE client = 'waiting'")
    write(database, tmp_path)
    monkeypatch.setattr("gateway.store.downgrade.twins", SimpleNamespace(drop=lambda _: None))
    downgrade(tmp_path, 1)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as older:
        assert older.execute("SELECT count(*) FROM twin WHERE kind = 'session'").fetchone() != (0,)
        older.execute("INSERT OR REPLACE INTO session VALUES (900, 'x', 600, NULL, 0)")
        older.execute("INSERT OR REPLACE INTO session VALUES (901, 'y', 600, NULL, 0)")
        older.execute("UPDATE session SET expiry = 5 WHERE client = 'flying'")
        older.execute("DELETE FROM session WHERE id = 900")
    with closing(open_store(tmp_path, "test")) as newer:
        assert not any(twins.changed(newer, table) for table in twins.TABLES)


def test_older_schema_has_no_copies(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, "test")):
        pass
    downgrade(tmp_path, 1)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert not database.execute(
            "SELECT 1 FROM sqlite_schema WHERE name LIKE 'twin%'"
        ).fetchone()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE batch SET landed = 0 WHERE number = 2",
        "UPDATE batch SET last = last + 4 WHERE number = 2",
        "UPDATE meta SET value = replace(value, '6', '2') WHERE key = 'uplink.counted'",
        "DELETE FROM meta WHERE key = 'uplink.counted'",
    ],
)
def test_uplink_does_not_go_on_from_a_changed_row(
    world: World, tmp_path: Path, statement: str
) -> None:
    counted = '{"first": 3, "before": 2, "after": 6}'
    world.database.execute("INSERT OR REPLACE INTO meta VALUES ('uplink.counted', ?)", (counted,))
    behind(world.database, statement)
    write(world.database, tmp_path)
    with pytest.raises(OncewayError, match="it has changed since it was stored"):
        go_on(tmp_path)


def test_salvage_tells_changed_rows_and_ends_their_sessions(world: World, tmp_path: Path) -> None:
    behind(world.database, "UPDATE session SET incarnation = 5 WHERE client = 'flying'")
    behind(world.database, "UPDATE meta SET value = '99' WHERE key = 'boot'")
    write(world.database, tmp_path)
    lost = salvage(tmp_path).lost
    assert any("'boot' of meta" in line for line in lost)
    assert any("session of flying" in line and "the session ends" in line for line in lost)
    assert check(tmp_path) == []


def test_salvage_believes_the_rows_whose_copies_are_unreadable(tmp_path: Path) -> None:
    """Some twins are unreadable. No session ends because of that, and the epoch stays."""
    with closing(open_store(tmp_path, "site-7")) as database:
        commit = Commit(1)
        commit.sessions = [(n, f"c-{n}", 1 << 31, None, 0, None) for n in range(1, 41)]
        commit.subscriptions = [(n, "a/#", 1, 0) for n in range(1, 41)]
        commit.flows = [(n, b"", 1, b"", b"") for n in range(1, 41)]
        apply(database, commit)
        behind(database, "UPDATE session SET incarnation = 5 WHERE id = 9")
        (epoch,) = database.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    damage_first_leaf(tmp_path, "twin")
    lost = salvage(tmp_path).lost
    assert any(line.startswith("twin: ") for line in lost)
    assert len([line for line in lost if "the session ends" in line]) == 1, "its copy is readable"
    assert not any(line.startswith("meta: ") for line in lost)
    assert check(tmp_path) == []
    with closing(open_store(tmp_path, "site-7")) as database:
        found = database.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        assert found == (epoch,)
        ended = database.execute("SELECT id FROM session WHERE expiry = 0").fetchall()
        assert ended == [(9,)]


def damage_first_leaf(folder: Path, table: str) -> None:
    """Make a page of a table without row numbers unreadable: the leaf with the lowest keys."""
    page = root_of(folder, table) - 1
    data = (folder / FILE).read_bytes()[page * PAGE :]
    assert data[0] == 2, "an inner page of an index"
    first = int.from_bytes(data[12:14])
    damage(folder, int.from_bytes(data[first : first + 4]) - 1)


MARK = ("board", 1, 77, 5000, -5, b"")


def test_changed_mark_is_left_out_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An anti-replay window that is too high would drop the board's next readings."""
    with closing(open_store(tmp_path, "test")) as database:
        recover(database, None, 16)
        apply(database, Commit(1, marks=[MARK]))
        assert recover(database, None, 16).marks == [MARK]
        # version 0.2.0 finds no identifier in the cell
        (kept,) = database.execute("SELECT kept FROM mark").fetchone()
        assert unpack_set(kept) == ()
        assert len(kept) == 6
        # and it can move the board's session to another gateway (`move_records._set`)
        seals = [sealed((f"b{number}", *MARK[1:]))[5] for number in range(20_000)]
        assert max(int.from_bytes(seal[2:4], "big") for seal in seals) == 0x1FFE
        assert sealed((*MARK[:5], kept)) == (*MARK[:5], kept)
        database.execute("PRAGMA journal_mode = DELETE")
        image = database.serialize()
    assert caplog.messages == []
    told = 0
    for at in (found.start() for found in re.finditer(b"board", image)):
        for bit in range(8 * 19):  # the cells after the name, too
            hit = bytearray(image)
            hit[at + bit // 8] ^= 1 << bit % 8
            database = sqlite3.connect(":memory:", isolation_level=None)
            database.deserialize(bytes(hit))
            try:
                assert recover(database, None, 16).marks in ([], [MARK]), f"bit {bit} at {at}"
            except (sqlite3.DatabaseError, Refused):
                told += 1
    assert "The row is left out" in caplog.text
    assert told < 20


@pytest.mark.parametrize("kept", [b"\0\7", b"\xff\xff\0\2\1\x2c", b"\0\1\0\2\0\3\0\4"])
def test_identifiers_of_an_older_version_stay_with_their_mark(tmp_path: Path, kept: bytes) -> None:
    mark = (*MARK[:5], kept)
    with closing(open_store(tmp_path, "test")) as database:
        recover(database, None, 16)
        apply(database, Commit(1, marks=[mark]))
        assert recover(database, None, 16).marks == [mark]
