"""Spark's own measures of the stream: into the counters, for `onceway ingest report`.

In: the progress of a query that Spark remembers. Out: the last one that had rows, as
`Counters.spark`. It is polled: Spark would call a listener from another thread, once per
micro-batch and listener, and keep all events in the meantime, with each query's whole plan.
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
