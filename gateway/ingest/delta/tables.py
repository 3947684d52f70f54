"""The Delta tables: their columns, creation, and names.

In: the user's --table: a path, a URL or a catalog name. Out: existing tables. The table of
publications has this name. The other tables have this name with a suffix, such as `_readings`.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.types import StructType

from gateway.errors import OncewayError
from gateway.ingest.delta import durability
from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.commits import APPLICATION, Progress
from gateway.ingest.delta.lease import lease

CREATE_TRIES = 5

SPARK_CATALOG = "spark_catalog"
"""Spark's own catalog, in which Delta's own classes find a table by its name."""

SIGNED = "onceway.signatures"
"""Property of tables that were created by a version of Onceway that requires signed batches."""

FILLED_IN = {"CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start"}
"""Keys of column metadata. A column with one of these keys gets a value from Spark if a row has
none: default, generated and identity columns (Delta protocol, "Default Columns" and others).
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table. columns: (name, type, comment); properties: Delta table properties;
    clustering: columns by which `compact` groups rows that are queried together; key: columns
    without which a table is refused, because every version of Onceway creates them.
    """

    comment: str
    columns: tuple[tuple[str, str, str], ...]
    properties: tuple[tuple[str, str], ...] = ()
    clustering: tuple[str, ...] = ()
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a table. location: its folder, as a URL; id: random, from the table's creation;
    properties: the names of its properties.
    """

    location: str
    id: str
    properties: frozenset[str] = frozenset()

    @property
    def signed(self) -> bool:
        """Whether batches must be signed if the file of keys does not decide this (`SIGNED`)."""
        return SIGNED in self.properties


