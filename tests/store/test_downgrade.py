"""`onceway store downgrade`: an older version finds the tables of its own schema. After a later
upgrade, the store has its whole content again.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.broker.store_rows import Commit
from gateway.mqtt.message_ids import pack_bits, unpack_ids
from gateway.store import downgrade as module
from gateway.store import twins
from gateway.store.apply import apply
from gateway.store.check import check
from gateway.store.cli import app
from gateway.store.downgrade import downgrade
from gateway.store.move_records import END, MOVE, SESSION, record
from gateway.store.move_rows import moved_of
from gateway.store.recovery import recover
from gateway.store.row_checks import put_checks
from gateway.store.schema import FILE, SCHEMA_VERSION, StoreError, open_store
from gateway.system.lock import ProcessLock
from tests.store import older

Tables = dict[str, list[tuple[object, ...]]]


def fill(folder: Path) -> None:
    """Create a store with fifty readings, of which ten are still in the spool, and with a session
    that has two received identifiers.
    """
    bits = bytearray(1 << 13)
    bits[1] = 0b11
    with closing(open_store(folder, "site-7")) as database:
        commit = Commit(1)
        commit.sessions = [(1, "c", 100, None, 0, "alice")]
        commit.flows = [(1, pack_bits(bits), 5, b"", b"")]
        commit.spool = [
            (n, "d", 1, n, "c", "spool/0123", bytes(100), 1, n, None) for n in range(1, 51)
        ]
        apply(database, commit)
        with database:
            database.execute("INSERT OR REPLACE INTO meta VALUES ('spool.last', '50')")
            database.execute("DELETE FROM spool WHERE id > 10")


def tables(path: Path) -> tuple[Tables, Tables]:
    """Return the schema, and the rows of all tables except `flow`."""
    with closing(sqlite3.connect(path)) as database:
        twins.drop(database)
        declared = database.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
        plain = [(name, " ".join(str(sql).replace('"', "").split())) for name, sql in declared]
        names = [str(name) for name, _ in declared if not str(name).startswith("sqlite_auto")]
        rows = {
            name: database.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in names
            if name not in ("flow", "sqlite_sequence")
        }
    return {"declared": list(plain)}, rows


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_version_finds_its_own_tables_with_all_rows(tmp_path: Path, version: int) -> None:
    (ours := tmp_path / "ours").mkdir()
    fill(ours)
    shutil.copytree(ours, theirs := tmp_path / "theirs")
    left_out = downgrade(ours, version)
    older.downgrade(theirs / FILE, version)
    assert tables(ours / FILE) == tables(theirs / FILE)
    assert len(left_out) == SCHEMA_VERSION - version
    with closing(sqlite3.connect(ours / FILE)) as database:
        (highest,) = database.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'spool'"
        ).fetchone()
        assert highest == 50, "no number is used twice"
        (received,) = database.execute("SELECT received FROM flow").fetchone()
        assert unpack_ids(received) == (8, 9)


@pytest.mark.parametrize("version", [1, 2])
def test_downgraded_store_is_upgraded_unchanged(tmp_path: Path, version: int) -> None:
    fill(tmp_path)
    downgrade(tmp_path, version)
    with closing(open_store(tmp_path, "site-7")) as database:
        state = recover(database, None, 16)
        assert state.next_spool == 51
        assert database.execute("SELECT count(*) FROM spool").fetchone() == (10,)
        assert [row[1] for row in state.sessions] == ["c"]
    assert check(tmp_path) == []


def test_a_session_that_has_left_can_be_called_back_by_an_older_version(tmp_path: Path) -> None:
    """The session has moved away, but its member still stores its parts. The older version does not
    know the record of the moving id, so the downgrade removes this record.
    """
    session = record(SESSION, ("c", 100, 0, 0, "alice"))
    journey, end = record(MOVE, (7, 1, "attic", 1)), record(END, ())
    rows = [(1, "c", 0, session + journey + end), (2, "without", 0, session + end)]
    with closing(open_store(tmp_path, "site-7")) as database:
        recover(database, None, 16)
        database.executemany("INSERT INTO given_part VALUES (?, ?, ?, ?)", rows)
        database.executemany(
            "INSERT INTO given VALUES (?, 'b', 1, 0, NULL)", [("c",), ("without",)]
        )
        put_checks(database, "given_part", rows)
    downgrade(tmp_path, SCHEMA_VERSION - 1)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        bodies = database.execute("SELECT body FROM given_part").fetchall()
    assert bodies == [(session + end,), (session + end,)]
    with closing(open_store(tmp_path, "site-7")) as database:
        recover(database, None, 16)
        assert database.execute("SELECT body FROM given_part").fetchall() == bodies


def test_knowledge_of_other_members_is_suspect_when_the_site_comes_back(tmp_path: Path) -> None:
    """The downgrade drops the list of members. Without it, a member counts as new, and the records
    about its sessions become suspect.
    """
    fill(tmp_path)
    with closing(open_store(tmp_path, "site-7")) as database:
        database.execute("INSERT INTO meta VALUES ('members', '[\"b\"]')")
    downgrade(tmp_path, 4)
    with closing(open_store(tmp_path, "site-7")) as database:
        assert moved_of(recover(database, None, 10)).members == frozenset(), "b is a new one"


def test_downgrade_that_fails_at_its_last_step_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    before = tables(tmp_path / FILE)
    steps = {**module._STEPS, 2: "ALTER TABLE session DROP COLUMN other;"}
    with monkeypatch.context() as broken:
        broken.setattr(module, "_STEPS", steps)
        with pytest.raises(StoreError, match='no such column: "other"'):
            downgrade(tmp_path, 1)
    assert tables(tmp_path / FILE) == before
    assert check(tmp_path) == []
    downgrade(tmp_path, 1)


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION, SCHEMA_VERSION + 1])
def test_no_other_version_is_written(tmp_path: Path, version: int) -> None:
    fill(tmp_path)
    with pytest.raises(StoreError, match=f"cannot be converted to schema {version}"):
        downgrade(tmp_path, version)
    open_store(tmp_path, "site-7").close()


def test_the_command_refuses_beside_a_gateway_and_says_what_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path)
    words = ["downgrade", "--data", str(tmp_path), "--json"]
    with closing(ProcessLock(tmp_path / "gateway.lock")):
        assert CliRunner().invoke(app, words).exit_code != 0
    open_store(tmp_path, "site-7").close()
    result = CliRunner().invoke(app, words)
    assert json.loads(result.stdout)["schema"] == SCHEMA_VERSION - 1
    assert "between the gateways of a site" in result.stdout
