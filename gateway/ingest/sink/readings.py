"""The table `readings`: the SenML in the payloads of `publications`, one row per record.

In: commits of `publications`. Out: for each of them one commit of `readings`, which also stores the
version of `publications` (the progress). So the rows and the progress are stored together or not at
all, and the next writer continues from the stored progress.
"""

import logging

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gateway.errors import OncewayError
from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.commits import REWRITING, CommitLog, HistoryGone, Progress
from gateway.ingest.delta.tables import Layout, Table, is_file_gone
from gateway.ingest.delta.transaction import Addition, Conflict, Writer
from gateway.ingest.payload import decoded
from gateway.ingest.payload.version import application_id
from gateway.ingest.sink.data_files import KEY, ORIGIN

BOUNDED = "onceway.times"
"""Name of a table property. Its value is a range of years, such as `2000-2099`, that contains all
times in the table.
"""

READINGS = Layout(
    "Each record of each publication once, by (device, incarnation, sequence, position); decoded"
    " from SenML (RFC 8428)",
    (
        ("device", "string", "Key, part 1, as in publications"),
        ("incarnation", "bigint", "Key, part 2, as in publications"),
        ("sequence", "bigint", "Key, part 3, as in publications"),
        ("position", "int", "Key, part 4: which record of the payload, from 0"),
        ("name", "string", "Measured quantity: SenML base name and name, without the device"),
        ("unit", "string", "Unit of the SenML registry, e.g. Cel"),
        (
            "value",
            "double",
            "Numeric value with base value; of value, text, flag and data at most one is set",
        ),
        ("text", "string", "String value"),
        ("flag", "boolean", "Boolean value"),
        ("data", "binary", "Data value"),
        ("sum", "double", "Sum of the values over time (SenML: s), with base sum"),
        (
            "time",
            "timestamp",
            (
                "Time of the measurement, UTC. A relative time counts from the receipt at the"
                " gateway; null if the time of receipt is not known"
            ),
        ),
        (
            "time_certainty",
            "string",
            (
                "synchronised: the payload says UTC; reckoned: it says how long ago; unknown: it"
                " says neither, so `time` is the time of receipt, or null"
            ),
        ),
        (
            "time_stated",
            "string",
            (
                "The time as text if it is outside the years 2000 to 2099, as only a wrong clock"
                " says; `time` is null then"
            ),
        ),
        (
            "quality",
            "string",
            (
                "good; in a record NAME.fault of a status, the fault that leaves NAME without a"
                " value. Null in rows that version 0.2.0 or earlier wrote"
            ),
        ),
        ("gateway", "string", "As in publications"),
        ("topic", "string", "As in publications"),
        ("received", "timestamp", "As in publications"),
    ),
    (
        ("delta.checkpointInterval", "50"),
        ("delta.dataSkippingStatsColumns", "device,sequence,received,time"),
        (BOUNDED, "2000-2099"),
    ),
    ("device", "received"),
    ("device", "incarnation", "sequence", "position"),
)

_WITH_LIST = StructType(
    [
        StructField("device", StringType()),
        StructField("incarnation", LongType()),
        StructField("sequence", LongType()),
        StructField("gateway", StringType()),
        StructField("topic", StringType()),
        StructField("received", TimestampType()),
        StructField("readings", ArrayType(from_arrow_type(decoded.READING))),
    ]
)

SAME_PUBLICATION = (
    "reading.device = gone.device and reading.incarnation = gone.incarnation and reading.sequence ="
    " gone.sequence"
)

EXPIRED = "expired"
"""Key in the note of a commit that deletes expired publications, after their readings were deleted.
"""
ALONE = "alone"
"""Key in the same note: whether a lease kept other jobs away. Without a lease, publications may
have come after their readings were deleted.
"""

TRIES = 20

log = logging.getLogger("onceway.ingest")


