"""`onceway where` and `onceway uplink status`: reports about a reading and about the remaining
room.
"""

import json
import os
import re
import shutil
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gateway.errors import OncewayError
from gateway.store import doubts
from gateway.store.doubts import Doubt
from gateway.uplink import spool as spool_module
from gateway.uplink.cutter import Cutter
from gateway.uplink.delta_reader import arrivals
from gateway.uplink.spool import OUTAGE, RIVAL, Spool
from gateway.uplink.status import _duration, look
from gateway.uplink.where import Place, in_quarantine

NOW = 1_795_608_000_000_000


@pytest.fixture
def config(data, tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n[spool]\nmax_bytes = 1000000\n'
        f'[uplink]\nlanding = "sftp://user:secret@host{tmp_path}/landing"\nbatch_count = 10\n'
    )
    return path


def test_where_follows_a_reading_from_the_spool_to_the_landing_place(
    data, drain, onceway, tmp_path, config
):
    from gateway.config import UplinkSection

    data.add(10)
    drain(data, tmp_path / "landing")
    data.add(2, device=None)
    drain(data, tmp_path / "landing")
    data.add(3)
    spool = Spool(data.path)
    Cutter(spool, data.path, UplinkSection(landing="/x", batch_count=2)).cut()
    spool.close()

    def where(device, sequence):
        done = onceway("where", device, str(sequence), "--config", config)
        return done.returncode, done.stdout + done.stderr

    code, text = where("sensor-1", 7)
    assert code == 0
    assert "sensor-1 7 (incarnation 77): landed in batch 1 at 20" in text
    assert "landing/site-1/00c0ffee/000000000001.parquet" in text
    assert "secret" not in text
    assert "landed in batch 2" in where("@site-1", 2)[1]
    assert "cut into batch 3, not landed yet" in where("sensor-1", 14)[1]
    assert "waiting in the spool" in where("sensor-1", 15)[1]
    found = json.loads(onceway("where", "sensor-1", "7", "--config", config, "--json").stdout)
    (place,) = found.pop("places")
    assert found == {"device": "sensor-1", "sequence": 7, "doubts": []}
    assert abs(place.pop("since") / 1e6 - time.time()) < 600
    assert place == {
        "place": "landed",
        "incarnation": 77,
        "gateway": "site-1",
        "epoch": "00c0ffee",
        "batch": 1,
        "landing": f"sftp://user@host{tmp_path}/landing",
        "file": "site-1/00c0ffee/000000000001.parquet",
    }
    nowhere = onceway("where", "sensor-1", "11", "--config", config, "--json")
    assert (nowhere.returncode, json.loads(nowhere.stdout)["places"]) == (1, [])
    assert json.loads(nowhere.stderr)["error"] == "there is no reading 11 of sensor-1 here"
    code, text = where("sensor-1", 11)
    assert code == 1
    assert "not in this gateway's spool or batches" in text


