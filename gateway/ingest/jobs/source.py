"""The landing place as a Spark Python Data Source (streaming). Offset: {"GATEWAY/EPOCH": number of
the last batch taken}.

In: batches (`gateway/uplink/README.md`). Out: data files of the tables, and a row per file in the
columns of `gateway.ingest.sink.data_files.WRITTEN`. A batch is used completely or not at all.

Spark runs this module in two places: one process on the driver's machine keeps the offsets
(`latestOffset`, `partitions`), worker processes read (`read`). An instance is pickled for the
workers, so it opens the landing place at its first use.
"""

import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from gateway.ingest.jobs.read_limits import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from gateway.ingest.landing import batch
from gateway.ingest.landing import place as places
from gateway.ingest.landing.offsets import Feeds, Offset
from gateway.ingest.landing.place import UNREADABLE, Announced, Landing, error_text
from gateway.ingest.landing.trust import Trust
from gateway.ingest.log_lines import to_stderr
from gateway.ingest.sink import merged_batches
from gateway.ingest.sink.data_files import SPARK_WRITTEN, DataFiles
from gateway.ingest.sink.merged_batches import SPARK_CHUNK

CHUNK_ROWS = 125_000
"""Number of rows that a reading task gathers in memory and puts into one file. Batches are never
split, so there may be more.
"""

SECOND = 1 << 31
"""Bit that is set in the number of a task's chunk of conflicting rows (`sink/merged_batches.py`),
so that this number is above the number of every other chunk of the task.
"""

SMALL_PARTITION_ROWS = 20_000
"""A micro-batch with fewer rows than this gets only one task."""

PATIENT = 5
"""A task tries several times, with pauses, to read a batch. Once this many of its batches have
stayed unreadable, it tries each further batch only once.
"""

log = logging.getLogger("onceway.ingest")


class LandingSource(DataSource):
    """The data source. Its options:

    landing: URL. taken: progress of each feed in the table, JSON. rows: largest number of rows in a
    micro-batch. tasks: largest number of partitions of a micro-batch. damaged: `skip` or `wait`.
    trusted: URL of the file of keys. signed: whether the table requires signatures (`true` or
    `false`). publications, readings: folders of the tables. files: whether tasks write the tables'
    files (`true`), or rows go through Spark (`false`). settle: seconds for which a damaged batch
    counts as an unfinished copy. available_now: whether to read existing batches and stop (`true`
    or `false`). held: path of a file on the driver, into which the source writes the names of held
    feeds as JSON; empty for no file.
    """

    @classmethod
    def name(cls) -> str:
        return "onceway"

    def schema(self) -> StructType:
        return SPARK_WRITTEN if self._by_files else SPARK_CHUNK

    @property
    def _by_files(self) -> bool:
        return self.options["files"] == "true"

    def streamReader(self, schema: StructType) -> "LandingReader":
        files = (self.options["publications"], self.options["readings"]) if self._by_files else None
        return LandingReader(
            self.options["landing"],
            json.loads(self.options["taken"]),
            int(self.options["rows"]),
            int(self.options["tasks"]),
            self.options["damaged"] == "wait",
            Trust(self.options["trusted"], self.options["signed"] == "true"),
            files,
            self.options["available_now"] == "true",
            self.options.get("held", ""),
            float(self.options.get("settle", "0")),
        )


@dataclass
class BatchList(InputPartition):
    """The batches that one task reads. first_chunk: number of the task's first chunk. Chunk numbers
    are unique within a micro-batch.
    """

    first_chunk: int
    batches: Sequence[Announced]


class LandingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self,
        landing: str,
        progress: Offset,
        rows: int,
        tasks: int,
        wait: bool,
        trust: Trust,
        tables: tuple[str, str] | None,
        one_pass: bool = False,
        held_file: str = "",
        settle: float = 0.0,
    ) -> None:
        self._url = landing
        self._progress = progress
        self._rows = rows
        self._tasks = tasks
        self._wait = wait
        self._settle = settle
        self._trust = trust
        self._tables = tables
        self._feeds_opened: Feeds | None = None
        self._one_pass = one_pass
        self._held_file = Path(held_file) if held_file else None
        self._ceiling: Offset | None = None
        self._latest_offsets = progress
        """The last offset that Spark has received; at first, the progress of the table."""

    @property
    def _feeds(self) -> Feeds:
        if self._feeds_opened is None:
            to_stderr("%(message)s", logging.INFO)
            self._feeds_opened = Feeds(
                Landing(self._url), self._wait, self._progress, self._trust, self._settle
            )
        return self._feeds_opened

    def initialOffset(self) -> Offset:
        """Return the table's progress, at which a new checkpoint begins."""
        return self._progress

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._one_pass = True

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the offset at which the next micro-batch ends. If the landing place cannot be
        reached, log that and return `start`, so that Spark tries again; with `available_now`, raise
        OSError. Spark 4.1 passes neither start nor limit, and with `available_now` calls this
        method once.
        """
        if start is None:
            self._latest_offsets = self._latest(
                self._latest_offsets, sys.maxsize if self._one_pass else self._rows
            )
            return self._latest_offsets
        return self._latest(
            start, limit.max_rows if isinstance(limit, ReadMaxRows) else sys.maxsize
        )

    def _latest(self, start: Offset, rows: int) -> Offset:
        if self._one_pass:
            if self._ceiling is None:
                self._ceiling = self._feeds.newest(start)
            end = self._feeds.advance(start, rows, self._ceiling)
            if self._held_file is not None:
                self._held_file.write_text(json.dumps(self._feeds.held_feeds))
            return end
        try:
            return self._feeds.advance(start, rows)
        except OSError as error:
            log.warning("the landing place cannot be read now: %s", error)
            return start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._latest_offsets = end  # the micro-batch may be from before a restart
        return split(self._feeds.between(start, end), self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        chunks = read_batches(Landing(self._url), cast(BatchList, partition))
        return chunks if self._tables is None else map(DataFiles(*self._tables).put, chunks)

    def commit(self, end: Offset) -> None:
        self._feeds.forget(end)


def split(batches: list[Announced], tasks: int) -> list[BatchList]:
    """Divide batches among at most `tasks` lists with about equal numbers of rows. The
    order stays.
    """
    total = sum(announced.rows for announced in batches)
    share = max(SMALL_PARTITION_ROWS, -(-total // tasks))
    lists: list[list[Announced]] = []
    room = 0
    for announced in batches:
        if room <= 0:
            lists.append([])
            room = share
        lists[-1].append(announced)
        room -= announced.rows
    return [BatchList(index << 32, part) for index, part in enumerate(lists)]


def read_batches(landing: Landing, part: BatchList) -> Iterator[pa.RecordBatch]:
    """Read and check batches. Yield chunks of rows, and one row for each damaged or unreadable
    batch and for each batch without rows. Raises OSError if the landing place as a whole cannot be
    read.
    """
    number = part.first_chunk
    gathered: list[tuple[Announced, pa.Table]] = []
    rows = failed = 0
    for announced in part.batches:
        try:
            rows_of = _read(landing, announced, patient=failed < PATIENT)
            gathered.append((landing.with_time(announced), rows_of))
        except batch.Damaged as damage:
            yield merged_batches.damaged(announced, str(damage))
        except OSError as error:
            landing.refuse_outage(error)
            failed += 1
            yield merged_batches.damaged(announced, f"{UNREADABLE}: {error_text(error)}")
        else:
            if not gathered[-1][1].num_rows:
                yield merged_batches.without_rows(announced)
        rows += announced.rows
        if rows >= CHUNK_ROWS:
            yield from _chunks(gathered, number)
            gathered, rows, number = [], 0, number + 1
    yield from _chunks(gathered, number)


def _read(landing: Landing, announced: Announced, patient: bool) -> pa.Table:
    """Return the rows of a batch. Raises the errors of `batch.read`. patient: whether to try again
    after an error that may pass (a status of 5xx, a timeout, a reset).
    """
    pauses = iter(places.PAUSES if patient else (None,))
    while True:
        try:
            return batch.read(landing, announced)
        except OSError as error:
            pause = next(pauses)
            if pause is None or isinstance(error, places.FINAL):
                raise
            landing.refuse_outage(error)
        time.sleep(pause)


def _chunks(gathered: list[tuple[Announced, Any]], number: int) -> Iterator[pa.RecordBatch]:
    built = merged_batches.build(gathered, number)
    if built is None:
        return
    yield built
    if built.num_rows < sum(table.num_rows for _, table in gathered):
        other = merged_batches.contradicting(gathered, number | SECOND)
        if other is not None:
            yield other
