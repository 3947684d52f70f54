"""Each cell of the store is damaged, then the gateway starts and every client connects.

Either all messages are delivered. Or the client gets a new session and the log has a line. Or the
start is refused with a sentence that names table and row. `onceway store check` reports the same.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.publish_run import NOTICES
from gateway.config import Config, GatewaySection
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connack, Publish
from gateway.runtime.clock import Clock
from gateway.service.gateway import _open_broker
from gateway.site.moving.addresses import Stage, address
from gateway.store import cells, meta
from gateway.store.check import check, named
from gateway.store.meta import fits
from gateway.store.missing_checks import settle_contents
from gateway.store.move_rows import MOST_MOVES, MOVING_IDS
from gateway.store.recovery import Refused
from gateway.store.schema import FILE, StoreError, prepare
from gateway.store.views import places, retained, sessions
from gateway.uplink.spool import Spool
from gateway.uplink.status import look
from tests.broker.harness import FOREVER, World
from tests.store.test_references import world
from tests.store.test_salvage import loose

assert world
VALUES = ("NULL", "x'ff'", "'x'", "1.5", "-1", "9223372036854775807", "''", "CAST(x'ff' AS TEXT)")
"""SQL values of each type, among them negative, huge, empty and invalid ones. In most columns, all
but one or two values are invalid.
"""
CLIENTS = {"waiting": 600, "flying": 19, "shared": 20, "willing": 0}
NAMES = {("session", "client"), ("session", "user")}
"""Cells with the name of a client or user. If one of these cells changes, the client does not find
its session.
"""
SUBTLE = (
    ("session", "client", "NULL"),
    ("journey", "key", "'x'"),
    ("given", "key", "x'ff'"),
    ("batch", "rows", "'x'"),
    ("spool", "id", "9223372036854775807"),
    ("message", "expires", "1.5"),
    ("message", "topic", "CAST(topic AS BLOB)"),
    ("queue", "share", "x''"),
    ("queue", "extra", "''"),
    ("queue", "size", "size + 0.5"),
)
"""Damage that the store once did not report, or refused without the name of the row."""
MORE = """
    INSERT INTO mark VALUES ('board', 0, 7, 5, 0, x'');
    INSERT INTO aside VALUES (1, 'b', NULL, 't', 1, 0, x'', NULL, x'', 'too large');
    INSERT INTO origin VALUES ('session', 'waiting', 'address 192.0.2.7', 0);
    INSERT OR REPLACE INTO meta VALUES ('generation', 'x'), ('members', '["b"]'),
        ('spool.gone', '[[1, 2]]'), ('axis', '5 at 6'), ('uptime', '5 at 6 of m'),
        ('spool.last', '1'),
        ('uplink.identities', '[[0, "ab"]]'),
        ('uplink.counted', '{"first": 1, "before": 0, "after": 2}');
"""


@pytest.fixture
def image(world: World) -> bytes:
    """Return a store with rows in every table."""
    world.database.executescript(MORE)
    settle_contents(world.database, checked=False)
    return world.database.serialize()


def opened(image: bytes) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.deserialize(image)
    return database


def damaged(image: bytes, table: str, column: str, value: str) -> bytes | None:
    """Return the image with another value in the middle row of a table. Return None if the cell
    keeps its old value.
    """
    with closing(opened(image)) as database:
        schema = database.execute("SELECT sql, name FROM sqlite_schema").fetchall()
        info = database.execute(f"PRAGMA table_info({table})").fetchall()
        keys = [name for _, name, _, _, _, place in info if place]
        rows = database.execute(f"SELECT {', '.join(keys)}, {column} FROM {table}").fetchall()
        *key, old = rows[len(rows) // 2]
        loose(database)
        where = " AND ".join(f"{name} IS ?" for name in keys)
        with suppress(sqlite3.IntegrityError):
            database.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}", key)
            # so that a text is not equal to a BLOB with the same bytes
            database.text_factory = lambda data: (data,)
            changed = [row[0] for row in database.execute(f"SELECT {column} FROM {table}")]
            if changed[len(rows) // 2] == ((old.encode(),) if isinstance(old, str) else old):
                return None
            database.text_factory = str
            database.execute("PRAGMA writable_schema = ON")
            database.executemany("UPDATE sqlite_schema SET sql = ? WHERE name = ?", schema)
            return database.serialize()
    return None


def come(world: World, client: str) -> tuple[bool, int]:
    """Connect a client. Return Session Present, and the number of messages that it gets."""
    for _ in range(2):
        found = world.connect(client, clean=False, properties=FOREVER, answers=True)
        for _ in range(4):
            world.commit()
        connacks = found.take_all(Connack)
        if connacks and connacks[0].reason:
            return False, 0
        if connacks and not found.closed:
            return connacks[0].session_present, len(found.take_all(Publish))
    raise AssertionError(f"{client} cannot come")


def refusal(image: bytes, folder: Path, case: tuple[str, str, str]) -> str:
    """Return the error of a gateway that refuses to start with this store. Its exit code must be
    10.
    """
    folder = folder / "-".join(["refused", *case])
    folder.mkdir()
    (folder / FILE).write_bytes(image)
    with pytest.raises(StoreError) as caught:
        _open_broker(Config(gateway=GatewaySection(data=folder)), Clock(trust=False))
    assert caught.value.exit_code == 10
    return str(caught.value)


def tried(
    world: World, image: bytes, folder: Path, caplog: pytest.LogCaptureFixture
) -> tuple[bool, dict[str, tuple[bool, int]]]:
    """Start with a store. Return whether it was refused, and for each client the result of
    `come`.
    """
    world.database = opened(image)
    caplog.clear()
    try:
        if meta.refusal(world.database):
            raise Refused
        world.power_cut()
    except Exception:
        return True, {}
    return False, {client: come(world, client) for client in CLIENTS}


COLUMNS = {table: list(columns) for table, columns in cells.CELLS.items()}
COLUMNS["meta"] = ["key", "value"]


def cases(wanted: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield the cases, each as table, column and value. For the table `wanted`: each value in each
    column. For None: one value in each column of every table, and the cases of SUBTLE.
    """
    columns = [(table, column) for table, names in COLUMNS.items() for column in names]
    for number, (table, column) in enumerate(columns):
        if wanted is None:
            yield table, column, VALUES[3 * number % len(VALUES)]
        elif wanted == table:
            yield from ((table, column, value) for value in VALUES)
    if wanted is None:
        yield from SUBTLE


