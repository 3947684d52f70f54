"""A row of each kind is deleted, and each reference between rows is broken.

Every loss is reported: the log has a line, and the session's client gets a new session, or the
store is refused. `onceway store check` finds each of them.
"""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from gateway.mqtt.packets import Connack, Disconnect, Puback, Publish, Will
from gateway.mqtt.properties import PropertyId
from gateway.store.check import check
from gateway.store.copies import Copies
from gateway.store.doubts import FILE as DOUBTS
from gateway.store.doubts import read as read_doubts
from gateway.store.meta import VALUES
from gateway.store.move_rows import key_of
from gateway.store.recovery import Refused
from gateway.store.references import missing
from gateway.store.row_checks import put_checks
from gateway.store.salvage import salvage
from gateway.store.schema import FILE, PAGE_BYTES, StoreError, open_store, prepare
from gateway.uplink.spool import Spool
from tests.broker.harness import FOREVER, World

COUNT = 600
GIVEN = key_of("given", None, 0)


@pytest.fixture
def world() -> World:
    """Return a world with sessions in every state, as the broker stores them. `waiting` has a long
    queue. `flying` has messages in flight in both directions. `shared` has messages of a shared
    subscription.
    """
    world = World()
    world.absent("waiting", topic="w/#")
    shared = world.durable("shared")
    shared.subscribe("$share/g/shared/#", qos=1)
    shared.drop()
    flying = world.durable("flying", properties={PropertyId.RECEIVE_MAXIMUM: 10})
    flying.subscribe("f/#", qos=2)
    publisher = world.accepted("p", answers=True)
    for number in range(COUNT):
        publisher.publish("w/x", f"{number}", qos=1)
    for number in range(20):
        publisher.publish("f/x", f"{number}", qos=1 + number % 2)
        publisher.publish("shared/x", f"{number}", qos=1)
    for number in range(9):
        publisher.publish("spool/x", f"{number}", qos=1)
    publisher.publish("kept", "x", qos=1, retain=True)
    flying.send(Publish("t", b"x", 2, 7))
    flying.send(Puback(flying.take_all(Publish)[0].packet_id))
    willing = world.durable("willing", will=Will("t", b"x", 1, properties=None))
    assert willing.connection
    world.commit()
    _as_in_a_site(world.database)
    world.power_cut()
    assert missing(world.database) == []
    return world


def _as_in_a_site(database: sqlite3.Connection) -> None:
    """Add rows to the tables that only a site or the uplink fills."""
    (session,) = database.execute("SELECT id FROM session WHERE client = 'willing'").fetchone()
    journey = (session, 5, 1, '["b"]', "[]", "[]", None, None, None, "[]")
    database.execute(f"INSERT INTO journey VALUES ({','.join('?' * 10)})", journey)
    database.execute("INSERT INTO place VALUES (?, 3, 0, '[]')", (GIVEN,))
    database.execute("INSERT INTO given VALUES (?, 'b', 3, 1, NULL)", (GIVEN,))
    for part in range(3):
        row = (part + 1, GIVEN, part, b"\0")
        database.execute("INSERT INTO given_part VALUES (?, ?, ?, ?)", row)
        put_checks(database, "given_part", [row])
    for number, landed in ((1, 5), (2, None)):
        first = 2 * number - 1
        database.execute(
            "INSERT INTO batch VALUES (?, ?, ?, 2, 9, '', 0, ?)", (number, first, first + 1, landed)
        )
        database.execute("INSERT INTO batch_content VALUES (?, 9, x'')", (number,))
    database.execute("DELETE FROM spool WHERE id <= 2")


def of(client: str) -> str:
    return f"session = (SELECT id FROM session WHERE client = '{client}')"


_WAITING = "SELECT {} FROM queue WHERE " + of("waiting")
MIDDLE = _WAITING + " ORDER BY first LIMIT 1 OFFSET 300"
FIRST = _WAITING + " ORDER BY first LIMIT 1"
LAST = _WAITING + " ORDER BY first DESC LIMIT 1"

