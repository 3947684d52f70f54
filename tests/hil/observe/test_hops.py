"""The observers of spool, landing place and table: each publication is recorded once, and a hop
that does not exist yet is not an error.
"""

import hashlib
import json
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from gateway.store.schema import prepare
from gateway.uplink.batch import Manifest, Origin, encode
from gateway.uplink.signing import FILE as KEY_FILE
from gateway.uplink.signing import load_or_make
from hil.formats.batches import relabelled, signed
from hil.judge.seen import Seen
from hil.observe.history import Event, History, read
from hil.observe.landing import LandingHop
from hil.observe.spool import SpoolHop
from hil.observe.table import TableHop

ORIGIN = Origin("site", "0a1b2c3d")


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history.jsonl")


def seen(history: History, hop: str) -> list[tuple[int, str, int, str]]:
    return [
        (e.data["sequence"], e.data["origin"], e.data["position"], e.data["payload"])
        for e in read(history.path)
        if e.hop == hop
    ]


def make_database(path: Path) -> sqlite3.Connection:
    """Create the gateway's database."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    prepare(database, "site")
    database.execute("UPDATE meta SET value = '0a1b2c3d' WHERE key = 'epoch'")
    return database


def put_batch(database: sqlite3.Connection, number: int, last: int, landed: int | None) -> None:
    database.execute(
        "INSERT INTO batch VALUES (?, 1, ?, ?, 1, '', 1, ?)", (number, last, last, landed)
    )


def put(database: sqlite3.Connection, sequence: int) -> None:
    database.execute(
        "INSERT INTO spool (device, incarnation, sequence, client, topic, boot, monotonic, payload)"
        " VALUES ('uno-1', 7, ?, 'uno-1', 't', 1, 5, ?)",
        (sequence, bytes([sequence])),
    )


def test_spool_rows_are_entered_once_and_counted_after_they_left(
    tmp_path: Path, history: History
) -> None:
    hop = SpoolHop(tmp_path / "gateway.db", history)
    hop.look()
    assert hop.committed == 0
    database = make_database(tmp_path / "gateway.db")
    put(database, 1)
    put(database, 2)
    hop.look()
    hop.look()
    put(database, 3)
    put_batch(database, 1, last=3, landed=99)
    database.execute("DELETE FROM spool")
    hop.look()
    assert seen(history, "spool") == [(1, "site/0a1b2c3d", 1, "01"), (2, "site/0a1b2c3d", 2, "02")]
    assert (hop.committed, hop.landed) == (3, 3)
    database.close()


def test_rows_of_a_forgotten_epoch_still_count_as_landed(tmp_path: Path, history: History) -> None:
    hop = SpoolHop(tmp_path / "gateway.db", history)
    database = make_database(tmp_path / "gateway.db")
    put(database, 1)
    put(database, 2)
    put_batch(database, 1, last=1, landed=99)
    database.execute("DELETE FROM spool WHERE id = 1")
    hop.look()
    assert (hop.origin, hop.committed, hop.landed) == ("site/0a1b2c3d", 2, 1)
    database.execute("DELETE FROM batch")
    database.execute("UPDATE meta SET value = '0000beef' WHERE key = 'epoch'")
    hop.look()
    assert (hop.origin, hop.committed, hop.landed) == ("site/0000beef", 2, 1)
    database.close()


def test_largest_size_of_the_spool_outlives_its_rows(tmp_path: Path, history: History) -> None:
    database = make_database(tmp_path / "gateway.db")
    hop = SpoolHop(tmp_path / "gateway.db", history)
    row = len("t") + 1 + 64  # topic, payload, and the overhead of `spool.max_bytes`
    for sequence in (1, 2, 3):
        put(database, sequence)
        hop.look()
    assert hop.largest == 3 * row
    database.execute("DELETE FROM spool WHERE sequence < 3")
    hop.look()
    assert hop.largest == 3 * row


def test_spool_is_not_read_during_a_power_cut(tmp_path: Path, history: History) -> None:
    hop = SpoolHop(tmp_path / "gateway.db", history)
    put(make_database(tmp_path / "gateway.db"), 1)
    with hop.covered():
        hop.look()
    assert seen(history, "spool") == []
    hop.look()
    assert len(seen(history, "spool")) == 1


def test_rows_in_the_spool_at_the_end_wait(tmp_path: Path, history: History) -> None:
    def told() -> list[str]:
        return [event.event for event in read(history.path)]

    assert not SpoolHop(tmp_path / "gateway.db", history).close()
    (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0" + bytes(84))
    assert not SpoolHop(tmp_path / "damaged.db", history).close()
    assert told() == []
    database = make_database(tmp_path / "gateway.db")
    put(database, 1)
    hop = SpoolHop(tmp_path / "gateway.db", history)
    database.execute("ALTER TABLE spool RENAME TO gone")
    assert not hop.close()
    assert told() == []
    database.execute("ALTER TABLE gone RENAME TO spool")
    assert hop.close()
    assert told() == ["publication", "waiting"]


def test_lost_store_is_not_awaited_and_its_unlanded_rows_are_reported(
    tmp_path: Path, history: History
) -> None:
    database = make_database(tmp_path / "gateway.db")
    for sequence in (1, 2, 3):
        put(database, sequence)
    put_batch(database, 1, last=1, landed=99)
    hop = SpoolHop(tmp_path / "gateway.db", history)
    put(database, 4)
    database.execute("UPDATE spool SET device = NULL, incarnation = NULL WHERE sequence = 4")
    database.execute("UPDATE spool SET sequence = NULL WHERE sequence = 4")
    hop.look()
    database.close()
    gone = (tmp_path / "gateway.db").rename(tmp_path / "dead.db")
    assert hop.bury(gone, lost=True) == 3
    hop.look()
    assert hop.close()
    events = list(read(history.path))
    told = [(event.event, event.data["sequence"], event.data["position"]) for event in events]
    assert told[-3:] == [("died", 2, 2), ("died", 3, 3), ("died", None, 4)]
    assert hop.landed == hop.committed == 4
    judged = Seen()
    for event in events[-3:]:
        judged.take(event)
    assert {key.sequence for key in judged.died} == {2, 3, 4}


def test_landed_card_counts_no_lost_rows(tmp_path: Path, history: History) -> None:
    database = make_database(tmp_path / "gateway.db")
    put(database, 1)
    database.close()
    hop = SpoolHop(tmp_path / "gateway.db", history)
    assert hop.bury(tmp_path / "gateway.db", lost=False) == 1
    assert hop.close()
    assert [event.event for event in read(history.path)] == ["publication"]
    assert hop.landed == hop.committed == 1


def test_spool_without_a_commit(tmp_path: Path, history: History) -> None:
    database = make_database(tmp_path / "gateway.db")
    hop = SpoolHop(tmp_path / "gateway.db", history)
    hop.look()
    assert (hop.committed, hop.landed) == (0, 0)
    database.close()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    load_or_make(tmp_path)
    return tmp_path / KEY_FILE


def land(folder: Path, number: int, sequences: list[int], manifest: bool = True) -> None:
    rows = [
        ("uno-1", 7, sequence, None, "t", bytes([sequence]), None, 1, 5, sequence)
        for sequence in sequences
    ]
    data = encode(rows, ORIGIN, number)
    made = Manifest(ORIGIN, number, len(rows), len(data), hashlib.sha256(data).hexdigest())
    (folder / made.data_name).parent.mkdir(parents=True, exist_ok=True)
    (folder / made.data_name).write_bytes(data)
    if manifest:
        (folder / made.name).write_bytes(load_or_make(folder.parent).publish(made))


def test_batch_counts_when_its_manifest_exists(tmp_path: Path, key: Path, history: History) -> None:
    hop = LandingHop(tmp_path / "landing", key, history)
    hop.look()
    land(tmp_path / "landing", 1, [1, 2])
    land(tmp_path / "landing", 2, [3], manifest=False)
    hop.look()
    hop.look()
    assert hop.newest == {"site/0a1b2c3d": 1}
    land(tmp_path / "landing", 2, [3])
    hop.look()
    assert hop.newest == {"site/0a1b2c3d": 2}
    assert seen(history, "batch") == [
        (sequence, "site/0a1b2c3d", sequence, f"{sequence:02x}") for sequence in (1, 2, 3)
    ]


@pytest.mark.parametrize("count", [1, 5, 100, 2000])
def test_batch_larger_than_its_rows_need_is_reported(
    count: int, tmp_path: Path, key: Path, history: History
) -> None:
    folder = tmp_path / "landing"
    land(folder, 1, [number % 250 for number in range(count)])
    LandingHop(folder, key, history).look()
    assert [one for one in read(history.path) if one.event == "contradiction"] == []
    place = folder / f"site/0a1b2c3d/{1:012d}.parquet"
    files = place.read_bytes(), place.with_suffix(".json").read_bytes()
    data, manifest = relabelled(*files, "0a1b2c3d", 2, key.read_bytes(), plain=True)
    place.with_stem(f"{2:012d}").write_bytes(data)
    place.with_stem(f"{2:012d}").with_suffix(".json").write_bytes(manifest)
    LandingHop(folder, key, history).look()
    found = [one.data["text"] for one in read(history.path) if one.event == "contradiction"]
    [text] = found
    assert text.startswith(f"batch 2 of site/0a1b2c3d has {len(data)} bytes, but needs only ")


def test_a_damaged_batch_holds_nothing(tmp_path: Path, key: Path, history: History) -> None:
    land(tmp_path / "landing", 1, [1, 2])
    data = tmp_path / "landing" / f"site/0a1b2c3d/{1:012d}.parquet"
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    hop = LandingHop(tmp_path / "landing", key, history)
    hop.look()
    assert hop.newest == {"site/0a1b2c3d": 1}
    assert seen(history, "batch") == []


def test_batch_changed_after_it_was_seen_is_reported(
    tmp_path: Path, key: Path, history: History
) -> None:
    hop = LandingHop(tmp_path / "landing", key, history)
    for number in (1, 2, 3, 4):
        land(tmp_path / "landing", number, [number])
    hop.look()
    place = tmp_path / "landing" / "site/0a1b2c3d"
    (place / f"{2:012d}.parquet").write_bytes(b"another")
    (place / f"{3:012d}.parquet").unlink()
    (place / f"{4:012d}.json").unlink()
    hop.look_again()
    changed = [event.data for event in read(history.path) if event.event == "changed"]
    assert changed == [
        {"batch": f"site/0a1b2c3d/{2:012d}", "how": "has other bytes now"},
        {"batch": f"site/0a1b2c3d/{3:012d}", "how": "is gone"},
        {"batch": f"site/0a1b2c3d/{4:012d}", "how": "is gone"},
    ]


def test_a_batch_of_a_clone_has_no_rows_of_the_gateway_and_must_stay(
    tmp_path: Path, key: Path, history: History
) -> None:
    hop = LandingHop(tmp_path / "landing", key, history)
    for number in (1, 2, 3):
        land(tmp_path / "landing", number, [number])
        data = tmp_path / "landing" / f"site/0a1b2c3d/{number:012d}.parquet"
        if number > 1:
            hop.leave_out("site/0a1b2c3d", number, hashlib.sha256(data.read_bytes()).hexdigest())
    hop.look()
    assert seen(history, "batch") == [(1, "site/0a1b2c3d", 1, "01")]
    data.write_bytes(b"another")
    hop.look_again()
    changed = [event.data for event in read(history.path) if event.event == "changed"]
    assert changed == [{"batch": f"site/0a1b2c3d/{3:012d}", "how": "has other bytes now"}]


def test_a_batch_that_is_not_signed_by_the_gateway_holds_nothing(
    tmp_path: Path, key: Path, history: History
) -> None:
    land(tmp_path / "landing", 1, [1, 2])
    land(tmp_path / "landing", 2, [3])
    manifest = tmp_path / "landing" / f"site/0a1b2c3d/{1:012d}.json"
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**said, "signature": "AAAA" + said["signature"][4:]}))
    LandingHop(tmp_path / "landing", key, history).look()
    assert [sequence for sequence, *_ in seen(history, "batch")] == [3]


@pytest.mark.parametrize(
    "said", [{"rows": 1}, {"bytes": 7}, {"number": 2}, {"epoch": "ffffffff"}, {"gateway": "other"}]
)
def test_a_batch_that_its_manifest_tells_wrongly_holds_nothing(
    tmp_path: Path, key: Path, history: History, said: dict[str, int | str]
) -> None:
    land(tmp_path / "landing", 1, [1, 2])
    manifest = tmp_path / "landing" / f"site/0a1b2c3d/{1:012d}.json"
    manifest.write_bytes(signed(json.loads(manifest.read_text()) | said, key.read_bytes()))
    LandingHop(tmp_path / "landing", key, history).look()
    assert seen(history, "batch") == []


def test_a_manifest_that_lands_before_its_data_is_reported_once(
    tmp_path: Path, key: Path, history: History
) -> None:
    hop = LandingHop(tmp_path / "landing", key, history)
    land(tmp_path / "landing", 1, [1])
    data = tmp_path / "landing" / f"site/0a1b2c3d/{1:012d}.parquet"
    later = data.rename(data.with_suffix(".later"))
    hop.look()
    hop.look()
    later.rename(data)
    hop.look()
    told = [event.data.get("text") for event in read(history.path)]
    assert told == ["site/0a1b2c3d has published batch 1, but its data file is missing", None]


def test_untaken_batches_wait(tmp_path: Path, key: Path, history: History) -> None:
    hop = LandingHop(tmp_path / "landing", key, history)
    land(tmp_path / "landing", 1, [1])
    land(tmp_path / "landing", 2, [2, 3])
    hop.look()
    hop.note_waiting({"site/0a1b2c3d": 1})
    hop.note_waiting({"site/0a1b2c3d": 2})
    history.close()
    assert [event.data["sequence"] for event in read(history.path) if event.event == "waiting"] == [
        2,
        3,
    ]


RECEIVED = datetime(2026, 11, 22, 12, 0, 0, 123457, tzinfo=UTC)


def append(folder: Path, sequences: list[int], received: datetime | None = RECEIVED) -> None:
    rows = [
        {
            "device": "uno-1",
            "incarnation": 7,
            "sequence": s,
            "client": "uno-1",
            "topic": "t",
            "received": received,
            "boot": 1,
            "monotonic": 5,
            "gateway": "site",
            "epoch": "0a1b2c3d",
            "batch": 1,
            "spool_id": s,
            "payload": bytes([s]),
            "undecodable": "no SenML",
            "landed": RECEIVED,
            "ingested": RECEIVED,
            "a column of later": 1,
        }
        for s in sequences
    ]
    moments = dict.fromkeys(("received", "landed", "ingested"), pa.timestamp("us", tz="UTC"))
    types = {**moments, "undecodable": pa.string()}
    table = pa.Table.from_pylist(rows)
    for name, kind in types.items():
        at = table.column_names.index(name)
        table = table.set_column(at, name, table.column(name).cast(kind))
    write_deltalake(folder, table, mode="append")


def test_table_rows_doubles_included(tmp_path: Path, history: History) -> None:
    hop = TableHop(tmp_path / "table", tmp_path / "none", history)
    assert hop.rows() == 0
    hop.read()
    assert seen(history, "table") == []
    before = time.monotonic_ns()
    append(tmp_path / "table", [1, 2])
    append(tmp_path / "table", [2])
    assert hop.rows() == 3
    hop.read()
    assert sorted(seen(history, "table")) == [
        (s, "site/0a1b2c3d", s, f"{s:02x}") for s in (1, 2, 2)
    ]
    rows: list[Event] = list(read(history.path))
    assert all(before - 1e9 < event.t < time.monotonic_ns() for event in rows)
    assert {event.data["received"] for event in rows} == {1_795_348_800_123_457}


def test_table_rows_that_were_deleted_do_not_count(tmp_path: Path, history: History) -> None:
    append(tmp_path / "table", [1, 2, 3])
    DeltaTable(tmp_path / "table").delete("sequence = 2")
    hop = TableHop(tmp_path / "table", tmp_path / "none", history)
    assert hop.rows() == 2
    hop.read()
    rows = [event for event in read(history.path) if event.event == "publication"]
    assert sorted(event.data["sequence"] for event in rows) == [1, 3]
    [told] = [event.data["text"] for event in read(history.path) if event.event == "contradiction"]
    assert told == "table has 2 rows in version 1, but 3 before that"


def test_a_row_whose_arrival_is_not_known(tmp_path: Path, history: History) -> None:
    append(tmp_path / "table", [1], received=None)
    TableHop(tmp_path / "table", tmp_path / "none", history).read()
    [row] = read(history.path)
    assert row.data["received"] is None


def test_batches_put_aside_are_entered(tmp_path: Path, history: History) -> None:
    batch = {"gateway": "site", "epoch": "0a1b2c3d", "batch": 3}
    damaged = {**batch, "reason": "another hash", "url": "file:///x", "found": RECEIVED}
    other = {**batch, "device": "uno-1", "incarnation": 7, "sequence": 1, "payload": b"x"}
    other |= {"topic": "t", "received": RECEIVED, "found": RECEIVED}
    for name, row in (("quarantine", {**damaged, "released": RECEIVED}), ("conflicts", other)):
        write_deltalake(tmp_path / f"publications_{name}", pa.Table.from_pylist([row]))
    TableHop(tmp_path / "publications", tmp_path / "publications_readings", history).read()
    quarantined, conflict = read(history.path)
    times = dict.fromkeys(("found", "released"), 1_795_348_800_123_457)
    assert (quarantined.event, quarantined.data) == ("quarantined", {**damaged, **times})
    told = {"payload": "78", "received": times["found"], "found": times["found"]}
    assert (conflict.event, conflict.data) == ("conflict", {**other, **told})


def test_rows_of_the_readings_table_with_all_that_is_judged(
    tmp_path: Path, history: History
) -> None:
    key = {"device": "uno-1", "incarnation": 7, "sequence": 3}
    told = {"name": "adc0", "unit": "V", "value": 2.5, "time_certainty": "synchronised"}
    told |= {"gateway": "site", "topic": "sensors/uno-1/adc0", "quality": "good"}
    empty = dict.fromkeys(("text", "flag", "data", "sum", "time_stated"), None)
    rows = [
        {**key, "position": 0, **told, **empty, "time": RECEIVED, "received": RECEIVED},
        {**key, "position": 1, **told, **empty, "time": None, "received": None, "data": b"\1"},
    ]
    kinds = {"text": pa.string(), "flag": pa.bool_(), "data": pa.binary(), "sum": pa.float64()}
    kinds["time_stated"] = pa.string()
    schema = pa.schema(
        [
            *((name, pa.infer_type([rows[0][name]])) for name in (*key, "position", *told)),
            *kinds.items(),
            *((name, pa.timestamp("us", tz="UTC")) for name in ("time", "received")),
        ]
    )
    write_deltalake(tmp_path / "readings", pa.Table.from_pylist(rows, schema))
    TableHop(tmp_path / "none", tmp_path / "readings", history).read()
    entered = sorted(read(history.path), key=lambda event: event.data["index"])
    assert [(event.hop, event.event) for event in entered] == [("readings", "reading")] * 2
    assert entered[0].data == {
        **key,
        **told,
        **empty,
        "index": 0,
        "time": 1_795_348_800_123_457,
        "received": 1_795_348_800_123_457,
    }
    assert (entered[1].data["time"], entered[1].data["data"]) == (None, "01")
