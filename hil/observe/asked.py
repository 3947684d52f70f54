"""Reads the tables as users do: by filter, by version, with another engine (DuckDB, where it is
installed). In: the folder of a Delta table. Out: in words, each query whose answer differs from the
content of the data files. A reader of all rows opens every file; a reader with a filter opens those
whose statistics in the log allow a match. Statistics that are too narrow therefore hide rows only
from a reader with a filter. A reader of changes leaves out files without `dataChange`.
"""

import json
import math
from collections.abc import Callable, Iterator
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
"""Number of newest files whose smallest and largest values are queried, and number of newest
versions that are compared with the version before them.
"""
WRITTEN_S = 60.0
"""Largest difference, in seconds, between a file's time in the log and on disk."""
ORDERED = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_timestamp)


def differences(folder: Path) -> Iterator[str]:
    """Yield a sentence for each query result that differs from the table's data files."""
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
        yield f"{folder.name} has {read.count_rows()} rows, but its files have {len(whole)}"
    newest = sorted(files, key=lambda rows: _newest_time(rows, "ingested"))[-MOST_FILES:]
    duckdb = _duckdb([str(folder / unquote(path)) for path in paths])
    for name in (name for name in read.schema.names if name in whole.column_names):
        for value in _ends(newest, name):
            wanted = pc.sum(pc.equal(whole[name], value)).as_py() or 0
            readers = {"a PyArrow filter": read.count_rows(filter=ds.field(name) == value)}
            readers |= {"DuckDB": duckdb(name, value.as_py())} if duckdb else {}
            for reader, found in readers.items():
                if found != wanted:
                    yield (
                        f"in {folder.name}, {reader} finds {found} rows where {name} is {value},"
                        f" but the files have {wanted}"
                    )
        nulls = read.count_rows(filter=ds.field(name).is_null())
        if nulls != whole[name].null_count:
            yield (
                f"in {folder.name}, a PyArrow filter finds {nulls} rows where {name} is NULL,"
                f" but the files have {whole[name].null_count}"
            )


def _duckdb(files: list[str]) -> Callable[[str, Any], int] | None:
    """Return a function that counts the rows with a value in a column; None without DuckDB."""
    try:
        import duckdb  # an extra
    except ImportError:
        return None
    engine = duckdb.connect(config={"threads": 1, "memory_limit": "256MB"})
    engine.execute("SET TimeZone = 'UTC'")

    def count_of(name: str, value: Any) -> int:
        query = f'SELECT count(*) FROM read_parquet(?, union_by_name = true) WHERE "{name}" = ?'  # noqa: S608
        return int((engine.execute(query, [files, value]).fetchone() or [0])[0])

    return count_of


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give rows the table's columns and types. Missing columns are null; times get a zone."""
    none = pa.nulls(len(rows))
    columns = [
        (rows[field.name] if field.name in rows.column_names else none).cast(field.type)
        for field in schema
    ]
    return pa.table(columns, schema)


def _missing(folder: Path, paths: list[str]) -> Iterator[str]:
    """Yield a sentence for each data file of the table that is missing."""
    for path in paths:
        if not (folder / unquote(path)).exists():
            yield f"{folder.name} names a file that does not exist: {path}"


def _miscounted(folder: Path, files: dict[str, pa.Table]) -> Iterator[str]:
    """Yield a sentence for each entry of the log that is wrong about a file: about its size, rows,
    NULLs or time, or about whether its rows are new. A file that replaces other files has no new
    rows.
    """
    for add, replaces in _added(folder):
        rows, stats = files.get(add["path"]), json.loads(add.get("stats") or "{}")
        if rows is None:
            continue
        file = (folder / unquote(add["path"])).stat()
        says = {"bytes": add["size"], "rows": stats.get("numRecords", len(rows))}
        is_ = {"bytes": file.st_size, "rows": len(rows)}
        for name, count in stats.get("nullCount", {}).items():
            if name in rows.column_names and isinstance(count, int):
                says[f"NULLs in {name}"] = count
                is_[f"NULLs in {name}"] = rows[name].null_count
        for kind, stated in says.items():
            if stated != is_[kind]:
                yield f"{folder.name} says that {add['path']} has {stated} {kind}, not {is_[kind]}"
        if not add["dataChange"] and not replaces:
            yield f"{folder.name} says that {add['path']} has no new rows, but the file has"
        if abs(add["modificationTime"] / 1000 - file.st_mtime) > WRITTEN_S:
            yield f"{folder.name} gives a wrong modification time of {add['path']}"


def _added(folder: Path) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield each file that a commit adds, and whether the commit replaces other files. Only commits
    that still exist are read.
    """
    for commit in sorted((folder / "_delta_log").glob("*[0-9].json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        replaces = any("remove" in action for action in actions)
        yield from ((action["add"], replaces) for action in actions if "add" in action)


def _ends(files: list[pa.Table], name: str) -> Iterator[pa.Scalar]:
    """Yield the lowest and highest values of a column in the files, if its type has an order."""
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
    """Yield a sentence for each of the last versions (MOST_FILES) that is unreadable, or has fewer
    rows than the version before it."""
    before = 0
    for version in range(max(0, newest - MOST_FILES), newest + 1):
        try:
            rows = DeltaTable(str(folder), version=version).count()
        except Exception as error:  # any error is the finding
            yield f"{folder.name} cannot be read as of version {version}: {error}"
            continue
        if rows < before:
            yield f"{folder.name} has {rows} rows in version {version}, but {before} before that"
        before = rows
