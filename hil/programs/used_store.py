"""The store of a gateway that has run for years: the rig makes it, since no run lasts so long.

In: the database of a gateway that has started once and was stopped. Out: the same, whose next row
and next batch have the numbers that a bench asks for. What came before has landed and is forgotten.
"""

import sqlite3
from contextlib import closing
from pathlib import Path


def age(database: Path, first_row: int, first_batch: int) -> None:
    """first_row: number of the next row of the spool; first_batch: of the next batch."""
    with closing(sqlite3.connect(database)) as store, store:
        last = first_row - 1
        store.execute("INSERT OR REPLACE INTO meta VALUES ('spool.last', ?)", (str(last),))
        if first_batch > 1:
            store.execute(
                "INSERT INTO batch (number, first, last, rows, bytes, sha256, cut, landed)"
                " VALUES (?, ?, ?, 0, 0, ?, 0, 0)",
                (first_batch - 1, last, last, "0" * 64),
            )
