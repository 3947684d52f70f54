"""Spark's checkpoint: a cache of each feed's progress, which the table itself stores.

In: the checkpoint's folder, and the progress in the table. Out: a checkpoint that fits the table
and is readable for Spark. A checkpoint that does not fit is renamed, and the stream begins at the
table's progress.

A checkpoint does not fit if the table was deleted, restored, taken from a backup, or replaced. It
does not fit either if a power cut left one of its files incomplete, because Spark does not sync its
files. So all files that Spark reads at a start are read here first, through the same file system.
This file system compares checksums (`.NAME.crc`) if there are any. The checkpoint of another stream
is refused, and stays as it is.
"""

import json
import logging
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from gateway.errors import OncewayError
from gateway.ingest.dedup.taken import Feeds
from gateway.ingest.delta.local_disk import local_path
from gateway.ingest.delta.storage import HadoopFolder, open_folder
from gateway.system.gateway_name import shown

LINES = 3
"""Number of lines of a file in the offset log: a version, metadata of the micro-batch, and the
offset.
"""

SHOWN = 5
"""Largest number of feeds that a message names."""

OFFSETS, COMMITS, METADATA = "offsets", "commits", "metadata"
"""Names of Spark's log of begun micro-batches, of its log of finished ones, and of its file about
the stream.
"""

FOLDERS = (OFFSETS, COMMITS, "sources", "state")
"""Folders that Spark creates. The last two may be empty, because the ingest's source and sink store
nothing there.
"""

OWN_FOLDER = "Give the ingest a folder of its own with --checkpoint"

_VERSION = re.compile(rb"v\d+")
_FEED = re.compile(r"[^/]+/[0-9a-f]{8}")

log = logging.getLogger("onceway.ingest")


class Torn(Exception):
    """Error for a file of the checkpoint that is damaged or missing, or that Spark could
    not write.
    """


def refuse_foreign(spark: SparkSession, url: str) -> None:
    """Raise OncewayError for the checkpoint of another stream, and for a path that is not a
    folder.
    """
    root = local_path(url)
    with suppress(Py4JJavaError):  # `make_fit` reports what cannot be read
        if HadoopFolder(spark, url).is_file() or (root is not None and _is_broken_link(root)):
            raise OncewayError("the checkpoint is not a folder", url, OWN_FOLDER)
    offsets = HadoopFolder(spark, url, OFFSETS)
    with suppress(Torn):
        for number in reversed(_numbers(offsets)):
            with suppress(Torn):
                _offset(offsets, number)
                return


def make_fit(spark: SparkSession, url: str, progress: Feeds) -> None:
    """Rename the checkpoint if it is unreadable or ahead of the table, so that Spark creates a new
    one. progress: number of the last batch of each feed in the table.
    """
    try:
        checkpointed = _checkpointed(spark, url)
    except Torn as error:
        set_aside(spark, url, f"it cannot be read ({error})")
        return
    ahead = [
        f"{feed} (batch {number} in the checkpoint, {progress.get(feed, 0)} in the table)"
        for feed, number in sorted(checkpointed.items())
        if number > progress.get(feed, 0)
    ]
    if ahead:
        more = f" and {len(ahead) - SHOWN} more" if len(ahead) > SHOWN else ""
        set_aside(spark, url, f"it is ahead of the table: {', '.join(ahead[:SHOWN])}{more}")


