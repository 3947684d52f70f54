"""The sequences in the table, cached in memory.

In: the table `publications` and its commit log. Out: `Seen`, with the sequences that one version of
the table has. `Seen.catch_up` reads the commits up to the newest version.
"""

import logging
import time

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.finding import AT_ONCE, ranges_of
from gateway.ingest.dedup.ranges import RANGES, Ranges, SeenRanges
from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.commits import REWRITING, CommitLog, HistoryGone, mark_of
from gateway.ingest.delta.storage import Folder
from gateway.ingest.delta.tables import Table, another_table, is_file_gone
from gateway.ingest.delta.transaction import Writer

log = logging.getLogger("onceway.ingest")


class Seen:
    """The sequences in the table. ranges: the sequences in version `covers` of the table.

    Sequences of expired rows (`jobs/expire.py`) stay in `ranges`. Sequences of rows that a user
    deleted stay until `ranges` must be read from the whole table again.
    """

    def __init__(
        self,
        table: Table,
        table_id: str,
        writer: Writer,
        commits: CommitLog,
        snapshots: Folder,
    ) -> None:
        self._table = table
        self._table_id = table_id
        self._writer = writer
        self._commits = commits
        self._snapshots = snapshots
        self.ranges = SeenRanges()
        self.covers = -1
        self._mark: str | None = None
        """Mark of the log at version `covers`, which shows whether the table was replaced
        (`CommitLog.mark`). None before `load`.
        """
        self.unsaved = False
        """Whether `ranges` has sequences that no snapshot contains. After an end without `save`,
        the next start has to read their rows again.
        """

    def load(self) -> None:
        """Read the newest snapshot and the commits after it. Without a snapshot, read the keys of
        the whole table. A snapshot is ignored if its version or its mark does not fit the log: the
        table was then replaced by a copy.
        """
        head = self._writer.version()
        found = snapshot.load(
            self._snapshots,
            self._table_id,
            lambda one: one.covers <= head and self._commits.holds(one.mark),
        )
        if found is None:
            self._rebuild()
        else:
            self.ranges, self.covers = found.ranges, found.covers
        self.catch_up()
        self._mark = self._commits.mark(self.covers)

    def save(self) -> None:
        found = snapshot.Snapshot(self.ranges, self.covers, self._table_id, self._mark or "")
        snapshot.save(self._snapshots, found)
        self.unsaved = False

    def refuse_another(self) -> None:
        """Raise OncewayError if the table is no longer the one that was loaded: it was deleted, or
        replaced by a copy.
        """
        if self._mark is not None and not self._commits.holds(self._mark):
            raise another_table(self._table.name)

    def catch_up(self) -> None:
        """Add the keys of all commits since version `covers`. If a commit has rewritten the table,
        or the commits cannot be read, read the keys of the whole table. Raises OncewayError if
        another table has replaced this one.
        """
        self.refuse_another()
        try:
            commits = list(self._commits.after(self.covers))
            if any(commit.operation in REWRITING for commit in commits):
                self._rebuild()
            elif any(commit.changes_data for commit in commits):
                collect_ranges(self._table.inserted(self.covers, commits[-1].version), self.ranges)
                self.unsaved = True
        except (HistoryGone, PySparkException, Py4JJavaError) as error:
            if isinstance(error, Py4JJavaError) and not is_file_gone(error):
                raise
            log.warning(
                "cannot read the changes since version %d (%s): reading the keys of the whole"
                " table",
                self.covers,
                cause_of(error),
            )
            self._rebuild()
        else:
            self.covers = max([self.covers, *(commit.version for commit in commits)])
            for commit in commits:
                self._mark = mark_of(commit) or self._mark

    def landed(self, added: SeenRanges, version: int) -> None:
        """Add the ranges of this process's own commit, which is version `version` of the table. If
        other writers have committed since version `covers`, `catch_up` reads their commits later.
        """
        self.ranges.add(added.as_ranges())
        self.unsaved = True
        self._mark = self._commits.mark(version)
        if version == self.covers + 1:
            self.covers = version

    def _rebuild(self) -> None:
        started = time.monotonic()
        # version first: `expire` stores the keys of old rows, and then deletes the rows
        self.covers, self.ranges = (
            self._writer.version(),
            snapshot.deleted_keys(self._snapshots, self._table_id),
        )
        if not self._ever_written():
            return
        collect_ranges(self._table.read(versionAsOf=self.covers), self.ranges)
        self.unsaved = True
        log.info(
            "read the keys of the table: devices %d, version %d, %.1f s",
            self.ranges.devices,
            self.covers,
            time.monotonic() - started,
        )

    def _ever_written(self) -> bool:
        try:
            return any(commit.changes_data for commit in self._commits.after(-1))
        except HistoryGone:
            return True


def collect_ranges(rows: DataFrame, into: SeenRanges) -> None:
    """Add the keys of `rows` to `into`. Spark's tasks turn the rows that they read into ranges, so
    no row is sorted or sent to another task.
    """
    keys = rows.select("device", "incarnation", "sequence")
    found = keys.mapInArrow(ranges_of, from_arrow_schema(RANGES)).toArrow()
    for some in found.to_batches(max_chunksize=AT_ONCE):
        into.add(Ranges.of(some))
