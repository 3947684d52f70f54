"""Durability of tables on a local disk: files are on disk before their commit, and the commit is on
disk before another step relies on it.

In: a table's folder, as Spark names it, and the written files. Out: fsync of files and folders.
Neither Spark nor Delta syncs files on a local disk. On other file systems the store is responsible,
and this module does nothing.

No step relied on a commit that a power cut interrupted, so the next start removes that commit. The
next start also removes a commit that the ingest has made by a Delta command, if the power cut has
lost files of the commit. Commits of other programs stay as they are, and so does a table's first
version.
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
"""Delta's commands that the ingest runs for `compact`, `release` and `expire`. They commit before
their files are on disk."""

log = logging.getLogger("onceway.ingest")


def settle(location: str, version: int) -> None:
    """Sync the commit `version`, and the files that it names, to the disk. Does nothing for a table
    that is not on a local disk. Raises OSError.
    """
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
    # a later vacuum may have deleted some files
    sync_all(table, (name for name in named if (table / name).exists()))
    written = [folder / f"{version:020d}.json", folder / f"{version:020d}.crc"]
    if (
        _checkpoint(folder) == version
    ):  # a checkpoint in the format V1 or V2; names in the format V2 have more parts
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
    """Sync the newest commit to the disk, like `settle`. Also sync the folder above the table's
    folder, because the commit may have created the table's folder.
    """
    newest = _newest(location)
    if newest is not None:
        settle(location, int(newest.stem))
        sync(newest.parents[2])


def has_commits(location: str) -> bool:
    """Whether the table is on a local disk and has commits. Only such a table can be damaged by a
    power cut.
    """
    return _newest(location) is not None


def take_back_torn(location: str) -> None:
    """If the newest commit, or a file that it adds, is incomplete, remove the commit from the log,
    unless a checkpoint contains it. If the commit is complete, sync it to the disk. Call this at a
    start, before the table is read, and while no other process writes.

    The writer of an incomplete commit has not relied on it, so nothing is lost. Raises OncewayError
    if the table's first commit is incomplete: then there is no table.
    """
    newest = _newest(location)
    if newest is None:
        return
    # Hadoop's checksum may be cut off too; without it, Hadoop compares nothing
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    text, version = newest.read_bytes(), int(newest.stem)
    if is_whole(text, version) and not _lacks_files(newest.parents[1], text, version):
        settle(location, version)
        return
    if any(newest.parent.glob(f"{newest.stem}.checkpoint*")):
        return  # it was complete when the checkpoint was made, and readers begin at the checkpoint
    if version == 0:
        raise OncewayError(
            "the commit that made the table was cut off, for example by a power cut",
            str(newest),
            "The table is empty: delete its folder and start again",
        )
    log.warning("%s was cut off, for example by a power cut: it is removed", newest)
    # Delta's checksums of that version would not fit the commit that replaces it
    for derived in (
        f"{newest.stem}.crc",
        f".{newest.stem}.crc.crc",
    ):
        newest.with_name(derived).unlink(missing_ok=True)
    newest.replace(newest.with_name(f".{newest.name}.torn"))
    sync(newest.parent)


def _lacks_files(table: Path, text: bytes, version: int) -> bool:
    """Whether a commit of the ingest lacks files, and can be removed. It lacks files if a file or
    deletion vector that it adds is incomplete. It can be removed if one of the ingest's Delta
    commands made it, and all files that it removes still exist. False for a commit that names a
    file outside the table's folder, as in a shallow clone.
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
    """Whether the deletion vector of an action is complete. True if the action has none."""
    return deletion_vectors.is_whole(table, named.get("deletionVector"))


def _is_parquet(path: Path, size: int) -> bool:
    """Whether a file has this size and ends with Parquet's magic bytes. A file that was not synced
    may be shorter, or end with zeros.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, size - len(PARQUET_END)))
            return file.read(len(PARQUET_END) + 1) == PARQUET_END
    except FileNotFoundError:
        return False


def _newest(location: str) -> Path | None:
    """Return the file of the newest commit of a local table. None if there is no commit, or the
    table is on another file system.
    """
    table = local_path(location)
    if table is None:
        return None
    log_folder = table / "_delta_log"
    version, found = _checkpoint(log_folder), None
    while (path := log_folder / f"{version:020d}.json").exists():
        found, version = path, version + 1
    return found or max(log_folder.glob("[0-9]*[0-9].json"), default=None)


def _checkpoint(log_folder: Path) -> int:
    """Return the version of the newest checkpoint; 0 if none is readable."""
    try:
        return int(json.loads((log_folder / "_last_checkpoint").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
