"""The store of a gateway that has run for years. The rig makes it, because no run lasts that long.
In: the database of a gateway that has started once and was stopped. Out: the same, with the numbers
of the next row and batch from the bench. Earlier ones have landed and are deleted.
"""

import sqlite3
from contextlib import closing
from pathlib import Path


def age(database: Path, first_row: int, first_batch: int) -> None:
    """Change the numbers of the spool's next row and of the next batch."""
    with closing(sqlite3.connect(database)) as store, store:
        last = first_row - 1
        store.execute("INSERT OR REPLACE INTO meta VALUES ('spool.last', ?)", (str(last),))
        if first_batch > 1:
            store.execute(
                "INSERT INTO batch (number, first, last, rows, bytes, sha256, cut, landed)"
                " VALUES (?, ?, ?, 0, 0, ?, 0, 0)",
                (first_batch - 1, last, last, "0" * 64),
            )
