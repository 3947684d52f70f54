"""A new epoch, for a store whose batch numbers cannot continue at the landing place.

In: the spool, and the gateway's batches at the landing place. Out: a new epoch with numbers from 1,
without loss or repetition of readings.

A new epoch is needed if another generation of this store (restored from a backup, or a cloned card)
used the numbers. It is also needed if a cut batch is damaged here and cannot be rebuilt, or if the
landing place was moved.

After a restore, the other generation may already have landed rows that are in the spool. A device
row can land again without harm, because its key stays the same. Rows of clients without identity
have the epoch and the spool id as key, so they are compared with the landed batches one by one. The
two generations share their rows up to the backup, and spool ids only grow, so the common rows are
the first ones. A backup may be restored more than once, so the batches of all epochs of this
gateway are compared.
"""

import logging
import secrets
from collections.abc import Iterator
from dataclasses import replace

from gateway.store import generation
from gateway.uplink import owner
from gateway.uplink.batch import NotABatch, decode
from gateway.uplink.landing import Landing
from gateway.uplink.manifest import Manifest, Origin, Row, sha256, without_signature
from gateway.uplink.spool import RIVAL, Spool

log = logging.getLogger(__name__)


def draw() -> str:
    return secrets.token_hex(4)


def begin_after_conflict(spool: Spool, landing: Landing, number: int) -> None:
    """Continue under a new epoch and a new owner number (`owner.py`), because this store cannot
    land batch `number` of its present epoch. If a clone of this store still runs, the new owner
    number excludes it. Raises Unreachable; then nothing has changed.
    """
    old = spool.origin()
    first_new = _first_not_landed(spool, landing, number)
    # the gateway's next start forgets outdated state (gateway/store/generation.py)
    why = f"the landing place already had batch {number} of this gateway"
    meta: dict[str, str | None] = {owner.SUCCESSOR: owner.new_number(), generation.MARK: why}
    spool.renumber(draw(), meta, first_new, new_key=True)
    log.warning(
        "batch %d of epoch %s cannot land, because the landing place already has a batch with this"
        " number: epoch %s begins, with batch 1",
        number,
        old.epoch,
        spool.origin().epoch,
    )


def begin_under_new_name(spool: Spool, epoch: str | None = None) -> None:
    """Begin an epoch under a new name of the gateway. Call this only when all batches of the old
    name have landed. epoch: eight hexadecimal digits to use in place of random ones.
    """
    obsolete = (owner.OWNER, owner.SUCCESSOR, owner.SINCE, owner.FIRST_MARK, RIVAL)
    spool.renumber(epoch or draw(), dict.fromkeys(obsolete))


def claim(spool: Spool, landing: Landing) -> None:
    """Make this store the owner of its name at the landing place, in place of any other owner. If
    the last landed batch is missing there, the place was moved or emptied, and batch numbers begin
    at 1 again. Keys stay as they are, because the old and the new place may feed one table.
    """
    origin = spool.origin()
    landed, _ = spool.last_landed()
    if landed and landing.read(Manifest(origin, landed, 0, 0, "").name) is None:
        spool.renumber(draw(), {})
    owner.take(
        spool, landing, spool.get(owner.SUCCESSOR) or spool.get(owner.OWNER) or owner.new_number()
    )


def _first_not_landed(spool: Spool, landing: Landing, number: int) -> int:
    """Return the first spool id that has not landed in any generation of this store. No later row
    has landed either. number: first batch number of this epoch that another store used.
    """
    after = spool.oldest() - 1
    origin = spool.origin()
    others = [
        Feed(landing, replace(origin, epoch=epoch))
        for epoch in landing.epochs(origin.gateway)
        if epoch != origin.epoch
    ]
    reached = None
    while reached != after:
        reached = after
        after = _advance(spool, after, Feed(landing, origin).rows(number))
        for feed in others:
            after = _advance(spool, after, feed.rows(feed.batch_before(after + 1)))
    return after + 1


def _advance(spool: Spool, after: int, landed: Iterator[Row]) -> int:
    """Compare landed rows with the rows of this store whose ids are above `after`. Return the id of
    the last row up to which they are the same; `after` if the first row differs.
    """
    for theirs in landed:
        if theirs[-1] <= after:
            continue
        ours = spool.rows(after, 1)
        if not ours or _identity(ours[0]) != _identity(theirs):
            break
        after = theirs[-1]
    return after


def _identity(row: Row) -> tuple[object, ...]:
    """Return the part of a row that is the same in all generations. The time of receipt is left
    out, because the clock may have been set between two generations. The key is also left out if
    the row has no device.
    """
    device, incarnation, sequence, client, topic, payload, _, boot, monotonic, spool_id = row
    key = None if device.startswith("@") else (device, incarnation, sequence)
    return key, client, topic, payload, boot, monotonic, spool_id


class Feed:
    """The landed batches of one epoch at a landing place. Spool ids grow with the batch numbers."""

    def __init__(self, landing: Landing, origin: Origin) -> None:
        self._landing = landing
        self._origin = origin

    def rows(self, number: int) -> Iterator[Row]:
        """Yield rows from batch `number` on, up to the first batch that is missing or does not
        match its manifest.
        """
        while batch := self._batch(number):
            yield from batch
            number += 1

    def batch_before(self, spool_id: int) -> int:
        """Return the number of the last batch whose first row is at or before a spool id; 1 if
        there is no such batch.
        """
        low, high = 1, 2
        while self._begins_by(high, spool_id):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self._begins_by(middle, spool_id):
                low = middle
            else:
                high = middle
        return low

    def _begins_by(self, number: int, spool_id: int) -> bool:
        batch = self._batch(number)
        return bool(batch) and batch[0][-1] <= spool_id

    def _batch(self, number: int) -> list[Row]:
        manifest = Manifest(self._origin, number, 0, 0, "")
        published = self._landing.read(manifest.name)
        data = self._landing.read(manifest.data_name) if published is not None else None
        if published is None or data is None or sha256(data).encode() not in published:
            return []
        try:
            rows, _ = decode(data)
        except NotABatch:
            return []
        found = replace(manifest, rows=len(rows), size=len(data), sha256=sha256(data))
        return rows if found.to_json() == without_signature(published) else []
