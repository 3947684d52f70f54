"""A job that ends after a fault: its last line has the fault, its place and the remedy.

The faults are real: a full disk, a file that is missing or damaged, or a file in place of a folder.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.ingest.jobs import stream, upkeep
from gateway.ingest.jobs.script import run_script
from tests.durability.disk import SmallDisk
from tests.ingest.batches import land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOTHING = (
    "An error occurred while calling",
    "Traceback",
    "Return Message",
    "STREAM_FAILED",
    "awaitResult",
    "SQLSTATE",
)
"""Words that must not be in the last line, because they name no cause."""


@pytest.fixture(autouse=True)
def session_stays(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    for job in (upkeep, stream):
        monkeypatch.setattr(job, "close_session", lambda _: None)
        monkeypatch.setattr(job, "open_session", lambda _: spark)


@pytest.fixture
def job(spark: "SparkSession", tmp_path: Path) -> Job:
    """Return a job with one landed batch and no table yet."""
    found = Job(spark, tmp_path / "site")
    land(found.landing, "site", 1, [row("dev", 1)])
    return found


def ended(what: Callable[[], None]) -> str:
    """Run a job that must fail. Return the line with which its process ends."""
    with pytest.raises(SystemExit) as raised:
        run_script(what)
    line = str(raised.value.code)
    assert line.startswith("error: ")
    assert "\n" not in line
    assert not [words for words in NOTHING if words in line]
    return line


def take(job: Job) -> None:
    stream.run(job.options())


def take_again(job: Job) -> None:
    """Run the job with an empty cache of Delta, as a new process does."""
    job.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    take(job)


def upkeep_of(job: Job, *words: str) -> None:
    job.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    upkeep.run(upkeep.parse_arguments(["--table", str(job.publications), *words]))


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("mounts a tmpfs")
    disk = SmallDisk(folder, size)
    try:
        yield disk
    finally:  # Java may still have a file on this disk open
        subprocess.run(["umount", "--lazy", disk.mount], check=True, timeout=60)


def test_a_file_in_place_of_the_checkpoint_is_named(job: Job) -> None:
    job.checkpoint.write_text("a file")
    line = ended(lambda: take(job))
    assert f"{job.checkpoint}: the checkpoint is not a folder" in line


def test_unexpected_error_is_reported_with_its_place(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    (job.publications / "_delta_log").mkdir(parents=True)
    monkeypatch.setattr(stream, "start", start)
    line = ended(lambda: take(job))
    assert line == "error: the ingest stopped: ZeroDivisionError: division by zero"
    assert "in start" in caplog.text
    noted = json.loads((job.publications / "_onceway" / "stopped.json").read_text())
    assert "division by zero" in noted["why"]


@pytest.mark.soak
def test_full_disk_is_reported_and_all_batches_are_read_after_it(job: Job, tmp_path: Path) -> None:
    with small_disk(tmp_path, 4_000_000) as disk:
        job.publications = disk.mount / "publications"
        job.allow_unsigned()
        take(job)
        land(job.landing, "site", 2, [row("dev", 2)])
        disk.fill()
        line = ended(lambda: take(job))
        assert f"{job.publications}: the ingest stopped: " in line
        assert "No space left on device" in line
        assert "Make room on the full disk" in line
        disk.free()
        take_again(job)
        assert job.keys() == [("dev", 7, 1), ("dev", 7, 2)]


@pytest.mark.soak
def test_a_full_disk_without_a_table_or_of_the_checkpoint_is_named(
    job: Job, tmp_path: Path
) -> None:
    with small_disk(tmp_path, 400_000) as disk:
        disk.fill()
        where = job.publications
        job.publications = disk.mount / "publications"
        line = ended(lambda: stream.run(job.options(trusted=str(tmp_path / "keys.json"))))
        assert f"{job.publications}: the ingest stopped: No space left on device" in line
        job.publications, job.checkpoint = where, disk.mount / "checkpoint"
        line = ended(lambda: take(job))
        assert f"{job.checkpoint}: the ingest stopped: No space left on device" in line
        disk.free()
        take_again(job)
        assert job.keys() == [("dev", 7, 1)]


def lose_log_file(job: Job, version: int) -> None:
    (job.publications / "_delta_log" / f"{version:020d}.json").unlink()


@pytest.mark.soak
def test_a_missing_file_of_the_table_s_log_is_reported_and_noted_for_the_report(job: Job) -> None:
    for number in (2, 3):
        take(job)
        land(job.landing, "site", number, [row("dev", number)])
    take(job)
    lose_log_file(job, 2)
    line = ended(lambda: take_again(job))
    assert "VERSIONS_NOT_CONTIGUOUS] Versions (0, 1, 3) are not contiguous" in line
    assert "log (_delta_log) is missing or damaged" in line
    noted = json.loads((job.publications / "_onceway" / "stopped.json").read_text())
    assert "are not contiguous" in noted["why"]
    lose_log_file(job, 0)
    lose_log_file(job, 1)
    line = ended(lambda: upkeep_of(job, "compact"))
    assert "TRUNCATED_TRANSACTION_LOG" in line
    assert str(job.publications / "_delta_log") in line


UPKEEP = [("summarise",), ("compact",), ("expire", "--older-than", "1d")]


@pytest.mark.parametrize(
    ("suffix", "words", "data"),
    [
        *(
            pytest.param(suffix, words, data, marks=pytest.mark.soak)
            for suffix, words, data in [
                *[("", words, data) for words in UPKEEP for data in (None, b"x" * 100)],
                *(
                    ("_readings", words, data)
                    for words in UPKEEP[1:]
                    for data in (None, b"x" * 100)
                ),
            ]
        ),
    ],
)
def test_a_data_file_that_is_missing_or_damaged_is_named(
    job: Job, suffix: str, words: tuple[str, ...], data: bytes | None
) -> None:
    take(job)
    if words[0] == "compact":  # `compact` reads a file only if there is another one to join it with
        land(job.landing, "site", 2, [row("dev", 2)])
        take(job)
    files = list(Path(f"{job.publications}{suffix}").glob("*.parquet"))
    job.lose_snapshots()
    for file in files:
        file.unlink() if data is None else file.write_bytes(data)
    line = ended(lambda: upkeep_of(job, *words))
    assert any(file.name in line for file in files)
    assert "A file of a table is missing or damaged" in line
    assert "does not exist" in line if data is None else "is not a Parquet file" in line


@pytest.mark.soak
@pytest.mark.parametrize(
    ("table", "what", "advice"),
    [
        ("{}/file/publications", "{}/file", "Is a file in the way"),
        ("/proc/none/publications", "Cannot create file:/proc/none", "a disk not mounted"),
        ("s3a://bucket/publications", "S3AFileSystem not found", "`onceway ingest run`"),
        ("foo://bucket/publications", 'No FileSystem for scheme "foo"', "Give a path, or a URL"),
    ],
)
def test_table_at_an_impossible_place_is_reported(
    job: Job, tmp_path: Path, table: str, what: str, advice: str
) -> None:
    (tmp_path / "file").touch()
    options = job.options(table=table.format(tmp_path), trusted=str(tmp_path / "keys.json"))
    line = ended(lambda: stream.run(options))
    assert what.format(tmp_path) in line
    assert advice in line
