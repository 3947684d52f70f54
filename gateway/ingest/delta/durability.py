"""Tables on a local disk outlive a power cut: what a commit names is on the disk before it, and the
commit before anybody relies on it.

In: a table's folder, as Spark names it, and what was written there. Out: fsync of files and
folders. Neither Spark nor Delta does that on a local disk; elsewhere it is the store's affair, and
nothing is done here.

A commit that the power cut off while it was written was never relied on, so the next start takes it
back. The same goes for a commit of those of Delta's commands that the ingest runs, when the power
cut off its files. What anybody else commits is left as it is, and so is a table's first version.
"""

import json
import logging
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gateway.errors import OncewayError
from gateway.ingest.delta import deletion_vectors
from gateway.ingest.delta.commits import ACTIONS, is_whole, parse
from gateway.ingest.delta.local_disk import local_path, sync_all
from gateway.system.sync import sync

PARQUET_END = b"PAR1"

OUR_COMMANDS = frozenset({"OPTIMIZE", "MERGE", "DELETE"})
"""Delta's commands that the ingest runs for `compact`, `release` and `expire`. They commit files
before these are on the disk.
"""

log = logging.getLogger("onceway.ingest")


def settle(location: str, version: int) -> None:
    """A commit, and the files it names, are on the disk when this returns. Raises OSError."""
    table = local_path(location)
    if table is None:
        return
    folder = table / "_delta_log"
    actions = map(json.loads, (folder / f"{version:020d}.json").read_bytes().splitlines())
    added = [one for action in actions if (one := action.get("add") or action.get("cdc"))]
    vectors = {
        name
        for one in added
        if (name := deletion_vectors.file_of(one.get("deletionVector"))) is not None
    }
    named = chain((unquote(one["path"]) for one in added), vectors)
    # a vacuum since then may have deleted some
    sync_all(table, (name for name in named if (table / name).exists()))
    written = [folder / f"{version:020d}.json", folder / f"{version:020d}.crc"]
    if _checkpoint(folder) == version:  # of version 1 or 2: the latter has more parts
        written += [
            *folder.glob(f"{version:020d}.checkpoint*"),
            *folder.glob(f"_sidecars/{version:020d}.checkpoint*"),
            folder / "_last_checkpoint",
        ]
    sync_all(
        folder,
        (
            str(path)
            for each in written
            for path in (each, each.with_name(f".{each.name}.crc"))
            if path.exists()
        ),
    )


def settle_newest(location: str) -> None:
    """The same for the newest commit, which may be the one that made the table."""
    newest = _newest(location)
    if newest is not None:
        settle(location, int(newest.stem))
        sync(newest.parents[2])


def has_commits(location: str) -> bool:
    """Whether there is a table that a power cut may have hit."""
    return _newest(location) is not None


def take_back_torn(location: str) -> None:
    """Before a table is read at a start: a newest commit that is not whole on the disk is taken out
    of the log; a whole one is settled.

    Whoever wrote it has not gone on without it being on the disk, so nothing is lost. Nobody else
    may be writing. Raises OncewayError when the first version was cut off: then there is no table.
    """
    newest = _newest(location)
    if newest is None:
        return
    # Hadoop's checksum may be torn too; without it nothing is compared
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    text, version = newest.read_bytes(), int(newest.stem)
    if is_whole(text, version) and not _lacks_files(newest.parents[1], text, version):
        settle(location, version)
        return
    if any(newest.parent.glob(f"{newest.stem}.checkpoint*")):
        return  # it was whole when that was made of it, and readers begin there
    if version == 0:
        raise OncewayError(
            "the commit that made the table was cut off, as by a power cut",
            str(newest),
            "There is nothing in the table: delete its folder and start again",
        )
    log.warning("%s was cut off, as by a power cut: it is taken back", newest)
    # Delta's sums of that version; they would not fit the next one
    for derived in (
        f"{newest.stem}.crc",
        f".{newest.stem}.crc.crc",
    ):
        newest.with_name(derived).unlink(missing_ok=True)
    newest.replace(newest.with_name(f".{newest.name}.torn"))
    sync(newest.parent)


def _lacks_files(table: Path, text: bytes, version: int) -> bool:
    """Whether a file or a deletion vector that one of our commands adds is not whole, while all
    that it removes are still there: they stay for a week.

    A file outside the table's folder, as in a shallow clone, is nothing that a command of ours
    added, and its commit is left as it is.
    """
    commit = parse(text, version)
    overwritten = any(name.startswith("onceway/") for name in commit.progress)
    if ACTIONS in commit.note or not (commit.operation in OUR_COMMANDS or overwritten):
        return False
    actions = [json.loads(line) for line in text.splitlines()]
    added = [action["add"] for action in actions if "add" in action]
    removed = [action["remove"] for action in actions if "remove" in action]
    if any(urlsplit(one["path"]).scheme or one["path"].startswith("/") for one in added):
        return False
    lacks_added = not all(
        _is_parquet(table / unquote(one["path"]), one["size"]) and _has_vector(table, one)
        for one in added
    )
    return lacks_added and all(
        (table / unquote(one["path"])).exists() and _has_vector(table, one) for one in removed
    )


def _has_vector(table: Path, named: dict[str, Any]) -> bool:
    """Whether the deletion vector that an action names with its file, if any, is whole."""
    return deletion_vectors.is_whole(table, named.get("deletionVector"))


def _is_parquet(path: Path, size: int) -> bool:
    """Whether a file has that size, and the mark at its end, where a file that did not come to the
    disk has nothing or zeros.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, size - len(PARQUET_END)))
            return file.read(len(PARQUET_END) + 1) == PARQUET_END
    except FileNotFoundError:
        return False


def _newest(location: str) -> Path | None:
    """The file of the newest commit of a local table."""
    table = local_path(location)
    if table is None:
        return None
    log_folder = table / "_delta_log"
    version, found = _checkpoint(log_folder), None
    while (path := log_folder / f"{version:020d}.json").exists():
        found, version = path, version + 1
    return found or max(log_folder.glob("[0-9]*[0-9].json"), default=None)


def _checkpoint(log_folder: Path) -> int:
    """The version of which the newest checkpoint was made; 0 when there is none that one can
    read.
    """
    try:
        return int(json.loads((log_folder / "_last_checkpoint").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