def set_aside(spark: SparkSession, url: str, why: str) -> None:
    """Rename the checkpoint, so that Spark creates a new one. why: the reason, for the log. Raises
    OncewayError if the renaming fails, or if the folder contains folders of other programs.
    """
    with suppress(Py4JJavaError):
        inside = HadoopFolder(spark, url).entries()
        others = [name for name, is_folder in inside.items() if is_folder and not _is_sparks(name)]
        if others:
            raise OncewayError(
                f"the checkpoint cannot be used: {why}. The ingest does not set it"
                f" aside, because {shown(min(others))} is in this folder, too",
                url,
                OWN_FOLDER,
            )
    try:
        name = open_folder(spark, url).set_aside(f"aside-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    except (Py4JJavaError, OSError) as error:
        how = _reason(error) if isinstance(error, Py4JJavaError) else error
        raise OncewayError(
            f"the checkpoint cannot be used: {why}; and it cannot be put aside: {how}",
            url,
            "Move the checkpoint away, or name another folder with --checkpoint. No progress is"
            " lost, because the table records it",
        ) from error
    log.warning(
        "the checkpoint %s cannot be used: %s. It is now called %s, and the ingest"
        " continues with the batches that the table lacks",
        url,
        why,
        name,
    )


def is_used(spark: SparkSession, url: str) -> bool:
    """Whether the checkpoint has more in it than a start without a micro-batch creates. A
    checkpoint without more cannot be the reason for a failed start. True if the checkpoint is
    unreadable.
    """
    try:
        return _has_files(spark, url, *FOLDERS) or any(
            name not in (*FOLDERS, METADATA) for name in _entries(HadoopFolder(spark, url))
        )
    except Torn:
        return True


def _has_files(spark: SparkSession, folder: str, *names: str) -> bool:
    """Whether there is a file in one of the subfolders `names` of a folder, at any depth."""
    for name in names:
        inside = _entries(HadoopFolder(spark, folder, name))
        below = [one for one, is_folder in inside.items() if is_folder]
        if len(below) < len(inside) or _has_files(spark, f"{folder}/{name}", *below):
            return True
    return False


def _checkpointed(spark: SparkSession, url: str) -> Feeds:
    """Return the progress of each feed at which Spark continues: the end of the newest micro-batch
    if it is finished, else its start. Raises Torn if a file that Spark reads is damaged or missing.
    """
    whole = HadoopFolder(spark, url)
    _refuse_obstacles(whole, url)
    commits, offsets = (HadoopFolder(spark, url, name) for name in (COMMITS, OFFSETS))
    begun, ended = (max(_numbers(folder), default=-1) for folder in (offsets, commits))
    if begun < 0 and ended < 0:
        if METADATA in _names(whole):
            _metadata(whole)
        return {}
    _metadata(whole)
    if ended > begun:
        raise Torn(f"the newest micro-batch in {commits} is missing in {offsets}")
    if ended >= 0:
        _commit(commits, ended)
    newest = _offset(offsets, begun)
    before = _offset(offsets, begun - 1) if begun else {}
    return newest if ended == begun else before


def _names(folder: HadoopFolder) -> list[str]:
    try:
        return folder.names()
    except Py4JJavaError as error:
        raise Torn(f"{folder}: {_reason(error)}") from None


def _entries(folder: HadoopFolder) -> dict[str, bool]:
    try:
        return folder.entries()
    except Py4JJavaError as error:
        raise Torn(f"{folder}: {_reason(error)}") from None


def _numbers(folder: HadoopFolder) -> list[int]:
    """Return the numbers of the micro-batches that have a file in a folder, sorted."""
    return sorted(int(name) for name in _names(folder) if name.isdecimal())


def _refuse_obstacles(whole: HadoopFolder, url: str) -> None:
    """Raise Torn for anything that keeps Spark from writing a file: a file in place of a folder, a
    folder in place of a file, a broken link, a checksum file without its file. Links and checksum
    files are looked for only on a local disk, because Hadoop does not list them.
    """
    for name, is_folder in _entries(whole).items():
        if name in FOLDERS and not is_folder:
            raise Torn(f"{whole}/{name} is not a folder")
        if name == METADATA and is_folder:
            raise Torn(f"{whole}/{name} is not a file")
    root = local_path(url)
    if root is None:
        return
    for name in (*FOLDERS, METADATA):
        if _is_broken_link(root / name):
            raise Torn(f"{root / name} is a symbolic link, and its target does not exist")
    for folder in (root, root / OFFSETS, root / COMMITS):
        for path in sorted(folder.glob(".*.crc")):
            name = path.name.removeprefix(".").removesuffix(".crc")
            if (name.isdecimal() or name == METADATA) and not (folder / name).exists():
                raise Torn(f"{folder / name} is missing, but its checksum is there")
        for path in sorted(folder.glob("[0-9]*")):
            if path.name.isdecimal() and not path.is_file():
                raise Torn(f"{path} is not a file")


def _is_broken_link(path: Path) -> bool:
    """Whether a path is a broken link, or a link to itself."""
    try:
        return path.is_symlink() and not path.exists()
    except OSError:  # Hadoop reports other errors
        return False


def _is_sparks(name: str) -> bool:
    """Whether Spark or Hadoop gives an entry in a checkpoint this name."""
    return name in (*FOLDERS, METADATA) or name.startswith((".", "_"))


def _metadata(whole: HadoopFolder) -> None:
    fields = _parsed(whole, METADATA, _lines(whole, METADATA))
    if len(fields) != 1 or not isinstance(fields[0], dict) or not fields[0].get("id"):
        raise Torn(f"{whole}/{METADATA} names no stream")


def _commit(commits: HadoopFolder, number: int) -> None:
    version, *lines = _lines(commits, str(number))
    fields = _parsed(commits, str(number), lines)
    if not _VERSION.fullmatch(version) or len(fields) != 1 or not isinstance(fields[0], dict):
        raise Torn(f"{commits}/{number} is not a version and one JSON object")


def _offset(offsets: HadoopFolder, number: int) -> Feeds:
    """Return the offset of the only source: the third line of a file in Spark's offset log. Raises
    Torn for an incomplete file, OncewayError for the checkpoint of another stream.
    """
    version, *lines = _lines(offsets, str(number))
    found = _parsed(offsets, str(number), lines)
    if len(found) < LINES - 1 or not _VERSION.fullmatch(version):
        raise Torn(f"{offsets}/{number} is not a version and two or more lines of JSON")
    feeds = found[1]
    if not (
        len(found) == LINES - 1
        and isinstance(feeds, dict)
        and all(_FEED.fullmatch(feed) and type(last) is int for feed, last in feeds.items())
    ):
        raise OncewayError(
            "the checkpoint belongs to another stream",
            f"{offsets}/{number}",
            OWN_FOLDER,
        )
    return feeds


def _lines(folder: HadoopFolder, name: str) -> list[bytes]:
    """Return the lines of a file; one empty line for an empty file. Raises Torn if the file cannot
    be read.
    """
    try:
        data = folder.read(name)
    except Py4JJavaError as error:
        raise Torn(f"{folder}/{name}: {_reason(error)}") from None
    if data is None:
        raise Torn(f"{folder}/{name} is missing")
    return data.splitlines() or [b""]


def _parsed(folder: HadoopFolder, name: str, lines: list[bytes]) -> list[Any]:
    try:
        return [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise Torn(f"{folder}/{name}: {error}") from None


def _reason(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString()).partition("\n")[0]
