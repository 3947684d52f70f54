"""Micro-batches that are written to the tables: each publication and each reading is there once,
whatever happens between the steps.
"""

import json
import logging
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import functions as F

from gateway.errors import OncewayError
from gateway.ingest.dedup import snapshot
from gateway.ingest.delta.public import PublicTable, PublicWriter
from gateway.ingest.delta.storage import LocalFolder
from gateway.ingest.delta.tables import Layout, Table
from gateway.ingest.delta.transaction import Addition, DeltaWriter
from gateway.ingest.delta.writers import WriterName, open_writer
from gateway.ingest.payload import version
from gateway.ingest.sink.microbatch import MicroBatch
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.readings import READINGS
from gateway.ingest.sink.row_batch import RowBatch
from gateway.uplink.batch import Row
from tests.ingest.batches import row
from tests.ingest.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["fast", pytest.param("public", marks=pytest.mark.soak)])
def lake(
    spark: "SparkSession",
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Lake:
    """Return a table for all tests of this file and one writer. Each test uses its own devices."""
    folder = tmp_path_factory.mktemp(f"lake [1] #2? 100%41 {request.param}", numbered=False)
    return Lake(spark, folder, request.param)


def rows(device: str, *sequences: int) -> list[Row]:
    return [
        row(
            device,
            sequence,
            payload=json.dumps([{"n": "a", "v": sequence}, {"n": "b", "v": -sequence}]).encode(),
        )
        for sequence in sequences
    ]


def keys(device: str, *sequences: int) -> list[tuple[str, int, int]]:
    return [(device, 7, sequence) for sequence in sequences]


def readings(device: str, *sequences: int) -> list[tuple[str, int, int, int, float]]:
    return [
        (device, 7, sequence, position, value)
        for sequence in sequences
        for position, value in ((0, sequence), (1, -sequence))
    ]


def test_key_enters_once_from_any_batch_or_micro_batch(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    sink = lake.open()
    with caplog.at_level(logging.INFO, logger="onceway.ingest"):
        # one micro-batch with two batches
        sink(lake.micro_batch(rows("a", 1, 2, 3), rows("a", 2, 3, 4)), 0)
        # 1 and 4 are in the table, and 5 is here twice
        sink(lake.micro_batch(rows("a", 5, 1, 5, 4)), 1)
        before = lake.table().inputFiles()
        sink(lake.micro_batch(rows("a", 1, 2, 3, 4, 5)), 2)  # no new row, so no new file
    assert lake.table().inputFiles() == before
    assert lake.keys("a") == keys("a", 1, 2, 3, 4, 5)
    assert lake.readings("a") == readings("a", 1, 2, 3, 4, 5)
    counts = [
        record.message.split(": ")[1].split(", version")[0].split(", nothing")[0]
        for record in caplog.records
    ]
    assert counts == [
        "6 rows in, 4 new, 2 seen",
        "4 rows in, 1 new, 3 seen",
        "5 rows in, 0 new, 5 seen",
    ]
    for suffix in ("", "_readings"):
        used = {path.rsplit("/", 1)[-1] for path in lake.table(suffix).inputFiles()}
        folder = lake.publications.with_name(lake.publications.name + suffix)
        there = {path.name: path for path in folder.glob("*.parquet")}
        # The ingest deletes files that it wrote and does not need. Delta leaves a file for a commit
        # without rows; `compact` deletes such files.
        unused = [there[name] for name in there.keys() - used]
        assert used <= there.keys()
        assert sum(pq.read_metadata(path).num_rows for path in unused) == 0
        assert lake.writer == "public" or not unused


def test_the_history_says_how_many_rows_and_files_a_commit_has(lake: Lake) -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows("o", 1, 2), rows("o", 3)), 0)
    sink(lake.micro_batch(rows("o", 3, 4)), 1)  # Spark writes the rows again, without the duplicate
    (last,) = lake.spark.sql(f"describe history delta.`{lake.publications}` limit 1").collect()
    assert last["operationMetrics"]["numOutputRows"] == "1"
    history = lake.spark.sql(f"describe history delta.`{lake.publications}` limit 2").collect()
    metrics = history[1]["operationMetrics"]
    assert (metrics["numFiles"], metrics["numOutputRows"]) == ("2", "3")
    assert int(metrics["numOutputBytes"]) > 1000


