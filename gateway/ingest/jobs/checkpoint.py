"""Spark's checkpoint: a cache of how far each feed was taken, which the table itself knows.

In: the checkpoint's folder, and what the table says. Out: a checkpoint that the table allows; one
that does not fit is put aside, under another name, and the stream begins where the table is.

It does not fit when the table was deleted, restored or taken from a backup, or when it is another
one; and when a power cut left a file of it torn, for Spark does not sync it. That of another stream
is refused, and stays as it is.
"""

import json
import logging
import re
from contextlib import suppress
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from gateway.errors import OncewayError
from gateway.ingest.dedup.taken import Feeds
from gateway.ingest.delta.storage import Readable, open_folder

LINES = 3
"""Of a file of the offset log: a version, something about the micro-batch, our offset."""

SHOWN = 5
"""Feeds that a message names."""

_FEED = re.compile(r"[^/]+/[0-9a-f]{8}")

log = logging.getLogger("onceway.ingest")


class Torn(Exception):
    """A file of the checkpoint is not whole."""


def refuse_foreign(spark: SparkSession, url: str) -> None:
    """Raises OncewayError for the checkpoint of another stream."""
    with suppress(Torn):
        _passed(spark, url)


def make_fit(spark: SparkSession, url: str, taken: Feeds) -> None:
    """taken: the last batch of each feed that the table has."""
    try:
        passed = _passed(spark, url)
    except Torn as error:
        why = f"it cannot be read ({error})"
    else:
        ahead = [
            f"{feed} (batch {number} there, {taken.get(feed, 0)} in the table)"
            for feed, number in sorted(passed.items())
            if number > taken.get(feed, 0)
        ]
        if not ahead:
            return
        more = f" and {len(ahead) - SHOWN} more" if len(ahead) > SHOWN else ""
        why = f"it is ahead of the table: {', '.join(ahead[:SHOWN])}{more}"
    name = open_folder(spark, url).set_aside(f"aside-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    log.warning(
        "the checkpoint %s does not fit the table: %s. It is called %s now, and the ingest begins"
        " where the table is",
        url,
        why,
        name,
    )


def _passed(spark: SparkSession, url: str) -> Feeds:
    """How far each feed is at the end of the newest micro-batch that has ended, as the checkpoint
    says.
    """
    commits, offsets = (open_folder(spark, url, name) for name in ("commits", "offsets"))
    begun, ended = (
        max((int(name) for name in folder.names() if name.isdecimal()), default=-1)
        for folder in (offsets, commits)
    )
    if begun >= 0:
        _offset(offsets, begun)  # Spark reads it at the start
    return _offset(offsets, ended) if ended >= 0 else {}


def _offset(offsets: Readable, number: int) -> Feeds:
    """Of the three lines of a file of Spark's offset log, the last is the offset of its only
    source.
    """
    lines = (offsets.read(str(number)) or b"").splitlines()
    try:
        _, *others = lines
        found = [json.loads(line) for line in others]
    except ValueError as error:
        raise Torn(f"{offsets}/{number}: {error}") from None
    if len(found) < LINES - 1:
        raise Torn(f"{offsets}/{number} has {len(lines)} lines of {LINES}")
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
