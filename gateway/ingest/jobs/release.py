"""Release of repaired batches from quarantine into the table.

In: a sink, and its landing place. Out: the rows of every batch in quarantine that is complete by
now, each key once; then the time of release in the table of the quarantine. This time is written
last: after a crash in between, the batch is added again, and its rows are left out as duplicates.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from gateway.ingest.delta.lease import lease
from gateway.ingest.jobs.source import CHUNK_ROWS, BatchList, read_batches
from gateway.ingest.landing import batch
from gateway.ingest.landing.place import UNREADABLE, Announced, Landing, error_text
from gateway.ingest.landing.trust import Trust
from gateway.ingest.sink.data_files import WRITTEN, DataFiles
from gateway.ingest.sink.foreach_batch import Sink
from gateway.ingest.sink.merged_batches import CHUNK
from gateway.ingest.sink.row_batch import RowBatch

log = logging.getLogger("onceway.ingest")


def try_again(spark: SparkSession, sink: Sink, landing: Landing, trust: Trust) -> None:
    """Read again the batches that are in quarantine because they could not be read. Add those that
    can be read now to the table. May be called while the stream runs. Raises OSError if the landing
    place as a whole cannot be read; the next call tries again.
    """
    if sink.quarantine.has_unreadable:
        with sink.lock:
            sink.quarantine.has_unreadable = False  # `release` sets it if a batch stays unreadable
            try:
                release(spark, sink, landing, trust, UNREADABLE)
            except BaseException:
                sink.quarantine.has_unreadable = True
                raise


def take_whole(spark: SparkSession, sink: Sink, landing: Landing, trust: Trust) -> None:
    """Add to the table those batches in quarantine that are complete by now. Raises OSError if the
    landing place as a whole cannot be read.
    """
    trust.refresh()
    whole = [
        (feed, number)
        for feed, number in sink.quarantine.open()
        if _is_whole(landing, _announced(landing, trust, feed, number))
    ]
    if whole:
        with sink.lock:
            _release(spark, sink, landing, trust, whole)


def _is_whole(landing: Landing, announced: Announced) -> bool:
    """Whether a batch has no fault. False for a batch that cannot be read. Raises OSError if the
    landing place as a whole cannot be read.
    """
    try:
        return batch.flaw(landing, announced) is None
    except OSError as error:
        landing.refuse_outage(error)
        return False


def release(
    spark: SparkSession, sink: Sink, landing: Landing, trust: Trust, reason: str = ""
) -> int:
    """Add repaired batches in quarantine to the table. Return how many are still damaged or not
    trusted. reason: only batches whose reason begins with this text are tried.
    """
    trust.refresh()
    return _release(spark, sink, landing, trust, sink.quarantine.open(reason))


def _release(
    spark: SparkSession,
    sink: Sink,
    landing: Landing,
    trust: Trust,
    wanted: list[tuple[str, int]],
) -> int:
    still_damaged = 0
    by_files = not issubclass(sink.batches, RowBatch)
    files = DataFiles(sink.locations["publications"], sink.locations["readings"])
    for batches in _portions(landing, trust, wanted):
        chunks = list(read_batches(landing, BatchList(0, batches)))
        damaged = {_origin(one) for one in chunks if one["flaw"][0].is_valid}
        rows = (
            pa.Table.from_batches(map(files.put, chunks), WRITTEN)
            if by_files
            else pa.Table.from_batches(chunks, CHUNK)
        )
        sink.take_repaired(spark.createDataFrame(rows), 0)
        whole = [(one.feed, one.number) for one in batches if (one.feed, one.number) not in damaged]
        if whole:
            with lease(sink.locations["publications"]):
                sink.quarantine.release(whole)
        for feed, number in whole:
            log.info("released: %s batch %d", feed, number)
        still_damaged += len(damaged)
    return still_damaged


def _portions(
    landing: Landing, trust: Trust, batches: list[tuple[str, int]]
) -> Iterator[list[Announced]]:
    """Yield the current manifests of `batches` in lists. The batches of one list together have
    about as many rows as the driver may have in memory at a time.
    """
    portion: list[Announced] = []
    for feed, number in batches:
        portion.append(_announced(landing, trust, feed, number))
        if sum(announced.rows for announced in portion) >= CHUNK_ROWS:
            yield portion
            portion = []
    if portion:
        yield portion


def _announced(landing: Landing, trust: Trust, feed: str, number: int) -> Announced:
    try:
        found = landing.manifest(feed, number)
    except OSError as error:
        landing.refuse_outage(error)
        return Announced(feed, number, flaw=f"{UNREADABLE}: {error_text(error)}")
    return trust.check(found or Announced(feed, number, flaw="the manifest is missing"))


def _origin(flawed: pa.RecordBatch) -> tuple[str, int]:
    (row,) = flawed.select(["gateway", "epoch", "batch"]).to_pylist()
    return f"{row['gateway']}/{row['epoch']}", row["batch"]