def test_columns_have_comments_and_undecodable_payloads_their_reason(lake: Lake) -> None:
    lake.open()(lake.micro_batch([row("b", 1, payload=b"21.5"), *rows("b", 2)]), 0)
    found = lake.table().where("device = 'b'").orderBy("sequence").collect()
    assert [one["undecodable"] for one in found] == ["neither a JSON nor a CBOR array", None]
    assert lake.readings("b") == readings("b", 2)
    for suffix in ("", "_readings"):
        assert all(field.metadata["comment"] for field in lake.table(suffix).schema)


def test_a_new_start_knows_what_is_in_with_or_without_a_snapshot(lake: Lake) -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows("c", 1, 2)), 0)
    sink.save()
    sink(lake.micro_batch(rows("c", 3)), 1)  # not in the snapshot
    lake.open()(lake.micro_batch(rows("c", 1, 2, 3, 4)), 2)
    lake.lose_snapshots()
    lake.open()(lake.micro_batch(rows("c", 3, 4, 5)), 3)
    assert lake.keys("c") == keys("c", 1, 2, 3, 4, 5)


def test_a_start_leaves_a_snapshot_of_what_it_had_to_read(lake: Lake) -> None:
    def snapshots() -> list[Path]:
        return list(Path(lake.publications, snapshot.FOLDER).glob("seen-*"))

    lake.open()(lake.micro_batch(rows("s", 1, 2)), 0)  # this process saves no snapshot
    lake.lose_snapshots()
    lake.open().save()
    assert snapshots(), "nothing came, and the next start would read the table again"
    sink = lake.open()
    lake.lose_snapshots()
    sink.save()
    assert not snapshots(), "it has read no row"