CASES = {
    # the session that loses something, the statement that damages the store, words of the log
    "message": ("waiting", "DELETE FROM message WHERE id = ({message})", "content of 1 message"),
    "message, the first": (
        "waiting",
        "DELETE FROM message WHERE id = ({first_message})",
        "content of 1 message",
    ),
    "message, the last": (
        "waiting",
        "DELETE FROM message WHERE id = ({last_message})",
        "content of 1 message",
    ),
    "message, another number": (
        "waiting",
        "UPDATE queue SET message = 999999 WHERE first = ({place}) AND " + of("waiting"),
        "content of 1 message",
    ),
    "message, shorter": (
        "waiting",
        "UPDATE message SET count = 2, body = x'001122' WHERE id = ({message})",
        "1 message of its queue has a wrong length",
    ),
    "message, nothing in it": (
        "waiting",
        "UPDATE message SET count = 0 WHERE id = ({message})",
        "1 message of its queue has a wrong length",
    ),
    "message under way": (
        "flying",
        "DELETE FROM message WHERE id = (SELECT message FROM queue WHERE "
        + of("flying")
        + " ORDER BY first LIMIT 1 OFFSET 3)",
        "content of 1 message",
    ),
    "message of a shared subscription": (
        "shared",
        "DELETE FROM message WHERE id = (SELECT message FROM queue WHERE share <> '' LIMIT 1)",
        "content of 1 message",
    ),
    "queue": (
        "waiting",
        "DELETE FROM queue WHERE first = ({place}) AND " + of("waiting"),
        "1 message is gone from its queue",
    ),
    "queue, the first": (
        "waiting",
        "DELETE FROM queue WHERE first = ({first_place}) AND " + of("waiting"),
        "1 message is gone from its queue",
    ),
    "queue, flags": (
        "waiting",
        "UPDATE queue SET flags = 6 WHERE first = ({place}) AND " + of("waiting"),
        "an entry of its queue is damaged",
    ),
    "queue, far away": (
        "waiting",
        "UPDATE queue SET first = 99999 WHERE first = ({place}) AND " + of("waiting"),
        "an entry of its queue is damaged",
    ),
    "message, properties": (
        "waiting",
        "UPDATE message SET properties = x'ff' WHERE id = ({message})",
        "an entry of its queue is damaged",
    ),
    "message, no UTF-8": (
        "waiting",
        "UPDATE message SET topic = CAST(x'ff' AS TEXT) WHERE id = ({message})",
        "an entry of its queue is damaged",
    ),
    "flow, next": (
        "waiting",
        "UPDATE flow SET next = 90 WHERE " + of("waiting"),
        "its queue has 89 entries neither in flight nor to be sent",
    ),
    "queue, under way": (
        "flying",
        "DELETE FROM queue WHERE " + of("flying") + " AND first = 3",
        "1 message in flight, but gone from the store",
    ),
    "flow": ("flying", "DELETE FROM flow WHERE " + of("flying"), "packet identifiers are gone"),
    "flow of a queue": (
        "waiting",
        "DELETE FROM flow WHERE " + of("waiting"),
        "packet identifiers are gone",
    ),
    "session": (
        "waiting",
        "DELETE FROM session WHERE client = 'waiting'",
        r"session \d+ was deleted, but still has 1 row in subscription, 1 row in flow,"
        r" 600 rows in queue",
    ),
    "session on a journey": (
        "willing",
        "DELETE FROM session WHERE client = 'willing'",
        "row in journey",
    ),
    "session, another number": (
        "flying",
        "UPDATE session SET id = 777 WHERE client = 'flying'",
        "was deleted, but still has",
    ),
    "given_part": (
        None,
        "DELETE FROM given_part WHERE part = 1",
        "session of given, which has moved to another gateway: 1 part is missing, for",
    ),
    "given": (None, "DELETE FROM given", "3 parts of it without a row in the table given"),
    "batch": (None, "DELETE FROM batch WHERE number = 1", "batch 1 is gone"),
    "batch_content": (
        None,
        "DELETE FROM batch_content WHERE number = 1",
        "batch 1: the list of its readings",
    ),
    "spool": (None, "DELETE FROM spool WHERE id = 7", "row 7 of the spool is gone"),
    "spool, two rows": (None, "DELETE FROM spool WHERE id IN (6, 7)", "rows 6 to 7 of the spool"),
    "spool, the newest": (None, "DELETE FROM spool WHERE id > 7", "rows 8 to 9 of the spool"),
    "spool, the first behind a batch": (None, "DELETE FROM spool WHERE id = 5", "row 5 of the"),
    "spool, of a batch": (
        None,
        "DELETE FROM spool WHERE id = 3",
        "of 2 rows, which has not landed: 1 row is gone from the spool",
    ),
}
REFUSED = {
    "meta, the epoch": "DELETE FROM meta WHERE key = 'epoch'",
    "meta, the name": "DELETE FROM meta WHERE key = 'gateway'",
    "meta, the starts": "DELETE FROM meta WHERE key = 'boot'",
    "meta, all of it": "DELETE FROM meta",
}
UNBOUND = {
    *("aside", "origin", "subscription", "retained", "will", "mark", "place", "journey"),
    *("content_check", "spool_check", "twin"),
}
"""Tables to whose rows no other row refers (gateway/store/README.md says so)."""


