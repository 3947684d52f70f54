"""The report about the stream and about each table that users query. The exit code is not 0 while
the report has a problem.
"""

import json
import logging
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from typer.testing import CliRunner

from gateway.ingest.cli import app
from gateway.ingest.payload.version import application_id
from gateway.ingest.report import health, job
from tests.ingest.batches import land, row
from tests.ingest.files import Files
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

PAYLOAD = b'[{"n":"a","v":1}]'


class Told:
    """The report about a copy of a lake: exit code, text, JSON and metrics."""

    def __init__(self, folder: Path) -> None:
        where = ["--landing", str(folder / "landing"), "--table", str(folder / "lake/publications")]
        run = CliRunner().invoke(app, ["report", *where])
        self.code, self.text, self.error = run.exit_code, run.stdout, str(run.exception)
        found = CliRunner().invoke(app, ["report", *where, "--json"]).stdout
        self.json: dict[str, Any] = json.loads(found) if found else {}
        self.metrics = CliRunner().invoke(app, ["report", *where, "--metrics", "-"]).stdout


@pytest.fixture(scope="module")
def lake(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a landing place of two batches and their tables. `before` in it is a
    copy of the readings table after the first batch.
    """
    folder = tmp_path_factory.mktemp("health")
    made = Job(spark, folder)
    land(made.landing, "site", 1, [row("dev", 1, payload=PAYLOAD)])
    made.take()
    shutil.copytree(f"{made.publications}_readings", folder / "before")
    land(made.landing, "site", 2, [row("dev", 2, payload=PAYLOAD), row("dev", 3)])
    made.take()
    return folder


@pytest.fixture
def copy(lake: Path, tmp_path: Path) -> Path:
    shutil.copytree(lake, tmp_path / "copy")
    return tmp_path / "copy"


def readings(copy: Path) -> Path:
    return copy / "lake" / "publications_readings"


def test_whole_tables_are_all_right(copy: Path) -> None:
    told = Told(copy)
    assert told.code == 0, told.text
    tables = {Path(one["name"]).name: one for one in told.json["tables"]}
    assert {name: one["rows"] for name, one in tables.items()} == {
        "publications": 3,
        "publications_readings": 3,
    }
    assert not any(one["flaw"] for one in tables.values())
    assert 'onceway_ingest_table_rows{table="publications_readings"} 3' in told.metrics
    assert "last rows: " in told.text


@pytest.mark.spark
def test_table_whose_payloads_are_all_undecodable_is_all_right(
    spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit without readings stores the progress, so nothing is lacking. The first reading then
    needs no rebuilding of the table.
    """
    caplog.set_level(logging.INFO, logger="onceway.ingest")
    made = Job(spark, tmp_path)
    for number in (1, 2):
        land(made.landing, "site", number, [row("dev", number, payload=b'{"n":"a","v":1}')])
        made.take()
        told = Told(tmp_path)
        assert told.code == 0, told.text
    land(made.landing, "site", 3, [row("dev", 3, payload=PAYLOAD)])
    made.take()
    assert Told(tmp_path).json["tables"][1]["rows"] == 1
    assert "rebuilding" not in caplog.text


def lacking(copy: Path) -> None:
    """Remove the readings of the second batch, as after a full disk."""
    shutil.rmtree(readings(copy))
    (copy / "before").rename(readings(copy))


def without_table(copy: Path) -> None:
    shutil.rmtree(readings(copy))


def without_log(copy: Path) -> None:
    shutil.rmtree(readings(copy) / "_delta_log")
    (readings(copy) / "_delta_log").touch()


def garbage_in_log(copy: Path) -> None:
    newest = max((readings(copy) / "_delta_log").glob("*.json"))
    newest.write_bytes(b"\x8f\xff garbage\n")


def without_file(copy: Path) -> None:
    next(readings(copy).glob("*.parquet")).unlink()


def half_a_file(copy: Path) -> None:
    path = next(readings(copy).glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-10])


def garbage_beside(copy: Path) -> None:
    """Damage the log of the quarantine, a table that the ingest makes only when it needs it."""
    log = copy / "lake" / "publications_quarantine" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("garbage")


def without_a_version(copy: Path) -> None:
    """Remove version 0 of the log. delta-rs reads a checksum file instead, but Spark cannot read
    the table.
    """
    (readings(copy) / "_delta_log" / f"{0:020d}.json").unlink()


