"""Health of each table that users query, from its log and its folder, without Spark.

In: the path or URL of `publications`. Out: for each existing table its number of rows, and its
fault, if any. Faults are: the table is unreadable, one of its files is missing or incomplete, or it
lacks rows of `publications` for too long. A running stream may be ten minutes late with `readings`;
`summarise` may be two days late with its tables.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError

from gateway.ingest.delta import connection
from gateway.ingest.delta.commits import LOOK_BACK, CommitLog, HistoryGone, stored
from gateway.ingest.delta.tables import sibling_table
from gateway.ingest.payload.version import application_id
from gateway.ingest.report.tables import TableFolder, log_gap
from gateway.system.amounts import amount
from gateway.uplink.delta_reader import location, opened, query, reason

SUFFIXES = ("", "readings", "devices", "quality", "quarantine", "conflicts")
"""Suffixes of the tables; the empty suffix is that of `publications`."""

TOGETHER_S = 600.0
"""Longest time, in seconds, from a commit to `publications` until a running stream has added the
readings of this commit.
"""

SUMMARISED = ("devices", "quality")
"""Suffixes of the tables that `onceway ingest summarise` makes."""

STALE_S = 172_800.0
"""Seconds after a commit to `publications` within which `summarise` has to update its tables.
Later, the report contains a problem.
"""

_WHOLE_URL = re.compile(r"/|[a-z][a-z0-9+.-]*:")
"""Pattern that matches the beginning of a URL or an absolute path. All other paths in the log are
relative to the table's folder.
"""


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The state of one table. rows: number of rows; None if they cannot be counted. flaw: its
    fault, or None.
    """

    name: str
    rows: int | None
    flaw: str | None = None


def look(table: str, running: bool) -> list[TableHealth]:
    """Return the state of each existing table, and of the table `readings` even if it does not
    exist. running: whether the stream runs now.
    """
    names = [sibling_table(table, suffix) if suffix else table.rstrip("/") for suffix in SUFFIXES]
    found = [_look(name) for name in names]
    for place, suffix in enumerate(SUFFIXES):
        one = found[place]
        if one is not None and one.flaw is None and suffix in SUMMARISED:
            flaw = _flaw_of(partial(_stale, table, one.name, suffix))
            found[place] = TableHealth(one.name, one.rows, flaw)
    readings = next((one for one in found if one is not None and one.name == names[1]), None)
    if readings is None:
        lacking = TableHealth(
            names[1], None, "there is no such table: the next start of the ingest creates it"
        )
        return [lacking, *(one for one in found if one is not None)]
    if readings.flaw is None:
        flaw = _flaw_of(lambda: _behind(table, names[1], running))
        found[1] = TableHealth(readings.name, readings.rows, flaw)
    return [one for one in found if one is not None]


def _look(name: str) -> TableHealth | None:
    rows: int | None = None

    def question() -> str | None:
        nonlocal rows
        if (found := damage(name)) is not None:
            return found
        counted = query(name, "SELECT count(*) AS rows FROM it")
        rows = int(counted[0]["rows"]) if counted else None
        return None

    try:
        opened(name)
    except TableNotFoundError:
        if not _has_log(name):
            return None
    except Exception:  # `_flaw_of` reports why
        rows = None
    flaw = _flaw_of(question)
    return TableHealth(name, rows, flaw)


def _flaw_of(question: Callable[[], str | None]) -> str | None:
    """Return the answer of `question`. If `question` raises an error, return the error's text
    instead. Any kind of error counts, because Delta's reader raises many.
    """
    try:
        return question()
    except Exception as error:
        text = getattr(error, "what", None) or reason(error)
        return " ".join(text.split())[:300] or type(error).__name__


def _has_log(name: str) -> bool:
    log = f"{location(name)}/_delta_log"
    return connection.ask(log, lambda fs, path: bool(fs.exists(path)))