def harm(database: sqlite3.Connection, statement: str) -> None:
    places = {
        "message": MIDDLE.format("message"),
        "first_message": FIRST.format("message"),
        "last_message": LAST.format("message"),
        "place": MIDDLE.format("first"),
        "first_place": FIRST.format("first"),
    }
    assert database.execute(statement.format(**places)).rowcount > 0


def findings(world: World, folder: Path) -> list[str]:
    """Return the findings of `onceway store check` on a copy of the store."""
    (folder / FILE).write_bytes(world.database.serialize())
    with closing(sqlite3.connect(folder / FILE)) as database:
        database.execute("PRAGMA journal_mode=WAL")
    return check(folder)


def present(world: World, client: str) -> bool:
    connack = world.connect(client, clean=False, properties=FOREVER).take(Connack)
    assert connack.reason == 0
    return connack.session_present


def test_every_table_has_a_case() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        prepare(database, "test")
        tables = {
            name
            for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        }
    assert tables == {re.split(r"[ ,]", name)[0] for name in (*CASES, *REFUSED)} | UNBOUND


def test_whole_store_is_sound_and_starts_without_a_word(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert findings(world, tmp_path) == []
    world.power_cut()
    assert caplog.messages == []
    assert all(present(world, client) for client in ("waiting", "flying", "shared", "willing"))


@pytest.mark.parametrize("case", CASES)
def test_missing_rows_are_reported_and_found(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    client, statement, said = CASES[case]
    harm(world.database, statement)
    found = findings(world, tmp_path)
    assert any(re.search(said, line) for line in found), found
    world.power_cut()
    lines = [line for line in caplog.messages if "the store is not whole" in line]
    assert any(re.search(said, line) for line in lines), caplog.text
    for other in ("waiting", "flying", "shared", "willing"):
        assert present(world, other) is (other != client), other
    again = [item for item in map(str, missing(world.database)) if "session" in item]
    assert again == []


HUGE = 1 << 60
NEVER_GIVEN = {
    "row -5 of spool": "UPDATE spool SET id = -5 WHERE id = 9",
    f"row {HUGE} of spool": f"UPDATE spool SET id = {HUGE} WHERE id = 9",
    f"session {HUGE} in the table queue": f"UPDATE queue SET session = {HUGE} WHERE share <> ''",
}


@pytest.mark.parametrize("said", NEVER_GIVEN)
def test_a_number_behind_which_no_other_fits_is_refused_by_name(world: World, said: str) -> None:
    harm(world.database, NEVER_GIVEN[said])
    with pytest.raises(Refused, match=f"{said}: this number was never assigned"):
        world.power_cut()


def test_a_start_logs_some_of_many_findings_and_how_many_more_there_are(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    harm(world.database, "UPDATE queue SET session = 1000 + first WHERE " + of("waiting"))
    world.power_cut()
    lines = [line for line in caplog.messages if "the store is not whole" in line]
    assert len(lines) == 21
    assert "more things are missing" in lines[-1]


def test_a_start_deletes_messages_that_no_queue_refers_to(world: World) -> None:
    """A power cut can leave such messages. A message stays as long as one queue refers to it."""
    (both,) = world.database.execute("SELECT max(message) FROM queue").fetchone()
    harm(world.database, "INSERT INTO message VALUES (99999, 't', 0, 1, x'', NULL, x'00')")
    harm(world.database, f"UPDATE queue SET message = {both}, size = 1 WHERE first = 599")
    (rows,) = world.database.execute("SELECT count(DISTINCT message) FROM queue").fetchone()
    world.power_cut()
    assert world.database.execute("SELECT count(*) FROM message").fetchone() == (rows,)
    gone = "SELECT count(*) FROM message WHERE id NOT IN (SELECT message FROM queue)"
    assert world.database.execute(gone).fetchone() == (0,)


@pytest.mark.parametrize("case", REFUSED)
def test_store_without_what_every_store_has_is_refused(
    world: World, tmp_path: Path, case: str
) -> None:
    world.database.execute("INSERT INTO meta VALUES ('generation', 'x')")
    harm(world.database, REFUSED[case])
    assert any("is gone (meta." in line for line in findings(world, tmp_path))
    with pytest.raises(StoreError, match=r"is gone .*onceway store salvage"):
        open_store(tmp_path, "test")
    result = salvage(tmp_path)
    assert check(tmp_path) == []
    with closing(open_store(tmp_path, "test")) as database:
        epochs = database.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchall()
        batches = database.execute("SELECT count(*) FROM batch").fetchone()
        (boot,) = database.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
    assert len(epochs) == 1
    assert int(boot) >= 1
    new = any("epoch" in line for line in result.lost)
    assert (batches == (0,)) is new is (case in ("meta, the epoch", "meta, all of it"))


@pytest.mark.parametrize("value", ["'x!'", "'-1'", "''", "NULL", "CAST(x'ff' AS TEXT)"])
@pytest.mark.parametrize("key", [key for key in VALUES if key != "gateway"])
def test_impossible_value_in_meta_is_named_by_start_and_check(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, value: str
) -> None:
    world.database.execute(f"INSERT OR REPLACE INTO meta VALUES (?, {value})", (key,))
    said = f"row '{key}' of meta: its value"
    assert any(said in line for line in findings(world, tmp_path))
    if key.startswith("uplink."):  # the gateway runs: new readings wait in the spool
        world.power_cut()
        assert said in caplog.text
        with Spool(tmp_path) as spool, pytest.raises(OncewayError, match=f"{key}.*is invalid"):
            spool.get(key)
        return
    with pytest.raises(StoreError, match=f"{said}.*onceway store salvage"):
        open_store(tmp_path, "test")


@pytest.mark.parametrize("case", [case for case, it in CASES.items() if it[0] is not None])
def test_salvage_ends_the_session_of_which_something_is_missing(
    world: World, tmp_path: Path, case: str
) -> None:
    client, statement, _ = CASES[case]
    harm(world.database, statement)
    assert findings(world, tmp_path)
    assert salvage(tmp_path).lost
    assert check(tmp_path) == []
    with closing(sqlite3.connect(tmp_path / FILE)) as source:
        source.execute("PRAGMA journal_mode=DELETE")
        world.database = sqlite3.connect(":memory:", isolation_level=None)
        world.database.execute(f"PRAGMA page_size={PAGE_BYTES}")
        source.backup(world.database)
    world.start()
    assert present(world, str(client)) is False


def test_client_identifier_that_differs_in_the_index_is_reported(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One bit of the identifier changes, in the row, in the index, or in the row's twin."""
    image = world.database.serialize()
    places = [found.start() for found in re.finditer(b"waiting", image)]
    for place in places:
        harmed = image[:place] + b"waitinf" + image[place + 7 :]
        world.database = sqlite3.connect(":memory:", isolation_level=None)
        world.database.deserialize(harmed)
        caplog.clear()
        assert re.search("sqlite_autoindex_session|have changed", str(findings(world, tmp_path)))
        world.power_cut()
        assert "The session ends" in caplog.text
        assert not present(world, "waiting")
        assert present(world, "flying")
        caplog.clear()
        world.power_cut()
        assert caplog.messages == []
    assert len(places) == 3


def test_many_losses_are_reported_in_a_bounded_number_of_lines(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(50):
        world.absent(f"c{number}", topic=f"c/{number}")
        world.accepted(answers=True).publish(f"c/{number}", "x", qos=1)
    world.commit()
    harm(world.database, "DELETE FROM message WHERE topic LIKE 'c/%'")
    world.power_cut()
    lines = [line for line in caplog.messages if "the store is not whole" in line]
    assert len(lines) == 21
    assert "30 more things are missing" in lines[-1]


RUNNING = [case for case in CASES if case.startswith(("message", "queue")) and "way" not in case]


@pytest.mark.parametrize("case", RUNNING)
def test_loss_in_the_store_of_a_running_gateway_is_reported(
    world: World, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    """The running gateway notices the loss when a client connects and its queue is read."""
    client, statement, _ = CASES[case]
    harm(world.database, statement)
    found = world.connect(str(client), clean=False, properties=FOREVER, answers=True)
    world.sleep(1)
    assert [line for line in caplog.messages if "gone from its queue in the store" in line], case
    assert found.closed
    assert found.take_all(Disconnect) or not found.raw, "or it ends before its CONNACK"
    assert not present(world, str(client))
    publisher = world.accepted(answers=True)
    publisher.publish("w/x", "later", qos=1)


@pytest.mark.parametrize(
    "cell",
    [
        "count = 0",
        "count = -1",
        "count = 1 << 32",
        "first = 1 << 60",
        "share = CAST(x'ff' AS TEXT)",
    ],
)
def test_damaged_place_in_the_store_of_a_running_gateway_is_reported(
    world: World, caplog: pytest.LogCaptureFixture, cell: str
) -> None:
    harm(world.database, f"UPDATE queue SET {cell} WHERE first = ({{place}}) AND {of('waiting')}")
    found = world.connect("waiting", clean=False, properties=FOREVER, answers=True)
    world.sleep(1)
    said = (
        "its queue cannot be read from the store (DamagedPlace",
        "gone from its queue in the store",
    )
    assert any(one in line for line in caplog.messages for one in said), caplog.text
    assert found.closed
    assert not present(world, "waiting")


def test_last_message_of_a_queue_that_is_gone_is_reported_while_the_gateway_runs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The missing rows were the last rows of the queue, so no later row shows the gap."""
    harm(world.database, "DELETE FROM queue WHERE first >= ({place}) AND " + of("waiting"))
    found = world.connect("waiting", clean=False, properties=FOREVER, answers=True)
    world.sleep(1)
    assert f"{COUNT - 300} messages are gone from its queue" in caplog.text
    assert len(found.take_all(Publish)) <= 300
    assert found.closed
    assert not present(world, "waiting")


def test_queue_that_is_not_committed_yet_is_no_loss(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.slow_disk = True
    publisher = world.accepted("q")
    reader = world.connect("waiting", clean=False, properties=FOREVER, answers=True)
    for number in range(2000):
        publisher.send(Publish("w/x", b"%d" % number, 1, number % 1000 + 1))
        if number % 100 == 99:
            world.commit()
    world.slow_disk = False
    world.commit()
    world.sleep(1)
    assert "gone" not in caplog.text
    assert not reader.closed
    assert reader.payloads == [
        *(b"%d" % number for number in range(COUNT)),
        *(b"%d" % number for number in range(2000)),
    ]


def test_messages_of_an_ended_session_that_are_gone_are_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages of an ended session for a shared subscription go to another subscriber of the
    group. Here, one of these messages is gone.
    """
    harm(world.database, CASES["message of a shared subscription"][1])
    other = world.durable("other")
    other.subscribe("$share/g/shared/#", qos=1)
    world.end_session("shared")
    world.sleep(1)
    assert "shared subscriptions: 1 message is gone" in caplog.text
    assert len(other.take_all(Publish)) == 19


def test_lost_message_of_an_ended_session_is_found_without_the_session(
    world: World, tmp_path: Path
) -> None:
    """The session has ended, and its messages of a shared subscription wait for a subscriber."""
    for rows in (f"subscription WHERE {of('shared')}", f"flow WHERE {of('shared')}"):
        harm(world.database, f"DELETE FROM {rows}")
    harm(world.database, "DELETE FROM session WHERE client = 'shared'")
    assert findings(world, tmp_path) == []
    harm(world.database, CASES["message of a shared subscription"][1])
    said = r"a session that has ended \(number \d+\): the content of 1 message of its queue is gone"
    found = findings(world, tmp_path)
    assert any(re.fullmatch(said, line) for line in found), found


def test_forwarder_that_does_not_know_its_member_is_reported_and_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages can no longer follow the session that has moved."""
    world = World(moves=True)
    world.commit()
    forwarder = "900, char(0) || 'moved', 100, NULL, 0, NULL"
    world.database.execute(f"INSERT INTO session VALUES ({forwarder})")
    world.database.execute("INSERT INTO flow VALUES (900, x'', 1, x'', x'')")
    said = "session 900, the forwarder of a session that has moved: the member that has it now is"
    (found,) = findings(world, tmp_path)
    assert found.startswith(said)
    world.power_cut()
    world.commit()
    assert said in caplog.text
    assert world.database.execute("SELECT id FROM session WHERE id = 900").fetchone() is None
    assert missing(world.database) == []


def test_store_of_an_older_version_has_sessions_without_flows_and_keeps_them(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """An older version was the last one that ran."""
    world.database.execute("UPDATE meta SET value = value + 1 WHERE key = 'boot'")
    harm(world.database, "DELETE FROM flow WHERE " + of("waiting"))
    world.power_cut()
    assert caplog.messages == []
    assert present(world, "waiting")


def test_damaged_in_doubt_file_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_doubts(tmp_path) == []
    assert caplog.messages == []
    for text, kept in (("{", 0), ('[["c", 1, ["b"]], ["d", "x", []]]', 1)):
        (tmp_path / DOUBTS).write_text(text)
        caplog.clear()
        assert len(read_doubts(tmp_path)) == kept
        assert len(caplog.messages) == 1


def test_copies_that_are_gone_are_counted(tmp_path: Path) -> None:
    shelf = Copies(tmp_path)
    told = json.dumps({"first": 3})
    rows = [(1, (n, "d", 1, n, "c", "t", b"x", 1, n, None)) for n in range(3, 11)]
    shelf.write([(1, "b", 10, told)], rows, {}, [])
    assert (shelf.gaps(), shelf.orphans()) == ({}, {})
    for gone, expected in (
        ([3], (3, 1)),
        ([6, 8], (6, 2)),
        ([10], (10, 1)),
        (range(3, 11), (3, 8)),
    ):
        with closing(sqlite3.connect(tmp_path / "copies.db")) as database, database:
            database.executemany("DELETE FROM copy WHERE key & 255 = ?", [(n,) for n in gone])
        assert shelf.gaps() == {1: expected}
        shelf.write([], rows, {}, [])
    with closing(sqlite3.connect(tmp_path / "copies.db")) as database, database:
        database.execute("DELETE FROM line")
    assert shelf.orphans() == {1: 8}
    shelf.close()
