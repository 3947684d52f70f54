"""The small files in the table's folder `_onceway`: a file that cannot be written or is damaged
stops neither the ingest nor the report.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from gateway.errors import OncewayError
from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.ranges import SeenRanges
from gateway.ingest.delta.storage import Folder
from gateway.ingest.report import counters, job, stopped
from gateway.ingest.report.counters import Counters
from gateway.ingest.report.tables import TableFolder, progress_of_feeds, rows_by_feed
from tests.ingest.files import Files


class Closed(Files):
    """A folder in which nothing can be changed. error: raised at each attempt."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __str__(self) -> str:
        return "/srv/lake/_onceway"

    def write(self, name: str, data: bytes) -> None:
        raise self.error

    def delete(self, name: str) -> None:
        raise self.error


CHANGES: list[Callable[[Folder], None]] = [
    lambda files: Counters("id").save(files),
    lambda files: job.alive(files, "now"),
    lambda files: job.ended(files, "now"),
    lambda files: stopped.note(files, "a full disk"),
    lambda files: stopped.forget(files),
    lambda files: snapshot.save(files, snapshot.Snapshot(SeenRanges(), 3, "id")),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (TimeoutError(), "TimeoutError"),
        (
            Py4JNetworkError("Answer from Java side is empty"),
            "Java, in which Spark runs, has ended",
        ),
    ],
)
def test_file_that_cannot_be_changed_is_one_line_with_the_cause(
    caplog: pytest.LogCaptureFixture, change: Callable[[Folder], None], error: Exception, says: str
) -> None:
    change(Closed(error))  # type: ignore[arg-type]
    (line,) = caplog.messages
    assert says in line


def test_end_of_an_ingest_without_a_table_is_noted_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopped.note(Closed(FileNotFoundError(2, "no folder")), "no table")  # type: ignore[arg-type]
    job.failed(Closed(OSError(30, "read-only")))  # type: ignore[arg-type]
    assert not caplog.messages


@pytest.mark.parametrize(
    "text",
    [
        b"[",
        b"[]",
        b"{}",
        b'{"table":"id","saved":"","feeds":{"a/0":{"more":1}},"spark":{}}',
        b'{"table":"id","saved":"","feeds":[],"spark":{}}',
    ],
)
def test_damaged_counts_are_left_out_with_a_line(
    caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    assert counters.load(Files({counters.FILE: text})) is None
    assert "cannot be read, and are left out" in caplog.text


def test_counts_are_those_of_one_table(caplog: pytest.LogCaptureFixture) -> None:
    files, kept = Files(), Counters("id")
    for number, new in ((2, 10), (1, 7)):
        kept.add("a/0", number, 10, new)
    kept.save(files)  # type: ignore[arg-type]
    assert counters.load(files, "id") == counters.load(files) == kept
    assert (kept.feeds["a/0"].number, kept.feeds["a/0"].doubles) == (2, 3)
    assert counters.load(files, "another") is None
    assert counters.load(Files()) is None
    assert not caplog.messages


def test_reason_of_an_end_stays_until_the_next_start() -> None:
    files = Files()
    assert stopped.why(files) is None
    stopped.note(files, "a full disk")  # type: ignore[arg-type]
    assert "and has not run since: a full disk" in str(stopped.why(files))
    for damaged in (b"", b"[1]", json.dumps({"at": "noon"}).encode()):
        files[stopped.FILE] = damaged
        assert "the ingest ended with an error, and stopped.json is damaged" in str(
            stopped.why(files)
        )
    stopped.forget(files)  # type: ignore[arg-type]
    assert stopped.why(files) is None


def test_folder_of_a_table_without_spark(tmp_path: Path) -> None:
    folder = TableFolder(f"file:{tmp_path}")
    assert str(folder) == f"{tmp_path}/_onceway"
    assert (folder.names(), folder.read("a"), folder.has("a")) == ([], None, False)
    (tmp_path / "_onceway" / "inner").mkdir(parents=True)
    (tmp_path / "_onceway" / "a").write_bytes(b"one")
    (tmp_path / "_onceway" / ".hidden").touch()
    assert (folder.names(), folder.read("a"), folder.has("a")) == (["a", "inner"], b"one", True)
    with pytest.raises(OncewayError, match=f"{tmp_path}/_onceway/inner: cannot read this file"):
        folder.read("inner")


@pytest.mark.parametrize("ask", [rows_by_feed, progress_of_feeds])
def test_missing_table_is_named_with_the_lack_of_catalog_names(
    tmp_path: Path, ask: Callable[[str], object]
) -> None:
    with pytest.raises(OncewayError, match="there is no such table") as raised:
        ask(str(tmp_path / "none"))
    assert "give the table's path or URL" in str(raised.value)
