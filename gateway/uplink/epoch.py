"""A new epoch: when this store's batch numbers cannot go on at the landing place.

In: the spool, and what stands at the landing place under the numbers that this store wanted to use.
Out: a new epoch with numbers from 1, without a reading lost or doubled.

It is needed when another life of this store (it was restored from a backup, or its card was cloned)
used the numbers, when a batch that was cut is damaged here and cannot be made again, and when the
landing place was moved. After a restore, rows in the spool may have landed in the other life
already. Device rows may land again, since their key is the same; rows of clients without identity
have the epoch and the spool id as key, so they are compared with the landed batches one by one. The
two lives share their rows up to the backup, and spool ids only grow, so the rows in common are the
first ones. A backup may be restored more than once, so the batches of all epochs of this gateway
are looked at.
"""

import logging
import secrets
from collections.abc import Iterator
from dataclasses import replace

from gateway.store import lives
from gateway.uplink import owner
from gateway.uplink.batch import NotABatch, decode
from gateway.uplink.landing import Landing
from gateway.uplink.manifest import Manifest, Origin, Row, sha256, without_signature
from gateway.uplink.spool import RIVAL, Spool

log = logging.getLogger(__name__)


def draw() -> str:
    return secrets.token_hex(4)


def begin_after_conflict(spool: Spool, landing: Landing, number: int) -> None:
    """Number `number` of this epoch cannot be landed by this store: go on under a new epoch and a
    new owner number.

    The new owner number shuts out a twin that still runs. Raises Unreachable; then nothing has
    changed.
    """
    old = spool.origin()
    first_new = _first_not_landed(spool, landing, number)
    # the gateway's next start forgets what may be stale (gateway/store/lives.py)
    why = f"the landing place held batch {number} of it already"
    meta: dict[str, str | None] = {owner.SUCCESSOR: owner.new_number(), lives.MARK: why}
    spool.renumber(draw(), meta, first_new, new_key=True)
    log.warning(
        "batch numbers go on under the new epoch %s instead of %s (batch %d)",
        spool.origin().epoch,
        old.epoch,
        number,
    )


def begin_under_new_name(spool: Spool, epoch: str | None = None) -> None:
    """The gateway was renamed, and all that was cut under the old name has landed. epoch: instead
    of one that is drawn.
    """
    gone = (owner.OWNER, owner.SUCCESSOR, owner.SINCE, owner.FIRST_MARK, RIVAL)
    spool.renumber(epoch or draw(), dict.fromkeys(gone))


def claim(spool: Spool, landing: Landing) -> None:
    """Make this store the owner of its name at the landing place, whoever's it was.

    Where the last landed batch is not there, the place was moved or emptied, and numbers begin at 1
    again. Keys stay as they are, for both places may feed one table.
    """
    origin = spool.origin()
    landed, _ = spool.last_landed()
    if landed and landing.read(Manifest(origin, landed, 0, 0, "").name) is None:
        spool.renumber(draw(), {})
    owner.take(
        spool, landing, spool.get(owner.SUCCESSOR) or spool.get(owner.OWNER) or owner.new_number()
    )


def _first_not_landed(spool: Spool, landing: Landing, number: int) -> int:
    """The spool id from which on our rows have landed in no life of this store. `number` is the
    first that is not ours in this epoch.
    """
    after = spool.oldest() - 1
    here = spool.origin()
    others = [
        Feed(landing, replace(here, epoch=epoch))
        for epoch in landing.epochs(here.gateway)
        if epoch != here.epoch
    ]
    reached = None
    while reached != after:
        reached = after
        after = _advance(spool, after, Feed(landing, here).rows(number))
        for feed in others:
            after = _advance(spool, after, feed.rows(feed.batch_before(after + 1)))
    return after + 1


def _advance(spool: Spool, after: int, landed: Iterator[Row]) -> int:
    """The last of our rows above `after` that stands in `landed` without a gap; `after` when the
    first one differs.
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
    """What is the same in all lives: not when it was received, for the clock may have been set
    since; without a device not its key.
    """
    device, incarnation, sequence, client, topic, payload, _, boot, monotonic, spool_id = row
    key = None if device.startswith("@") else (device, incarnation, sequence)
    return key, client, topic, payload, boot, monotonic, spool_id


class Feed:
    """The published batches of one epoch at a landing place. Spool ids grow along the numbers."""

    def __init__(self, landing: Landing, origin: Origin) -> None:
        self._landing = landing
        self._origin = origin

    def rows(self, number: int) -> Iterator[Row]:
        """From batch `number` on, up to the first that is missing or not as its manifest says."""
        while batch := self._batch(number):
            yield from batch
            number += 1

    def batch_before(self, spool_id: int) -> int:
        """The number of the last batch that begins at or before a spool id, by galloping and
        bisecting; 1 when there is none.
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
