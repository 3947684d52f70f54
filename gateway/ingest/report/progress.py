"""Spark's own measures of the stream, by its listener: into the counters, for `onceway ingest
report`.

In: Spark's progress events, in a thread of its own. Out: the last one that had rows, as
`Counters.spark`.
"""

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from gateway.ingest.report.counters import Counters


class ProgressListener(StreamingQueryListener):
    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        note(self._counters, event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def note(counters: Counters, progress: StreamingQueryProgress) -> None:
    """ms: how long each step took, as Spark names them. What Spark calls rows are data files
    here.
    """
    if progress.numInputRows:
        counters.spark = {
            "micro_batch": progress.batchId,
            "at": progress.timestamp,
            "ms": dict(progress.durationMs),
        }
