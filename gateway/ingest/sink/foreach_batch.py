"""Processing of each micro-batch: damaged batches go into quarantine, new rows into the tables, and
one line into the log.

In: a micro-batch's DataFrame, from Spark's foreachBatch. Out: commits, counts, and from time to
time a snapshot of the seen ranges.
"""

import logging
import time
from threading import RLock

from pyspark.sql import DataFrame

from gateway.errors import OncewayError
from gateway.ingest.dedup.seen import Seen
from gateway.ingest.dedup.taken import Taken
from gateway.ingest.delta.commits import APPENDED
from gateway.ingest.delta.lease import lease
from gateway.ingest.delta.storage import Folder
from gateway.ingest.report import job, stopped
from gateway.ingest.report.counters import Counters, now
from gateway.ingest.sink.microbatch import MicroBatch, TableName
from gateway.ingest.sink.publications import Appender, Outcome
from gateway.ingest.sink.quarantine import Quarantine
from gateway.ingest.sink.readings import Readings

SNAPSHOT_ROWS = 2_000_000
SNAPSHOT_APPENDS = 50
"""A snapshot is saved after SNAPSHOT_ROWS new rows, or after SNAPSHOT_APPENDS appends, since the
last snapshot. So the next start has to read about as many rows again, and not the whole table.
"""

log = logging.getLogger("onceway.ingest")


class Sink:
    """The sink of the stream. It holds the lease of `publications` during each commit.

    locations: folders of the tables. progress: progress of each feed in the table. counters: counts
    for the report, stored in `files`. signed: whether the table requires signed batches. batches:
    class of micro-batches, which determines how rows reach the writer. micro_batches: number of
    micro-batches so far. failure: error with which the last micro-batch was refused, or None.
    """

    def __init__(
        self,
        locations: dict[TableName, str],
        seen: Seen,
        progress: Taken,
        appender: Appender,
        readings: Readings,
        quarantine: Quarantine,
        counters: Counters,
        files: Folder,
        signed: bool,
        batches: type[MicroBatch],
    ) -> None:
        self.locations = locations
        self._seen = seen
        self.progress = progress
        self._appender = appender
        self._readings = readings
        self.quarantine = quarantine
        self.counters = counters
        self.micro_batches = 0
        self._started = now()
        self.failure: OncewayError | None = None
        self._files = files
        self.signed = signed
        self.batches = batches
        self._rows = 0
        self._appends = 0
        self.lock = RLock()
        """Lock for the processing of a micro-batch, because Spark calls the sink from another
        thread.
        """

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Add a micro-batch of the stream to the tables. batch: number of the micro-batch. An
        OncewayError is raised and stored in `failure`, because Spark wraps exceptions.
        """
        try:
            with self.lock:
                self._take(rows, batch, {APPENDED: batch}, moves_feeds=True)
        except OncewayError as error:
            self.failure = error
            raise

    def take_repaired(self, rows: DataFrame, portion: int) -> None:
        """Add the rows of repaired batches to the tables. The positions of their feeds do not
        change: the feeds had skipped these batches. portion: number for the log.
        """
        self._take(rows, portion, {"released": portion}, moves_feeds=False)

    def _take(self, rows: DataFrame, batch: int, note: dict[str, int], moves_feeds: bool) -> None:
        started = time.monotonic()
        self.micro_batches += 1
        self._seen.refuse_another()  # before tasks write files where there is no table
        micro_batch = self.batches(rows, self.locations)
        with lease(self.locations["publications"]):
            self.quarantine.add(micro_batch.damaged)
            outcome = self._append(micro_batch, note, moves_feeds)
            self._count(micro_batch, outcome)
        micro_batch.discard(outcome.drop)
        version = "nothing to write" if outcome.version is None else f"version {outcome.version}"
        seconds = time.monotonic() - started
        log.info(
            "micro-batch %d: %d rows in, %d new, %d seen, %s, %.2f s",
            batch,
            outcome.arrived,
            outcome.new,
            outcome.seen,
            version,
            seconds,
        )
        self._save_now_and_then(outcome)

    def _append(self, micro_batch: MicroBatch, note: dict[str, int], moves_feeds: bool) -> Outcome:
        outcome = self._appender.append(micro_batch, note, moves_feeds)
        if not outcome.new or outcome.version is None:
            self._readings.follow(self._seen.covers)
        elif outcome.version > outcome.based_on + 1:  # another commit came between
            self._readings.follow(outcome.version)
        else:
            self._readings.follow(
                outcome.version, micro_batch.addition("readings", outcome.drop), outcome.based_on
            )
        return outcome

    def _count(self, micro_batch: MicroBatch, outcome: Outcome) -> None:
        new = micro_batch.new_by_feed(outcome.drop) if outcome.new else {}
        for feed, count in micro_batch.feeds.items():
            self.counters.add(feed, count.number, count.arrived, new.get(feed, 0))
        self.counters.save(self._files)

    def _save_now_and_then(self, outcome: Outcome) -> None:
        self._rows += outcome.new
        self._appends += outcome.new > 0
        if self._rows >= SNAPSHOT_ROWS or self._appends >= SNAPSHOT_APPENDS:
            self._save_seen()

    def save(self) -> None:
        """Save the counters. If there are ranges that the last snapshot lacks, save a snapshot, so
        that the next start reads less.
        """
        self.counters.save(self._files)
        if self._seen.unsaved:
            self._save_seen()

    def report_running(self) -> None:
        """Record for the report that the stream is running."""
        job.alive(self._files, self._started)

    def note_end(self) -> None:
        """Record for the report that the stream has ended cleanly."""
        job.ended(self._files, self._started)

    def forget_stop(self) -> None:
        """Delete the recorded error of the last stop. Call this when the ingest works again."""
        stopped.forget(self._files)

    def catch_up(self) -> None:
        """Bring the tables up to date at a start, even without a new batch. Changes that users have
        made in `publications` are made in `readings`, too. The progress of all feeds is committed
        if the last such commit is old.
        """
        with lease(self.locations["publications"]):
            self._appender.say_all()
            if self._readings.covers is not None:
                self._readings.follow(self._seen.covers)

    def _save_seen(self) -> None:
        self._seen.save()
        self._rows = self._appends = 0
