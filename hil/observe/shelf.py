"""Copies that a gateway keeps of other gateways' spools (`[site] copies = 2`), read only."""

import sqlite3
from contextlib import closing
from pathlib import Path

SHELF = "copies.db"


def kept(shelf: Path) -> int:
    """Return the number of rows. Raises sqlite3.OperationalError during a recovery."""
    if not shelf.exists():
        return 0
    with closing(sqlite3.connect(f"{shelf.absolute().as_uri()}?mode=ro", uri=True)) as database:
        [count] = database.execute("SELECT count(*) FROM copy").fetchone()
        return int(count)
