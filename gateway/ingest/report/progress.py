"""Spark's own measures of the stream, stored in the counters for `onceway ingest report`.

In: the progress of a query that Spark remembers. Out: the last one that had rows, as
`Counters.spark`. The progress is polled, because Spark would call a listener from another thread,
and would keep all events with each query's whole plan in the meantime.
"""

from collections.abc import Iterable

from pyspark.sql.streaming.listener import StreamingQueryProgress

from gateway.ingest.report.counters import Counters


def note(counters: Counters, progress: Iterable[StreamingQueryProgress | None]) -> None:
    """Store the last progress with rows. progress: oldest first. ms: duration of each step, by
    Spark's names. Spark's rows are data files here.
    """
    for one in progress:
        if one is not None and one.numInputRows:
            counters.spark = {
                "micro_batch": one.batchId,
                "at": one.timestamp,
                "ms": dict(one.durationMs),
            }
