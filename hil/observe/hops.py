"""Looking at the hops behind the board: spool, landing place, table. Read only, and with other
means than the programs under test use where there are any (the table is read by delta-rs, not by
Spark).

In: a folder of the run. Out: publications seen since the last look, as events of the history, and
counts.
"""

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from hil.observe.history import History

LOCKED_TIMEOUT = 1.0  # s to wait for the gateway's writer
KEY = ("device", "incarnation", "sequence")


class SpoolHop:
    """Rows of the table `spool` in the gateway's database, and how many were ever committed and
    landed.
    """

    def __init__(self, database: Path, history: History) -> None:
        self._uri = f"{database.absolute().as_uri()}?mode=ro"
        self._history = history
        self._last = 0
        self.committed = 0
        self.landed = 0

    def look(self) -> None:
        """A database that is not there yet or that recovers just now is looked at next time."""
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(self._uri, uri=True, timeout=LOCKED_TIMEOUT)) as database,
        ):
            meta = dict(database.execute("SELECT key, value FROM meta"))
            origin = f"{meta['gateway']}/{meta['epoch']}"
            query = (
                "SELECT id, device, incarnation, sequence, payload FROM spool WHERE id > ? ORDER"
                " BY id"
            )
            for position, *key, payload in database.execute(query, (self._last,)):
                self._history.add(
                    "spool", "publication", **_sighting(key, origin, position, payload)
                )
                self._last = position
            self.committed = max(
                self.committed,
                self._last,
                *_first(database, "SELECT seq FROM sqlite_sequence WHERE name = 'spool'"),
            )
            [self.landed] = _first(
                database, "SELECT coalesce(sum(rows), 0) FROM batch WHERE landed NOT NULL"
            )

    def look_what_waits(self) -> None:
        """Enter what is in the spool still: the gateway owes it to the landing place."""
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(self._uri, uri=True, timeout=LOCKED_TIMEOUT)) as database,
        ):
            for key in database.execute("SELECT device, incarnation, sequence FROM spool"):
                self._history.add("spool", "waiting", **dict(zip(KEY, key, strict=True)))


class LandingHop:
    """Batches that a manifest has published at the landing place. One that is not what its manifest
    says holds no publication.
    """

    def __init__(self, folder: Path, history: History) -> None:
        self._folder = folder
        self._history = history
        self._seen: set[Path] = set()
        self.newest: dict[str, int] = {}
        """The last batch of each feed (`GATEWAY/EPOCH`)."""
        self._keys: dict[tuple[str, int], list[list[Any]]] = {}  # of each batch of each feed

    def look(self) -> None:
        for manifest in sorted(set(self._folder.glob("*/*/*.json")) - self._seen):
            origin = "/".join(manifest.parts[-3:-1])
            number = int(manifest.stem)
            for row in _whole_rows(manifest):
                key = [row[name] for name in KEY]
                self._keys.setdefault((origin, number), []).append(key)
                self._history.add(
                    "batch",
                    "publication",
                    **_sighting(key, origin, row["spool_id"], row["payload"]),
                    batch=number,
                )
            self.newest[origin] = max(number, self.newest.get(origin, 0))
            self._seen.add(manifest)

    def look_what_waits(self, taken: Mapping[str, int]) -> None:
        """Enter what the ingest has not taken yet. taken: the last batch that it has, by feed."""
        for (origin, number), keys in self._keys.items():
            if number > taken.get(origin, 0):
                for key in keys:
                    self._history.add("batch", "waiting", **dict(zip(KEY, key, strict=True)))


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
            sighting = _sighting(
                [row[name] for name in KEY], origin, row["spool_id"], row["payload"]
            )
            self._history.add(
                "table",
                "publication",
                t=_monotonic(written[row["__filename"]]),
                **sighting,
                batch=row["batch"],
            )


def _whole_rows(manifest: Path) -> list[dict[str, Any]]:
    """Of a batch whose hash is that of its manifest; of a damaged one none."""
    data = manifest.with_suffix(".parquet").read_bytes()
    if hashlib.sha256(data).hexdigest() != json.loads(manifest.read_bytes())["sha256"]:
        return []
    return list(
        pq.read_table(pa.BufferReader(data), columns=[*KEY, "spool_id", "payload"]).to_pylist()
    )


def _rows(table: DeltaTable) -> Iterator[dict[str, Any]]:
    columns = [*KEY, "gateway", "epoch", "spool_id", "payload", "batch", "__filename"]
    for batch in table.to_pyarrow_dataset().to_batches(columns=columns):
        yield from batch.to_pylist()


def _sighting(key: list[Any], origin: str, position: int, payload: bytes) -> dict[str, Any]:
    return {
        **dict(zip(KEY, key, strict=True)),
        "origin": origin,
        "position": position,
        "payload": payload.hex(),
    }


def _first(database: sqlite3.Connection, query: str) -> list[int]:
    return list(database.execute(query).fetchone() or [0])


def _monotonic(utc_ms: int) -> int:
    """Monotonic nanoseconds of a moment given as the system's UTC milliseconds."""
    return utc_ms * 1_000_000 - time.time_ns() + time.monotonic_ns()
