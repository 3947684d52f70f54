"""Reads the tables in the ways of their users: by filter, by version, with another engine. In: the
folder of a Delta table. Out: in words, each query whose answer differs from the content of the data
files. A reader of all rows opens every file; a reader with a filter opens those whose statistics in
the log allow a match. Statistics that are too narrow therefore hide rows only from the second
reader.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

MOST_FILES = 12
"""Number of newest files whose smallest and largest values are queried, in each column."""
ORDERED = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_timestamp)


def differences(folder: Path) -> Iterator[str]:
    """Yield each answer of the table that differs from its files; none without a table."""
    try:
        table = DeltaTable(str(folder))
    except TableNotFoundError:
        return
    paths = sorted(pa.table(table.get_add_actions())["path"].to_pylist())
    if missing := list(_missing(folder, paths)):
        yield from missing
        return
    yield from _shrunk(folder, table.version())
    files = [pq.read_table(folder / unquote(path), partitioning=None) for path in paths]
    if not files:
        return
    if wrong := list(_miscounted(folder, dict(zip(paths, files, strict=True)))):
        yield from wrong
        return
    read = table.to_pyarrow_dataset()
    files = [_typed(rows, read.schema) for rows in files]
    whole = pa.concat_tables(files)
    if read.count_rows() != len(whole):
        yield f"{folder.name} has {read.count_rows()} rows, and its files have {len(whole)}"
    newest = sorted(files, key=lambda rows: _newest_time(rows, "ingested"))[-MOST_FILES:]
    for name in (name for name in read.schema.names if name in whole.column_names):
        for value in _ends(newest, name):
            wanted = pc.sum(pc.equal(whole[name], value)).as_py() or 0
            found = read.count_rows(filter=ds.field(name) == value)
            if found != wanted:
                yield (
                    f"{folder.name} where {name} is {value}: {found} rows are found by filter,"
                    f" and {wanted} stand in its files"
                )
        nulls = read.count_rows(filter=ds.field(name).is_null())
        if nulls != whole[name].null_count:
            yield (
                f"{folder.name} where {name} is NULL: {nulls} rows are found by filter,"
                f" and {whole[name].null_count} stand in its files"
            )


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the table's types: Spark's times (INT96) have no time zone."""
    none = pa.nulls(len(rows))
    columns = [
        (rows[field.name] if field.name in rows.column_names else none).cast(field.type)
        for field in schema
    ]
    return pa.table(columns, schema)


def _missing(folder: Path, paths: list[str]) -> Iterator[str]:
    """Yield missing data files of the table."""
    for path in paths:
        if not (folder / unquote(path)).exists():
            yield f"{folder.name} names a file that is not there: {path}"


def _miscounted(folder: Path, files: dict[str, pa.Table]) -> Iterator[str]:
    """Yield entries of the log whose statistics or size are not those of the file."""
    for add in _added(folder):
        rows, stats = files.get(add["path"]), json.loads(add.get("stats") or "{}")
        if rows is None:
            continue
        size = (folder / unquote(add["path"])).stat().st_size
        if add["size"] != size:
            yield f"{folder.name} says that {add['path']} has {add['size']} bytes, not {size}"
        if stats.get("numRecords", len(rows)) != len(rows):
            stated = stats["numRecords"]
            yield f"{folder.name} says that {add['path']} has {stated} rows, not {len(rows)}"


def _added(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the files of the commits that still exist."""
    for commit in sorted((folder / "_delta_log").glob("*[0-9].json")):
        for line in commit.read_text().splitlines():
            if add := json.loads(line).get("add"):
                yield add


def _ends(files: list[pa.Table], name: str) -> Iterator[pa.Scalar]:
    """Yield the least and the greatest value of each file in a column with ordered values."""
    seen = set()
    for rows in files:
        if name not in rows.column_names or not any(is_(rows[name].type) for is_ in ORDERED):
            continue
        ends = pc.min_max(rows[name])
        for value in (ends["min"], ends["max"]):
            plain = value.as_py()
            nan = isinstance(plain, float) and math.isnan(plain)
            if plain is None or nan or plain in seen:
                continue
            seen.add(plain)
            yield value


def _newest_time(rows: pa.Table, name: str) -> Any:
    """Return the newest time of a column, in seconds since 1970; 0 without the column."""
    return pc.max(rows[name]).as_py().timestamp() if name in rows.column_names else 0


def _shrunk(folder: Path, newest: int) -> Iterator[str]:
    """Yield versions that have fewer rows than the previous version: a run deletes no rows."""
    before = 0
    for version in range(max(0, newest - MOST_FILES), newest + 1):
        try:
            rows = DeltaTable(str(folder), version=version).count()
        except Exception as error:  # any error is the finding
            yield f"{folder.name} cannot be read as of version {version}: {error}"
            continue
        if rows < before:
            yield f"{folder.name} has {rows} rows in version {version}, and had {before} before it"
        before = rows
