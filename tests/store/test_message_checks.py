"""A bit that flips in the store changes no delivered message."""

import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.broker.store_rows import Commit
from gateway.mqtt.packets import Connack, Publish, Will
from gateway.store import cells, meta, row_checks
from gateway.store.apply import apply
from gateway.store.check import check
from gateway.store.move_out import StoredParts, delete_parts, give
from gateway.store.move_rows import SessionExport, key_of
from gateway.store.recovery import recover
from gateway.store.row_checks import BITS, content_sum, put_checks
from gateway.store.schema import FILE, make_folder, open_store
from tests.broker.harness import FOREVER, World

COUNT = 90
"""Number of messages. It exceeds the number in flight, so the broker reads a part of the queue
later.
"""
SENT = [b'{"p":%d.25}' % (1000 + number) for number in range(COUNT)]
KEPT = 30
SOAK = pytest.mark.soak


@pytest.fixture
def world() -> World:
    """Return a world with two sessions in which messages of one size wait, with retained messages
    and with a will.
    """
    world = World(inflight=20)
    world.absent("first", topic="a/#")
    world.absent("second", topic="b/#")
    publisher = world.accepted("p", answers=True)
    for payload in SENT:
        publisher.publish("a/x", payload.decode(), qos=1)
        publisher.publish("b/x", payload.decode().replace("p", "q"), qos=1)
    for number in range(KEPT):
        publisher.publish(f"kept/{number}", f"value {number:06}", qos=1, retain=True)
    willing = world.durable("willing", will=Will("w/x", b"good bye", 1, properties=None))
    assert willing.connection
    world.commit()
    world.power_cut()
    return world


def opened(image: bytes) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.deserialize(image)
    return database


def come(world: World, client: str) -> tuple[bool, list[Publish]]:
    """Connect a client. Return Session Present, and the messages that the client receives."""
    found = world.connect(client, clean=False, properties=FOREVER, answers=True)
    for _ in range(8):
        world.commit()
    connack = found.take_all(Connack)
    return bool(connack and connack[0].session_present), found.take_all(Publish)


def served(world: World, image: bytes) -> list[Publish]:
    """Return the messages that two clients with sessions and a new client get from a store. A store
    that is refused serves none.
    """
    world.database = opened(image)
    try:
        if meta.refusal(world.database):
            return []
        world.power_cut()
        found = come(world, "first")[1] + come(world, "second")[1]
        new = world.accepted("new", answers=True)
        new.subscribe("kept/#", qos=0)
        new.subscribe("w/#", qos=0)
        world.sleep(5)  # the will is published
        return found + new.take_all(Publish)
    except Exception:
        return []  # the store is refused


def wrong(found: list[Publish]) -> list[Publish]:
    right = {"a/x": set(SENT), "b/x": {payload.replace(b"p", b"q") for payload in SENT}}
    right |= {f"kept/{number}": {b"value %06d" % number} for number in range(KEPT)}
    right["w/x"] = {b"good bye"}
    return [it for it in found if it.payload not in right.get(it.topic, ())]


def test_all_messages_of_a_sound_store_are_served(world: World) -> None:
    found = served(world, world.database.serialize())
    assert [it.payload for it in found if it.topic == "a/x"] == SENT
    assert len(found) == 2 * COUNT + KEPT + 1
    assert not wrong(found)


@pytest.mark.parametrize("hits", [60, pytest.param(10_000, marks=SOAK)])
def test_random_hits_let_no_wrong_message_be_served(world: World, hits: int) -> None:
    image, draw, count = world.database.serialize(), random.Random(44), 0
    for _ in range(hits):
        hit = bytearray(image)
        at, size = draw.randrange(len(hit)), draw.choice([1, 1, 8, 64])
        hit[at : at + size] = draw.randbytes(len(hit[at : at + size]))
        found = served(world, bytes(hit))
        assert not wrong(found), f"{size} bytes at {at}"
        count += bool(found)
    assert count > hits / 3