class Readings:
    """The table `readings`. covers: version of `publications` up to which all payloads are in
    `readings`; None if unknown.
    """

    def __init__(
        self,
        table: Table,
        writer: Writer,
        publications: Table,
        publications_id: str,
        commits: CommitLog,
    ) -> None:
        """Create the table's writer, and read the table's progress from the log. commits: the log
        of `publications`.
        """
        self._table = table
        self._writer = writer
        self._publications = publications
        self._application = application_id(publications_id)
        self._commits = commits
        self._back = False
        """Whether `publications` was replaced by a copy that lacks a version from which the
        readings were made.
        """
        self._look()

    def follow(self, until: int, rows: Addition | None = None, based_on: int | None = None) -> None:
        """Bring the table up to version `until` of `publications`.

        rows: the readings of version `until`, if this process has just made that version from
        version `based_on`. They are then not read from the table. Raises OncewayError if other
        writers commit first TRIES times.
        """
        for _ in range(TRIES):
            if self.covers is not None and self.covers >= until:
                return
            try:
                self._append(until, rows, based_on)
                return
            except Conflict as conflict:
                log.warning("another writer of readings was first: %s", conflict)
                self._look()
        raise OncewayError(
            f"gave up after {TRIES} attempts: each time another writer committed first",
            self._table.name,
            "Was the ingest started twice?",
        )

    def _look(self) -> None:
        """Read the table's progress."""
        self._version, found = self._writer.progress(self._application)
        self._back = found is not None and not self._commits.holds(found.mark)
        self.covers = None if found is None or self._back else found.covers

    def _append(self, until: int, rows: Addition | None, based_on: int | None) -> None:
        try:
            self._remove_until(until)
            new = self._rows_since(until, rows, based_on)
            # a commit without a row only stores the progress: no payload was decodable
            if new is not None and (rows is not None or new.rows is not None):
                self._version = self._writer.append(
                    new,
                    self._version,
                    {
                        "of": self._application,
                        "publications": until,
                        "mark": self._commits.mark(until),
                    },
                    (self._application, until),
                )
        except (HistoryGone, PySparkException, Py4JJavaError) as error:
            if isinstance(error, Py4JJavaError) and not is_file_gone(error):
                raise
            log.warning("cannot follow publications: %s", cause_of(error))
            new = None
        if new is None:
            log.info("rebuilding %s from all publications", self._table.name)
            everything = exploded(self._decode(self._publications.read(versionAsOf=until)))
            progress = Progress(until, self._commits.mark(until))
            self._table.overwrite(everything, self._application, progress, self._back)
            self._table.settle()
            # Delta skips the overwrite if the table stored `until` before it was restored to an
            # older version. The next version of `publications` then causes the overwrite
            self._look()
            return
        self.covers = until

    def _remove_until(self, until: int) -> None:
        """Remove the readings of publications that were deleted, changed or overwritten after
        version `covers`, up to version `until`. This can be called again after a crash.
        """
        commits = [] if self.covers is None else list(self._commits.after(self.covers))
        if any(commit.operation in REWRITING for commit in commits):
            return  # `follow` makes all readings again
        removing = [
            commit.version
            for commit in commits
            if commit.version <= until and commit.removes_rows and not commit.note.get(ALONE)
        ]
        if not removing:
            return
        deleted = self._publications.removed(removing[0] - 1, removing[-1]).select(*KEY).distinct()
        merge = self._table.delta().alias("reading").merge(deleted.alias("gone"), SAME_PUBLICATION)
        merge.whenMatchedDelete().execute()
        self._table.settle()
        before = self.covers
        self._look()
        if self.covers != before:
            raise Conflict(
                f"another writer has brought the readings from version {before} of the publications"
                f" to version {self.covers}"
            )

    def _rows_since(
        self, until: int, rows: Addition | None, based_on: int | None
    ) -> Addition | None:
        """Return the readings of the rows that were added to `publications` after version `covers`,
        up to version `until`. None if the table must be made again from all rows.
        """
        if self.covers is None:
            empty = self._both_were_empty(until if based_on is None else based_on)
            return (rows or Addition()) if empty else None
        before = [
            commit
            for commit in self._commits.after(self.covers)
            if commit.version <= (until if based_on is None else based_on)
        ]
        if any(commit.operation in REWRITING for commit in before):
            return None
        if rows is None and not any(commit.changes_data for commit in before):
            return Addition()
        if rows is not None and not any(commit.changes_data for commit in before):
            return rows
        fresh = self._publications.inserted(self.covers, until)
        if any(commit.removes_rows for commit in before):  # deleted again in the meantime
            fresh = _without(fresh, self._publications.removed(self.covers, until))
        return Addition(rows=exploded(self._decode(fresh)))

    def _both_were_empty(self, until: int) -> bool:
        """Whether `readings` is empty, and `publications` was empty up to version `until`."""
        return self._version <= 0 and not any(
            commit.changes_data for commit in self._commits.after(-1) if commit.version <= until
        )

    def _decode(self, publications: DataFrame) -> DataFrame:
        return publications.select(*KEY, *ORIGIN, "payload").mapInArrow(
            decoded.add_readings, _WITH_LIST
        )


def bound_times(spark: SparkSession, readings: Table) -> None:
    """Upgrade a table from a version of Onceway up to 0.2.0: a time outside 2000 to 2099 becomes
    text in `time_stated`. The property `BOUNDED` is set last, so an interrupted upgrade is
    repeated.
    """
    spark.sql(f"UPDATE {readings.sql} SET {_AS_TEXT} WHERE {_ODD_TIME}")  # noqa: S608 - ours
    readings.settle()
    spark.sql(f"ALTER TABLE {readings.sql} SET TBLPROPERTIES ('{BOUNDED}' = '2000-2099')")
    readings.settle()


_AS_TEXT = (
    "time_stated ="
    " replace(date_format(time, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'\"), '.000000Z', 'Z'),"
    " time = NULL"
)
_ODD_TIME = (
    "time < TIMESTAMP '2000-01-01 00:00:00+00:00' OR time >= TIMESTAMP '2100-01-01 00:00:00+00:00'"
)


def _without(added: DataFrame, went: DataFrame) -> DataFrame:
    """Return the rows of `added` that no later version has removed. went: the removed rows. Both
    are from the change data feed.
    """
    same = [F.col(f"came.{name}") == F.col(f"went.{name}") for name in KEY]
    later = F.col("went._commit_version") > F.col("came._commit_version")
    return added.alias("came").join(went.alias("went"), [*same, later], "left_anti")


def exploded(rows: DataFrame) -> DataFrame:
    """Return one row per reading, in the columns of the table `readings`. rows: rows with the
    columns `KEY`, `ORIGIN` and a list `readings`.
    """
    each = rows.select(*KEY, *ORIGIN, F.posexplode("readings").alias("position", "reading"))
    fields = (F.col(f"reading.{field.name}").alias(field.name) for field in decoded.READING)
    return each.select(*KEY, "position", *fields, *ORIGIN)