def crash_after(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, times: int = 1) -> None:
    """Patch a method so that its call number `times` does its work and then raises
    KeyboardInterrupt, which stands for the death of the process.
    """
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def called(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        result = real(*arguments, **keywords)
        calls += 1
        if calls == times:
            monkeypatch.setattr(owner, name, real)
            raise KeyboardInterrupt(f"after {name}")
        return result

    monkeypatch.setattr(owner, name, called)


def steps(lake: Lake) -> list[tuple[type, str, int]]:
    fast = lake.writer == "fast"
    writer: type = DeltaWriter if fast else PublicWriter
    return [
        (MicroBatch if fast else RowBatch, "__init__", 1),
        (writer, "append", 1),
        (writer, "append", 2),
        (LocalFolder, "write", 1),
    ]


def test_death_after_any_step(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process dies after each of these steps in turn: it has read rows, committed publications,
    committed readings, or written the snapshot. A new process continues after each death.
    """
    lake.open()(lake.micro_batch(rows("before d", 1)), 0)  # the steps of a new table would differ
    count = len(steps(lake))
    for number, (owner, name, times) in enumerate(steps(lake), 1):
        sink = lake.open()
        crash_after(monkeypatch, owner, name, times)
        with pytest.raises(KeyboardInterrupt, match=f"after {name}"):  # noqa: PT012 - in the one or in the other
            sink(lake.micro_batch(rows("d", number, number + 1)), number)
            sink.save()
    lake.open()(lake.micro_batch(rows("d", count, count + 1)), count)
    # 1 is missing: the first process died before a commit, and its batch was not read again
    assert lake.keys("d") == keys("d", 2, 3, 4, 5)
    assert lake.readings("d") == readings("d", 2, 3, 4, 5)


class CommitsAndFails:
    """A stand-in for Delta's log and for its transaction. Each commit is written, but raises an
    error, as if the answer were lost.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.landed: list[int] = []

    def startTransaction(self, *arguments: Any) -> "CommitsAndFails":
        self._inner = self._inner.startTransaction(*arguments)
        return self

    def commit(self, *arguments: Any) -> int:
        self.landed.append(self._inner.commit(*arguments))
        raise Py4JError("connection lost")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_landed_commit_with_an_error_is_found_in_the_log(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.open()
    failing: list[Any] = []
    if lake.writer == "fast":
        real = DeltaWriter._delta_log
        monkeypatch.setattr(
            DeltaWriter,
            "_delta_log",
            lambda self: failing.append(CommitsAndFails(real(self))) or failing[-1],
        )
    else:
        append = PublicTable.append

        def append_and_fail(table: PublicTable, *arguments: Any, **options: str) -> None:
            append(table, *arguments, **options)
            failing.append(table)
            raise Py4JError("connection lost")

        monkeypatch.setattr(PublicTable, "append", append_and_fail)
    sink(lake.micro_batch(rows("e", 1, 2)), 0)
    assert len(failing) == 2  # one for publications, one for readings
    assert all(one.landed for one in failing if isinstance(one, CommitsAndFails))
    monkeypatch.undo()
    sink(lake.micro_batch(rows("e", 2, 3)), 1)
    assert lake.keys("e") == keys("e", 1, 2, 3)
    assert lake.readings("e") == readings("e", 1, 2, 3)


def test_a_disk_that_is_full_stops_the_job_and_loses_nothing(
    lake: Lake, spark: "SparkSession"
) -> None:
    sink = lake.open()
    assert spark._jvm is not None
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    micro_batch = lake.micro_batch(rows("f", 1))
    before = resource.prlimit(java, resource.RLIMIT_FSIZE)
    # no file may grow beyond 300 bytes, which acts like a full disk
    resource.prlimit(java, resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        with pytest.raises(Exception, match="File too large"):
            sink(micro_batch, 0)
    finally:
        resource.prlimit(java, resource.RLIMIT_FSIZE, before)
    assert lake.keys("f") == []
    sink(lake.micro_batch(rows("f", 1)), 0)
    assert lake.keys("f") == keys("f", 1)


def test_files_that_cannot_be_deleted_do_not_hold_the_stream(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An account may have the right to write files to a bucket, but not to delete them."""
    if lake.writer == "public":
        pytest.skip("it deletes no files: it writes none but by Delta")

    def refuse(folder: LocalFolder, name: str) -> None:
        raise Py4JError("AccessDenied")

    sink = lake.open()
    sink(lake.micro_batch(rows("g", 1, 2)), 0)
    monkeypatch.setattr(LocalFolder, "delete", refuse)
    sink(lake.micro_batch(rows("g", 2, 3)), 1)
    assert "AccessDenied" in caplog.text
    assert lake.keys("g") == keys("g", 1, 2, 3)
    assert lake.readings("g") == readings("g", 1, 2, 3)


def test_times_are_found_to_the_microsecond(lake: Lake) -> None:
    """The log has the smallest and largest time of each file. Readers skip a file if the wanted
    time is outside of that range.
    """
    moment = 1_760_000_000_123_456
    lake.open()(
        lake.micro_batch(
            [row("j", 1, payload=b'[{"n":"a","v":1,"t":1500000000.654321}]', received=moment)]
        ),
        0,
    )
    assert (
        lake.table()
        .where("device = 'j'")
        .where(F.col("received") == F.timestamp_micros(F.lit(moment)))
        .count()
        == 1
    )
    assert (
        lake.table("_readings")
        .where(F.col("time") == F.timestamp_micros(F.lit(1_500_000_000_654_321)))
        .count()
        == 1
    )
    for beyond in (
        F.col("received") < F.timestamp_micros(F.lit(moment)),
        F.col("received") > F.timestamp_micros(F.lit(moment)),
    ):
        assert lake.table().where("device = 'j'").where(beyond).count() == 0


@pytest.mark.parametrize(
    ("definition", "what"),
    [
        (
            (
                "(device string) using delta location '{}' tblproperties"
                " ('delta.columnMapping.mode' = 'name')"
            ),
            "maps its columns",
        ),
        ("(device string not null) using delta location '{}'", "has constraints"),
        (
            "(device string, sequence bigint) using delta partitioned by (device) location '{}'",
            "is partitioned",
        ),
    ],
)
def test_a_table_whose_files_must_be_other_than_ours_is_refused(
    spark: "SparkSession", tmp_path: Path, definition: str, what: str
) -> None:
    spark.sql(f"create table other {definition.format(tmp_path / 'other')}")
    try:
        with pytest.raises(OncewayError, match=f"the table {what}"):
            Table(spark, str(tmp_path / "other"), PUBLICATIONS).place()
    finally:
        spark.sql("drop table other")


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("alter table publications add constraint few check (sequence < 5)", "has constraints"),
        ("alter table publications alter column boot set default 7", "fills columns in by itself"),
    ],
)
def test_unsupported_table_change_during_the_job_stops_it_with_the_reason(
    spark: "SparkSession", tmp_path: Path, statement: str, what: str
) -> None:
    lake = Lake(spark, tmp_path)
    sink = lake.open()
    sink(lake.micro_batch(rows("a", 1)), 0)
    lake.sql(
        "alter table publications set tblproperties"
        " ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    lake.sql(statement)
    with pytest.raises(OncewayError, match=f"the table {what}"):
        sink(lake.micro_batch(rows("a", 6)), 1)
    assert lake.keys() == keys("a", 1)


def test_a_table_of_an_older_version_gets_the_columns_that_it_lacks(
    spark: "SparkSession", tmp_path: Path
) -> None:
    old = Lake(spark, tmp_path / "old table")
    lacking = Layout(
        PUBLICATIONS.comment,
        tuple(one for one in PUBLICATIONS.columns if one[0] not in ("boot", "undecodable")),
        PUBLICATIONS.properties,
    )
    Table(spark, str(old.publications), lacking).create()
    for start in range(2):
        old.open()(old.micro_batch([row("a", start, payload=b"21.5")]), start)
    assert [(one["boot"], one["undecodable"]) for one in old.table().collect()] == [
        (3, "neither a JSON nor a CBOR array")
    ] * 2
    comment = old.table().schema["boot"].metadata["comment"]
    assert comment == "Boot counter of the gateway at the receipt"
    assert old.versions() == 4  # creation, new columns, two appends


@pytest.mark.soak
def test_readings_of_an_older_version_are_made_again_as_this_one_has_them(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the table of the older version, names of readings include the device, and columns about
    the origin are missing.
    """
    old = Lake(spark, tmp_path / "old readings")
    newer = ("time_certainty", "gateway", "topic", "received")
    lacking = Layout(
        READINGS.comment,
        tuple(one for one in READINGS.columns if one[0] not in newer),
        (("delta.dataSkippingStatsColumns", "device,sequence,time"),),
    )
    Table(spark, f"{old.publications}_readings", lacking).create()
    payload = b'[{"bn":"a:","n":"adc0","v":2}]'
    with monkeypatch.context() as patch:
        patch.setattr(version, "DECODING", 1)
        old.open()(old.micro_batch([row("a", 1, payload=payload)]), 0)
    spark.sql(
        f"update delta.`{old.publications}_readings` set name = 'a:adc0', topic = null,"
        " time_certainty = null, received = null"
    )
    old.open()(old.micro_batch([row("a", 2, payload=payload)]), 1)
    found = old.table("_readings").orderBy("sequence").collect()
    assert [(one["sequence"], one["name"], one["topic"]) for one in found] == [
        (1, "adc0", "sensors/a"),
        (2, "adc0", "sensors/a"),
    ]
    assert {(one["time_certainty"], one["received"] == one["time"]) for one in found} == {
        ("unknown", True)
    }


def test_a_column_of_another_type_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    Table(spark, str(tmp_path / "other"), Layout("", (("sequence", "string", ""),))).create()
    with pytest.raises(OncewayError, match="column sequence is a string, not a bigint"):
        Table(spark, str(tmp_path / "other"), PUBLICATIONS).create()


@pytest.mark.parametrize("writer", ["fast", "public"])
def test_a_table_of_others_is_refused_and_stays_as_it_is(
    spark: "SparkSession", tmp_path: Path, writer: WriterName
) -> None:
    """The user's table has columns with the same names as the ingest's."""
    lake = Lake(spark, tmp_path, writer)
    layout = Layout("", (("device", "string", ""), ("sequence", "bigint", "")))
    Table(spark, str(lake.publications), layout).create()
    beside = set(lake.publications.parent.iterdir())
    with pytest.raises(OncewayError, match="no column incarnation") as raised:
        lake.open()
    assert "Give the ingest a table of its own" in str(raised.value)
    assert lake.versions() == 1
    made = set(lake.publications.parent.iterdir()) - beside
    assert {path.name for path in made} <= {".publications.lease"}


@pytest.mark.soak
def test_optimize_delete_and_restore_by_users_do_not_confuse_the_job(lake: Lake) -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows("h", 1, 2)), 0)
    version = lake.version()
    lake.sql("optimize publications")
    lake.sql("delete from publications where device = 'h' and sequence = 1")
    sink(lake.micro_batch(rows("h", 1, 2, 3)), 1)
    assert lake.keys("h") == keys("h", 2, 3)  # the deleted row stays deleted
    assert lake.readings("h") == readings("h", 2, 3)
    lake.sql(f"restore table publications to version as of {version}")
    sink(lake.micro_batch(rows("h", 2, 3)), 2)
    # the restored content stays, and no row is doubled
    assert lake.keys("h") == keys("h", 1, 2, 3)
    assert lake.readings("h") == readings("h", 1, 2, 3)


def test_deletions_and_changes_by_users_reach_the_readings(lake: Lake) -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows("m", 1, 2, 3)), 0)
    lake.sql("delete from publications where device = 'm' and sequence = 1")
    lake.sql(
        """update publications set payload = cast('[{"n":"a","v":9}]' as binary)"""
        " where device = 'm' and sequence = 2"
    )
    sink(lake.micro_batch(rows("m", 3)), 1)
    changed = ("m", 7, 2, 0, 9.0)
    assert lake.readings("m") == [changed, *readings("m", 3)]
    lake.open()(lake.micro_batch(rows("m", 4)), 2)
    assert lake.readings("m") == [changed, *readings("m", 3, 4)]


def conflicts(lake: Lake, device: str) -> list[tuple[int, bytes]]:
    found = lake.table("_conflicts").where(F.col("device") == device).collect()
    return sorted((one["sequence"], bytes(one["payload"])) for one in found)


def test_a_second_payload_of_one_key_is_kept_aside_with_an_alarm(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows("n", 1, 2, 3)), 0)
    sink(lake.micro_batch([row("n", 2, payload=b"other"), *rows("n", 3)], rows("n", 4)), 1)
    assert conflicts(lake, "n") == [(2, b"other")]
    assert "two payloads of one key: n (incarnation 7) sequence 2" in caplog.text
    assert lake.readings("n") == readings("n", 1, 2, 3, 4)
    # both payloads are in one micro-batch, and the table has neither of them
    sink(lake.micro_batch(rows("n", 5), [row("n", 5, payload=b"other")]), 2)
    sink(lake.micro_batch([row("n", 2, payload=b"other")]), 3)
    # sequence 2 comes with two payloads in two micro-batches
    assert [sequence for sequence, _ in conflicts(lake, "n")] == [2, 2, 5]
    assert lake.readings("n") == readings("n", 1, 2, 3, 4, 5)