def test_where_says_when_a_device_was_answered_in_doubt(data, onceway, config):
    from gateway.config import load
    from gateway.web.where import where as of_the_page

    data.add(2)
    file = data.path / doubts.FILE
    known = [Doubt("other", 1, ["barn"]), Doubt("sensor-1", NOW, ["barn", "mill"])]
    file.write_text(json.dumps(known))
    text = onceway("where", "sensor-1", "1", "--config", config).stdout
    assert "sensor-1 got a suspect session at 2026-11-25 12:00:00 UTC: barn, mill did not" in text
    file.write_text(json.dumps([*doubts.read(data.path), Doubt("sensor-1", None, [])]))
    text = onceway("where", "sensor-1", "1", "--config", config).stdout
    assert "got a suspect session at an unknown time: a store had been restored, or two" in text
    assert "suspect" not in onceway("where", "other", "1", "--config", config).stdout
    told = json.loads(onceway("where", "sensor-1", "2", "--config", config, "--json").stdout)
    assert told["doubts"] == [
        {"client": "sensor-1", "at": NOW, "silent": ["barn", "mill"]},
        {"client": "sensor-1", "at": None, "silent": []},
    ]
    assert of_the_page(load(config), "sensor-1", 2)["doubts"] == told["doubts"]


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM batch_content WHERE number = 1",
        "UPDATE batch_content SET keys = x'' WHERE number = 1",
        "UPDATE batch_content SET keys = substr(keys, 1, 9) WHERE number = 1",
        "UPDATE batch_content SET keys = x'789c030000000001' WHERE number = 1",
    ],
)
def test_where_names_a_batch_of_which_the_store_has_lost_what_it_holds(
    data, drain, onceway, tmp_path, config, harm
):
    data.add(10)
    drain(data, tmp_path / "landing")
    data.add(2)
    drain(data, tmp_path / "landing")
    with closing(sqlite3.connect(data.path / "gateway.db")) as database, database:
        assert database.execute(harm).rowcount == 1
    done = onceway("where", "sensor-1", "12", "--config", config)
    assert "landed in batch 2" in done.stdout
    done = onceway("where", "sensor-1", "7", "--config", config)
    assert done.returncode == 1
    assert "a batch whose list of readings the store has lost (1)" in done.stderr
    assert "onceway store check" in done.stderr


@pytest.mark.parametrize("text", ["", "{", "7", '[["sensor-1"]]', "[[1, 2, 3]]", "[" * 9999])
def test_a_damaged_list_of_doubts_hides_no_reading(data, onceway, config, text):
    data.add(1)
    (data.path / doubts.FILE).write_text(text)
    done = onceway("where", "sensor-1", "1", "--config", config)
    assert (done.returncode, "waiting in the spool" in done.stdout) == (0, True)


def test_where_looks_into_the_table(onceway, tmp_path):
    def rows(sequences, batch):
        count = len(sequences)
        columns = {
            "device": ["sensor-1"] * count,
            "incarnation": [77] * count,
            "sequence": sequences,
            "gateway": ["site-1"] * count,
        }
        return pa.table({**columns, "epoch": ["00c0ffee"] * count, "batch": [batch] * count})

    table = tmp_path / "publications"
    write_deltalake(table, rows(list(range(1, 11)), 1))
    write_deltalake(table, rows(list(range(11, 21)), 2), mode="append")
    done = onceway("where", "sensor-1", "12", "--table", table)
    assert re.match(
        r"sensor-1 12 \(incarnation 77\): in the table since 20.* UTC at the latest, from batch 2"
        r" of site-1/00c0ffee\n",
        done.stdout,
    )
    told = json.loads(onceway("where", "sensor-1", "12", "--table", table, "--json").stdout)[
        "places"
    ]
    assert [(place["place"], place["gateway"], place["batch"]) for place in told] == [
        ("table", "site-1", 2)
    ]
    missing = onceway("where", "sensor-1", "21", "--table", table)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "no reading 21 of sensor-1" in missing.stderr
    with pytest.raises(OncewayError, match="there is no such table"):
        list(arrivals(str(tmp_path / "nowhere"), "sensor-1", 21))


def test_where_shows_what_came_with_another_payload(onceway, tmp_path):
    """The test's table of conflicts has the same columns as the ingest's."""
    key = {"device": ["roof-1"], "incarnation": [77], "sequence": [12]}
    source = {"gateway": ["site-1"], "epoch": ["00c0ffee"]}
    table = tmp_path / "publications"
    write_deltalake(table, pa.table({**key, **source, "batch": [2]}))
    found = datetime(2026, 11, 23, 12, tzinfo=UTC)
    other = {"payload": [b"\x81\xa0"], "found": [found]}
    write_deltalake(f"{table}_conflicts", pa.table({**key, **source, "batch": [3], **other}))
    first, second = onceway("where", "roof-1", "12", "--table", f"{table}/").stdout.splitlines()
    assert "in the table" in first
    assert second == (
        "roof-1 12 (incarnation 77): arrived again with another payload in batch 3 of"
        " site-1/00c0ffee, set aside at 2026-11-23 12:00:00 UTC: 81a0"
    )
    told = json.loads(onceway("where", "roof-1", "12", "--table", table, "--json").stdout)
    assert [place["place"] for place in told["places"]] == ["table", "conflicts"]
    assert told["places"][1]["payload"] == "81a0"


