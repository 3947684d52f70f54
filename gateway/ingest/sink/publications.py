"""Appending of the new rows of a micro-batch to `publications`, each row once.

In: a micro-batch. Out: at most one commit. The table's commit log is the only source of truth. The
append first reads the log up to its newest version (`Seen`, `Taken`), then appends the unseen rows.
If another commit has come since then, the append starts again. The commit also contains the
progress of the feeds. So a feed that has only duplicates or damaged batches causes a commit without
rows.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.errors import OncewayError
from gateway.ingest.dedup import doubles
from gateway.ingest.dedup.claim import ChunkRange, claim
from gateway.ingest.dedup.ranges import SeenRanges
from gateway.ingest.dedup.seen import Seen
from gateway.ingest.dedup.taken import Feeds, Taken
from gateway.ingest.delta.tables import SIGNED, Layout
from gateway.ingest.delta.transaction import Addition, Conflict, Writer
from gateway.ingest.sink.microbatch import MicroBatch

PUBLICATIONS = Layout(
    "Each publication of a device once, by (device, incarnation, sequence)",
    (
        (
            "device",
            "string",
            "Key, part 1: name of the device; @GATEWAY for a client without an identity of its own",
        ),
        (
            "incarnation",
            "bigint",
            (
                "Key, part 2: number given to the device when its memory was empty; for @GATEWAY"
                " the epoch"
            ),
        ),
        (
            "sequence",
            "bigint",
            "Key, part 3: number of the publication in its incarnation; for @GATEWAY, of the row",
        ),
        ("client", "string", "MQTT client identifier, null when it equals the device"),
        ("topic", "string", "MQTT topic"),
        ("payload", "binary", "MQTT payload as the device sent it"),
        (
            "received",
            "timestamp",
            "Time of receipt at the gateway; null if the gateway did not know the time",
        ),
        ("boot", "bigint", "Boot counter of the gateway at the receipt"),
        ("monotonic", "bigint", "Microseconds from that boot to the receipt"),
        ("gateway", "string", "Gateway whose batch brought the publication first"),
        ("epoch", "string", "Series of batch numbers of the gateway: eight hex digits"),
        ("batch", "bigint", "Number of the batch in the epoch"),
        ("spool_id", "bigint", "Order of arrival at the gateway"),
        (
            "undecodable",
            "string",
            "Why the table of readings has no rows from this payload; null if it has rows",
        ),
        (
            "landed",
            "timestamp",
            "When the batch landed, by the landing place's clock; `ingested` if that is unknown",
        ),
        ("ingested", "timestamp", "When the ingest read the batch, by the clock of the centre"),
    ),
    (
        ("delta.enableChangeDataFeed", "true"),
        ("delta.checkpointInterval", "50"),
        ("delta.dataSkippingStatsColumns", "device,sequence,received,landed"),
        (SIGNED, "demanded"),
    ),
    ("device", "received"),
    ("device", "incarnation", "sequence"),
)

TRIES = 20
APPLICATION_ID = "onceway/publications"
"""Application id of the `txn` action in each commit of the ingest. Delta would skip a commit that
has only a note.
"""

log = logging.getLogger("onceway.ingest")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an append. arrived: number of rows in the batches. new: number of rows that
    were added. version: the table's new version; None if there was nothing to commit. based_on:
    version from which the append was computed. drop: ranges of duplicates, which were not added.
    """

    arrived: int
    new: int
    version: int | None
    based_on: int
    drop: list[ChunkRange]

    @property
    def seen(self) -> int:
        return self.arrived - self.new


class Appender:
    """Appends to one table. Even two appenders in different processes never write a key twice."""

    def __init__(
        self,
        seen: Seen,
        progress: Taken,
        writer: Writer,
        name: str,
        cleaned: Callable[[str], int],
        on_doubles: Callable[[MicroBatch, list[ChunkRange]], None],
    ) -> None:
        """Create the appender. name: name of the table, for messages. cleaned: returns, for a feed,
        the number of its last batch that was deleted at the landing place on purpose. on_doubles:
        called before each commit with the micro-batch and the ranges of its duplicates.
        """
        self._on_doubles = on_doubles
        self._seen = seen
        self._progress = progress
        self._cleaned = cleaned
        self._writer = writer
        self._name = name

    def append(
        self, micro_batch: MicroBatch, note: dict[str, Any], moves_feeds: bool = True
    ) -> Outcome:
        """Append a micro-batch. note: added to the commit's note. moves_feeds: whether the batches
        are the next ones of their feeds; repaired batches are not.

        Raises OncewayError if other writers commit first TRIES times, or if batches between the
        table's progress and this micro-batch are missing. Raises Spark's errors if the table cannot
        be written.
        """
        for _ in range(TRIES):
            self._seen.catch_up()
            self._progress.catch_up(self._seen.covers)
            claimed, based_on = (
                claim(micro_batch.chunk_ranges, self._seen.ranges),
                self._seen.covers,
            )
            moved = self._moved(micro_batch) if moves_feeds else {}
            if not claimed.new and not moved:
                return Outcome(micro_batch.arrived, 0, None, based_on, claimed.drop)
            self._on_doubles(micro_batch, claimed.drop)
            whole_note = {**note, **(self._progress.note(moved) if moves_feeds else {})}
            whole_note |= doubles.note(micro_batch.doubles(claimed.drop))
            try:
                version = self._writer.append(
                    micro_batch.addition("publications", claimed.drop),
                    based_on,
                    whole_note,
                    (APPLICATION_ID, based_on + 1),
                )
            except Conflict as conflict:
                log.warning(
                    "another writer was first (%s): trying again after its commit", conflict
                )
                continue
            self._seen.landed(claimed.pending, version)
            self._progress.landed(whole_note, version)
            return Outcome(micro_batch.arrived, claimed.new, version, based_on, claimed.drop)
        raise OncewayError(
            f"gave up after {TRIES} attempts: each time another writer committed first",
            self._name,
            "Was the ingest started twice?",
        )

    def say_all(self) -> None:
        """Commit the progress of all feeds if the last such commit is far behind, because the log
        may be cleaned before the next batch comes. If another writer commits first, nothing is
        committed.
        """
        self._seen.catch_up()
        self._progress.catch_up(self._seen.covers)
        if not self._progress.due:
            return
        note, based_on = self._progress.note({}), self._seen.covers
        try:
            version = self._writer.append(
                Addition(), based_on, note, (APPLICATION_ID, based_on + 1)
            )
        except Conflict:
            return
        self._seen.landed(SeenRanges(), version)
        self._progress.landed(note, version)

    def _moved(self, micro_batch: MicroBatch) -> Feeds:
        """Return the last batch number of each feed from which this micro-batch has batches that
        the table lacks. Raises OncewayError if batches between the table's last one and the
        micro-batch's first one are missing.
        """
        for feed, count in micro_batch.feeds.items():
            last = self._progress.feeds.get(feed, 0)
            if count.first > last + 1 and count.first > self._cleaned(feed) + 1:
                raise OncewayError(
                    f"the table has {feed} up to batch {last}, but batch {count.first} comes"
                    " next: the table was restored to an older version, or replaced, since the "
                    "ingest started",
                    self._name,
                    f"Start the ingest again: it goes back to batch {last + 1}",
                )
        return self._progress.ahead(
            {feed: count.number for feed, count in micro_batch.feeds.items()}
        )
