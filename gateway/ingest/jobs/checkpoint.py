"""Spark's checkpoint: a cache of how far each feed was taken, which the table itself knows.

In: the checkpoint's folder, and what the table says. Out: a checkpoint that the table allows and
Spark can read; another one is put aside, under another name, and the stream begins where the table
is.

A checkpoint does not fit when the table was deleted, restored or taken from a backup, or when it is
another one; and when a power cut left a file of it torn, for Spark does not sync it. So all that
Spark reads at a start is read here before, by the same file system, which checks sums (`.NAME.crc`)
where there are any. That of another stream is refused, and stays as it is.
"""

import json
import logging
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from gateway.errors import OncewayError
from gateway.ingest.dedup.taken import Feeds
from gateway.ingest.delta.local_disk import local_path
from gateway.ingest.delta.storage import HadoopFolder, open_folder

LINES = 3
"""Of a file of the offset log: a version, something about the micro-batch, our offset."""

SHOWN = 5
"""Feeds that a message names."""

OFFSETS, COMMITS, METADATA = "offsets", "commits", "metadata"
"""Spark's logs of micro-batches that have begun and ended, and its file about the stream."""

_VERSION = re.compile(rb"v\d+")
_FEED = re.compile(r"[^/]+/[0-9a-f]{8}")

log = logging.getLogger("onceway.ingest")


class Torn(Exception):
    """A file of the checkpoint is not whole."""


def refuse_foreign(spark: SparkSession, url: str) -> None:
    """Raises OncewayError for the checkpoint of another stream."""
    offsets = HadoopFolder(spark, url, OFFSETS)
    for number in reversed(_numbers(offsets)):
        with suppress(Torn):
            _offset(offsets, number)
            return


def make_fit(spark: SparkSession, url: str, taken: Feeds) -> None:
    """taken: the last batch of each feed that the table has."""
    try:
        passed = _passed(spark, url)
    except Torn as error:
        set_aside(spark, url, f"it cannot be read ({error})")
        return
    ahead = [
        f"{feed} (batch {number} there, {taken.get(feed, 0)} in the table)"
        for feed, number in sorted(passed.items())
        if number > taken.get(feed, 0)
    ]
    if ahead:
        more = f" and {len(ahead) - SHOWN} more" if len(ahead) > SHOWN else ""
        set_aside(spark, url, f"it is ahead of the table: {', '.join(ahead[:SHOWN])}{more}")


def set_aside(spark: SparkSession, url: str, why: str) -> None:
    """Rename the checkpoint, so that Spark makes a new one. why: the reason, for the log."""
    name = open_folder(spark, url).set_aside(f"aside-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    log.warning(
        "the checkpoint %s does not fit the table: %s. It is called %s now, and the ingest begins"
        " where the table is",
        url,
        why,
        name,
    )


def is_used(spark: SparkSession, url: str) -> bool:
    """Whether a micro-batch has begun by this checkpoint."""
    return bool(_numbers(HadoopFolder(spark, url, OFFSETS)))


def _passed(spark: SparkSession, url: str) -> Feeds:
    """Return the offset at which Spark goes on: the end of the newest micro-batch if that has
    ended, else its start. Raises Torn if a file that Spark reads is not whole.
    """
    _refuse_obstacles(url)
    whole = HadoopFolder(spark, url)
    commits, offsets = (HadoopFolder(spark, url, name) for name in (COMMITS, OFFSETS))
    begun, ended = (max(_numbers(folder), default=-1) for folder in (offsets, commits))
    if begun < 0 and ended < 0:
        if METADATA in _names(whole):
            _metadata(whole)
        return {}
    _metadata(whole)
    if ended > begun:
        raise Torn(f"{offsets} ends before {commits}")
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


def _numbers(folder: HadoopFolder) -> list[int]:
    """The micro-batches of which a folder has a file, sorted."""
    return sorted(int(name) for name in _names(folder) if name.isdecimal())


def _refuse_obstacles(url: str) -> None:
    """Raise Torn for what keeps Spark from writing a file: a checksum file that has lost its file,
    or a folder of the file's name. Only a local disk has them, and Hadoop does not list them.
    """
    root = local_path(url)
    for folder in () if root is None else (root, root / OFFSETS, root / COMMITS):
        for path in sorted(folder.glob(".*.crc")):
            name = path.name.removeprefix(".").removesuffix(".crc")
            if (name.isdecimal() or name == METADATA) and not (folder / name).exists():
                raise Torn(f"{folder / name} is missing, its sum is there")
        for path in sorted(folder.glob("[0-9]*")):
            if path.name.isdecimal() and not path.is_file():
                raise Torn(f"{path} is no file")


def _metadata(whole: HadoopFolder) -> None:
    fields = _parsed(whole, METADATA, _lines(whole, METADATA))
    if len(fields) != 1 or not isinstance(fields[0], dict) or not fields[0].get("id"):
        raise Torn(f"{whole}/{METADATA} names no stream")


def _commit(commits: HadoopFolder, number: int) -> None:
    version, *lines = _lines(commits, str(number))
    fields = _parsed(commits, str(number), lines)
    if not _VERSION.fullmatch(version) or len(fields) != 1 or not isinstance(fields[0], dict):
        raise Torn(f"{commits}/{number} has {len(lines) + 1} lines of 2")


def _offset(offsets: HadoopFolder, number: int) -> Feeds:
    """Of the three lines of a file of Spark's offset log, the last is the offset of its only
    source.
    """
    version, *lines = _lines(offsets, str(number))
    found = _parsed(offsets, str(number), lines)
    if len(found) < LINES - 1 or not _VERSION.fullmatch(version):
        raise Torn(f"{offsets}/{number} has {len(lines) + 1} lines of {LINES}")
    feeds = found[1]
    if not (
        len(found) == LINES - 1
        and isinstance(feeds, dict)
        and all(_FEED.fullmatch(feed) and type(taken) is int for feed, taken in feeds.items())
    ):
        raise OncewayError(
            "the checkpoint is that of another stream",
            f"{offsets}/{number}",
            "Give the ingest a folder of its own with --checkpoint",
        )
    return feeds


def _lines(folder: HadoopFolder, name: str) -> list[bytes]:
    """Return the lines of a file, at least one."""
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
    return str(error.java_exception.toString()).splitlines()[0]
