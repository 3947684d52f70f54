"""Deletion of the rows of a spool, for a gateway without an uplink. A person must have agreed.

In: the gateway's database; the gateway may run. Out: the rows are deleted, and none of their spool
ids, batch numbers and keys is ever reused.

Rules: the key of a row without identity consists of the epoch and a number. Another member of the
site may hold a copy of such a row, so later rows get keys with a new epoch. A batch that was cut
may be at the landing place although this store does not know it, so batch numbers begin again in a
new epoch. Rows are deleted in small transactions, because the gateway's writer waits for each.
After an interruption, call `discard` again.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from gateway.store.references import GONE
from gateway.uplink.epoch import draw
from gateway.uplink.numbers import IDENTITIES
from gateway.uplink.spool import Spool

_PIECE = 500
"""Number of rows deleted in one transaction."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Counts of the rows in a spool. rows, bytes: number of rows, and their size as the broker
    counts it. in_batch: number of rows in a batch that was cut and has not landed. oldest: arrival
    of the first row in µs since 1970 (UTC); None if there is no row, or its time is unknown. last:
    the highest spool id; 0 for an empty spool.
    """

    rows: int
    bytes: int
    in_batch: int
    oldest: int | None
    last: int


def waiting(spool: Spool) -> Waiting:
    """Count the rows of the whole spool."""
    volume, cut = spool.volume(0), spool.unlanded()
    oldest, last = spool.ends()
    return Waiting(volume.rows, volume.bytes, cut.rows if cut else 0, oldest, last)


def discard(spool: Spool, data: Path, last: int) -> None:
    """Delete the rows up to the spool id `last`. The caller must hold the uplink's lock."""
    identities = [entry for entry in spool.identities() if entry[0] <= last]
    cut = spool.unlanded()
    begin = cut.last if cut else 0
    lost = [*json.loads(spool.get(GONE) or "[]"), (begin + 1, last)]
    spool.put({IDENTITIES: json.dumps([*identities, (last + 1, draw())]), GONE: json.dumps(lost)})
    while spool.delete(begin, last, _PIECE):
        pass
    if cut is not None:
        spool.renumber(draw(), {}, last + 1, new_key=True)
        for path in (data / "batches").glob("*.parquet"):
            path.unlink()
