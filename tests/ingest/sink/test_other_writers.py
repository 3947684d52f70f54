"""Another writer that is first at each attempt, or commits in between. The writers and tables here
answer as Delta does, so no Java runs.
"""

import json
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError

from gateway.errors import OncewayError
from gateway.ingest.dedup import seen as seen_module
from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.ranges import SeenRanges
from gateway.ingest.dedup.seen import Seen
from gateway.ingest.dedup.taken import Taken
from gateway.ingest.delta.commits import CommitLog, Progress
from gateway.ingest.delta.transaction import Addition, Conflict
from gateway.ingest.payload.version import application_id
from gateway.ingest.sink import foreach_batch, publications, readings
from gateway.ingest.sink.foreach_batch import Sink
from gateway.ingest.sink.microbatch import FeedCount
from gateway.ingest.sink.publications import Appender, Outcome
from gateway.ingest.sink.readings import Readings
from gateway.ingest.summary import progress as summary_progress
from gateway.ingest.summary.progress import DerivedTable
from tests.ingest.files import Files, ranges_of

FEED = "site/0a1b2c3d"


class Writer:
    """A writer of a table at version 0. failure: raised at each append, or None. covers: versions
    of publications that the readings have, one for each look; the last one stays.
    """

    def __init__(self, failure: Exception | None, *covers: int) -> None:
        self.failure = failure
        self.covers = list(covers)
        self.notes: list[dict[str, Any]] = []

    def append(self, _: object, based_on: int, note: dict[str, Any], __: object) -> int:
        self.notes.append(note)
        if self.failure is not None:
            raise self.failure
        return based_on + 1

    def progress(self, application: str) -> tuple[int, Progress]:
        assert application == application_id("id")
        found = self.covers.pop(0) if len(self.covers) > 1 else self.covers[0]
        return 0, Progress(found, f"{found} ")


class Table:
    """A table whose Delta commands all succeed and do nothing."""

    name = "/srv/lake/publications_readings"

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: self


def log(*operations: str, note: dict[str, Any] | None = None) -> CommitLog:
    """Return the log of publications, with a commit for each operation."""
    files = Files()
    for version, operation in enumerate(operations):
        told = json.dumps({"onceway": note}) if note else None
        info = {"commitInfo": {"operation": operation, "userMetadata": told}}
        changes = {"remove" if operation == "DELETE" else "add": {"dataChange": True}}
        lines = (json.dumps(action, separators=(",", ":")) for action in (info, changes))
        files[f"{version:020d}.json"] = "\n".join(lines).encode()
    return CommitLog(files)


def appender(writer: Writer, commits: CommitLog) -> Appender:
    seen: Any = SimpleNamespace(
        catch_up=lambda: None, covers=0, ranges=SeenRanges(), landed=lambda *_: None
    )
    progress = Taken(commits, lambda _: {})
    progress.load(0)
    return Appender(seen, progress, writer, "lake", lambda _: 0, lambda *_: None)  # type: ignore[arg-type]


def of_readings(writer: Writer, commits: CommitLog) -> Readings:
    return Readings(Table(), writer, Table(), "id", commits)  # type: ignore[arg-type]


def test_append_that_is_never_first_has_an_end_with_advice() -> None:
    writer = Writer(Conflict("the table has version 1"))
    micro_batch: Any = SimpleNamespace(
        chunk_ranges=[],
        feeds={FEED: FeedCount(1, 1)},
        doubles=lambda _: {},
        addition=lambda *_: None,
    )
    with pytest.raises(OncewayError, match="lake: gave up after 20 attempts") as raised:
        appender(writer, log("CREATE TABLE")).append(micro_batch, {})
    assert "Was the ingest started twice?" in str(raised.value)
    assert len(writer.notes) == publications.TRIES


@pytest.mark.parametrize("failure", [None, Conflict("the table has version 1")])
def test_progress_of_all_feeds_is_not_committed_twice(failure: Exception | None) -> None:
    """Another writer that commits first may have committed the same progress."""
    writer = Writer(failure)
    found = appender(writer, log("WRITE", note={"micro_batch": 0, "feeds": {FEED: 3}}))
    found.say_all()
    assert [note["feeds"] for note in writer.notes] == [{FEED: 3}]
    writer.failure = None
    found.say_all()
    assert len(writer.notes) == (1 if failure is None else 2)


def test_readings_that_are_never_first_have_an_end_with_advice() -> None:
    writer = Writer(Conflict("the table has version 1"), 0)
    with pytest.raises(OncewayError, match="_readings: gave up after 20 attempts"):
        of_readings(writer, log("WRITE", "WRITE")).follow(1, Addition(["a file"]), 0)
    assert len(writer.notes) == readings.TRIES == 20


def test_readings_that_another_writer_brings_up_to_date_are_left_alone() -> None:
    """The other writer appends the readings while this one deletes readings."""
    writer = Writer(None, 0, 2)
    found = of_readings(writer, log("WRITE", "DELETE", "WRITE"))
    found.follow(2, Addition(["a file"]), 1)
    assert found.covers == 2
    assert writer.notes == [], "the readings are in the table twice"


def test_failure_of_java_does_not_make_all_readings_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cause = SimpleNamespace(_target_id="o1", _gateway_client=None)
    failure = Py4JJavaError("An error occurred while calling o1.commit.\n", cause)
    monkeypatch.setattr(readings, "is_file_gone", lambda _: False)
    writer = Writer(failure, 0)
    with pytest.raises(Py4JJavaError):
        of_readings(writer, log("WRITE", "WRITE")).follow(1, Addition(["a file"]), 0)
    assert "rebuilding" not in caplog.text
    assert len(writer.notes) == 1