def test_where_says_that_a_batch_that_landed_is_in_quarantine(
    data, drain, onceway, tmp_path, config
):
    """The test's table of ranges has the same columns as the ingest's."""
    data.add(20)
    drain(data, tmp_path / "landing")
    table = tmp_path / "publications"
    none = pa.table({"device": pa.array([], "string"), "sequence": pa.array([], "int64")})
    write_deltalake(table, none)
    moment = datetime(2026, 11, 23, 12, tzinfo=UTC)
    batches = {
        "gateway": ["site-1", "site-1"],
        "epoch": ["00c0ffee", "00c0ffee"],
        "batch": [1, 2],
        "reason": ["the checksum differs", "repaired meanwhile"],
        "found": [moment, moment],
        "released": pa.array([None, moment], pa.timestamp("us", "UTC")),
    }
    write_deltalake(f"{table}_quarantine", pa.table(batches))

    def where(sequence):
        command = ("where", "sensor-1", str(sequence), "--config", config, "--table", table)
        return onceway(*command).stdout.splitlines()

    landed, held = where(7)
    assert "landed in batch 1" in landed
    assert held.endswith(
        "not in the table: batch 1 has been in quarantine since 2026-11-23 12:00:00 UTC: the"
        " checksum differs"
    )
    [landed] = where(17)
    assert "landed in batch 2" in landed


def test_batches_are_forgotten_after_a_while(data, drain, onceway, tmp_path, monkeypatch):
    monkeypatch.setattr(spool_module, "KEEP", 3)
    data.add(60)
    drain(data, tmp_path / "landing")
    assert [batch[0] for batch in data.batches()] == [4, 5, 6]
    done = onceway("where", "sensor-1", "5", "--data", data.path)
    assert done.returncode == 1
    assert "or it landed before batch 4 of epoch 00c0ffee" in done.stderr
    data.add(10)
    drain(data, tmp_path / "landing")
    assert data.batches()[-1][0] == 7


