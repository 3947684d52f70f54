"""Changes of `publications` since a derived table was last brought up to date.

In: the derived table's progress, and the log of `publications`. Out: added rows, removed rows, and
the commits in between.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gateway.ingest.delta.commits import REWRITING, Commit, CommitLog, HistoryGone
from gateway.ingest.delta.tables import Table
from gateway.ingest.sink.readings import EXPIRED


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of `publications` between two versions. new_rows, removed_rows: rows of
    `publications`. If `whole` is true, `new_rows` has all rows, and the derived table must be
    computed again from them. commits: the commits between the versions; empty if the log no longer
    has all of them.
    """

    new_rows: DataFrame
    removed_rows: DataFrame
    whole: bool
    commits: list[Commit]


def since(
    publications: Table, log: CommitLog, covers: int | None, until: int, whole: bool = False
) -> Changes:
    """Return the changes in versions after `covers` up to `until`. All rows count as new in four
    cases: `whole` is set; `covers` is None, because the derived table is empty; a commit has
    rewritten the table; or a commit is no longer in the log.

    Rows deleted by `expire` do not count as removed, because results computed from them stay true.
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
    removed_rows = publications.removed(covers, until).where(
        ~F.col("_commit_version").isin(expired)
    )
    return Changes(publications.inserted(covers, until), removed_rows, False, commits)


def moment() -> Column:
    """Return a publication's time of arrival at the gateway. If it is unknown, return the time of
    arrival at the landing place; if that is unknown too, in the table.
    """
    return F.coalesce("received", "landed", "ingested")