class Table:
    """One Delta table. name: a path, a URL or a catalog name."""

    def __init__(self, spark: SparkSession, name: str, layout: Layout) -> None:
        self._spark = spark
        self.name = absolute(name)
        self._is_path = not is_named(name)
        self._layout = layout

    @property
    def sql(self) -> str:
        """Name of the table for SQL."""
        quoted = self.name.replace("`", "``")
        return f"delta.`{quoted}`" if self._is_path else self.name

    def create(self) -> None:
        """Create the table if there is none, and add columns that a table of an older version
        lacks. If another job does this at the same time, try again. Raises OncewayError for a table
        that the ingest has not created; it stays unchanged.
        """
        failures = 0
        while True:
            try:
                if not self.exists():
                    self._make()
                self._complete()
                self.settle()
                return
            except PySparkException as error:
                failures += 1
                if failures == CREATE_TRIES:
                    raise OncewayError(
                        f"cannot create the table: {cause_of(error)}", self.name
                    ) from error
                time.sleep(0.5)

    def _make(self) -> None:
        """Create the table by an SQL statement, because Delta's builder does not support names such
        as CATALOG.SCHEMA.TABLE.
        """
        layout = self._layout
        properties = ", ".join(f'"{key}" = "{value}"' for key, value in layout.properties)
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.sql} ({_columns(layout.columns)}) USING delta"
            f' COMMENT "{layout.comment}"'
            + (f" TBLPROPERTIES ({properties})" if properties else "")
            + (f" CLUSTER BY ({', '.join(layout.clustering)})" if layout.clustering else "")
        )

    def refuse_others(self) -> dict[str, str]:
        """Return the types of the table's columns. Raises OncewayError for a table that the ingest
        has not created: a column has another type, or a part of the key is missing.
        """
        existing = {field.name.lower(): field.dataType.simpleString() for field in self._schema()}
        if not existing:
            raise OncewayError(
                "this is not a Delta table, and its folder is not empty",
                self.name,
                "Give the ingest a folder of its own. If the table was deleted, delete its"
                " remaining files, too",
            )
        other = []
        other += [
            f"column {column} is a {existing[column]}, not a {kind}"
            for column, kind, _ in self._layout.columns
            if existing.get(column, kind) != kind
        ]
        other += [
            f"it has no column {column}" for column in self._layout.key if column not in existing
        ]
        if other:
            raise OncewayError(
                f"this is not a table of the ingest: {other[0]}",
                self.name,
                "Give the ingest a table of its own",
            )
        return existing

    def _complete(self) -> None:
        existing = self.refuse_others()
        lacking = [one for one in self._layout.columns if one[0] not in existing]
        if lacking:
            self._spark.sql(f"ALTER TABLE {self.sql} ADD COLUMNS ({_columns(lacking)})")

    def _schema(self) -> StructType:
        text = self._newest()[1].schemaString()  # None: not a Delta table
        return StructType.fromJson(json.loads(text)) if text else StructType()

    def exists(self) -> bool:
        return bool(
            DeltaTable.isDeltaTable(self._spark, self.name)
            if self._is_path
            else self._spark.catalog.tableExists(self.name)
        )

    def place(self) -> Place:
        """Return the table's place, without the Spark jobs of DESCRIBE DETAIL. Raises OncewayError
        for a table whose files a task may not write directly (`refuse_unfit`).
        """
        log, metadata = self._newest()
        refuse_unfit(self._spark, metadata, self.name)
        names = str(metadata.configuration().keys().mkString("\n"))
        return Place(str(log.dataPath()), str(metadata.id()), frozenset(names.splitlines()))

    def _newest(self) -> tuple[Any, Any]:
        """Return Delta's log of the table, and the table's current metadata."""
        session, jvm = self._spark._jsparkSession, cast(Any, self._spark._jvm)
        name = self.name if self._is_path else self._identifier()
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, name)
        return log, log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty()).metadata()

    def settle(self) -> None:
        """Sync the newest commit of a local table to the disk. Call this after one of Delta's own
        commands, which do not sync.
        """
        location = self.location()
        if location is not None:
            durability.settle_newest(location)

    def location(self) -> str | None:
        """Return the URL of the table's folder, without reading the table. None if the catalog has
        no such table.
        """
        session, jvm = self._spark._jsparkSession.sessionState(), cast(Any, self._spark._jvm)
        if self._is_path:
            path = jvm.org.apache.hadoop.fs.Path(self.name)
            return str(path.getFileSystem(session.newHadoopConf()).makeQualified(path))
        identifier = self._identifier()
        if not session.catalog().tableExists(identifier):
            return None
        return str(
            jvm.org.apache.hadoop.fs.Path(session.catalog().getTableMetadata(identifier).location())
        )

    def _identifier(self) -> Any:
        """Return the table's identifier for Spark's own catalog, which does not accept the prefix
        `spark_catalog.` in names.
        """
        parser = self._spark._jsparkSession.sessionState().sqlParser()
        return parser.parseTableIdentifier(self.name.removeprefix(f"{SPARK_CATALOG}."))

    def delta(self) -> DeltaTable:
        return (
            DeltaTable.forPath(self._spark, self.name)
            if self._is_path
            else DeltaTable.forName(self._spark, self.name)
        )

    def read(self, **options: Any) -> DataFrame:
        reader = self._spark.read.format("delta").options(**options)
        return reader.load(self.name) if self._is_path else reader.table(self.name)

    def overwrite(
        self, rows: DataFrame, application: str, progress: Progress, back: bool = False
    ) -> None:
        """Replace all rows by `rows`, and store the progress in the same commit. Unless `back` is
        set, Delta silently skips the commit if the table has this progress or a later one.
        """
        note = {"of": application, "publications": progress.covers, "mark": progress.mark}
        guard = {"txnAppId": application, "txnVersion": str(progress.covers)}
        self._write(
            rows.write.mode("overwrite"),
            **({} if back else guard),
            userMetadata=json.dumps({APPLICATION: note}),
        )

    def append(self, rows: DataFrame, **options: str) -> None:
        self._write(rows.write.mode("append"), **options)

    def _write(self, writer: DataFrameWriter, **options: str) -> None:
        writer = writer.format("delta").options(**options)
        if self._is_path:
            writer.save(self.name)
        else:
            writer.saveAsTable(self.name)

    def inserted(self, after: int, until: int) -> DataFrame:
        """Return the rows added in versions after `after` up to `until`, and the new values of
        changed rows.
        """
        return self._changes(after, until, "insert", "update_postimage")

    def removed(self, after: int, until: int) -> DataFrame:
        """Return the rows removed in versions after `after` up to `until`, and the old values of
        changed rows.
        """
        return self._changes(after, until, "delete", "update_preimage")

    def _changes(self, after: int, until: int, *kinds: str) -> DataFrame:
        changes = self.read(readChangeFeed="true", startingVersion=after + 1, endingVersion=until)
        return changes.where(changes["_change_type"].isin(*kinds))


