"""Power cuts that damage Spark's checkpoint. The next start continues, and each row is in the table
once.
"""

import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from typer.testing import CliRunner

from gateway.errors import OncewayError
from gateway.ingest.cli import app
from gateway.ingest.delta.storage import HadoopFolder
from gateway.ingest.jobs import checkpoint, stream
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


FEED = f"site/{EPOCH}"


@dataclass
class Begun:
    """A job that has ended. saved: a copy of its checkpoint. next: number of the next batch."""

    job: Job
    saved: Path
    next: int = 4

    def restore(self) -> None:
        shutil.rmtree(self.job.checkpoint, ignore_errors=True)
        shutil.copytree(self.saved, self.job.checkpoint)


@pytest.fixture(scope="module")
def begun(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """Return a job that has taken three micro-batches, and a copy of its checkpoint."""
    folder = tmp_path_factory.mktemp("torn")
    job = Job(spark, folder)
    for number in (1, 2, 3):
        land(job.landing, "site", number, [row("dev", number)])
    job.run(rows=1)
    saved = folder / "saved"
    shutil.copytree(job.checkpoint, saved)
    return Begun(job, saved)


def sum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def missing(path: Path) -> None:
    path.unlink()
    sum_of(path).unlink(missing_ok=True)


def file_missing(path: Path) -> None:
    """Delete the file, but not its checksum file."""
    path.unlink()


def written(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    sum_of(path).unlink(missing_ok=True)


def empty(path: Path) -> None:
    written(path, b"")


def half(path: Path) -> None:
    written(path, path.read_bytes()[: path.stat().st_size // 2])


def zeros(path: Path) -> None:
    """Fill the file with zeros, as after a power cut in which the file system kept only the
    length.
    """
    written(path, b"\0" * path.stat().st_size)


def garbage(path: Path) -> None:
    written(path, b"\x8f\xff garbage")


def lines_of_garbage(path: Path) -> None:
    written(path, b"garbage\n" + b"[" * 100_000 + b"\n{}")


def first_line(path: Path) -> None:
    """Truncate the file after its first line, so that the rest is valid text."""
    written(path, path.read_bytes().partition(b"\n")[0] + b"\n")


def other_sum(path: Path) -> None:
    """Write a valid checksum file that does not match the file."""
    sum_of(path).write_bytes(b"crc\0" + struct.pack(">iI", 512, crc32(b"other")))


def half_and_its_old_sum(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty_and_its_old_sum(path: Path) -> None:
    path.write_bytes(b"")


def empty_sum(path: Path) -> None:
    sum_of(path).write_bytes(b"")


def a_folder(path: Path) -> None:
    missing(path)
    path.mkdir()


def link_to_nothing(path: Path) -> None:
    missing(path)
    path.symlink_to("nothing")


def link_to_itself(path: Path) -> None:
    missing(path)
    path.symlink_to(path.name)


def closed(path: Path) -> None:
    """Remove all permissions of a folder. Root can still read it."""
    path.chmod(0)


def temporary_file_beside(path: Path) -> None:
    """Leave a file with a temporary name of Spark, and its checksum file."""
    left = path.with_name(f".{path.name}.0a1b2c3d-0000-4000-8000-000000000000.tmp")
    left.write_bytes(b"v1")
    sum_of(left).write_bytes(b"crc\0")


def sum_alone(path: Path) -> None:
    """Write the checksum file of a file that does not exist. In a folder with numbered files, this
    file would be the next one.
    """
    following = path.with_name(str(int(path.name) + 1)) if path.name.isdecimal() else path
    following.unlink(missing_ok=True)
    sum_of(following).write_bytes(b"crc\0" + bytes(8))


FAULTS: list[Callable[[Path], None]] = [
    missing,
    file_missing,
    empty,
    half,
    zeros,
    garbage,
    lines_of_garbage,
    first_line,
    other_sum,
    half_and_its_old_sum,
    empty_and_its_old_sum,
    empty_sum,
    a_folder,
    link_to_nothing,
    link_to_itself,
    closed,
    temporary_file_beside,
    sum_alone,
]
FILES = ["metadata", *(f"{log}/{n}" for log in ("offsets", "commits") for n in (0, 1, 2))]


CASES = [
    pytest.param(file, fault, id=f"{file}-{fault.__name__}") for file in FILES for fault in FAULTS
]


def folder_missing(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def folder_empty(path: Path) -> None:
    folder_missing(path)
    path.mkdir()


def a_file(path: Path) -> None:
    folder_missing(path)
    path.write_bytes(b"a file")


def an_empty_file(path: Path) -> None:
    folder_missing(path)
    path.touch()


def folder_link_to_nothing(path: Path) -> None:
    folder_missing(path)
    path.symlink_to("nothing")


def folder_link_to_itself(path: Path) -> None:
    folder_missing(path)
    path.symlink_to(path.name)


def folder_of_odd_things(path: Path) -> None:
    """Add a file and a folder that Spark would not write."""
    path.mkdir(exist_ok=True)
    (path / "notes.txt").write_text("mine")
    (path / "folder").mkdir()


FOLDER_FAULTS = [
    folder_missing,
    folder_empty,
    a_file,
    an_empty_file,
    folder_link_to_nothing,
    folder_link_to_itself,
    closed,
    folder_of_odd_things,
]
FOLDER_CASES = [
    pytest.param(folder, fault, id=f"{folder}-{fault.__name__}")
    for folder in checkpoint.FOLDERS
    for fault in FOLDER_FAULTS
    if not (fault is closed and folder in ("sources", "state"))
]
"""Each folder of a checkpoint with each fault. The job itself creates neither `sources` nor
`state`, so these two are not tried without rights.
"""


def test_stream_continues_from_its_checkpoint(
    begun: Begun, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on(begun)
    assert not asides(begun)
    assert "put aside" not in caplog.text


@pytest.mark.parametrize(("file", "fault"), CASES + FOLDER_CASES)
def test_kept_checkpoint_is_readable_for_spark(
    begun: Begun, file: str, fault: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The test reads the checkpoint with the code that Spark runs at a start."""
    begun.restore()
    fault(begun.job.checkpoint / file)
    checkpoint.make_fit(begun.job.spark, str(begun.job.checkpoint), {FEED: 10**9})
    if begun.job.checkpoint.exists():
        read_by_spark(begun)
        assert caplog.messages == []
    else:
        (line,) = caplog.messages
        assert str(begun.job.checkpoint) in line
        assert str(asides(begun)[-1]) in line
        assert "the ingest continues with the batches that the table lacks" in line


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        pytest.param("metadata", missing, id="metadata"),
        pytest.param("commits/2", empty, id="commit"),
        pytest.param("offsets/1", other_sum, id="offset"),
        *(
            pytest.param(*case.values, id=case.id, marks=pytest.mark.soak)
            for case in CASES + FOLDER_CASES
        ),
    ],
)
def test_stream_continues_after_any_record(
    begun: Begun, file: str, fault: Callable[[Path], None]
) -> None:
    begun.restore()
    fault(begun.job.checkpoint / file)
    goes_on(begun)


@pytest.mark.parametrize("fault", [missing, garbage])
def test_checkpoint_of_another_stream_is_refused_even_if_torn(
    begun: Begun, fault: Callable[[Path], None]
) -> None:
    begun.restore()
    for number in (0, 1):
        written(begun.job.checkpoint / "offsets" / str(number), b'v1\n{}\n{"logOffset":3}')
    for file in ("metadata", "commits/2", "offsets/2"):
        fault(begun.job.checkpoint / file)
    with pytest.raises(OncewayError, match="belongs to another stream"):
        begun.job.run()
    assert begun.job.checkpoint.exists()


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        pytest.param("metadata", a_folder, id="metadata is a folder"),
        pytest.param("metadata", garbage, id="metadata is garbage"),
        pytest.param("metadata", link_to_nothing, id="metadata leads nowhere"),
        *(
            pytest.param(folder, fault, id=f"{folder} {fault.__name__}")
            for folder in checkpoint.FOLDERS
            for fault in (a_file, folder_link_to_nothing)
        ),
    ],
)
def test_a_checkpoint_that_began_nothing_is_put_aside_too(
    begun: Begun, file: str, fault: Callable[[Path], None]
) -> None:
    """The folders of offsets and commits are empty, as after a first start that failed."""
    begun.restore()
    for folder in (checkpoint.OFFSETS, checkpoint.COMMITS):
        folder_empty(begun.job.checkpoint / folder)
    spark, url = begun.job.spark, str(begun.job.checkpoint)
    checkpoint.make_fit(spark, url, {FEED: 10**9})
    assert begun.job.checkpoint.exists()
    assert not checkpoint.is_used(spark, url)
    fault(begun.job.checkpoint / file)
    checkpoint.refuse_foreign(spark, url)
    checkpoint.make_fit(spark, url, {FEED: 10**9})
    assert not begun.job.checkpoint.exists()


@pytest.mark.parametrize("folder", checkpoint.FOLDERS)
def test_checkpoint_unreadable_for_java_is_put_aside(
    begun: Begun, folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Root may list every folder, and tests may run as root. So the listing raises the error that
    Java raises for a missing folder.
    """
    begun.restore()
    (begun.job.checkpoint / folder).mkdir(exist_ok=True)
    refusing(monkeypatch, folder)
    spark, url = begun.job.spark, str(begun.job.checkpoint)
    checkpoint.refuse_foreign(spark, url)
    assert checkpoint.is_used(spark, url)
    if folder in (checkpoint.OFFSETS, checkpoint.COMMITS):
        checkpoint.make_fit(spark, url, {FEED: 10**9})
        assert not begun.job.checkpoint.exists()
        assert "does not exist" in caplog.text


def refusing(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    for name in ("names", "entries"):
        real = getattr(HadoopFolder, name)

        def listed(self: HadoopFolder, real: Any = real) -> Any:
            if str(self).endswith(f"/{folder}"):
                self._fs.listStatus(self._child("nothing"))
            return real(self)

        monkeypatch.setattr(HadoopFolder, name, listed)


@pytest.mark.parametrize(
    "fault",
    [
        a_file,
        folder_link_to_nothing,
        *(pytest.param(one, marks=pytest.mark.soak) for one in (empty, folder_link_to_itself)),
    ],
)
def test_checkpoint_path_that_is_not_a_folder_is_refused_and_kept(
    begun: Begun, process: "Process", fault: Callable[[Path], None]
) -> None:
    """The file may belong to another program."""
    begun.restore()
    process.run()
    shutil.rmtree(begun.job.checkpoint)
    fault(begun.job.checkpoint)
    before = asides(begun)
    try:
        with pytest.raises(OncewayError, match="is not a folder"):
            process.run()
        code, text, _ = process.report()
        assert code == 5
        assert "the checkpoint is not a folder" in text
        assert asides(begun) == before
    finally:
        begun.job.checkpoint.unlink()


def test_folder_in_use_by_another_process_is_not_moved(begun: Begun, process: "Process") -> None:
    begun.restore()
    garbage(begun.job.checkpoint / "metadata")
    photos = begun.job.checkpoint / "photos"
    photos.mkdir()
    with pytest.raises(OncewayError, match="photos is in this folder, too"):
        process.run()
    assert photos.exists()
    assert "photos" in process.report()[1]
    photos.rmdir()
    process.run()
    assert process.report()[0] == 0


def test_checkpoint_that_cannot_be_set_aside_is_an_error(
    begun: Begun, process: "Process", monkeypatch: pytest.MonkeyPatch
) -> None:
    begun.restore()
    garbage(begun.job.checkpoint / "metadata")

    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refused)
        with pytest.raises(OncewayError, match=r"cannot be put aside: .*Permission denied"):
            process.run()
    code, text, _ = process.report()
    assert code == 5
    assert "cannot be put aside" in text
    process.run()
    assert process.report()[0] == 0


def test_a_checkpoint_that_lost_its_newest_commits_begins_where_spark_does(begun: Begun) -> None:
    """With this checkpoint, Spark would repeat the newest micro-batch and skip the uncommitted ones
    before it. So the checkpoint is put aside.
    """
    begun.restore()
    for number in (1, 2):
        missing(begun.job.checkpoint / "commits" / str(number))
    checkpoint.make_fit(begun.job.spark, str(begun.job.checkpoint), {FEED: 1})
    assert not begun.job.checkpoint.exists()


class Process:
    """Runs the job as its own process would, but in the Spark session of the tests."""

    def __init__(self, begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
        self._begun = begun
        monkeypatch.setattr(stream, "open_session", lambda named: begun.job.spark)
        monkeypatch.setattr(stream, "close_session", lambda spark: None)
        monkeypatch.setattr(stream.signal, "signal", lambda number, handler: None)

    def run(self) -> None:
        stream.run(self._begun.job.options())

    def report(self) -> tuple[int, str, str]:
        """Return the exit code, the text and the metrics of `onceway ingest report`."""
        job = self._begun.job
        where = ["--landing", str(job.landing), "--table", str(job.publications)]
        done = [
            CliRunner().invoke(app, ["report", *where, *more]) for more in ([], ["--metrics", "-"])
        ]
        return done[0].exit_code, done[0].stdout, done[1].stdout


@pytest.fixture
def process(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(begun, monkeypatch)


@pytest.mark.parametrize("file", ["metadata", "commits/2"])
def test_damage_that_only_spark_finds_is_put_aside_too(
    begun: Begun,
    process: Process,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(stream, "make_fit", lambda *_: None)
    begun.restore()
    before = len(asides(begun))
    garbage(begun.job.checkpoint / file)
    land(begun.job.landing, "site", begun.next, [row("dev", begun.next)])
    process.run()
    assert begun.job.keys() == [("dev", 7, number) for number in range(1, begun.next + 1)]
    begun.next += 1
    assert len(asides(begun)) == before + 1
    assert "Spark " in caplog.text


def test_a_landing_place_that_cannot_be_read_does_not_blame_the_checkpoint(
    begun: Begun, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun.restore()
    begin = stream._begin

    def gone(*arguments: Any) -> Any:
        begun.job.landing.rename(f"{begun.job.landing}.gone")
        return begin(*arguments)

    before = asides(begun)
    with monkeypatch.context() as patch:
        patch.setattr(stream, "_begin", gone)
        with pytest.raises(Exception, match=r"."):
            process.run()
    Path(f"{begun.job.landing}.gone").rename(begun.job.landing)
    assert asides(begun) == before
    assert begun.job.checkpoint.exists()


def test_the_report_says_that_the_ingest_has_stopped_until_it_runs_again(
    begun: Begun, process: Process
) -> None:
    begun.restore()
    process.run()
    assert process.report()[0] == 0
    for number in (0, 1, 2):
        written(begun.job.checkpoint / "offsets" / str(number), b'v1\n{}\n{"logOffset":3}')
    shutil.rmtree(begun.job.checkpoint / "commits")
    with pytest.raises(OncewayError, match="belongs to another stream"):
        process.run()
    code, text, metrics = process.report()
    assert code == 5
    assert "stopped: the ingest ended at " in text
    assert "belongs to another stream" in text
    assert "onceway_ingest_stopped 1" in metrics
    begun.restore()
    process.run()
    code, text, metrics = process.report()
    assert (code, "stopped" in text) == (0, False)
    assert "onceway_ingest_stopped 0" in metrics


def asides(begun: Begun) -> list[Path]:
    return sorted(begun.job.checkpoint.parent.glob("checkpoint.aside-*"))


def read_by_spark(begun: Begun) -> None:
    """Read the checkpoint as Spark's MicroBatchExecution does. Raises Spark's errors."""
    spark: Any = begun.job.spark
    streaming = spark._jvm.org.apache.spark.sql.execution.streaming
    path = f"file:{begun.job.checkpoint}"
    metadata = spark._jvm.org.apache.hadoop.fs.Path(f"{path}/metadata")
    session = spark._jsparkSession
    read = streaming.runtime.StreamMetadata.read(metadata, session.sessionState().newHadoopConf())
    offsets = streaming.checkpointing.OffsetSeqLog(session, f"{path}/offsets", False)
    commits = streaming.checkpointing.CommitLog(session, f"{path}/commits", False)
    newest = offsets.getLatest()
    if newest.isDefined():
        assert read.isDefined()
        number = newest.get()._1()
        assert number == 0 or offsets.get(number - 1).isDefined()
        ended = commits.getLatest()
        assert not ended.isDefined() or ended.get()._1() <= number
    for name in checkpoint.FOLDERS:
        folder = begun.job.checkpoint / name
        assert folder.is_dir() or not folder.is_symlink()
        assert not folder.is_file()
    root = begun.job.checkpoint
    paths = [root / "metadata", *root.glob("offsets/[0-9]*"), *root.glob("commits/[0-9]*")]
    assert all(path.is_file() for path in paths if path.exists() or path.is_symlink())
    sums = [*root.glob(".metadata.crc"), *root.glob("*/.[0-9].crc")]
    assert all(one.with_name(one.name[1:-4]).exists() for one in sums)


def goes_on(begun: Begun) -> None:
    """Land one more batch and run the job. Check that every row is in the table once."""
    job = begun.job
    land(job.landing, "site", begun.next, [row("dev", begun.next)])
    job.run()
    assert job.keys() == [("dev", 7, number) for number in range(1, begun.next + 1)]
    begun.next += 1
