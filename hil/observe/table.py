"""Looking at the Delta table, read only, by delta-rs: the programs under test use Spark.

In: its folder. Out: all of its rows, as events of the history.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from hil.observe.history import History
from hil.observe.sighting import KEY, sighting


class TableHop:
    """The Delta table."""

    def __init__(self, folder: Path, history: History) -> None:
        self._folder = folder
        self._history = history

    def rows(self) -> int:
        """How many rows stand in it now; 0 while there is no table."""
        with suppress(DeltaError, OSError):
            return DeltaTable(str(self._folder)).count()
        return 0

    def read(self) -> None:
        """Enter every row in the history, at the time its file was committed. Without a table there
        are no rows.
        """
        try:
            table = DeltaTable(str(self._folder))
        except TableNotFoundError:
            return
        written = {
            action["path"]: action["modification_time"]
            for action in pa.table(table.get_add_actions(flatten=True)).to_pylist()
        }
        for row in _rows(table):
            origin = f"{row['gateway']}/{row['epoch']}"
            seen = sighting([row[name] for name in KEY], origin, row["spool_id"], row["payload"])
            self._history.add(
                "table",
                "publication",
                t=_monotonic(written[row["__filename"]]),
                **seen,
                batch=row["batch"],
            )


def _rows(table: DeltaTable) -> Iterator[dict[str, Any]]:
    columns = [*KEY, "gateway", "epoch", "spool_id", "payload", "batch", "__filename"]
    for batch in table.to_pyarrow_dataset().to_batches(columns=columns):
        yield from batch.to_pylist()


def _monotonic(utc_ms: int) -> int:
    """Monotonic nanoseconds of a moment given as the system's UTC milliseconds."""
    return utc_ms * 1_000_000 - time.time_ns() + time.monotonic_ns()