def judged(
    world: World,
    image: bytes,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    case: tuple[str, str, str],
) -> str | None:
    """Return the fault in the outcome of a case, as a sentence. None: there is no fault, or SQLite
    did not accept the value.
    """
    table, column, _ = case
    if (harmed := damaged(image, *case)) is None:
        return None
    (folder / FILE).write_bytes(harmed)
    found = check(folder)
    refused, came = tried(world, harmed, folder, caplog)
    if refused:
        said = refusal(harmed, folder, case)
        if f" of {table}: " not in said and "is gone (meta." not in said:
            return f"the refusal names neither table nor row: {said}"
        return None if found else "refused, and the check says that it is sound"
    told = "the store is not whole" in caplog.text
    if "internal error" in caplog.text:
        return caplog.text
    for client, (present, count) in came.items():
        if present and count != CLIENTS[client]:
            return f"{client} got {count} messages, and nobody told it"
        if not present and not told and (table, column) not in NAMES:
            return f"{client} has a new session, and the log says nothing"
    if bool(found) != told and table not in ("spool", "spool_check"):
        return f"the check says {found}, the start {caplog.messages}"
    return None


@pytest.mark.parametrize(
    "table", [None, *(pytest.param(table, marks=pytest.mark.soak) for table in COLUMNS)]
)
def test_damage_of_a_cell_is_never_silent_and_the_check_agrees(
    world: World, image: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str | None
) -> None:
    wrong = {
        case: what
        for case in cases(table)
        if (what := judged(world, image, tmp_path, caplog, case)) is not None
    }
    assert not wrong, "\n".join(f"{' '.join(case)}: {what}" for case, what in wrong.items())


def test_every_column_has_a_rule_of_its_type() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        prepare(database, "test")
        tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            if table == "meta":
                continue
            for _, column, kind, not_null, _, key in database.execute(
                f"PRAGMA table_info({table})"
            ):
                cell = cells.CELLS[table][column]
                assert cell.kind == kind.lower(), (table, column)
                assert cell.null is not bool(not_null or key), (table, column)


@pytest.mark.parametrize("moves", [0, 1, MOST_MOVES - 1])
@pytest.mark.parametrize("lineage", [1, 1 << 27, MOVING_IDS - 1])
def test_address_of_a_session_that_moves_is_no_damage(lineage: int, moves: int) -> None:
    for share in ("", "$share/g/t"):
        assert cells.is_extra(address(Stage(lineage, moves), share))
    assert cells.is_topic(NOTICES.encode())
    for wrong in (b"\x0b", b"\x0c\1", b"\x0b\xff\xff\xff\xff\1", b"x", None, "\x0b\1"):
        assert not cells.is_extra(wrong)


ODD = {
    "spool.gone": ["[1]", "[[1]]", "[[1, 2, 3]]", '[["1", 2]]', "[[1, true]]", "{}"],
    "members": ["[1]", "{}", '"b"', "[null]", "null"],
    "uplink.identities": ["[[0]]", '[[0, "zz"]]', '[[null, "ab"]]', '[[-1, "ab"]]', "{}"],
    "uplink.counted": ["{}", "[]", '{"first": "1", "before": 0, "after": 2}', '{"first": 1}'],
    "uplink.outage": ["{}", "[]", '{"since": 1}', '{"since": "1", "error": "x"}', "null"],
    "uplink.rival": ["{}", "[]", '{"seen": 1, "what": "x"}', '{"seen": 1, "what": 2, "note": ""}'],
    "boot": ["-1", "9999999999999999", "1e3", " 1", "1\n"],
    "axis": ["5 at", "5 at x", "5 at 6 ", "9999999999999999 at 6", "5 at -9999999999999999"],
    "uptime": ["5 at 6 of ", "5 at 6", "9999999999999999 at 6 of m"],
    "flows": ["1", "1 2 3", "9999999999999999 1"],
    "swept": ["x"],
    "epoch": ["g", "0" * 17, "ABC"],
    "mistrusted": ["0"],
}


