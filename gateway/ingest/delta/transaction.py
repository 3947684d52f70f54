"""A compare-and-swap on a Delta table: rows are added only if the table is still at the version
that the writer knows.

In: rows, or files with rows, and the table version from which they were computed. Out: the version
that contains them, or Conflict.

Only this module uses Delta's own transaction object instead of a DataFrame writer, for two reasons.
The first: the object can declare "the whole table was read". Then Delta's conflict check refuses
the commit if another commit has added or removed a row in the meantime. The second: it is faster.
The closest alternative is a DataFrame writer with txnAppId and txnVersion. For it, Delta computes
the table's whole state before each append. This takes 3 to 5 times as long as the append.
"""

import json
import secrets
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, cast
from urllib.parse import unquote

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from gateway.ingest.delta import durability, local_disk
from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.commits import (
    ACTIONS,
    APPLICATION,
    NONCE,
    CommitLog,
    HistoryGone,
    Progress,
    stored,
)
from gateway.ingest.delta.tables import another_table, refuse_unfit

CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""Delta's exceptions for a refused commit. They have no common class."""

SWAP = "onceway/swap"
"""Application id of the `txn` action in each append. Its version is the table version that the
append creates. If the writer in `public.py` appends at the same time, Delta refuses one of the two
because both have this id.
"""

CALLED = frozenset(
    ("commit", "metadata", "readVersion", "readWholeTable", "registerSQLMetrics", "writeFiles")
)
"""Methods of Delta's transaction object that `DeltaWriter` calls."""


class Conflict(Exception):
    """Another writer has changed the table since the version that the rows are based on. Nothing
    was committed.
    """


@dataclass(frozen=True, slots=True)
class Addition:
    """The additions of a commit. actions: one `add` action, as JSON, for each file that is already
    written. rows: rows that the writer must still write.
    """

    actions: list[str] = field(default_factory=list)
    rows: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class _Measures:
    """Numbers of files, rows and bytes in a commit, named as in Delta's history."""

    numFiles: int = 0
    numOutputRows: int = 0
    numOutputBytes: int = 0

    @classmethod
    def of(cls, actions: list[str]) -> "_Measures":
        """Return the number of files, rows and bytes in `add` actions, which are given as JSON."""
        files = [json.loads(action)["add"] for action in actions]
        rows = (json.loads(file["stats"])["numRecords"] for file in files)
        return cls(len(files), sum(rows), sum(file["size"] for file in files))

    def plus(self, files: list[Any]) -> "_Measures":
        """Return the sums of these numbers and the numbers in `files`, Delta's own `AddFile`
        objects.
        """
        rows = (file.numLogicalRecords() for file in files)
        return _Measures(
            self.numFiles + len(files),
            self.numOutputRows + sum(int(one.get()) for one in rows if one.isDefined()),
            self.numOutputBytes + sum(int(file.size()) for file in files),
        )


class Writer(Protocol):
    """The interface of a table's writer, which appends by compare-and-swap."""

    def append(
        self,
        new: Addition,
        based_on: int,
        note: dict[str, Any],
        progress: tuple[str, int],
    ) -> int: ...

    def progress(self, application: str) -> tuple[int, Progress | None]: ...

    def version(self) -> int: ...


