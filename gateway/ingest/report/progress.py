"""Spark's own measures of the stream: into the counters, for `onceway ingest report`.

In: Spark's progress of a query, as far as it remembers it. Out: the last one that had rows, as
`Counters.spark`.

Asked for, not listened to: Spark would call a listener from a thread of its own, once per
micro-batch and listener, and keep all that happens meanwhile, with each query's whole plan.
"""

from collections.abc import Iterable

from pyspark.sql.streaming.listener import StreamingQueryProgress

from gateway.ingest.report.counters import Counters


def note(counters: Counters, progress: Iterable[StreamingQueryProgress | None]) -> None:
    """progress: oldest first. ms: how long each step took, as Spark names them. What Spark calls
    rows are data files here.
    """
    for one in progress:
        if one is not None and one.numInputRows:
            counters.spark = {
                "micro_batch": one.batchId,
                "at": one.timestamp,
                "ms": dict(one.durationMs),
            }
