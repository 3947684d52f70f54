"""A compare-and-swap on a Delta table, as in `transaction.py`, but by Delta's public API only. It
is for tables in a catalog, and for installations where Delta's own classes are unavailable.

In: rows, and the table version from which they were computed. Out: the version that contains them,
or Conflict.

Each append sets `txnAppId` and `txnVersion`, the version that it wants to create. Delta silently
skips an append whose `txnVersion` is not above the last one. It refuses an append if another append
with this id was committed in the meantime. So of several simultaneous appends, only one succeeds. A
random number in the commit's user metadata shows which one. One difference from `transaction.py`
remains: if another program appends between the check and the commit, this is noticed only at the
next check.
"""

import json
import secrets
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from gateway.ingest.delta import durability
from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.commits import (
    APPLICATION,
    BASED_ON,
    NONCE,
    HistoryGone,
    Progress,
    stored,
)
from gateway.ingest.delta.history import HistoryLog
from gateway.ingest.delta.tables import Place, Table, another_table
from gateway.ingest.delta.transaction import CONFLICTS, SWAP, Addition, Conflict


class PublicTable(Table):
    """A table that is accessed by Delta's public API only. It may be partitioned, have constraints,
    defaults and mapped columns: Spark's writer handles them.
    """

    _location: str | None = None
    """Cached location, because each query is a Spark job. None until the first query."""

    def place(self) -> Place:
        detail = self.delta().detail().select("location", "id", "properties").collect()[0]
        self._location = detail["location"]
        return Place(detail["location"], detail["id"], frozenset(detail["properties"]))

    def location(self) -> str | None:
        if self._location is None and self.exists():
            self.place()
        return self._location

    def _schema(self) -> Any:
        return self.read().schema


class PublicWriter:
    """A writer of one table that uses only Delta's public API."""

    def __init__(self, spark: SparkSession, table: Table, place: Place, log: HistoryLog) -> None:
        self._spark = spark
        self._table = table
        self._place = place
        self._log = log

    def append(
        self,
        new: Addition,
        based_on: int,
        note: dict[str, Any],
        progress: tuple[str, int],
    ) -> int:
        """Append `new.rows` like `DeltaWriter.append`. `new.actions` is not supported. `progress`
        is not used, so `note` must also contain the progress.
        """
        version = self.version()
        if version < based_on:
            raise another_table(self._table.name)
        if version > based_on:
            raise Conflict(f"the table has version {version}, this commit is based on {based_on}")
        nonce = secrets.token_hex(8)
        note_text = json.dumps({APPLICATION: {**note, BASED_ON: based_on, NONCE: nonce}})
        rows = self._nothing() if new.rows is None else new.rows
        failure: Exception | None = None
        try:
            self._table.append(
                rows, txnAppId=SWAP, txnVersion=str(based_on + 1), userMetadata=note_text
            )
        except (PySparkException, Py4JError) as error:
            failure = error
        landed = [one.version for one in self._log.after(based_on) if one.note.get(NONCE) == nonce]
        if landed:
            durability.settle(self._place.location, landed[0])
            return landed[0]
        if failure is None:
            raise Conflict("nothing was committed, because another job had made that version")
        if isinstance(failure, CONFLICTS):
            raise Conflict(cause_of(failure)) from failure
        raise failure

    def progress(self, application: str) -> tuple[int, Progress | None]:
        """Return the table's version and the progress, like `DeltaWriter.progress`. The progress is
        read from the notes of commits. If the commit with the progress is no longer in the history,
        the progress is None, and the caller computes the whole table again.
        """
        head = self.version()
        try:
            return head, stored(self._log, application, head)
        except HistoryGone:
            return head, None

    def version(self) -> int:
        head = self._log.head()
        return -1 if head is None else head

    def _nothing(self) -> DataFrame:
        return self._spark.createDataFrame([], self._table.read().schema)