def without_file_of_publications(copy: Path) -> None:
    next((copy / "lake" / "publications").glob("*.parquet")).unlink()


def garbage_of_the_same_size(copy: Path) -> None:
    path = next((copy / "lake" / "publications").glob("*.parquet"))
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("fault", "table", "says"),
    [
        (lacking, "_readings", "it lacks the publications of 1 commit"),
        (without_table, "_readings", "there is no such table"),
        (without_log, "_readings", ""),
        (garbage_in_log, "_readings", ""),
        (without_a_version, "_readings", "version 0 is missing in its log"),
        (without_file, "_readings", "is missing"),
        (half_a_file, "_readings", "bytes instead of"),
        (without_file_of_publications, "", "is missing"),
        (garbage_of_the_same_size, "", "Invalid Parquet file"),
        (garbage_beside, "_quarantine", ""),
    ],
)
def test_a_table_that_is_not_whole_is_red(
    copy: Path, fault: Callable[[Path], None], table: str, says: str
) -> None:
    fault(copy)
    told = Told(copy)
    assert told.code == 5, (told.text, told.error)
    (line,) = (one for one in told.text.splitlines() if one.startswith("table: "))
    assert f"publications{table}: " in line
    assert says in line
    assert "<unknown>" not in line, "the stack of the reader"
    assert f'onceway_ingest_table_flawed{{table="publications{table}"}} 1' in told.metrics


@pytest.mark.parametrize("harm", ["missing", "cut off", "none"])
def test_a_file_of_a_partitioned_table_counts_too(tmp_path: Path, harm: str) -> None:
    """The public writer accepts partitioned tables. The table's log escapes special characters in
    the names of their folders.
    """
    table = tmp_path / "publications"
    rows = pa.table({"device": ["a b", "x:y", "p%q"], "sequence": [1, 2, 3]})
    write_deltalake(table, rows, partition_by=["device"])
    for path in table.glob("device=*/*.parquet") if harm != "none" else ():
        before = path.read_bytes()
        path.unlink() if harm == "missing" else path.write_bytes(before[:-1])
        name = path.relative_to(table)
        size = f"has {len(before) - 1} bytes instead of {len(before)}"
        assert health.damage(str(table)) == (
            f"its file {name} {'is missing' if harm == 'missing' else size}"
        )
        path.write_bytes(before)
    assert health.damage(str(table)) is None


@pytest.mark.spark
def test_readings_may_follow_a_moment_later_while_the_stream_runs(copy: Path) -> None:
    lacking(copy)
    now = datetime.now(UTC).isoformat()
    note = copy / "lake" / "publications" / "_onceway" / job.FILE
    note.write_text(json.dumps({"state": "running", "since": now, "at": now}))
    told = Told(copy)
    assert told.code == 0, told.text
    assert "job: runs since " in told.text
    assert "onceway_ingest_job_running 1" in told.metrics


@pytest.mark.parametrize("suffix", ["devices", "quality"])
def test_a_table_of_summarise_that_is_not_brought_up_to_date_has_a_flaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    table, derived = str(tmp_path / "publications"), str(tmp_path / f"publications_{suffix}")
    for _ in range(2):
        write_deltalake(table, pa.table({"device": ["dev"]}), mode="append")
    application = f"onceway/{suffix}-1/{DeltaTable(table).metadata().id}"

    def flaw(covers: int | None) -> str | None:
        known = [] if covers is None else [Transaction(application, covers)]
        properties = CommitProperties(app_transactions=known)
        write_deltalake(
            derived, pa.table({"a": [1]}), mode="overwrite", commit_properties=properties
        )
        (found,) = (one.flaw for one in health.look(table, False) if one.name == derived)
        return found

    assert flaw(None) is None, "it does not say how far it goes"
    assert flaw(0) is None, "it is a moment behind"
    monkeypatch.setattr(health, "STALE_S", 0.0)
    behind = flaw(0)
    assert behind is not None
    assert behind.startswith("it lacks readings since 20")
    assert "does `onceway ingest summarise` run" in behind
    assert flaw(1) is None


