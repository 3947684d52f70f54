"""Spark's own measures of the stream, stored in the counters for `onceway ingest report`.

In: the progress of the newest micro-batches of a query. Out: the progress of the last micro-batch
with rows, as `Counters.spark`. The progress is polled, because Spark would call a listener from
another thread. Spark would also keep all events for the listener, each with the query's whole plan.
"""

from collections.abc import Iterable

from pyspark.sql.streaming.listener import StreamingQueryProgress

from gateway.ingest.report.counters import Counters


def note(counters: Counters, progress: Iterable[StreamingQueryProgress | None]) -> None:
    """Store in `counters.spark` the progress of the last micro-batch that had rows: its number, its
    time, and the duration of each step in ms, by Spark's names. progress: oldest first.
    """
    for one in progress:
        if one is not None and one.numInputRows:
            counters.spark = {
                "micro_batch": one.batchId,
                "at": one.timestamp,
                "ms": dict(one.durationMs),
            }