def sink(**parts: Any) -> Sink:
    names = ("seen", "progress", "appender", "readings", "quarantine", "counters", "files")
    given = dict.fromkeys(names) | parts
    return Sink({}, **given, signed=True, batches=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcome", "followed"),
    [
        (Outcome(5, 5, 8, 7, []), (8, "its readings", 7)),
        (Outcome(5, 5, 9, 7, []), (9,)),
        (Outcome(5, 0, 8, 7, []), (6,)),
        (Outcome(5, 0, None, 7, []), (6,)),
    ],
)
def test_readings_of_a_micro_batch_are_used_only_if_no_other_commit_came_between(
    outcome: Outcome, followed: tuple[object, ...]
) -> None:
    calls: list[tuple[object, ...]] = []
    micro_batch: Any = SimpleNamespace(addition=lambda table, _: f"its {table}")
    found = sink(
        seen=SimpleNamespace(covers=6),
        appender=SimpleNamespace(append=lambda *_: outcome),
        readings=SimpleNamespace(follow=lambda *arguments: calls.append(arguments)),
    )
    assert found._append(micro_batch, {}, True) == outcome
    assert calls == [followed]


@pytest.mark.parametrize(("rows", "appends", "saved"), [(10, 50, 4), (10**9, 3, 3), (10**9, 50, 0)])
def test_snapshot_is_saved_after_so_many_rows_or_appends(
    monkeypatch: pytest.MonkeyPatch, rows: int, appends: int, saved: int
) -> None:
    monkeypatch.setattr(foreach_batch, "SNAPSHOT_ROWS", rows)
    monkeypatch.setattr(foreach_batch, "SNAPSHOT_APPENDS", appends)
    saves: list[int] = []
    found = sink(seen=SimpleNamespace(save=lambda: saves.append(1)))
    for new in (4, 6, 0, 10, 4, 0, 9, 2, 9):
        found._save_now_and_then(Outcome(new, new, 1, 0, []))
    assert len(saves) == (saved if rows == 10 else {3: 2, 50: 0}[appends])


def test_own_commit_behind_another_one_is_read_later_with_that_one() -> None:
    nothing: Any = None
    found = Seen(nothing, "id", nothing, log("CREATE TABLE", "WRITE"), Files())
    found.landed(SeenRanges(), 0)
    assert (found.covers, found.unsaved) == (0, True)
    found.landed(SeenRanges(), 2)
    assert found.covers == 0


@pytest.mark.parametrize("gone", [True, False])
def test_keys_of_the_whole_table_are_read_only_if_a_file_is_gone(
    monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Any other failure of Java ends the ingest, which then tries again."""
    cause = SimpleNamespace(_target_id="o1", _gateway_client=None)
    rebuilt: list[int] = []

    def inserted(*_: object) -> None:
        raise Py4JJavaError("An error occurred while calling o1.load.\n", cause)

    table: Any = SimpleNamespace(inserted=inserted)
    monkeypatch.setattr(seen_module, "is_file_gone", lambda _: gone)
    monkeypatch.setattr(seen_module, "cause_of", lambda _: "a file is gone")
    monkeypatch.setattr(Seen, "_rebuild", lambda self: rebuilt.append(self.covers))
    nothing: Any = None
    found = Seen(table, "id", nothing, log("CREATE TABLE", "WRITE"), Files())
    if gone:
        found.catch_up()
    else:
        with pytest.raises(Py4JJavaError):
            found.catch_up()
    assert rebuilt == ([-1] if gone else [])


@pytest.mark.parametrize(
    ("covers", "gone", "whole"), [(0, True, True), (0, False, False), (None, True, False)]
)
def test_derived_table_is_made_from_all_rows_only_if_a_file_is_gone(
    monkeypatch: pytest.MonkeyPatch, covers: int | None, gone: bool, whole: bool
) -> None:
    """Without earlier progress, all rows were read already, so a second reading does not help."""
    cause = SimpleNamespace(_target_id="o1", _gateway_client=None)
    tries: list[bool] = []

    def since(*_: object, whole: bool = False) -> None:
        tries.append(whole)
        if not whole:
            raise Py4JJavaError("An error occurred while calling o1.load.\n", cause)

    monkeypatch.setattr(summary_progress, "since", since)
    monkeypatch.setattr(summary_progress, "is_file_gone", lambda _: gone)
    monkeypatch.setattr(summary_progress, "cause_of", lambda _: "a file is gone")
    monkeypatch.setattr(DerivedTable, "_write", lambda *_: None)
    found = object.__new__(DerivedTable)
    known = None if covers is None else Progress(covers, f"{covers} ")
    found.table, found._publications = Table(), Table()  # type: ignore[assignment]
    found._log, found._application = log("CREATE TABLE", "WRITE"), "devices"
    found._writer = SimpleNamespace(progress=lambda _: (0, known))  # type: ignore[assignment]
    make: Any = lambda *_: None  # noqa: E731
    if whole:
        found.follow(1, make)
    else:
        with pytest.raises(Py4JJavaError):
            found.follow(1, make)
    assert tries == ([False, True] if whole else [False])


def test_keys_of_rows_that_expire_during_a_start_are_known() -> None:
    """`expire` stores the keys, and then deletes the rows, while a start reads the version."""
    files, expired = Files(), SeenRanges()
    expired.add(ranges_of([("dev", 7)], np.array([1]), np.array([4])))

    def version() -> int:
        snapshot.keep_gone(files, expired, 0, "id")
        return 1

    nothing: Any = None
    writer: Any = SimpleNamespace(version=version)
    found = Seen(nothing, "id", writer, log("OPTIMIZE", "DELETE"), files)
    found._ever_written = lambda: False  # type: ignore[method-assign]
    found._rebuild()
    assert found.covers == 1
    assert list(found.ranges.as_ranges()) == list(expired.as_ranges())
