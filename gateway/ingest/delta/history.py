"""The commits of a Delta table from its public API, `DESCRIBE HISTORY`, for a table whose log
cannot be read.

In: a table. Out: the same as from `commits.CommitLog`. Only `Commit.progress` differs: it has only
the progress in the commit's note. Each query is a Spark job.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkException

from gateway.ingest.delta.commits import Commit, CommitLog, HistoryGone, our_note, restored_version
from gateway.ingest.delta.tables import Table, another_table

KEPT = 1000
"""Number of cached commits above which the cache is emptied."""

NO_ROWS = frozenset(
    {
        "ADD COLUMNS",
        "ADD CONSTRAINT",
        "CHANGE COLUMN",
        "CLUSTER BY",
        "COMPUTE STATS",
        "CREATE TABLE",
        "DROP CONSTRAINT",
        "OPTIMIZE",
        "REORG",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Delta's operations that leave the table's rows the same."""

ADDING = frozenset({"COPY INTO", "CREATE TABLE AS SELECT", "STREAMING UPDATE", "WRITE"})
"""Operations that only add rows, unless their mode is `Overwrite`."""


class HistoryLog(CommitLog):
    """The log of an existing table, read by `DESCRIBE HISTORY`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._commits: dict[int, Commit] = {}

    def head(self) -> int | None:
        return self._load(1)

    def read(self, version: int) -> Commit | None:
        if version not in self._commits:
            head = self._load(1)
            if head is None or not 0 <= version <= head:
                return None
            self._load(head - version + 1)
        return self._commits.get(version)

    def after(self, version: int) -> Iterator[Commit]:
        head = self._load(1)
        if head is None or head <= version:
            return
        if any(number not in self._commits for number in range(version + 1, head + 1)):
            self._load(head - version + 1)  # `version` too, to see that it is the same table
        for number in range(version + 1, head + 1):
            commit = self._commits.get(number)
            if commit is None:
                raise HistoryGone(f"version {number} is no longer in the history", self._table.name)
            yield commit

    def _load(self, count: int) -> int | None:
        """Read the newest `count` commits. Return the newest version; None if there is none. Raises
        OncewayError if a commit differs from the cached one, or if a table that was read before no
        longer exists.
        """
        try:
            rows = self._table.delta().history(count).collect()
        except PySparkException as error:
            if self._commits and not self._table.exists():
                raise another_table(self._table.name) from error
            raise
        if len(self._commits) > KEPT:
            self._commits.clear()
        for row in rows:
            commit = _commit(row.asDict(recursive=True))
            if self._commits.setdefault(commit.version, commit) != commit:
                raise another_table(self._table.name)
        return max((int(row["version"]) for row in rows), default=None)


def _commit(row: dict[str, Any]) -> Commit:
    operation, note = str(row["operation"]), our_note(row["userMetadata"])
    written = (row["operationMetrics"] or {}).get("numOutputRows")
    changes_data = operation not in NO_ROWS and not (operation == "WRITE" and written == "0")
    progress = {note["of"]: int(note["publications"])} if "of" in note else {}
    adds = operation in ADDING and (row["operationParameters"] or {}).get("mode") != "Overwrite"
    return Commit(
        row["version"],
        operation,
        note,
        progress,
        changes_data,
        restored_version(row),
        changes_data and not adds,
    )
