"""The ingest's Delta tables (`gateway/ingest/README.md`), read without Spark, by delta-rs.

In: a table's path or URL. Out: the rows of a query, or of a key. delta-rs takes credentials of an
object store from the environment.
"""

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, __version__
from deltalake.exceptions import DeltaError, TableNotFoundError

from gateway.errors import OncewayError

_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|\\")
"""Pattern of the parts of a table's path that delta-rs decodes: `%20` becomes a space."""

_UNSUPPORTED = re.compile("((Kernel error|External error|Transaction failed): )*Unsupported[: ]")

REASON_LIMIT = 400
"""Number of characters after which a message of delta-rs is cut."""


def location(table: str) -> str:
    """Return the table's place for fsspec and delta-rs: Spark's s3a:// becomes s3://, and a file://
    URL becomes a plain path.
    """
    path = table.removeprefix("file://").removeprefix("file:")
    return path if "://" not in path else path.replace("s3a://", "s3://", 1)


def opened(table: str) -> DeltaTable:
    """Return the table, opened by delta-rs. Raises the errors of delta-rs."""
    place = location(table)
    is_misread = "://" not in place and _MISREAD.search(place) and os.path.isdir(place)
    return DeltaTable(_called_otherwise(place) if is_misread else place)


def _called_otherwise(folder: str) -> str:
    """Return a new folder whose name delta-rs reads correctly. It contains links to everything in
    `folder`.
    """
    links = tempfile.mkdtemp(prefix="onceway-")
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    for name in os.listdir(folder):
        os.symlink(os.path.abspath(os.path.join(folder, name)), os.path.join(links, name))
    return links


def query(table: str, sql: str) -> list[dict[str, Any]] | None:
    """Return the rows of an SQL query, in which the table is called `it`. None if there is no
    table. Raises OncewayError if the table is unreadable.
    """
    try:
        builder = QueryBuilder().register("it", opened(table))
        rows: list[dict[str, Any]] = pa.table(builder.execute(sql)).to_pylist()
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, pa.ArrowException) as error:
        text, hint = reason(error), None
        if unsupported(text):
            hint = (
                f"deltalake {__version__} does not support a feature of the table:"
                " use Spark to query it"
            )
        elif "s3a://" in text:
            hint = (
                "deltalake does not find the files of a shallow clone on S3: use Spark to query it"
            )
        elif "No field named" in text:
            hint = "Is it a table of the ingest?"
        raise OncewayError(f"cannot read the table: {text}", table, hint) from error
    return rows


def reason(error: Exception) -> str:
    """Return the text of a delta-rs error as one plain line, without colours and without
    its stack.
    """
    plain = re.sub(r"\x1b\[[0-9]*m", "", str(error))
    lines = re.split(r"\n\s*0: <unknown>", plain)[0].splitlines()
    return ": ".join(line.strip(" ↳") for line in lines if line.strip())[:REASON_LIMIT]


def unsupported(text: str) -> bool:
    """Whether a `reason` says that the table has a feature or a protocol that deltalake does not
    know. The table is sound then. deltalake has no error class of its own for it.
    """
    return _UNSUPPORTED.match(text) is not None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A row of the table `publications`. written: when the ingest read the row; for a row of an
    older version of Onceway, time of the table's newest file.
    """

    incarnation: int
    gateway: str
    epoch: str
    batch: int
    written: datetime


def arrivals(table: str, device: str, sequence: int) -> Iterator[Arrival]:
    """Yield the rows that have this device and sequence, in any incarnation. Only files whose
    statistics allow such a row are read. Raises OncewayError if there is no such table.
    """
    name = device.replace("'", "''")
    where = f"device = '{name}' AND sequence = {int(sequence)}"
    rows = query(table, f"SELECT * FROM it WHERE {where}")  # noqa: S608 - quoted above
    if rows is None:
        raise OncewayError("there is no such table", table)
    for row in rows:
        yield Arrival(
            row["incarnation"],
            row["gateway"],
            row["epoch"],
            row["batch"],
            row.get("ingested") or _newest_file(table),
        )


@dataclass(frozen=True, slots=True)
class PayloadConflict:
    """A row of the table `…_conflicts`: a payload conflict. found: time of its detection."""

    incarnation: int
    gateway: str
    epoch: str
    batch: int
    payload: bytes
    found: datetime


def payload_conflicts(table: str, device: str, sequence: int) -> Iterator[PayloadConflict]:
    """Yield the payload conflicts that have this device and sequence, in any incarnation."""
    name = device.replace("'", "''")
    where = f"device = '{name}' AND sequence = {int(sequence)}"
    statement = f"SELECT * FROM it WHERE {where} ORDER BY found"  # noqa: S608 - quoted above
    for row in query(f"{table.rstrip('/')}_conflicts", statement) or []:
        yield PayloadConflict(
            row["incarnation"],
            row["gateway"],
            row["epoch"],
            row["batch"],
            row["payload"],
            row["found"],
        )


def quarantined(table: str, gateway: str, epoch: str, batch: int) -> tuple[datetime, str] | None:
    """Return the time at which a batch was put into the table `…_quarantine`, and the reason. None
    if it is not in this table, or was released.
    """
    statement = f"SELECT * FROM it WHERE batch = {int(batch)}"  # noqa: S608 - a number
    for row in query(f"{table.rstrip('/')}_quarantine", statement) or []:
        if (row["gateway"], row["epoch"], row["released"]) == (gateway, epoch, None):
            return row["found"], row["reason"]
    return None


def _newest_file(table: str) -> datetime:
    actions = pa.table(opened(table).get_add_actions(flatten=True))
    times = actions.column("modification_time").to_pylist()
    return datetime.fromtimestamp(max(times) / 1000, UTC)