class DeltaWriter:
    """Writer that commits to the table at `location` only if no other commit came first."""

    def __init__(self, spark: SparkSession, location: str, commits: CommitLog) -> None:
        jvm: Any = spark._jvm
        self._spark = spark
        self._jvm = jvm
        self._table: str | None = None
        self._looked_at: object = None
        self._mark: str | None = None
        """Mark of the log at the last check, which shows whether the table was replaced
        (`CommitLog.mark`).
        """
        self._session = spark._jsparkSession
        self._location = location
        self._commits = commits
        self._none = jvm.scala.Option.empty()
        self._nothing = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
        self._actions = getattr(
            getattr(jvm.org.apache.spark.sql.delta.actions, "Action$"), "MODULE$"
        )

    def append(
        self,
        new: Addition,
        based_on: int,
        note: dict[str, Any],
        progress: tuple[str, int],
    ) -> int:
        """Add `new`, which was computed from the table's version `based_on`. Return the version
        that contains it.

        note: Onceway's note for the commit's user metadata. progress: (application id, version) to
        store in the same commit. Raises Conflict if the table has a newer version, OncewayError if
        the table was replaced, or Spark's error if the rows cannot be computed or written. Nothing
        is committed then.
        """
        transaction = self._delta_log().startTransaction(self._none, self._none)
        version = transaction.readVersion()
        if version < based_on:
            raise another_table(self._location)
        self._check(transaction.metadata())
        if self._mark is not None and not self._commits.holds(self._mark):
            raise another_table(self._location)
        if version > based_on:
            raise Conflict(f"the table has version {version}, this commit is based on {based_on}")
        transaction.readWholeTable()
        actions = self._nothing if new.rows is None else self._write_files(transaction, new.rows)
        written = [actions.apply(number) for number in range(actions.size())]
        for action in new.actions:
            actions = actions.appended(self._actions.fromJson(action))
        self._measure(transaction, _Measures.of(new.actions).plus(written))
        actions = actions.appended(self._stored(*progress))
        actions = actions.appended(self._stored(SWAP, based_on + 1))
        nonce = secrets.token_hex(8)
        try:
            version = int(
                transaction.commit(
                    actions, self._write({**note, NONCE: nonce, ACTIONS: actions.size()})
                )
            )
        except (PySparkException, Py4JError) as error:
            version = self._commit_landed(nonce, based_on, error)
        self._mark = f"{version} {nonce}"
        durability.settle(self._location, version)
        return version

    def _stored(self, application: str, version: int) -> Any:
        """Return the action that stores a version under an application id."""
        actions = self._jvm.org.apache.spark.sql.delta.actions
        return actions.SetTransaction(application, version, self._none)

    def _check(self, metadata: Any) -> None:
        """Raise OncewayError if the table was replaced since this writer's first commit. Also raise
        it if the tasks must not write the table's files directly any more, for example because of a
        new constraint.
        """
        table, shape = str(metadata.id()), (metadata.schemaString(), str(metadata.configuration()))
        if self._table not in (None, table):
            raise another_table(self._location)
        if shape != self._looked_at:
            refuse_unfit(self._spark, metadata, self._location)
        self._table, self._looked_at = table, shape

    def progress(self, application: str) -> tuple[int, Progress | None]:
        """Return the table's version, and the newest progress stored under this application id. The
        progress is None if nothing is stored under the id, or if the table was replaced after it
        was stored.
        """
        transaction = self._delta_log().startTransaction(self._none, self._none)
        version: int = transaction.readVersion()
        self._mark = self._commits.mark(version)
        try:
            return version, stored(self._commits, application, version)
        except HistoryGone:  # Delta then computes the table's whole state
            found = transaction.snapshot().transactions().get(application)
            return version, Progress.of(found.get(), None) if found.isDefined() else None

    def version(self) -> int:
        return int(self._delta_log().startTransaction(self._none, self._none).readVersion())

    def _commit_landed(self, nonce: str, based_on: int, error: Exception) -> int:
        """Return the version of this writer's commit if it is in the log although Delta raised
        `error`. Otherwise raise the error, as Conflict if another commit caused it.
        """
        for commit in self._commits.after(based_on):
            if commit.note.get(NONCE) == nonce:
                return commit.version
        if isinstance(error, CONFLICTS):
            raise Conflict(cause_of(error)) from error
        raise error

    def _write_files(self, transaction: Any, rows: DataFrame) -> Any:
        actions = transaction.writeFiles(rows._jdf)
        files = (actions.apply(number) for number in range(actions.size()))
        local_disk.settle_files(self._location, (unquote(file.path()) for file in files))
        return actions

    def _write(self, note: dict[str, Any]) -> Any:
        """Return Delta's description of an append: the mode, then eight optional values, of which
        only the user metadata is set.
        """
        option = self._jvm.scala.Option.apply(json.dumps({APPLICATION: note}))
        write = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")
        append = self._jvm.org.apache.spark.sql.SaveMode.Append
        return write(
            append,
            self._none,
            self._none,
            option,
            self._none,
            self._none,
            self._none,
            self._none,
            self._none,
        )

    def _measure(self, transaction: Any, measures: "_Measures") -> None:
        """Put the numbers of files, rows and bytes of this commit into the table's history, under
        the names that Delta's own writes use.
        """
        context = self._spark.sparkContext._jsc.sc()
        metrics = self._jvm.scala.collection.immutable
        found = getattr(getattr(metrics, "Map$"), "MODULE$").empty()
        for name, value in asdict(measures).items():
            metric = self._jvm.org.apache.spark.sql.execution.metric.SQLMetrics.createMetric(
                context, name
            )
            metric.set(value)
            found = found.updated(name, metric)
        transaction.registerSQLMetrics(self._session, found)

    def _delta_log(self) -> Any:
        return self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._session, self._location)


def has_own_classes(spark: SparkSession) -> bool:
    """Whether Delta's own classes are available, with the expected methods. They are not available
    with Spark Connect, nor on clusters that allow no call into Java; another version of Delta may
    have other methods.
    """
    try:
        writer = DeltaWriter(spark, "", cast(CommitLog, None))
        writer._write({})
        writer._stored(SWAP, 0)
        utils = cast(Any, spark._jvm).org.apache.spark.util.Utils
        name = "org.apache.spark.sql.delta.OptimisticTransaction"
        methods = utils.classForName(name, True, False).getMethods()
        return {str(method.getName()) for method in methods} >= CALLED
    except Exception:  # a foreign server or version may answer anything
        return False
