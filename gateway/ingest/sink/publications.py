"""Rows of a micro-batch that are new go into `publications`, once.

In: a micro-batch. Out: at most one commit. The table's commit log is the only truth: `Seen` is
brought up to its head, the rows that are not seen are appended on condition that the head has not
moved, and else it begins anew.
"""

import logging
from dataclasses import dataclass
from typing import Any

from gateway.errors import OncewayError
from gateway.ingest.dedup.claim import ChunkRange, claim
from gateway.ingest.dedup.seen import Seen
from gateway.ingest.delta.tables import Layout
from gateway.ingest.delta.transaction import Conflict, DeltaWriter
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
            "Key, part 3: counts the publications of this incarnation; for @GATEWAY the spool id",
        ),
        ("client", "string", "MQTT client identifier, null when it equals the device"),
        ("topic", "string", "MQTT topic"),
        ("payload", "binary", "MQTT payload as the device sent it"),
        (
            "received",
            "timestamp",
            "When the gateway received it, null while its clock was not known",
        ),
        ("boot", "bigint", "The gateway's boot counter when it received it"),
        ("monotonic", "bigint", "Microseconds since that boot"),
        ("gateway", "string", "Which gateway sent it here first"),
        ("epoch", "string", "Which store of that gateway: eight hex digits"),
        ("batch", "bigint", "In which batch of that epoch"),
        ("spool_id", "bigint", "Order of arrival at that gateway"),
        (
            "undecodable",
            "string",
            "Why there is nothing of the payload in readings, null when there is",
        ),
    ),
    (
        ("delta.enableChangeDataFeed", "true"),
        ("delta.checkpointInterval", "50"),
        ("delta.dataSkippingStatsColumns", "device,sequence,received"),
    ),
)

TRIES = 20

log = logging.getLogger("onceway.ingest")


@dataclass(frozen=True, slots=True)
class Outcome:
    """taken: rows in the batches; new: rows now in the table by this append; version: the one it
    made, None when there was nothing new; based_on: the version before; drop: the rows left out.
    """

    taken: int
    new: int
    version: int | None
    based_on: int
    drop: list[ChunkRange]

    @property
    def seen(self) -> int:
        return self.taken - self.new


class Appender:
    """Appends to one table. Two of them, in whatever processes, never write one key twice."""

    def __init__(self, seen: Seen, writer: DeltaWriter, name: str) -> None:
        """name: of the table, for messages."""
        self._seen = seen
        self._writer = writer
        self._name = name

    def append(self, micro_batch: MicroBatch, note: dict[str, Any]) -> Outcome:
        """note: goes into the commit's user metadata.

        Raises OncewayError when other writers win every time, and what Spark raises when the table
        cannot be written.
        """
        for _ in range(TRIES):
            self._seen.catch_up()
            claimed, based_on = claim(micro_batch.held, self._seen.ranges), self._seen.covers
            if not claimed.new:
                return Outcome(micro_batch.taken, 0, None, based_on, claimed.drop)
            try:
                version = self._writer.append(
                    micro_batch.addition("publications", claimed.drop), based_on, note
                )
            except Conflict as conflict:
                log.warning("another writer was first (%s): trying again on top of it", conflict)
                continue
            self._seen.landed(claimed.pending, version)
            return Outcome(micro_batch.taken, claimed.new, version, based_on, claimed.drop)
        raise OncewayError(
            f"other writers won {TRIES} times in a row", self._name, "Is the ingest started twice?"
        )