def test_status_says_how_long_the_spool_lasts(data, drain, tmp_path, monkeypatch):
    now = time.time_ns() // 1000
    data.add(100)
    drain(data, tmp_path / "landing", count=50)
    data.add(50)
    # 50 readings landed 12 h ago and 50 landed 6 h ago; 50 have waited for 6 h
    with data.db() as db:
        db.execute("UPDATE batch SET cut = ? WHERE number = 1", (now - 12 * 3_600_000_000,))
        db.execute("UPDATE batch SET cut = ? WHERE number = 2", (now - 6 * 3_600_000_000,))
        db.execute("UPDATE spool SET received = ?", (now - 6 * 3_600_000_000,))
    spool = Spool(data.path)
    row = 24 + len("sensors/sensor-1") + 64
    status = look(spool, data.path, max_bytes=50 * row + 300 * row)
    assert (status.rows, status.bytes) == (50, 50 * row)
    assert status.bytes_per_day == pytest.approx(2 * 150 * row, rel=0.01)
    assert status.lasts_s == pytest.approx(86_400, rel=0.01)
    assert "bytes until the spool is full" in status.as_text()
    assert (
        "lasts 24 hours without an uplink" in status.as_text()
        or "lasts 23 hours" in status.as_text()
    )
    assert status.running is None
    free = 150 * row // 64 * 64
    monkeypatch.setattr(
        os, "statvfs", lambda _path: SimpleNamespace(f_bavail=free // 64, f_frsize=64)
    )
    for max_bytes in (50 * row + 300 * row, None):
        status = look(spool, data.path, max_bytes)
        assert status.room_bytes == free
        assert status.lasts_s == pytest.approx(43_200, rel=0.02)
        assert "bytes until the disk is full" in status.as_text()
    spool.close()


def test_batch_of_a_row_is_found_among_many_with_holes(data):
    ranges = [(number, 10 * number, 10 * number + 6) for number in range(3, 200) if number % 7]
    with data.db() as db:
        db.executemany("INSERT INTO batch VALUES (?, ?, ?, 7, 1, '', 1, 1)", ranges)
    with closing(Spool(data.path)) as spool:
        for spool_id in range(2010):
            expected = next((n for n, first, last in ranges if first <= spool_id <= last), None)
            assert spool.batch_of(spool_id) == expected
        assert spool.unlanded() is None
        assert spool.last_landed()[0] == ranges[-1][0]
        with data.db() as db:
            db.execute("UPDATE batch SET landed = NULL WHERE number > 197")
        assert spool.unlanded().number == 198


def test_status_takes_the_size_from_a_running_gateway(data, monkeypatch):
    """A running gateway knows the number and size of its rows. So the status need not count all
    rows.
    """
    data.add(10)
    told = {"spool": {"used": True, "messages": 7, "bytes": 99}}
    monkeypatch.setattr("gateway.uplink.status.ask", lambda *_, **__: [told])
    with closing(Spool(data.path)) as spool:
        status = look(spool, data.path)
        assert (status.rows, status.bytes, status.waiting) == (7, 99, 7)


def test_rate_is_taken_from_the_newest_rows_alone_if_there_are_many(data, monkeypatch):
    data.add(300)
    monkeypatch.setattr(spool_module, "RECENT", 100)
    second, now = 1_000_000, time.time_ns() // 1000
    with data.db() as db:
        db.execute("UPDATE spool SET received = ? - (300 - id) * ?", (now, second))
    with closing(Spool(data.path)) as spool:
        volume = spool.volume(now - 86_400 * second)
    row = 24 + len("sensors/sensor-1") + 64
    assert (volume.rows, volume.waiting, volume.recent_bytes) == (300, 300, 100 * row)
    assert volume.span_us == pytest.approx(99 * second, abs=5 * second)


@pytest.mark.parametrize("table", ["batch", "spool"])
def test_times_of_a_clock_that_was_ahead_are_not_of_the_last_day(data, drain, table):
    data.add(100)
    if table == "batch":
        drain(data, f"file://{data.path}/landing", count=100)
    with data.db() as db:
        column = "cut" if table == "batch" else "received"
        assert db.execute(f"UPDATE {table} SET {column} = {2_208_988_800_000_000}").rowcount
    spool = Spool(data.path)
    try:
        status = look(spool, data.path)
    finally:
        spool.close()
    assert (status.bytes_per_day, status.lasts_s) == (0, None)


def test_rival_seen_by_a_clock_that_was_ahead_is_forgotten(data):
    with closing(Spool(data.path)) as spool:
        seen = json.dumps({"seen": 2_208_988_800_000_000, "what": "another", "note": ""})
        spool.put({RIVAL: seen})
        assert look(spool, data.path).rival is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (119, "1 minutes"),
        (7200, "2 hours"),
        (3 * 86_400, "3 days"),
        (3649 * 86_400, "3649 days"),
        (3650 * 86_400, "more than ten years"),
        (12_345_679 * 86_400, "more than ten years"),
    ],
)
def test_time_that_room_lasts_is_a_time_that_can_be_known(seconds, words):
    assert _duration(seconds) == words


def test_status_says_that_readings_wait_for_the_clock(data):
    data.add(2)
    spool = Spool(data.path)
    assert not look(spool, data.path).clockless
    with data.db() as db:
        db.execute("UPDATE spool SET received = NULL WHERE id = 2")
    status = look(spool, data.path)
    spool.close()
    assert status.clockless
    assert "clock     not synchronised" in status.as_text()