def _columns(columns: Iterable[tuple[str, str, str]]) -> str:
    return ", ".join(f'`{name}` {kind} COMMENT "{comment}"' for name, kind, comment in columns)


def refuse_unfit(spark: SparkSession, metadata: Any, name: str) -> None:
    """Raise OncewayError if only Spark's writer can write the table's files correctly, and not the
    ingest's own tasks. That is so if the table has partitions, renamed columns, constraints, or
    columns that the writer fills in. metadata: Delta's current metadata of the table.
    """
    jvm: Any = spark._jvm
    constraints = jvm.org.apache.spark.sql.delta.constraints.Constraints
    fields = json.loads(metadata.schemaString())["fields"]
    others = {
        "is partitioned": not metadata.partitionColumns().isEmpty(),
        "maps its columns to other names": metadata.columnMappingMode().name() != "none",
        "has constraints": not constraints.getAll(metadata, spark._jsparkSession).isEmpty(),
        "fills columns in by itself": any(FILLED_IN & field["metadata"].keys() for field in fields),
    }
    for feature, so in others.items():
        if so:
            raise OncewayError(
                f"the table {feature}",
                name,
                "The ingest writes only into tables as it created them. Undo this change, or"
                " give the ingest a table of its own",
            )


@contextmanager
def noted(spark: SparkSession, note: dict[str, Any]) -> Iterator[None]:
    """Context in which Delta's own commands write a note into their commits."""
    key = "spark.databricks.delta.commitInfo.userMetadata"
    spark.conf.set(key, json.dumps({APPLICATION: note}))
    try:
        yield
    finally:
        spark.conf.unset(key)


def mend(publications: Table, *others: Table) -> None:
    """Remove the newest commit of each table on a local disk, if it is incomplete after a power
    cut. Call this at a start, before the tables are read.
    """
    locations = [
        location for table in (publications, *others) if (location := table.location()) is not None
    ]
    if any(map(durability.has_commits, locations)):
        with lease(locations[0]):
            for location in locations:
                durability.take_back_torn(location)


def another_table(name: str) -> OncewayError:
    """Return the error for a table that is no longer the one that was opened."""
    return OncewayError(
        "the table was deleted, restored from a copy, or replaced by another table since the "
        "ingest started",
        name,
        "Start the ingest again: it adds the batches that the table lacks",
    )


def absolute(name: str) -> str:
    """Return an absolute path for a relative one, because Spark and Delta would resolve it from
    different folders. Catalog names and URLs stay as they are. Raises OncewayError for a single
    word if the catalog in the current folder has a table of this name: versions up to 0.2.0 would
    have used that table.
    """
    if is_named(name) or re.match(r"[a-zA-Z][\w+.-]*:", name):
        return name.rstrip("/")
    if "/" not in name and os.path.exists(os.path.join("spark-warehouse", name.lower())):
        raise OncewayError(
            "this name may mean a folder here, or the catalog's table in ./spark-warehouse",
            name,
            f"Write ./{name} for the folder, or default.{name} for the catalog's table",
        )
    return os.path.abspath(name)


def absolute_folder(url: str) -> str:
    """Return an absolute path or URL, like `absolute`. A name with a dot is a path, not a catalog
    name.
    """
    return absolute(url if "/" in url else f"./{url}")


def is_named(table: str) -> bool:
    """Whether a name is a catalog name (SCHEMA.TABLE, CATALOG.SCHEMA.TABLE), not a path or URL. A
    single word is a folder, as for every command without Spark.
    """
    return "/" not in table and "." in table.strip(".")


def sibling_table(name: str, suffix: str) -> str:
    return f"{name.rstrip('/')}_{suffix}"


def is_file_gone(error: Py4JJavaError) -> bool:
    """Whether an error says that a file of an old table version does not exist: `VACUUM` deletes
    such files after a week.
    """
    return "FILE_NOT_EXIST" in str(error)
