"""A table that is made from `publications`, with its progress.

In: a table, and a function that makes its rows from changes. Out: the table brought up to a version
of `publications`, with that version stored in the same commit. If several jobs run at the same
time, only the first one commits: Delta accepts no second commit that stores the same version, or an
older one.
"""

import logging
from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.commits import Progress
from gateway.ingest.delta.lease import lease
from gateway.ingest.delta.tables import Table, is_file_gone
from gateway.ingest.delta.writers import open_writer
from gateway.ingest.summary.changes import Changes, since

log = logging.getLogger("onceway.ingest")


class DerivedTable:
    """A table that is computed from `publications`. The lease of `publications` is held while
    `table` is written.
    """

    def __init__(
        self, spark: SparkSession, table: Table, publications: Table, contents: str, version: int
    ) -> None:
        """Open the table, or create it. contents, version: name of the table's contents, and
        version of the code that computes them. If the version changes, `follow` computes all rows
        again.
        """
        self.table = table
        self._publications = publications
        self._place = publications.place()
        self._log, _ = open_writer(spark, publications, self._place)
        self._application = f"onceway/{contents}-{version}/{self._place.id}"
        table.create()
        _, self._writer = open_writer(spark, table, table.place())

    def follow(self, until: int, make: Callable[[Changes, DataFrame], DataFrame]) -> None:
        """Bring the table up to version `until` of `publications`. make: returns the table's new
        rows from the changes and its current rows. Raises Spark's errors.
        """
        version, found = self._writer.progress(self._application)
        # False: `publications` was replaced by a copy
        fits = found is None or self._log.holds(found.mark)
        covers = found.covers if found is not None and fits else None
        if covers is not None and covers >= until:
            return
        before = self.table.read(versionAsOf=version)  # another job may write in the meantime
        try:
            changes = since(self._publications, self._log, covers, until)
            self._write(make(changes, before), until, not fits)
        except (PySparkException, Py4JJavaError) as error:
            if covers is None or (isinstance(error, Py4JJavaError) and not is_file_gone(error)):
                raise
            log.warning(
                "cannot read what changed in publications (%s), so the whole table is read",
                cause_of(error),
            )
            changes = since(self._publications, self._log, covers, until, whole=True)
            self._write(make(changes, before), until, not fits)

    def _write(self, rows: DataFrame, until: int, back: bool) -> None:
        rows, progress = rows.persist(), Progress(until, self._log.mark(until))
        try:
            count = rows.count()  # hold the lease for the commit only
            with lease(self._place.location):
                self.table.overwrite(rows, self._application, progress, back)
                self.table.settle()
        finally:
            rows.unpersist()
        log.info("%s: %d rows, up to version %d", self.table.name, count, until)