def test_status_of_an_idle_gateway(data):
    spool = Spool(data.path)
    status = look(spool, data.path, max_bytes=1000)
    spool.close()
    assert status.lasts_s is None
    assert "not running" in status.as_text()
    assert "never fills" in status.as_text()


def test_a_renamed_gateway_lands_what_was_cut_and_then_numbers_anew(data, drain, landed, tmp_path):
    from gateway.config import UplinkSection
    from gateway.store.schema import open_store

    place = tmp_path / "landing"
    data.add(10, device=None)
    drain(data, place)
    data.add(15, device=None)
    spool = Spool(data.path)
    Cutter(spool, data.path, UplinkSection(landing="/x", batch_count=10)).cut()
    spool.close()
    open_store(data.path, "site-1-north").close()  # like the start of the gateway with its new name
    drain(data, place)
    assert [row[2] for row in landed(place)] == list(range(1, 21))
    new = landed(place, gateway="site-1-north", epoch=data.meta("epoch"))
    assert [row[:3] for row in new] == [("@site-1-north", 0x00C0FFEE, n) for n in range(21, 26)]


def test_reader_sees_one_moment(data):
    data.add(5)
    with closing(Spool(data.path, to_read=True)) as spool:
        data.add(3)
        assert look(spool, data.path).rows == 5


def test_reader_changes_nothing(data, onceway, tmp_path):
    """The reader reads a copy of a database. The copy has commits in its write-ahead log, as after
    a kill, and no other process has it open.
    """
    with data.db() as other:
        other.execute("SELECT count(*) FROM meta").fetchone()
        data.add(5)
        shutil.copytree(data.path, tmp_path / "killed")
    files = [tmp_path / "killed" / name for name in ("gateway.db", "gateway.db-wal")]
    before = [file.read_bytes() for file in files]
    for command in (("uplink", "status"), ("where", "sensor-1", "5")):
        assert onceway(*command, "--data", tmp_path / "killed").returncode == 0
    assert all(before)
    assert [file.read_bytes() for file in files] == before


@pytest.mark.parametrize(
    ("ago_s", "options", "code"),
    [
        (None, [], 0),
        (60, [], 0),
        (7200, [], 9),
        (7200, ["--json"], 9),
        (7200, ["--max-outage", "3h"], 0),
        (60, ["--max-outage", "30s"], 9),
        (60, ["--max-outage", "soon"], 2),
    ],
)
def test_a_status_in_a_long_outage_is_red(data, onceway, ago_s, options, code):
    data.add(5)
    if ago_s is not None:
        since = time.time_ns() // 1000 - ago_s * 1_000_000
        with closing(Spool(data.path)) as spool:
            spool.put({OUTAGE: json.dumps({"since": since, "error": "cable pulled"})})
    status = onceway("uplink", "status", "--data", data.path, *options)
    assert status.returncode == code, status.stderr
    if code != 2 and ago_s is not None:
        assert "cable pulled" in status.stdout


def test_only_batches_that_have_landed_are_looked_for_in_quarantine(tmp_path):
    """A batch with the same number may be in quarantine from an earlier try."""
    table = tmp_path / "publications"
    write_deltalake(table, pa.table({"device": pa.array([], "string")}))
    moment = datetime(2026, 11, 23, 12, tzinfo=UTC)
    entry = {"gateway": ["site-1"], "epoch": ["00c0ffee"], "batch": [1], "reason": ["odd"]}
    released = pa.array([None], pa.timestamp("us", "UTC"))
    write_deltalake(
        f"{table}_quarantine", pa.table({**entry, "found": [moment], "released": released})
    )
    places = [Place(kind, 77, "site-1", "00c0ffee", 1) for kind in ("spool", "batch", "landed")]
    found = list(in_quarantine(str(table), places))
    assert [(place.place, place.reason) for place in found] == [("quarantine", "odd")]
