"""The transaction: rows of a micro-batch that are new go into `publications`, once.

In: a micro-batch. Out: at most one commit.

The table's commit log is the only truth. An append is a compare-and-swap on it: the txnVersion that it carries is one more than the last
that `Seen` has folded in, so Delta refuses it, silently or by an exception, when anybody else has appended since. Whether it is in is then
asked of the log itself, by a nonce. (txnVersion counts appends, not table versions: an OPTIMIZE in between must not let a late one pass.)
"""

import json
import logging
import secrets
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException

from gateway.errors import OncewayError
from gateway.ingest.commits import APPLICATION, Commit
from gateway.ingest.dedup import Claim, claim
from gateway.ingest.lease import lease
from gateway.ingest.microbatch import MicroBatch
from gateway.ingest.seen import Seen
from gateway.ingest.tables import Table, first_line

TRIES = 20

log = logging.getLogger("onceway.ingest")


@dataclass(frozen=True, slots=True)
class Outcome:
    """taken: rows in the batches; new: rows now in the table by this append; version: the one it made, None when there was nothing new."""

    taken: int
    new: int
    version: int | None

    @property
    def seen(self) -> int:
        return self.taken - self.new


class Appender:
    """Appends to one table. Two of them, in whatever processes, never write one key twice."""

    def __init__(self, table: Table, seen: Seen) -> None:
        self._table = table
        self._seen = seen

    def append(self, micro_batch: MicroBatch, note: dict[str, Any]) -> Outcome:
        """note: goes into the commit's user metadata.

        Raises OncewayError when other writers win every time, and what Spark raises when the table cannot be written.
        """
        for _ in range(TRIES):
            with lease(self._seen.location):
                self._seen.catch_up()
                claimed = claim(micro_batch.held, self._seen.ranges)
                if not claimed.new:
                    return Outcome(micro_batch.taken, 0, None)
                landed = self._try(micro_batch, claimed, note)
            if landed is not None:
                return Outcome(micro_batch.taken, claimed.new, landed.version)
            log.warning("another job wrote to %s at the same time: trying again on top of it", self._table.name)
        raise OncewayError(f"other writers won {TRIES} times in a row", self._table.name, "Is the ingest started twice?")

    def _try(self, micro_batch: MicroBatch, claimed: Claim, note: dict[str, Any]) -> Commit | None:
        """The commit that holds our rows, or None when somebody else was first."""
        nonce = secrets.token_hex(8)
        metadata = {APPLICATION: {**note, "nonce": nonce}}
        writer = micro_batch.publications(claimed.drop).write.mode("append").option("userMetadata", json.dumps(metadata))
        failure = None
        try:
            self._table.save(writer.option("txnAppId", APPLICATION).option("txnVersion", self._seen.turn + 1))
        except PySparkException as error:
            failure = error
        commits = list(self._seen.commits.after(self._seen.covers))
        landed = next((commit for commit in commits if commit.note.get("nonce") == nonce), None)
        if landed is not None:
            self._seen.landed(claimed.pending, commits)
        elif failure is not None and not commits:
            raise failure
        elif failure is not None:
            log.info("the append did not go in: %s", first_line(failure))
        return landed
