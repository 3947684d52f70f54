"""Counters of the ingest, for `onceway ingest report`: by feed and for the whole job. Only the
report uses them.

In: counts of each micro-batch, and Spark's own measures of it. Out: one JSON file in the table's
folder `_onceway`: `{"table": id, "saved": UTC, "feeds": {"GATEWAY/EPOCH": {"number", "taken",
"new", "at"}}, "spark": {…}}`.

The file is written after the commits, so a crash in between loses one micro-batch of counts; the
table itself has the rows.
"""

import json
import logging
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError

from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.storage import Folder, Readable

FILE = "report.json"

log = logging.getLogger("onceway.ingest")


@dataclass(slots=True)
class FeedTotal:
    """Totals of a feed. number: number of the newest batch. taken: number of rows in all batches of
    the feed, duplicates included. new: the same without duplicates. at: time of the last rows
    (UTC).
    """

    number: int = 0
    taken: int = 0  # prose: JSON key
    new: int = 0
    at: str = ""

    @property
    def doubles(self) -> int:
        return self.taken - self.new


@dataclass(slots=True)
class Counters:
    """The counters. table: id of the table, because another table may take over the folder. saved:
    time of the last `save` (UTC). feeds: totals by feed. spark: the last progress that Spark
    reported.
    """

    table: str
    saved: str = ""
    feeds: dict[str, FeedTotal] = field(default_factory=dict)
    spark: dict[str, Any] = field(default_factory=dict)

    def add(self, feed: str, number: int, count: int, new: int) -> None:
        total = self.feeds.setdefault(feed, FeedTotal())
        total.number = max(total.number, number)
        total.taken += count  # prose: JSON key
        total.new += new
        total.at = now()

    def save(self, files: Folder) -> None:
        """Save the counters. A failure is only logged, so that the stream continues."""
        self.saved = now()
        try:
            files.write(FILE, json.dumps(asdict(self), separators=(",", ":")).encode())
        except (Py4JError, OSError) as error:
            log.warning("the counts were not saved in %s: %s", files, cause_of(error))


def load(files: Readable, table: str | None = None) -> Counters | None:
    """Return the saved counters. None if there are none, if they are damaged, or if they belong to
    another table. table: id of the table; if None, any table fits.
    """
    try:
        kept = json.loads(files.read(FILE) or b"null")
        if kept is None:
            return None
        feeds = {feed: FeedTotal(**total) for feed, total in kept["feeds"].items()}
        found = Counters(kept["table"], kept["saved"], feeds, kept["spark"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = "the counts in %s/%s cannot be read, and are left out: %r"
        log.warning(text, files, FILE, error)
        return None
    return found if table in (None, found.table) else None


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