@pytest.mark.parametrize(("key", "value"), [(key, odd) for key in ODD for odd in ODD[key]])
def test_value_in_meta_of_another_form_does_not_fit(key: str, value: str) -> None:
    assert not fits(key, value.encode())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spool.gone", "[[1, 2], [5, 5]]"),
        ("axis", "5"),
        ("axis", "5 at -6"),
        ("uptime", "5 at 6 of 99999999999999999999 m"),
        ("uplink.outage", '{"since": 1, "error": "x", "more": 1}'),
        ("another", "any"),
    ],
)
def test_value_in_meta_of_its_form_fits(key: str, value: str) -> None:
    assert fits(key, value.encode())


def uplink_status(folder: Path) -> str:
    with Spool(folder, to_read=True) as spool:
        return look(spool, folder, 10**9).as_text()


SHOWN: dict[tuple[str, str], Callable[[Path], object]] = {
    ("session", "left"): lambda folder: sessions(folder, None),
    ("flow", "received"): lambda folder: sessions(folder, None),
    ("flow", "next"): lambda folder: sessions(folder, None),
    ("flow", "sent"): lambda folder: sessions(folder, None),
    ("flow", "released"): lambda folder: sessions(folder, None),
    ("retained", "expires"): lambda folder: retained(folder, None),
    ("given", "key"): places,
    ("batch", "landed"): uplink_status,
    ("batch", "cut"): uplink_status,
    ("batch", "last"): uplink_status,
    ("spool", "received"): uplink_status,
}


@pytest.mark.parametrize(("table", "column"), SHOWN)
@pytest.mark.parametrize("value", ["x'ff'", "'x'", "1.5", "7", "9223372036854775807"])
def test_command_that_shows_a_damaged_store_names_the_row(
    image: bytes, tmp_path: Path, table: str, column: str, value: str
) -> None:
    """The commands run without a gateway."""
    (tmp_path / FILE).write_bytes(damaged(image, table, column, value) or image)
    said = ""
    try:
        SHOWN[table, column](tmp_path)
    except OncewayError as error:
        said = str(error)
    assert not said or f" of {table}: invalid {column}" in said or "UTF-8" in said


@pytest.mark.parametrize("table", ["queue", "message", "spool"])
def test_start_that_fails_names_a_damaged_row_as_its_cause(image: bytes, table: str) -> None:
    """The start fails with an internal error, which says nothing about the store."""
    change = {"queue": "flags = 6", "message": "retain = 2", "spool": "payload = x'00'"}[table]
    internal, disk = KeyError(7), sqlite3.OperationalError("disk I/O error")
    disk.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
    with closing(opened(image)) as database:
        assert named(database, internal) is internal, "the store is sound"
        database.execute(f"UPDATE {table} SET {change}")
        assert re.match(rf"row .* of {table}: ", str(named(database, internal)))
        assert named(database, disk) is disk, "its cause is known"
    assert named(database, internal) is internal, "the store cannot be read any more"


FITTING = {
    cells.is_text: ([b"", "ü".encode()], [b"\xff", "text", 5, None]),
    cells.is_topic: ([b"t/x", b"/"], [b"", b"t/#", b"\xff", b"a\0b", "t", 5, None]),
    cells.is_filter: ([b"t/#", b"$share/g/t"], [b"", b"t/#/x", b"\xff", "t", None]),
    cells.is_names: ([b"[]", b'["b"]'], [b"", b"{}", b"[1]", b'"b"', b"[" * 9000, "[]", None]),
    cells.is_extra: (
        [b"", b"\x0b\x01", b"\x0b\x00"],
        [b"\x0b", b"\x0b\x80", b"\x0c\x01", ""],
    ),
    cells.is_block: (
        [b"", b"\x01\x01"],
        [b"\x01", b"\xff", b"\x0b\x00", b"\x01\x01\x01\x01", ""],
    ),
}


@pytest.mark.parametrize("function", FITTING, ids=lambda function: function.__name__)
def test_function_of_a_rule_tells_what_fits(function: Any) -> None:
    fitting, others = FITTING[function]
    assert [value for value in fitting if not function(value)] == []
    assert [value for value in others if function(value)] == []


@pytest.mark.parametrize("table", cells.CELLS)
def test_null_is_sound_only_where_a_column_may_have_none(table: str) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        prepare(database, "test")
        cells.teach(database)
        info = database.execute(f"PRAGMA table_info({table})").fetchall()
        for _, name, _, not_null, _, key in info:
            cell = cells.CELLS[table][name]
            sound = database.execute(f"SELECT {cell.sound('value')} FROM (SELECT NULL AS value)")
            may_be_null = not (not_null or key)
            assert bool(sound.fetchone()[0]) == may_be_null, (table, name)
