"""Damage of a store is found, and salvage saves everything that can be read."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.broker.store_rows import Commit
from gateway.config import Config, GatewaySection
from gateway.mqtt.properties import Properties, PropertyId
from gateway.runtime.clock import Clock
from gateway.service.gateway import Gateway, _open_broker
from gateway.store.apply import apply
from gateway.store.check import check
from gateway.store.move_rows import moved_of
from gateway.store.recovery import recover
from gateway.store.salvage import salvage
from gateway.store.schema import FILE, SCHEMA_VERSION, StoreError, open_store
from tests.broker.harness import World
from tests.store.older import downgrade

PAGE = 1024


def filled(folder: Path, rows: int = 3000) -> None:
    with closing(open_store(folder, "site-7")) as database:
        commit = Commit(1)
        commit.sessions = [(1, "c", 100, None, 0, None)]
        commit.spool = [
            (n, "d", 1, n, "c", "spool/0123", bytes(100), 1, n, None) for n in range(1, rows + 1)
        ]
        apply(database, commit)
        database.execute("DELETE FROM spool WHERE id > ?", (rows - 10,))
        database.execute("INSERT INTO meta VALUES ('spool.last', ?)", (str(rows),))
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def damage(folder: Path, page: int) -> None:
    path = folder / FILE
    data = bytearray(path.read_bytes())
    data[page * PAGE : (page + 1) * PAGE] = bytes(range(256)) * (PAGE // 256)
    path.write_bytes(data)


def loose(database: sqlite3.Connection) -> None:
    """Let every column accept any value, because a disk may change a page in any way."""
    database.execute("PRAGMA writable_schema = ON")
    database.execute(
        "UPDATE sqlite_schema SET sql = replace(replace(replace(sql, 'STRICT, ', ''), 'STRICT',"
        " ''), 'NOT NULL', '') WHERE type = 'table'"
    )
    database.execute("PRAGMA writable_schema = RESET")


def root_of(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / FILE)) as database:
        return int(
            database.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
            ).fetchone()[0]
        )


def test_a_sound_store_has_no_findings(tmp_path: Path) -> None:
    filled(tmp_path)
    assert check(tmp_path) == []


@pytest.mark.parametrize("properties", [{}, {PropertyId.CONTENT_TYPE: "text/plain"}])
@pytest.mark.parametrize("topic", ["t", "t/" + "long" * 1000, "ü" * 3000])
@pytest.mark.parametrize("count", [1, 3])
def test_a_message_that_waits_is_sound_and_saved(
    tmp_path: Path, count: int, topic: str, properties: Properties
) -> None:
    """The properties and the topic of a message count in the size of its queue entry."""
    world = World()
    subscriber = world.durable("s")
    subscriber.subscribe("#")
    subscriber.drop()
    publisher = world.accepted(answers=True)
    for _ in range(count):
        publisher.publish(topic, b"payload", 1, properties=dict(properties))
    world.commit()
    world.database.execute("VACUUM INTO ?", (str(tmp_path / FILE),))
    with closing(open_store(tmp_path, "site-7")):
        pass  # a gateway starts and stops
    assert check(tmp_path) == []
    result = salvage(tmp_path)
    assert result.lost == []
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert database.execute("SELECT sum(count) FROM queue").fetchone() == (count,)


def test_one_bad_page_costs_the_rows_on_it(tmp_path: Path) -> None:
    filled(tmp_path)
    damage(tmp_path, 60)
    assert check(tmp_path)
    result = salvage(tmp_path)
    lost = 2990 - result.rows["spool"]
    assert 0 < lost < 60
    assert re.fullmatch(
        rf"spool: {lost} rows, \d+ to \d+, except rows that had landed", result.lost[0]
    )
    assert check(tmp_path) == []
    assert result.old.exists()
    with closing(open_store(tmp_path, "site-7")) as database:
        assert recover(database, None, 1024).next_spool == 3001, "spool ids are never used twice"
        assert database.execute("SELECT topic FROM spool LIMIT 1").fetchone() == ("spool/0123",)
        assert database.execute("SELECT client FROM session").fetchone() == ("c",)


@pytest.mark.parametrize(
    "pages", [*([60, 61 + near] for near in (1, 2, 3, 4, 7, 12, 80)), [*range(60, 400, 3)]]
)
def test_bad_pages_cost_only_the_rows_on_them(tmp_path: Path, pages: list[int]) -> None:
    """Pages between bad ones are saved, even if the bad ones are near each other."""
    filled(tmp_path)
    data = (tmp_path / FILE).read_bytes()
    leaf, rows = 13, 0
    for page in pages:
        assert data[page * PAGE] == leaf
        rows += int.from_bytes(data[page * PAGE + 3 : page * PAGE + 5])
        damage(tmp_path, page)
    assert salvage(tmp_path).rows["spool"] == 2990 - rows


def test_shared_messages_of_an_ended_session_are_sound_but_not_salvaged(tmp_path: Path) -> None:
    """Before the salvage, the client may already have received these messages."""
    filled(tmp_path)
    with closing(open_store(tmp_path, "site-7")) as database:
        commit = Commit(2)
        commit.messages = [(1, "t", 0, 1, b"", None, b"x")]
        commit.queue = [(7, 1, 1, 1, 0, 4, b"", "$share/group/t", 1)]
        apply(database, commit)
        found = recover(database, None, 1024)
        assert found.leaving == [7]
        assert found.next_session == 8, "no other session gets its number"
    assert check(tmp_path) == []
    assert salvage(tmp_path).lost == ["a queue entry without a session: 1"]


class Killed(BaseException):
    """An exception at the moment at which the process is killed."""


CHANGES = ("rename", "unlink")


def test_a_salvage_that_was_killed_at_any_step_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = False
    step = 0
    while not done:
        step += 1
        folder = tmp_path / str(step)
        folder.mkdir()
        filled(folder)
        with closing(sqlite3.connect(folder / FILE)) as database:
            database.execute("PRAGMA wal_autocheckpoint=0")
            database.execute("INSERT INTO session VALUES (2, 'in the log', 100, NULL, 0, NULL)")
            database.commit()
            shutil.copy(folder / FILE, folder / "copy")
            shutil.copy(folder / f"{FILE}-wal", folder / "copy-wal")
        (folder / "copy").rename(folder / FILE)
        (folder / "copy-wal").rename(folder / f"{FILE}-wal")
        left = step
        with monkeypatch.context() as patch:
            for name in CHANGES:
                real = getattr(Path, name)

                def change(
                    path: Path, *args: object, real: Callable[..., object] = real, **more: object
                ) -> object:
                    nonlocal left
                    left -= 1
                    if not left:
                        raise Killed
                    return real(path, *args, **more)

                patch.setattr(Path, name, change)
            try:
                salvage(folder)
                done = True
            except Killed:
                pass
        if not done and check(folder):
            with pytest.raises(StoreError, match="Run it again: onceway store salvage"):
                open_store(folder, "site-7")
            salvage(folder)
        with closing(open_store(folder, "site-7")) as database:
            assert database.execute("SELECT count(*) FROM spool").fetchone() == (2990,)
            assert database.execute("SELECT client FROM session ORDER BY id").fetchall() == [
                ("c",),
                ("in the log",),
            ]
    assert step > 6


def test_a_salvaged_store_takes_once_more_what_a_board_sends_again(tmp_path: Path) -> None:
    """The salvage drops the anti-replay windows, because they may contain sequences of lost
    rows.
    """
    filled(tmp_path)
    with closing(open_store(tmp_path, "site-7")) as database:
        database.execute("INSERT INTO mark VALUES ('b', 0, 7, 5, 0, x''), ('b', 1, 0, 5, 0, x'')")
    assert check(tmp_path) == ["row 'b', 1 of mark: invalid incarnation"]
    salvage(tmp_path)
    assert check(tmp_path) == []
    with closing(open_store(tmp_path, "site-7")) as database:
        assert recover(database, None, 1024).marks == []


def test_session_whose_packet_identifiers_are_lost_ends(tmp_path: Path) -> None:
    """The session's identifiers would be given to other messages, so the client begins again."""
    with closing(open_store(tmp_path, "site-7")) as database:
        commit = Commit(1)
        commit.sessions = [(1, "c", 100, None, 0, None)]
        commit.subscriptions = [(1, "t", 1, 0)]
        commit.flows = [(1, b"", 1, b"", b"")]
        commit.messages = [(1, "t", 0, 2, b"", None, b"xy")]
        commit.queue = [(1, 1, 2, 1, 0, 2, b"", "", 1)]
        apply(database, commit)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(tmp_path, root_of(tmp_path, "flow") - 1)
    lost = salvage(tmp_path).lost
    assert "flow: from 0 on" in lost
    assert (
        "session c: its row in flow is gone, so the session ends, with 2 messages in its queue"
    ) in lost
    assert check(tmp_path) == []
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        for table in ("session", "subscription", "queue"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


@pytest.mark.parametrize("members", ['["b"]', "damaged"])
def test_salvaged_knowledge_of_other_members_is_suspect(tmp_path: Path, members: str) -> None:
    """A row that was lost may have said that a member has a newer session. So after a salvage, the
    store knows no member any more, and each counts as new.
    """
    filled(tmp_path)
    with closing(open_store(tmp_path, "site-7")) as database:
        database.execute("INSERT INTO meta VALUES ('members', ?)", (members,))
    salvage(tmp_path)
    with closing(open_store(tmp_path, "site-7")) as database:
        assert moved_of(recover(database, None, 1024)).members == frozenset(), "b is a new one"


def test_salvage_reports_the_commits_that_a_damaged_log_has_lost(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    (tmp_path / "data").mkdir()
    filled(tmp_path / "data")
    with closing(open_store(tmp_path / "data", "site-7")) as database:
        for number in range(20):
            database.execute("INSERT OR REPLACE INTO meta VALUES ('x', ?)", (str(number),))
        shutil.copytree(tmp_path / "data", folder)
    log = folder / f"{FILE}-wal"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    result = salvage(folder)
    lost = r"the log is damaged after frame \d+: \d+ commits cannot be read"
    assert re.fullmatch(lost, result.lost[0])
    assert result.findings[0] == result.lost[0]
    assert result.rows["spool"] == 2990
    assert check(folder) == []
    with closing(open_store(folder, "site-7")) as database:
        (number,) = database.execute("SELECT value FROM meta WHERE key = 'x'").fetchone()
    assert 0 <= int(number) < 19, "the last one before the damage"


def test_store_whose_version_is_damaged_is_salvaged_whole(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute("PRAGMA user_version=0")
    assert check(tmp_path) == ["schema 0 is not known here"]
    with pytest.raises(StoreError, match="the store is damaged"):
        open_store(tmp_path, "site-7")
    result = salvage(tmp_path)
    assert (result.rows["spool"], result.rows["session"]) == (2990, 1)
    assert not [text for text in result.lost if text.endswith(": all")]
    assert check(tmp_path) == []
    with closing(open_store(tmp_path, "site-7")) as database:
        assert recover(database, None, 1024).next_spool == 3001


def test_rows_that_no_store_can_hold_are_counted_as_lost(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as database:
        loose(database)
        database.execute("UPDATE spool SET payload = NULL WHERE id > 2988")
        database.execute("UPDATE session SET expiry = 'never'")
    result = salvage(tmp_path)
    assert "spool: 2 invalid rows" in result.lost
    assert "session: 1 invalid row" in result.lost
    assert result.rows["spool"] == 2988
    assert check(tmp_path) == []


def test_older_store_that_never_had_a_reading_begins_with_number_one(tmp_path: Path) -> None:
    open_store(tmp_path, "site-7").close()
    downgrade(tmp_path / FILE, 1)
    assert salvage(tmp_path).lost == []
    with closing(open_store(tmp_path, "site-7")) as database:
        assert recover(database, None, 1024).next_spool == 1


def test_salvage_keeps_the_numbering_of_batches(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        (epoch,) = database.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    salvage(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert database.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone() == (epoch,)


async def test_the_gateway_names_the_damage_and_the_way_out(tmp_path: Path) -> None:
    filled(tmp_path)
    damage(tmp_path, root_of(tmp_path, "session") - 1)
    with pytest.raises(
        StoreError, match=r"gateway.db: the store is damaged .* onceway store salvage"
    ):
        await Gateway(Config(gateway=GatewaySection(data=tmp_path))).run()


@pytest.mark.parametrize("doubt", [0, 1, 2, 3])
@pytest.mark.parametrize("older", ["[]", '["b"]', "", "7", "{}", "[7]"])
def test_an_impossible_place_is_found_and_named(tmp_path: Path, doubt: int, older: str) -> None:
    filled(tmp_path, 20)
    with closing(open_store(tmp_path, "site-7")) as database:
        database.execute("INSERT INTO place VALUES ('c', 1, ?, ?)", (doubt, older))
    wrong = ["doubtful"] * (doubt == 3) + ["older"] * (older not in ("[]", '["b"]'))
    found = [f"row 'c' of place: invalid {' and '.join(wrong)}"] if wrong else []
    assert check(tmp_path) == found
    if found:
        with pytest.raises(StoreError, match=found[0] + r".*onceway store salvage"):
            _open_broker(Config(gateway=GatewaySection(data=tmp_path)), Clock(trust=False))


@pytest.mark.parametrize("column", ["closed", "tails", "filters", "done"])
@pytest.mark.parametrize("wrong", ["", "7", "{}", "[7]", "[[]]", "[null]"])
def test_invalid_lists_of_a_session_move_are_found_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, column: str, wrong: str
) -> None:
    filled(tmp_path, 20)
    with closing(open_store(tmp_path, "site-7")) as database:
        journey = (1, 1, 0, '["b"]', "[]", '["t"]', None, None, None, "[]")
        database.execute(f"INSERT INTO journey VALUES ({', '.join('?' * 10)})", journey)
        assert check(tmp_path) == []
        database.execute(f"UPDATE journey SET {column} = ?", (wrong,))
    (found,) = check(tmp_path)
    assert f"row 1 of journey: invalid {column}" in found
    if column == "done":
        salvage(tmp_path)
        assert check(tmp_path) == []
    _open_broker(Config(gateway=GatewaySection(data=tmp_path)), Clock(trust=False))
    assert (found in caplog.text) is (column != "done")
    assert check(tmp_path) == []


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"x" * 10_000)
    with pytest.raises(StoreError, match="not a database"):
        open_store(tmp_path, "site-7")
    assert check(tmp_path)
    assert salvage(tmp_path).rows["spool"] == 0


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="newer Onceway"):
        open_store(tmp_path, "site-7")


def test_an_older_store_is_upgraded_and_can_be_salvaged_as_it_is(tmp_path: Path) -> None:
    filled(tmp_path)
    downgrade(tmp_path / FILE, 1)
    result = salvage(tmp_path)
    assert result.lost == []
    result.old.rename(tmp_path / FILE)
    for _ in range(2):
        with closing(open_store(tmp_path, "site-7")) as database:
            assert database.execute("SELECT * FROM session").fetchall() == [
                (1, "c", 100, None, 0, None)
            ]
            assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
            assert recover(database, None, 1024).next_spool == 2991, "as many as it ever gave"