def test_a_second_wording_of_one_reading_is_a_double_and_no_conflict(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """If a board learns the time between two transmissions, the payload differs
    (`gateway/payload/rewording.py`).
    """

    def said(value: int, **time: int) -> bytes:
        return json.dumps([{"n": "a", "v": value, **time}]).encode()

    sink = lake.open()
    sink(lake.micro_batch([row("w", number, payload=said(1)) for number in (1, 2)]), 0)
    sink(
        lake.micro_batch(
            [row("w", 1, payload=said(1, t=1_767_225_600)), row("w", 2, payload=said(2))],
            rows("w", 3),
        ),
        1,
    )
    assert conflicts(lake, "w") == [(2, said(2))]
    assert "sequence 2" in caplog.text
    assert "sequence 1" not in caplog.text
    assert lake.keys("w") == keys("w", 1, 2, 3)


def test_a_new_table_has_no_readings_to_make_again(
    spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first landed batch may have no rows for the table, for example if it is damaged or not
    trusted.
    """
    caplog.set_level(logging.INFO, logger="onceway.ingest")
    new = Lake(spark, tmp_path)
    sink = new.open()
    sink(new.micro_batch(rows("a", 1)).limit(0), 0)
    sink(new.micro_batch(rows("a", 1)), 1)
    assert "again" not in caplog.text
    assert new.readings("a") == readings("a", 1)


def test_readings_that_are_lost_are_made_again(lake: Lake) -> None:
    lake.open()(lake.micro_batch(rows("k", 1, 2)), 0)
    shutil.rmtree(f"{lake.publications}_readings")
    lake.open()(lake.micro_batch(rows("k", 2, 3)), 1)
    assert lake.readings("k") == readings("k", 1, 2, 3)


def test_a_table_that_went_back_in_time_is_not_written_to(lake: Lake) -> None:
    sink = lake.open()
    backup = lake.publications.with_name("backup")
    shutil.copytree(lake.publications, backup)
    sink(lake.micro_batch(rows("i", 1)), 0)
    shutil.rmtree(lake.publications)
    backup.rename(lake.publications)
    with pytest.raises(OncewayError, match="the table was deleted, restored from a copy"):
        sink(lake.micro_batch(rows("i", 2)), 1)


def test_the_writer_appends_to_no_earlier_version_and_to_no_other_table(
    spark: "SparkSession", tmp_path: Path
) -> None:
    table = Table(spark, str(tmp_path / "publications"), PUBLICATIONS)
    table.create()
    _, writer = open_writer(spark, table, table.place())
    with pytest.raises(OncewayError, match="restored from a copy"):
        writer.append(Addition(), 1, {}, ("onceway/test", 2))
    assert writer.append(Addition(), 0, {}, ("onceway/test", 1)) == 1
    shutil.rmtree(table.name)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    table.create()
    with pytest.raises(OncewayError, match="replaced by another table"):
        writer.append(Addition(), 0, {}, ("onceway/test", 1))
    assert writer.version() == 0


def test_micro_batch_of_duplicates_only_adds_nothing_by_the_public_writer(
    spark: "SparkSession", tmp_path: Path
) -> None:
    frame = Lake(spark, tmp_path, "public").micro_batch(rows("a", 1, 2), rows("a", 5))
    found = RowBatch(frame, {})
    drop = [(0, "a", 7, 1, 2), (1, "a", 7, 5, 5)]
    assert found.addition("publications", drop) == Addition()
    assert sum(found.new_by_feed(drop).values()) == 0
    assert found.addition("readings", drop[:1]).rows is not None
    found.discard(drop)
