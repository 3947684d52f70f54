"""Spark's checkpoint: a cache of how far each feed was taken, which the table itself knows.

In: the checkpoint's folder, and what the table says. Out: a checkpoint that the table allows; one
that does not fit is put aside, under another name, and the stream begins where the table is.

It does not fit when the table was deleted, restored or taken from a backup, or when it is another
one; and when a power cut left a file of it torn, for Spark does not sync it.
"""

import json
import logging
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from gateway.ingest.dedup.taken import Feeds
from gateway.ingest.delta.storage import Readable, open_folder

SHOWN = 5
"""Feeds that a message names."""

log = logging.getLogger("onceway.ingest")


def make_fit(spark: SparkSession, url: str, taken: Feeds) -> None:
    """taken: the last batch of each feed that the table has."""
    try:
        passed = _passed(open_folder(spark, url, "commits"), open_folder(spark, url, "offsets"))
    except (ValueError, IndexError, TypeError, AttributeError) as error:
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


def _passed(commits: Readable, offsets: Readable) -> Feeds:
    """How far each feed is at the end of the newest micro-batch that has ended, as the checkpoint
    says. Raises ValueError, IndexError, TypeError or AttributeError when it is not whole.
    """
    begun, ended = (
        max((int(name) for name in folder.names() if name.isdecimal()), default=-1)
        for folder in (offsets, commits)
    )
    if begun >= 0:
        _offset(offsets, begun)  # Spark reads it at the start
    return _offset(offsets, ended) if ended >= 0 else {}


def _offset(offsets: Readable, number: int) -> Feeds:
    """The last line of a file of Spark's offset log is the offset of its only source."""
    _, _, offset = (offsets.read(str(number)) or b"").decode().splitlines()
    return {str(feed): int(taken) for feed, taken in json.loads(offset).items()}
