"""The public writer and its log, with tables that answer as Delta does."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from delta.exceptions import ConcurrentAppendException
from pyspark.errors import PySparkException
from pyspark.sql import Row

from gateway.errors import OncewayError
from gateway.ingest.delta import history
from gateway.ingest.delta.commits import HistoryGone, Progress
from gateway.ingest.delta.history import HistoryLog
from gateway.ingest.delta.public import PublicWriter
from gateway.ingest.delta.tables import Place
from gateway.ingest.delta.transaction import Addition, Conflict


class Table:
    """A table without rows. cleaned: the number of its oldest versions that the history no longer
    has. answer: called in place of each append, which it may carry out.
    """

    name = "/srv/lake/publications"

    def __init__(self) -> None:
        self.notes: list[dict[str, Any]] = []
        self.cleaned = 0
        self.gone = False
        self.answer = self.commit
        self.asked: list[int] = []

    def commit(self, note: dict[str, Any] | None = None) -> None:
        self.notes.append(note or {})

    def delta(self) -> "Table":
        if self.gone:
            raise PySparkException("[DELTA_MISSING_DELTA_TABLE] not a Delta table")
        return self

    def exists(self) -> bool:
        return not self.gone

    def history(self, count: int) -> "Table":
        self.asked.append(count)
        return self

    def collect(self) -> list[Row]:
        versions = range(len(self.notes) - 1, self.cleaned - 1, -1)
        return [
            Row(
                version=version,
                operation="WRITE",
                userMetadata=json.dumps({"onceway": self.notes[version]}),
                operationMetrics={"numOutputRows": "1"},
                operationParameters={"mode": "Append"},
            )
            for version in versions[: self.asked[-1]]
        ]

    def append(self, _: object, **options: str) -> None:
        self.answer(json.loads(options["userMetadata"])["onceway"])


@pytest.fixture
def table() -> Table:
    made = Table()
    for _ in range(3):
        made.commit()
    return made


def log_of(table: Table) -> HistoryLog:
    return HistoryLog(table)  # type: ignore[arg-type]


def writer_of(table: Table) -> PublicWriter:
    place = Place("s3a://lake/publications", "id")
    return PublicWriter(None, table, place, log_of(table))  # type: ignore[arg-type]


def append(table: Table, based_on: int) -> int:
    progress = "onceway/publications", based_on + 1
    return writer_of(table).append(Addition(rows="rows"), based_on, {}, progress)  # type: ignore[arg-type]


def test_commits_come_in_order_and_versions_that_do_not_exist_are_none(table: Table) -> None:
    log = log_of(table)
    assert [one.version for one in log.after(0)] == [1, 2]
    assert log.read(3) is None
    assert log.read(-1) is None
    assert list(log.after(2)) == []
    table.asked.clear()
    assert log.read(1) is not None
    assert table.asked == [], "a known commit is read again"


def test_commits_that_the_history_no_longer_has_are_gone(table: Table) -> None:
    table.cleaned = 2
    with pytest.raises(HistoryGone, match="version 1 is no longer in the history"):
        list(log_of(table).after(0))
    table.cleaned = 3
    assert log_of(table).head() is None


def test_another_commit_with_a_known_number_is_another_table(table: Table) -> None:
    log = log_of(table)
    assert log.head() == 2
    table.notes[2] = {"nonce": "another"}
    with pytest.raises(OncewayError, match="replaced by another table"):
        log.head()


def test_table_that_was_deleted_is_an_error_only_if_it_was_read_before(table: Table) -> None:
    log = log_of(table)
    table.gone = True
    with pytest.raises(PySparkException):
        log.head()
    table.gone = False
    assert log.head() == 2
    table.gone = True
    with pytest.raises(OncewayError, match="the table was deleted"):
        log.head()


def test_long_history_is_not_kept_in_memory(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT", 2)
    log = log_of(table)
    assert [one.version for one in log.after(-1)] == [0, 1, 2]
    assert log.head() == 2
    assert [*log._commits] == [2]
    assert [one.version for one in log.after(-1)] == [0, 1, 2]


def test_append_is_found_by_its_number_although_the_answer_is_lost(table: Table) -> None:
    assert append(table, 2) == 3

    def lost(note: dict[str, Any]) -> None:
        table.commit(note)
        raise PySparkException("the answer is lost")

    table.answer = lost  # type: ignore[assignment]
    assert append(table, 3) == 4


def test_append_by_another_version_of_the_table_is_refused_before_it_is_tried(table: Table) -> None:
    with pytest.raises(Conflict, match="the table has version 2, this commit is based on 1"):
        append(table, 1)
    with pytest.raises(OncewayError, match="restored from a copy"):
        append(table, 7)
    assert len(table.notes) == 3


@pytest.mark.parametrize(
    ("failure", "kind", "says"),
    [
        (None, Conflict, "nothing was committed"),
        (ConcurrentAppendException("files were added\nby another"), Conflict, "^files were added$"),
        (PySparkException("No space left on device"), PySparkException, "No space left"),
    ],
)
def test_append_that_delta_skips_or_refuses_commits_nothing(
    table: Table, failure: Exception | None, kind: type[Exception], says: str
) -> None:
    def refuse(_: object) -> None:
        if failure is not None:
            raise failure

    table.answer = refuse  # type: ignore[assignment]
    with pytest.raises(kind, match=says):
        append(table, 2)
    assert len(table.notes) == 3


def test_stored_progress_that_the_history_no_longer_has_is_computed_again(table: Table) -> None:
    table.commit({"of": "readings", "publications": 6, "mark": "6 n"})
    table.commit()
    assert writer_of(table).progress("readings") == (4, Progress(6, "6 n"))
    table.cleaned = 4
    assert writer_of(table).progress("readings") == (4, None)