@pytest.mark.parametrize(
    "change",
    [
        "message SET body = CAST(replace(CAST(body AS TEXT), '1050', '9050') AS BLOB)",
        "message SET topic = 'a/y' WHERE id = {id}",
        "message SET retain = 1 WHERE id = {id}",
        "message SET expires = 9000000 WHERE id = {id}",
        "queue SET message = message + (1 << 20) WHERE message = {id}",
    ],
)
def test_changed_message_ends_its_session_and_is_reported(
    world: World, change: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = "SELECT id FROM message WHERE topic = ? ORDER BY id LIMIT 1 OFFSET 50"
    (row,) = world.database.execute(query, ("a/x",)).fetchone()
    if "body" in change:
        change += f" WHERE id = {row}"
    world.database.execute("UPDATE " + change.format(id=row))
    (tmp_path / FILE).write_bytes(world.database.serialize())
    assert any("session of first" in line for line in check(tmp_path))
    world.power_cut()
    assert "session of first: " in caplog.text
    assert come(world, "first") == (False, [])
    present, found = come(world, "second")
    assert present
    assert len(found) == COUNT


def test_message_that_changes_while_the_gateway_runs_is_not_served(world: World) -> None:
    world.database.execute(
        "UPDATE message SET body = x'00' WHERE topic = 'a/x' AND id IN"
        " (SELECT id FROM message WHERE topic = 'a/x' ORDER BY id LIMIT 1 OFFSET 80)"
    )
    _, found = come(world, "first")
    assert not wrong(found)
    assert len(found) < COUNT


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table, columns in row_checks.COLUMNS.items() for column in columns],
)
def test_changed_cell_leaves_its_row_out_and_is_reported(
    world: World, table: str, column: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = world.database
    aside = Commit(9)
    aside.aside = [(1, "b", 5, "t", 1, 0, b"", None, b"x", "too large")]
    apply(database, aside)
    part = (1, "given", 0, b"x")
    database.execute("INSERT INTO given_part VALUES (?, ?, ?, ?)", part)
    database.execute("INSERT INTO given VALUES ('given', 'b', 1, 0, NULL)")
    put_checks(database, "given_part", [part])
    (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
    (kind,) = database.execute(f"SELECT typeof({column}) FROM {table}").fetchone()
    others = {"text": f"{column} || 'x'", "null": "5", "integer": f"({column} + 1) % 2"}
    # format indicator 1 is stored as a property of the message
    other = "x'0101'" if column == "properties" else others.get(kind, "x'00'")
    key = row_checks.COLUMNS[table][0]
    database.execute(
        f"UPDATE {table} SET {column} = {other} WHERE {key} = (SELECT min({key}) FROM {table})"
    )
    (tmp_path / FILE).write_bytes(database.serialize())
    assert any(f"of {table}: " in line for line in check(tmp_path))
    world.power_cut()
    assert f"of {table}: " in caplog.text
    given = table == "given_part"
    assert ("The move is given up" if given else "The row is left out") in caplog.text
    assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (count - 1,)
    (tmp_path / FILE).write_bytes(database.serialize())
    assert check(tmp_path) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["kept/18", "willing"])
def test_changed_bit_of_a_key_lets_no_wrong_message_be_served(world: World, key: str) -> None:
    """A row with a changed key is not at the position of this key, so a search by the key does not
    find it.
    """
    image = world.database.serialize()
    starts = [found.start() for found in re.finditer(key.encode(), image)]
    told = 0
    for place in starts:
        for bit in range(8 * len(key)):
            hit = bytearray(image)
            hit[place + bit // 8] ^= 1 << bit % 8
            found = served(world, bytes(hit))
            assert not wrong(found), f"bit {bit} of {key!r} at {place}"
            told += 0 < len(found) < 2 * COUNT + KEPT + 1
    assert told > 8 * len(key) / 2


def test_checks_leave_with_their_rows(world: World) -> None:
    publisher = world.accepted("p", answers=True)
    for number in range(KEPT):
        publisher.publish(f"kept/{number}", "", qos=1, retain=True)
    world.commit()
    left = world.rows("SELECT kind, key FROM content_check")
    assert [it for it in left if it[0] == "retained" and it[1].startswith("kept/")] == []


def test_part_of_a_session_that_has_left_is_not_sent_when_it_has_changed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    database = world.database
    (session,) = database.execute("SELECT id FROM session WHERE client = 'first'").fetchone()
    give(database, SessionExport(session, key_of("first", None, 0), "b"))
    parts = StoredParts(database, key_of("first", None, 0), lambda: 5)
    (body,) = database.execute("SELECT body FROM given_part").fetchone()
    assert parts[0].endswith(body)
    for at in range(0, len(body), 97):
        hit = bytearray(body)
        hit[at] ^= 1 << at % 8
        database.execute("UPDATE given_part SET body = ?", (bytes(hit),))
        with pytest.raises(IndexError):
            parts[0]
    assert "part 1 of 1 is gone from the store, or has changed there" in caplog.text
    delete_parts(database, [(key_of("first", None, 0),)])
    assert not world.rows("SELECT * FROM content_check WHERE kind = 'given_part'")


def as_older_version(database: sqlite3.Connection) -> None:
    """Change the store as if version 0.2.0 had run last: its messages have other numbers, and some
    of its checks are missing or stale.
    """
    database.execute("UPDATE queue SET message = (message >> 20) + 7")
    database.execute("UPDATE message SET id = (id >> 20) + 7")
    database.execute("UPDATE meta SET value = value + 1 WHERE key = 'boot'")
    database.execute("DELETE FROM content_check WHERE key > 'kept/2'")
    database.execute("UPDATE content_check SET sum = 5 WHERE key < 'kept/1'")


def test_messages_of_an_older_version_get_a_check_at_the_start(
    world: World, tmp_path: Path
) -> None:
    as_older_version(world.database)
    image = world.database.serialize()
    (tmp_path / FILE).write_bytes(image)
    assert check(tmp_path) == []
    world.power_cut()
    checked = world.database.serialize()
    for row in world.rows("SELECT * FROM message"):
        assert row[0] & (1 << BITS) - 1 == content_sum(*row[1:])
    assert len(served(world, image)) == len(served(world, checked)) == 2 * COUNT + KEPT + 1


def test_version_0_2_0_counts_on_from_the_numbers_and_its_messages_are_served(
    world: World,
) -> None:
    database = world.database
    (place,) = database.execute(
        "SELECT max(first + count) FROM queue JOIN session ON id = session WHERE client = 'first'"
    ).fetchone()
    (last,) = database.execute("SELECT max(id) FROM message").fetchone()
    database.execute(
        "INSERT INTO message SELECT ? + 1, topic, retain, count, properties, expires, body"
        " FROM message WHERE topic = 'a/x' LIMIT 1",
        (last,),
    )
    database.execute(
        "INSERT INTO queue SELECT session, ?, 1, ? + 1, 0, flags, extra, share, size FROM queue"
        " WHERE first = ? - 1 AND session = (SELECT id FROM session WHERE client = 'first')",
        (place, last, place),
    )
    database.execute("UPDATE meta SET value = value + 1 WHERE key = 'boot'")
    world.power_cut()
    assert len(come(world, "first")[1]) == COUNT + 1


def test_new_place_of_an_earlier_message_names_its_row(tmp_path: Path) -> None:
    make_folder(tmp_path)
    with closing(open_store(tmp_path, "site-7")) as database:
        recover(database, None, 16)
        apply(
            database,
            Commit(
                1,
                messages=[(5, "t", 0, 1, b"", None, b"x")],
                queue=[(1, 1, 1, 5, 0, 2, b"", "", 1)],
            ),
        )
        apply(database, Commit(2, queue=[(2, 1, 1, 5, 0, 2, b"", "", 1)]))
        assert database.execute(
            "SELECT count(*) FROM queue JOIN message ON id = message"
        ).fetchone() == (2,)
        # the broker uses the number of a finished message for a new one
        apply(
            database,
            Commit(
                3,
                finished=[(1, 1), (2, 1)],
                messages=[(5, "t", 0, 1, b"", None, b"y")],
                queue=[(1, 2, 1, 5, 0, 2, b"", "", 1)],
            ),
        )
        assert database.execute("SELECT body FROM message").fetchall() == [(b"y",)]
        apply(database, Commit(4, dead=[5], finished=[(1, 2)]))
        assert database.execute("SELECT count(*) FROM message").fetchone() == (0,)


NAMES = "SELECT DISTINCT name, narg FROM pragma_function_list"
CELLS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=10),
    st.binary(max_size=10),
    st.sampled_from([b"\0\0\0\1\0\0", "\0\0\0\1\0\0", b"\1\0\1\0\1\0"]),
)


@pytest.fixture
def taught(tmp_path: Path) -> Iterator[tuple[sqlite3.Connection, list[tuple[str, int]]]]:
    """Yield a store, and the functions that `cells.teach` adds to SQLite's own, with their numbers
    of arguments.
    """
    make_folder(tmp_path)
    with closing(sqlite3.connect(":memory:")) as plain:
        built_in = {name for name, _ in plain.execute(NAMES)}
    with closing(open_store(tmp_path, "g")) as store:
        cells.teach(store)
        yield store, sorted(row for row in store.execute(NAMES) if row[0] not in built_in)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_function_of_the_conditions_fails_at_a_cell_of_any_type(
    taught: tuple[sqlite3.Connection, list[tuple[str, int]]], data: st.DataObject
) -> None:
    """SQLite may evaluate the terms of a WHERE clause in any order. So it may call a function for a
    cell that another term excludes.
    """
    store, functions = taught
    assert len(functions) >= 10, functions
    for name, width in functions:
        row = [data.draw(CELLS) for _ in range(3 if width < 0 else width)]
        store.execute(f"SELECT {name}({', '.join('?' * len(row))})", row).fetchone()
