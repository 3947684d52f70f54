"""Snapshots of two things: the ranges of sequences in the table (the seen ranges), and the keys of
expired rows. With a snapshot, a start need not read the keys of the whole table.

In: ranges, and the table version that they cover. Out: Parquet files in the table's folder
`_onceway`, named by that version: `seen-…` and `gone-…`. `seen-…` is a cache: if it is lost or
cannot be written, the next start is only slower. `gone-…` is the only record of the keys of expired
rows.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError

from gateway.errors import OncewayError
from gateway.ingest.dedup.ranges import Ranges, SeenRanges
from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.storage import Folder, Readable

FOLDER = "_onceway"
KEPT = 2

AT_ONCE = 50_000
"""Number of ranges that are decoded together. Each takes a few hundred bytes of memory
meanwhile.
"""

_READS = 20
"""Number of attempts to read the keys of deleted rows while another process replaces their file."""

log = logging.getLogger("onceway.ingest")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A saved set of ranges. covers: table version. table: id of the table; if it differs, another
    table is in the folder now. mark: mark of the table's log at version `covers`
    (`CommitLog.mark`); if it differs, an older copy of the table is in the folder now.
    """

    ranges: SeenRanges
    covers: int
    table: str
    mark: str = ""


def encode(snapshot: Snapshot) -> bytes:
    labels = {"covers": str(snapshot.covers), "table": snapshot.table, "mark": snapshot.mark}
    table = snapshot.ranges.as_ranges().table().replace_schema_metadata(labels)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def decode(data: bytes) -> Snapshot:
    """Return the snapshot in a file's bytes. Raises ValueError or KeyError (including pyarrow's
    errors) if the file is damaged or incomplete.
    """
    table = pq.read_table(pa.BufferReader(data))
    labels = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    ranges = SeenRanges()
    for some in table.to_batches(max_chunksize=AT_ONCE):
        ranges.add(Ranges.of(some))
    covers = int(labels["covers"])
    mark = labels.get("mark") or f"{covers} "  # older versions of Onceway stored none
    return Snapshot(ranges, covers, labels["table"], mark)


def save(folder: Folder, snapshot: Snapshot) -> None:
    """Save a snapshot, and delete old ones. A failure is only logged.

    Snapshots of later versions are deleted, too: they describe the table before it was restored to
    an older version.
    """
    newest = f"seen-{snapshot.covers:020d}.parquet"
    try:
        folder.write(newest, encode(snapshot))
        names = _names(folder)
        older = [name for name in names if name < newest]
        for old in [*older[: 1 - KEPT], *names[len(older) + 1 :]]:
            folder.delete(old)
    except (Py4JError, OSError) as error:
        log.warning(
            "the snapshot of seen ranges was not saved in %s: %s",
            folder,
            cause_of(error),
        )


def load(
    folder: Readable, table: str, fits: Callable[[Snapshot], bool] = lambda _: True
) -> Snapshot | None:
    """Return the newest complete snapshot of this table for which `fits` returns true, or None."""
    for name in reversed(_names(folder)):
        try:
            found = decode(folder.read(name) or b"")
        except (Py4JError, ValueError, KeyError, OSError) as error:
            log.warning("the snapshot %s/%s is not used: %s", folder, name, cause_of(error))
            continue
        if found.table == table and fits(found):
            return found
    return None


def keep_gone(folder: Folder, ranges: SeenRanges, covers: int, table: str) -> None:
    """Save the keys of the rows that are about to be deleted (`ranges`), together with all keys
    that were saved before. covers: version of the table. Raises the file system's errors. After an
    error, do not delete the rows.
    """
    before = _names(folder, "gone-")
    merged = deleted_keys(folder, table)
    merged.add(ranges.as_ranges())
    name = f"gone-{covers:020d}.parquet"
    folder.write(name, encode(Snapshot(merged, covers, table)))
    for old in before:
        if old != name:
            folder.delete(old)


def deleted_keys(folder: Readable, table: str) -> SeenRanges:
    """Return the saved keys of deleted rows of the table with this id; empty if there are none.
    Raises OncewayError if their file is damaged.
    """
    for _ in range(_READS):
        ranges = SeenRanges()
        missing = ""
        for name in _names(folder, "gone-"):
            try:
                data = folder.read(name)
                if data is None:  # `keep_gone` of another process has replaced the file
                    missing = name
                    break
                found = decode(data)
            except (Py4JError, ValueError, KeyError, OSError) as error:
                raise _unreadable(folder, name) from error
            if found.table == table:
                ranges.add(found.ranges.as_ranges())
        if not missing:
            return ranges
    raise _unreadable(folder, missing)


def _unreadable(folder: Readable, name: str) -> OncewayError:
    hint = "Restore the file from a backup. Without it, deleted rows may be added again."
    return OncewayError("the keys of deleted rows cannot be read", f"{folder}/{name}", hint)


def _names(folder: Readable, start: str = "seen-") -> list[str]:
    return [name for name in folder.names() if name.startswith(start)]
