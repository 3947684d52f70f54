"""The report's access to the tables, without Spark.

In: the path or URL of `publications`. Out: rows by feed, batches in quarantine, and the files of
the folder `_onceway`.
"""

import re
from collections import Counter

from gateway.errors import OncewayError
from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.taken import Feeds, Taken
from gateway.ingest.delta import connection
from gateway.ingest.delta.commits import LOOK_BACK, CommitLog
from gateway.ingest.delta.tables import SIGNED, sibling_table
from gateway.uplink.delta_reader import location, opened, query

_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")

CATALOG_HINT = "Catalog names are not known here: give the table's path or URL."


class TableFolder:
    """A folder inside a table's folder, read by fsspec (`delta.storage` reads it by Spark). Raises
    OncewayError if it cannot be read.
    """

    def __init__(self, table: str, name: str = snapshot.FOLDER) -> None:
        self._root = f"{location(table).rstrip('/')}/{name}"

    def __str__(self) -> str:
        return self._root

    def read(self, name: str) -> bytes | None:
        try:
            return connection.ask(f"{self._root}/{name}", lambda fs, path: bytes(fs.cat_file(path)))
        except FileNotFoundError:
            return None
        except OSError as error:
            text = f"cannot read this file ({error})"
            raise OncewayError(text, f"{self._root}/{name}") from error

    def has(self, name: str) -> bool:
        return connection.ask(f"{self._root}/{name}", lambda fs, path: bool(fs.exists(path)))

    def names(self) -> list[str]:
        try:
            found = connection.ask(self._root, lambda fs, path: list(fs.ls(path, detail=False)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise OncewayError(f"cannot read this folder ({error})", self._root) from error
        return sorted(
            name
            for name in (str(path).rsplit("/", 1)[-1] for path in found)
            if not name.startswith(".")
        )


def rows_by_feed(table: str) -> tuple[Counter[str], dict[str, int]]:
    """Return the number of rows in the table, by feed, and the number of the newest batch, by feed.
    Raises OncewayError if there is no such table.
    """
    rows: Counter[str] = Counter()
    newest: dict[str, int] = {}
    counted = query(
        table,
        "SELECT gateway, epoch, count(*) AS rows, max(batch) AS batch FROM it GROUP BY gateway,"
        " epoch",
    )
    if counted is None:
        raise OncewayError(
            "there is no such table",
            table,
            CATALOG_HINT,
        )
    for row in counted:
        feed = f"{row['gateway']}/{row['epoch']}"
        rows[feed], newest[feed] = row["rows"], row["batch"] or 0
    return rows, newest


def in_quarantine(table: str) -> list[tuple[str, int]]:
    """Return (feed, number) of the batches in quarantine."""
    found = query(
        sibling_table(table, "quarantine"),
        "SELECT gateway, epoch, batch FROM it WHERE released IS NULL",
    )
    return [(f"{row['gateway']}/{row['epoch']}", row["batch"]) for row in found or []]


def conflicts(table: str) -> int:
    """Return the number of payload conflicts."""
    found = query(sibling_table(table, "conflicts"), "SELECT count(*) AS rows FROM it")
    return int(found[0]["rows"]) if found else 0


def wants_signatures(table: str) -> bool:
    """Whether the table requires signed batches. Only tables of old versions of Onceway do not.
    Raises OncewayError if there is no such table, or if its log cannot be read.
    """
    if query(table, "SELECT 1 FROM it LIMIT 0") is None:
        raise OncewayError("there is no such table", table, CATALOG_HINT)
    return SIGNED in opened(table).metadata().configuration


def progress_of_feeds(table: str) -> Feeds:
    """Return the progress of each feed, from the table's commits. Raises OncewayError if there is
    no such table, or if a commit is damaged.
    """
    log = CommitLog(TableFolder(table, "_delta_log"))
    found = Taken(log, lambda version: rows_by_feed(table)[1])
    head = log.head()
    if head is None:
        raise OncewayError("there is no such table", table, CATALOG_HINT)
    try:
        found.load(head)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OncewayError(f"the table's log is damaged ({error})", table) from error
    return found.feeds


def log_gap(table: str, head: int) -> str | None:
    """Return a sentence about the first version up to `head` that is missing in the table's log
    after the newest checkpoint; None if none is missing. The log is listed only if one of its last
    LOOK_BACK versions is missing, because a listing takes long on an object store.
    """
    log = TableFolder(table, "_delta_log")
    found = re.search(rb'"version": *(\d+)', log.read("_last_checkpoint") or b"")
    first = max(int(found[1]) + 1 if found else 0, head - LOOK_BACK + 1)
    if all(log.has(f"{version:020d}.json") for version in range(first, head + 1)):
        return None
    names = log.names()
    versions = {int(one[1]) for name in names if (one := _VERSION.fullmatch(name))}
    checkpoints = [int(one[1]) for name in names if (one := _CHECKPOINT.fullmatch(name))]
    lacking = set(range(max(checkpoints, default=-1) + 1, head + 1)) - versions
    return f"version {min(lacking)} is missing in its log" if lacking else None