def damage(name: str) -> str | None:
    """Return a sentence about the first damage that is found in a table: a missing version of its
    log, a missing file, or a file of the wrong size. None if none is found.
    """
    table = opened(name)
    if (gap := log_gap(name, table.version())) is not None:
        return gap
    actions = pa.table(table.get_add_actions(flatten=True))
    # the log quotes paths; a whole URL is a file of another table
    paths = [unquote(path) for path in actions["path"].to_pylist()]
    depth = None if any("/" in path for path in paths) else 1
    sizes = connection.ask(location(name), partial(_sizes, depth))
    for path, size in zip(paths, actions["size_bytes"].to_pylist(), strict=True):
        if _WHOLE_URL.match(path):
            continue
        if path not in sizes:
            return f"its file {path} is missing"
        if sizes[path] != size:
            return f"its file {path} has {sizes[path]} bytes instead of {size}"
    return None


def _sizes(depth: int | None, fs: Any, root: str) -> dict[str, int]:
    """Return the size, in bytes, of each file below a folder, by its path in the folder. depth:
    number of levels to search; None: all levels, for a partitioned table.
    """
    begin = len(root.rstrip("/")) + 1
    found = fs.find(root, maxdepth=depth, detail=True)
    return {str(path)[begin:]: entry["size"] for path, entry in found.items()}


def _behind(table: str, readings: str, running: bool) -> str | None:
    """Return a sentence about the rows of `publications` that `readings` lacks. None if it has all
    rows, or if a running stream may still add them in time.
    """
    covers = _covers(readings, application_id(str(opened(table).metadata().id)))
    log = CommitLog(TableFolder(table, "_delta_log"))
    lacking = [
        commit.version
        for commit in log.after(-1 if covers is None else covers)
        if commit.changes_data
    ]
    if not lacking:
        return None
    written = _written(log, lacking[0])
    if running and time.time() - written < TOGETHER_S:
        return None
    return (
        f"it lacks the publications of {amount(len(lacking), 'commit')}, beginning with version"
        f" {lacking[0]} of {_text(written)}: the next start of the ingest adds them"
    )


def _stale(table: str, name: str, contents: str) -> str | None:
    """Return a sentence about the publications that a table of `summarise` lacks. None if the table
    lacks none, has lacked them for less than STALE_S, or stores no progress.
    """
    log = CommitLog(TableFolder(name, "_delta_log"))
    head = log.head() or 0
    commits = (log.read(version) for version in range(head, max(-1, head - LOOK_BACK), -1))
    begin, end = f"onceway/{contents}-", f"/{opened(table).metadata().id}"
    covers = next(
        (
            number
            for commit in commits
            if commit is not None
            for application, number in commit.progress.items()
            if application.startswith(begin) and application.endswith(end)
        ),
        None,
    )
    log = CommitLog(TableFolder(table, "_delta_log"))
    first = None if covers is None else next(log.after(covers), None)
    if first is None or time.time() - (written := _written(log, first.version)) < STALE_S:
        return None
    return (
        f"it lacks readings since {_text(written)}: does `onceway ingest summarise` run once an"
        " hour?"
    )


def _text(moment: float) -> str:
    """Return a time, given in seconds since 1970, as text in UTC."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(moment))} UTC"


def _covers(readings: str, application: str) -> int | None:
    """Return the version of `publications` up to which the table of readings has all readings; None
    if no version is stored.
    """
    log = CommitLog(TableFolder(readings, "_delta_log"))
    try:
        found = stored(log, application, log.head() or 0)
    except HistoryGone:  # Delta's checkpoint has it, unless the table was made again
        return opened(readings).transaction_version(application)
    return None if found is None else found.covers


def _written(log: CommitLog, version: int) -> float:
    """Return when a version was written, in seconds since 1970; 0 if unknown."""
    for line in (log.folder.read(f"{version:020d}.json") or b"").splitlines():
        info = json.loads(line).get("commitInfo") or {}
        if "timestamp" in info:
            return float(info["timestamp"]) / 1000
    return 0.0
