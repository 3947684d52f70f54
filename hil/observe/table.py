"""Observer of the Delta tables, read only, with delta-rs: the programs under test use Spark.

In: the folders of the tables. Out: all rows of the tables, as events of the history, and each
answer of a table that differs from its files (`asked.py`). Of each table, only the columns in the
lists below (`ROW`, `READING`, `QUARANTINE`, `CONFLICTS`) are read.

The time of a row is the file system's time of its data file. The table's own log is written by the
program under test, so its times are not used.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from hil.observe.asked import differences
from hil.observe.history import COLUMNS, KEY, READINGS, History, sighting

ORIGIN = ("gateway", "topic", "received")
ROW = (
    *KEY,
    *COLUMNS,
    "gateway",
    "epoch",
    "batch",
    "spool_id",
    "payload",
    "undecodable",
    "landed",
    "ingested",
)
TAKEN = ("landed", "ingested")
VALUE = ("value", "text", "flag", "data", "sum")
TIMES = ("time", "time_certainty", "time_stated")
READING = (*KEY, "position", "name", "unit", *VALUE, *TIMES, "quality", *ORIGIN)
QUARANTINE = ("gateway", "epoch", "batch", "url", "reason", "found", "released")
CONFLICTS = (*KEY, "topic", "payload", "received", "gateway", "epoch", "batch", "found")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TableHop:
    """The tables of publications and readings, and `quarantine` and `conflicts` beside them."""

    def __init__(self, publications: Path, readings: Path, history: History) -> None:
        self._publications = publications
        self._readings = readings
        self._history = history

    def rows(self) -> int:
        """Return the number of publications in the table now; 0 without a table."""
        return count(self._publications)

    def read(self) -> None:
        """Record each row, with the time of its file, and each query that contradicts the files."""
        for folder in (self._publications, self._readings):
            for text in differences(folder):
                self._history.add("table", "contradiction", text=text)
        for row, written in _rows(self._publications, ROW):
            for moment in ("received", *TAKEN):
                row[moment] = _us(row[moment])
            seen = sighting(row, f"{row['gateway']}/{row['epoch']}", batch=row["batch"])
            columns = {name: row[name] for name in ("undecodable", *TAKEN)}
            self._history.add("table", "publication", written, **seen, **columns)
        for row, written in _rows(self._readings, READING):
            row["index"] = row.pop("position")
            row["time"], row["received"] = _us(row["time"]), _us(row["received"])
            row["data"] = None if row["data"] is None else row["data"].hex()
            self._history.add(READINGS, "reading", written, **row)
        for row, written in _rows(self._beside("quarantine"), QUARANTINE):
            row["found"], row["released"] = _us(row["found"]), _us(row["released"])
            self._history.add("table", "quarantined", written, **row)
        for row, written in _rows(self._beside("conflicts"), CONFLICTS):
            row["payload"] = row["payload"].hex()
            row["received"], row["found"] = _us(row["received"]), _us(row["found"])
            self._history.add("table", "conflict", written, **row)

    def _beside(self, name: str) -> Path:
        return self._publications.with_name(f"{self._publications.name}_{name}")


def count(folder: Path) -> int:
    """Return the number of rows in a table now; 0 if there is no table."""
    with suppress(DeltaError, OSError):
        return DeltaTable(str(folder)).count()
    return 0


def _rows(folder: Path, columns: Sequence[str]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each row and the time of its file (monotonic ns); nothing if a file is missing."""
    try:
        table = DeltaTable(str(folder))
    except TableNotFoundError:
        return
    files = {
        path: folder / unquote(path)
        for path in pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    }
    if not all(file.exists() for file in files.values()):
        return  # reported by `differences`
    written = {path: _monotonic(file.stat().st_mtime_ns) for path, file in files.items()}
    dataset = table.to_pyarrow_dataset()
    for batch in dataset.to_batches(columns=[*columns, "__filename"]):
        for row in batch.to_pylist():
            yield row, written[row.pop("__filename")]


def _us(moment: datetime | None) -> int | None:
    """Return a moment as µs since 1970, without rounding; None for None."""
    return None if moment is None else (moment - EPOCH) // timedelta(microseconds=1)


def _monotonic(utc_ns: int) -> int:
    """Return the monotonic nanoseconds of a past moment of this machine's wall clock."""
    return min(utc_ns - time.time_ns(), 0) + time.monotonic_ns()