@pytest.mark.spark
def test_a_stream_that_was_killed_is_red(copy: Path) -> None:
    before = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    note = copy / "lake" / "publications" / "_onceway" / job.FILE
    note.write_text(json.dumps({"state": "running", "since": before, "at": before}))
    told = Told(copy)
    assert told.code == 5
    assert f"job: silent since {before}" in told.text
    assert "onceway_ingest_job_silent 1" in told.metrics


def test_the_stream_s_signs_of_life() -> None:
    files = Files()
    assert job.look(files) is None
    job.alive(files, "2026-01-02T03:04:05+00:00")
    found = job.look(files)
    assert found is not None
    assert str(found) == "runs since 2026-01-02T03:04:05+00:00"
    job.ended(files, "2026-01-02T03:04:05+00:00")
    assert str(job.look(files)).startswith("ended cleanly at ")
    ahead = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    files.write(job.FILE, json.dumps({"state": "running", "since": ahead, "at": ahead}).encode())
    assert str(job.look(files)).startswith("silent since ")
    job.failed(files)
    assert job.look(files) is None


@pytest.mark.parametrize("text", [b"", b"[", b"[1]", b'{"state": 1}', b'{"state":"a","at":"b"}'])
def test_damaged_heartbeat_file_is_ignored(text: bytes) -> None:
    assert job.look(Files({job.FILE: text})) is None


def edited(table: Path, version: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Apply a function to each action of a commit."""
    path = table / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        change(action)
    lines = [json.dumps(action, separators=(",", ":")) for action in actions]
    path.write_text("".join(f"{line}\n" for line in lines))


def test_folder_of_a_log_without_a_commit_is_a_flaw_and_no_folder_is_none(tmp_path: Path) -> None:
    table = tmp_path / "publications"
    write_deltalake(table, pa.table({"device": ["dev"]}))
    conflicts = tmp_path / "publications_conflicts"
    (conflicts / "_delta_log").mkdir(parents=True)
    found = {one.name: one for one in health.look(f"{table}/", False)}
    assert found.keys() == {str(table), f"{table}_readings", str(conflicts)}
    assert found[str(table)].flaw is None
    assert found[str(conflicts)].flaw is not None
    assert found[str(conflicts)].rows is None


def test_files_of_another_table_are_not_looked_for_in_the_folder_of_a_clone(
    tmp_path: Path,
) -> None:
    table = tmp_path / "publications"
    for _ in range(2):
        write_deltalake(table, pa.table({"device": ["dev"]}), mode="append")

    def of_another(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["path"] = f"file://{tmp_path}/another/{action['add']['path']}"

    edited(table, 0, of_another)
    assert health.damage(str(table)) is None
    log = (table / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    (own,) = (json.loads(line)["add"]["path"] for line in log if '"add"' in line)
    (table / own).unlink()
    assert health.damage(str(table)) == f"its file {own} is missing"


@pytest.mark.parametrize("noted", ["in the log", "in a checkpoint", "nowhere"])
def test_readings_that_follow_far_behind_the_commits_of_their_log(
    tmp_path: Path, noted: str
) -> None:
    """The progress of `readings` may be older than its log. Delta's checkpoint then has it."""
    table, readings = tmp_path / "publications", tmp_path / "publications_readings"
    for _ in range(3):
        write_deltalake(table, pa.table({"device": ["dev"]}), mode="append")
    edited(table, 2, lambda action: action.get("commitInfo", {}).pop("timestamp", None))
    application = application_id(str(DeltaTable(table).metadata().id))
    known = [] if noted == "nowhere" else [Transaction(application, 1)]
    rows = pa.table({"device": ["dev"]})
    properties = CommitProperties(app_transactions=known)
    write_deltalake(readings, rows, mode="append", commit_properties=properties)
    for _ in range(2):
        write_deltalake(readings, rows, mode="append")
    if noted != "in the log":
        DeltaTable(readings).create_checkpoint()
        for version in (0, 1):
            (readings / "_delta_log" / f"{version:020d}.json").unlink()
    running = noted != "nowhere"  # a commit without a time counts as an old one
    (found,) = (one for one in health.look(str(table), running) if one.name == str(readings))
    assert found.flaw is not None
    lacks = (
        "3 commits, beginning with version 0 of 2"
        if noted == "nowhere"
        else ("1 commit, beginning with version 2 of 1970-01-01")
    )
    assert found.flaw.startswith(f"it lacks the publications of {lacks}")
