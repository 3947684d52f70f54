"""Under which key a row without identity lands.

In: the tables `meta`, `spool` and `batch` of the gateway's database. Out: the name, the epoch and
the number that stand in the key of such a row: (@GATEWAY, epoch, number). The numbers count rows
without identity in the order of the spool, over all batches.
"""

import json
import sqlite3

from gateway.errors import OncewayError
from gateway.store import meta
from gateway.uplink.manifest import Origin

START_GATEWAY = "Start `onceway gateway run` with this data directory first."
IDENTITIES = "uplink.identities"
COUNTED = "uplink.counted"
NAME = "uplink.gateway"


class Numbers:
    """Reads over a connection to the gateway's database."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def get(self, key: str) -> str | None:
        """A value of the table `meta`. OncewayError where the key may not have it."""
        query = "SELECT CAST(value AS BLOB) FROM meta WHERE key = ?"
        row = self._db.execute(query, (key,)).fetchone()
        if row is None:
            return None
        if not meta.fits(key, row[0]):
            text = f"the gateway's database is damaged (row {key!r} of meta: its value cannot be)"
            raise OncewayError(text, hint="See: onceway store check")
        return str(row[0].decode())

    def origin(self) -> Origin:
        """Under which name and epoch batches are numbered now."""
        gateway, epoch = self.get(NAME) or self.get("gateway"), self.get("epoch")
        if not gateway or not epoch:
            raise OncewayError(
                "the database does not say which gateway it belongs to", hint=START_GATEWAY
            )
        return Origin(gateway, epoch)

    def counted_before(self, spool_id: int) -> int:
        """How many numbers rows without identity have got before this one, the first of a batch.

        They count on from batch to batch. A batch that is cut again begins where it did before, so
        its rows keep their numbers.
        """
        kept = self.get(COUNTED)
        if kept is None:  # an older version gave them their spool ids
            return spool_id - 1
        counted = json.loads(kept)
        return int(counted["before" if spool_id <= counted["first"] else "after"])

    def identities(self) -> list[tuple[int, str]]:
        """(first spool id, epoch that stands in the key of rows without identity from there on),
        ascending.
        """
        kept = self.get(IDENTITIES)
        return (
            [(0, self.origin().epoch)]
            if kept is None
            else [(int(first), str(epoch)) for first, epoch in json.loads(kept)]
        )

    def nameless(self) -> str:
        """What stands in the place of the device."""
        return nameless(self.origin().gateway)


def nameless(gateway: str) -> str:
    """No device's name begins so."""
    return f"@{gateway}"
