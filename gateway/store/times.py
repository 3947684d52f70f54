"""Durations of commits. In: seconds, from the writer's thread. Out: histograms that any thread may
read.
"""

from bisect import bisect_left

BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the histogram's buckets, in seconds, for a good SSD up to a slow SD card."""


class Histogram:
    """A histogram of durations. counts: number of samples in each bucket, which ends at a bound of
    `BOUNDS_S`; the last bucket has no upper bound. total: sum of all samples in seconds.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total += seconds


class CommitTimes:
    """Durations of the commits so far. commit: whole transactions. sync: COMMIT alone, which writes
    the log and waits for fsync. failures: number of failed attempts. error: text of the last
    failure; None once a commit has succeeded.
    """

    def __init__(self) -> None:
        self.commit = Histogram()
        self.sync = Histogram()
        self.failures = 0
        self.error: str | None = None
