"""Deletion of old rows, in a way that no batch can add them again.

In: the tables, and a time. Out: fewer rows. The keys of the deleted rows are kept in the folder
`_onceway`, so that an old batch that arrives again does not add the rows again.
"""

from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.ranges import SeenRanges
from gateway.ingest.dedup.seen import collect_ranges
from gateway.ingest.delta.lease import lease
from gateway.ingest.delta.storage import open_folder
from gateway.ingest.delta.tables import Table, noted
from gateway.ingest.sink.readings import ALONE, EXPIRED, SAME_PUBLICATION


def expire(spark: SparkSession, publications: Table, readings: Table, before: datetime) -> int:
    """Delete publications that gateways received before a time, and return their number. If the
    gateway's clock was unknown at receipt, the time of landing counts.

    The readings are deleted first, and the keys are stored before the publications are deleted. So
    the job can be run again after an interruption.
    """
    place = publications.place()
    folder = open_folder(spark, place.location, snapshot.FOLDER)
    old = F.coalesce("received", "landed") < F.lit(before)
    with lease(place.location) as alone:
        version = _version(publications)
        deleted = SeenRanges()
        collect_ranges(publications.read(versionAsOf=version).where(old), deleted)
        if not len(deleted):
            return 0
        expired = (
            publications.read(versionAsOf=version)
            .where(old)
            .select("device", "incarnation", "sequence")
        )
        readings.delta().alias("reading").merge(
            expired.alias("gone"), SAME_PUBLICATION
        ).whenMatchedDelete().execute()
        readings.settle()
        snapshot.keep_gone(folder, deleted, version, place.id)
        with noted(spark, {EXPIRED: before.isoformat(), ALONE: alone}):
            publications.delta().delete(old)
        publications.settle()
        deleted_from = _version(publications) - 1
        if deleted_from > version:  # without a lease, old rows may have been added meanwhile
            collect_ranges(publications.read(versionAsOf=deleted_from).where(old), deleted)
            snapshot.keep_gone(folder, deleted, deleted_from, place.id)
    return len(deleted)


def _version(table: Table) -> int:
    (newest,) = table.delta().history(1).select("version").collect()
    return int(newest["version"])
