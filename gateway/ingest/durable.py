"""Tables on a local disk outlive a power cut: what a commit names is on the disk before it, and the commit before anybody relies on it.

In: a table's folder, as Spark names it, and what was written there. Out: fsync of files and folders. Neither Spark nor Delta does that on a
local disk; elsewhere it is the store's affair, and nothing is done here.

A commit that the power cut off while it was written was never relied on, so the next start takes it back.
"""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gateway.sync import sync

log = logging.getLogger("onceway.ingest")


def local_path(location: str) -> Path | None:
    """The folder of a local table; None on other file systems. Spark names a folder as it is called: `#`, `?`, `%` stand for themselves."""
    if urlsplit(location).scheme not in ("", "file"):
        return None
    return Path(location.removeprefix("file:"))


def write(path: Path, data: bytes) -> None:
    """Put a file there, whole and at once, in place of what is there. Raises OSError."""
    hidden = path.with_name(f".{path.name}.new")
    hidden.write_bytes(data)
    sync(hidden)
    hidden.replace(path)
    sync(path.parent)


def settle_files(location: str, names: Iterable[str]) -> None:
    """Data files that a commit is about to name are on the disk when this returns."""
    table = local_path(location)
    if table is not None:
        _sync_all(table, names)


def settle(location: str, version: int) -> None:
    """A commit, and the files it names, are on the disk when this returns. Raises OSError."""
    table = local_path(location)
    if table is None:
        return
    folder = table / "_delta_log"
    actions = map(json.loads, (folder / f"{version:020d}.json").read_bytes().splitlines())
    named = (unquote(one["path"]) for action in actions if (one := action.get("add") or action.get("cdc")))
    _sync_all(table, (name for name in named if (table / name).exists()))  # a vacuum since then may have deleted some
    written = (f"{version:020d}.json", f"{version:020d}.crc", f"{version:020d}.checkpoint.parquet", "_last_checkpoint")
    _sync_all(folder, (name for each in written for name in (each, f".{each}.crc") if (folder / name).exists()))


def settle_newest(location: str) -> None:
    """The same for the newest commit, which may be the one that made the table."""
    newest = _newest(location)
    if newest is not None:
        settle(location, int(newest.stem))
        sync(newest.parents[2])


def take_back_torn(location: str) -> None:
    """Before a table is read at a start: a newest commit that is cut off is taken out of the log; a whole one is settled.

    Whoever wrote it has not gone on without it being on the disk, so nothing is lost. Nobody else may be writing.
    """
    newest = _newest(location)
    if newest is None:
        return
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum may be torn too; without it nothing is compared
    if _is_whole(newest):
        settle(location, int(newest.stem))
        return
    log.warning("%s was cut off, as by a power cut: it is taken back", newest)
    for derived in (f"{newest.stem}.crc", f".{newest.stem}.crc.crc"):  # Delta's sums of that version; they would not fit the next one
        newest.with_name(derived).unlink(missing_ok=True)
    newest.replace(newest.with_name(f".{newest.name}.torn"))
    sync(newest.parent)


def _sync_all(folder: Path, names: Iterable[str]) -> None:
    folders = {folder}
    for name in names:
        sync(folder / name)
        folders.add((folder / name).parent)
    for each in folders:
        sync(each)


def _newest(location: str) -> Path | None:
    """The file of the newest commit of a local table."""
    table = local_path(location)
    if table is None:
        return None
    log_folder = table / "_delta_log"
    try:
        version = int(json.loads((log_folder / "_last_checkpoint").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        version = 0
    found = None
    while (path := log_folder / f"{version:020d}.json").exists():
        found, version = path, version + 1
    return found or max(log_folder.glob("[0-9]*[0-9].json"), default=None)


def _is_whole(commit: Path) -> bool:
    """Whether each line of a commit is a JSON object, and the last one ends. An empty file is none."""
    text = commit.read_bytes()
    try:
        return bool(text) and all(isinstance(json.loads(line), dict) for line in text.splitlines())
    except ValueError:
        return False
