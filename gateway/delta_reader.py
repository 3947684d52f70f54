"""The ingest's Delta tables (`gateway/ingest/README.md`), read without Spark, by delta-rs.

In: a table's path or URL. Out: the rows of a statement, or of a key. Credentials of an object store
come from the environment, as delta-rs reads them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from gateway.errors import OncewayError


def location(table: str) -> str:
    """Spark writes s3a://, delta-rs and fsspec write s3://."""
    return table.replace("s3a://", "s3://", 1)


def query(table: str, sql: str) -> list[dict[str, Any]] | None:
    """Rows of a statement about the table `it`; None when there is no table. Raises OncewayError
    when it cannot be read.
    """
    try:
        delta = DeltaTable(location(table))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise OncewayError(f"cannot read the table: {str(error).splitlines()[0]}", table) from error
    rows: list[dict[str, Any]] = pa.table(
        QueryBuilder().register("it", delta).execute(sql)
    ).to_pylist()
    return rows


@dataclass(frozen=True, slots=True)
class Arrival:
    """A row of the table. written: when the file that holds it was written: at its arrival, or when
    the table was compacted since.
    """

    incarnation: int
    gateway: str
    epoch: str
    batch: int
    written: datetime


def arrivals(table: str, device: str, sequence: int) -> Iterator[Arrival]:
    """The rows of a key, whatever its incarnation. Raises OncewayError when there is no such
    table.
    """
    try:
        delta = DeltaTable(location(table))
        written = dict(_files(delta))
        key = [("device", "=", device), ("sequence", "=", sequence)]
        dataset = delta.to_pyarrow_dataset(file_pruning_predicate=key)
    except (DeltaError, OSError) as error:
        raise OncewayError(
            f"cannot look into the table: {str(error).splitlines()[0]}", table
        ) from error
    wanted = (ds.field("device") == device) & (ds.field("sequence") == sequence)
    for fragment in dataset.get_fragments(filter=wanted):
        rows = fragment.to_table(
            filter=wanted,
            columns=["incarnation", "gateway", "epoch", "batch"],
            schema=dataset.schema,
        ).to_pylist()
        for row in rows:
            yield Arrival(
                row["incarnation"],
                row["gateway"],
                row["epoch"],
                row["batch"],
                written[fragment.path.rsplit("/", 1)[-1]],
            )


def _files(delta: DeltaTable) -> Iterator[tuple[str, datetime]]:
    """File name → when it was written, for each file of the table."""
    actions = pa.table(delta.get_add_actions(flatten=True))
    for path, moment in zip(
        actions.column("path"), actions.column("modification_time"), strict=True
    ):
        yield (
            unquote(str(path.as_py())).rsplit("/", 1)[-1],
            datetime.fromtimestamp(moment.as_py() / 1000, UTC),
        )
