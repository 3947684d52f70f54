"""Keys of rows without identity.

In: the tables `meta`, `spool` and `batch` of the gateway's database. Out: name, epoch and number in
the key of such a row: (@GATEWAY, epoch, number). The numbers count rows without identity in the
order of the spool, over all batches.
"""

import json
import sqlite3

from gateway.store import meta
from gateway.store.schema import START_GATEWAY, StoreError
from gateway.store.twins import cells_of
from gateway.uplink.manifest import Origin

IDENTITIES = "uplink.identities"
COUNTED = "uplink.counted"
NAME = "uplink.gateway"
_COPIES = {
    table: f"SELECT {key}, cells IS NOT {cells_of(table, table)}"  # noqa: S608 - names of ours
    f" FROM (SELECT ?1 AS wanted) LEFT JOIN {table} ON {key} = wanted"
    f" LEFT JOIN twin ON kind = '{table}' AND twin.key = '' || wanted"
    f" WHERE twin.key IS NOT NULL OR {key} IS NOT NULL"
    for table, key in (("meta", "meta.key"), ("batch", "batch.number"))
}
"""SQL queries by table: whether a row differs from its copy (`gateway/store/twins.py`). If neither
the row nor the copy exists, the query has no result.
"""


class Numbers:
    """Reads the keys of rows without identity, and single values of `meta`, from the store."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def get(self, key: str) -> str | None:
        """Return a value of the table `meta`; None if it is missing. Raises StoreError if it is
        invalid, or has changed since it was stored.
        """
        query = "SELECT CAST(value AS BLOB) FROM meta WHERE key = ?"
        row = self._db.execute(query, (key,)).fetchone()
        if row is not None and not meta.fits(key, row[0]):
            raise _damaged(f"row {key!r} of meta: its value is invalid")
        self._check("meta", key)
        return None if row is None else str(row[0].decode())

    def _check(self, table: str, key: str | int) -> None:
        """Raise StoreError if a row has changed since it was stored."""
        try:
            found = self._db.execute(_COPIES[table], (key,)).fetchone()
        except sqlite3.OperationalError as error:
            if not str(error).startswith("no such table"):
                raise
            return  # an older version has made the store
        if found is not None and found[1]:
            raise _damaged(f"row {key!r} of {table}: it has changed since it was stored")

    def origin(self) -> Origin:
        """Return the gateway's name and the epoch of its current batch numbers. Raises StoreError
        if the database lacks them.
        """
        gateway, epoch = self.get(NAME) or self.get("gateway"), self.get("epoch")
        if not gateway or not epoch:
            raise StoreError(
                "the database does not say which gateway it belongs to", hint=START_GATEWAY
            )
        return Origin(gateway, epoch)

    def counted_before(self, spool_id: int) -> int:
        """Return how many rows without identity were numbered before the row `spool_id`, which is
        the first of a batch. Numbers continue from batch to batch. A batch that is cut again begins
        at the same number, so its rows keep their numbers.
        """
        kept = self.get(COUNTED)
        if kept is None:  # older versions used the spool ids
            return spool_id - 1
        counted = json.loads(kept)
        return int(counted["before" if spool_id <= counted["first"] else "after"])

    def identities(self) -> list[tuple[int, str]]:
        """Return (first spool id, epoch) for each epoch in the keys of rows without identity,
        ascending. An epoch applies from its first spool id on.
        """
        kept = self.get(IDENTITIES)
        return (
            [(0, self.origin().epoch)]
            if kept is None
            else [(int(first), str(epoch)) for first, epoch in json.loads(kept)]
        )

    def nameless(self) -> str:
        """Return the device in the keys of rows without identity: @GATEWAY."""
        return nameless(self.origin().gateway)


def _damaged(problem: str) -> StoreError:
    return StoreError(
        f"the gateway's database is damaged ({problem})", hint="See: onceway store check"
    )


def nameless(gateway: str) -> str:
    """Return the device in the keys of rows without identity: @GATEWAY. No other device's name
    begins with @.
    """
    return f"@{gateway}"
