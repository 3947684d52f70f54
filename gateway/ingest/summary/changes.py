"""What has changed in `publications` since a table was made of it.

In: the table's progress, and the log of `publications`. Out: rows that came, rows that went, and
the commits between.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gateway.ingest.delta.commits import REWRITING, Commit, CommitLog, HistoryGone
from gateway.ingest.delta.tables import Table
from gateway.ingest.sink.readings import EXPIRED


@dataclass(frozen=True, slots=True)
class Changes:
    """came, went: rows of `publications`. whole: `came` is all that there is, and what was known
    before does not count. commits: those of them that are still in the log.
    """

    came: DataFrame
    went: DataFrame
    whole: bool
    commits: list[Commit]


def since(
    publications: Table, log: CommitLog, covers: int | None, until: int, whole: bool = False
) -> Changes:
    """What versions after `covers` up to `until` have changed. covers: None for a table that has
    nothing yet. whole: start from all rows, for the changes cannot be read.

    Rows that `expire` deleted have not gone: what was said of them stays true.
    """
    try:
        commits = [
            one for one in log.after(-1 if covers is None else covers) if one.version <= until
        ]
    except HistoryGone:
        whole, commits = True, []
    if whole or covers is None or any(one.operation in REWRITING for one in commits):
        everything = publications.read(versionAsOf=until)
        return Changes(everything, everything.limit(0), True, commits)
    expired = [one.version for one in commits if EXPIRED in one.note]
    went = publications.removed(covers, until).where(~F.col("_commit_version").isin(expired))
    return Changes(publications.inserted(covers, until), went, False, commits)


def moment() -> Column:
    """When a publication came, as well as it is known."""
    return F.coalesce("received", "landed", "ingested")
