"""Rows of the spool with an invalid cell: they would stop their batch, and all later ones.

In: the gateway's database. Out: the contents of such rows, for a file; after that, the rows are
removed from the spool.
"""

import json
import sqlite3

from gateway.store.cells import CELLS, Broken, broken, sound
from gateway.store.references import GONE
from gateway.uplink.numbers import Numbers

HELD = "uplink.held"
"""Key in `meta`: number of rows that were set aside since the store was made."""


class DamagedRows(Numbers):
    """Finds damaged rows in the gateway's database."""

    def last_cut(self) -> tuple[int, int]:
        """Return the number of the newest batch and its last spool id; (0, 0) before the first."""
        row = self._db.execute(
            "SELECT number, last FROM batch ORDER BY number DESC LIMIT 1"
        ).fetchone()
        if row:
            self._check("batch", row[0])
        return row or (0, 0)

    def damaged_row(self) -> str | None:
        """Return the name of the first damaged row in the tables that the uplink reads, or None."""
        tables = ("batch", "batch_content", "spool")
        return next((str(item) for table in tables for item in broken(self._db, table)), None)

    def damaged(self, count: int) -> list[tuple[Broken, dict[str, str]]]:
        """Return the damaged rows among the oldest `count` waiting rows, each with its cells as SQL
        literals, by column. Raises sqlite3.DatabaseError if such a row cannot be found by its id.
        """
        found = list(broken(self._db, "spool", self.last_cut()[1], count))
        columns = list(CELLS["spool"])
        literals = ", ".join(
            f"iif(typeof({name}) IN ('text', 'blob'), 'x' || quote(hex({name})), quote({name}))"
            for name in columns
        )
        # if a row's id has changed, its old id finds no row, or another row
        query = f"SELECT {literals} FROM spool WHERE id = ? AND ({sound('spool')}) IS NOT TRUE"  # noqa: S608 - names of ours
        cells = [(item, self._db.execute(query, item.row).fetchone()) for item in found]
        once = {item.row for item in found}
        for item, row in cells:
            if row is None or len(once) < len(found):
                text = f"the id of row {item.row[0]} of spool is damaged"
                raise sqlite3.DatabaseError(f"{text}: onceway store salvage saves the other rows")
        return [(item, dict(zip(columns, row, strict=True))) for item, row in cells]

    def drop(self, row: int) -> None:
        """Delete a damaged row, which can never land, and record its id as lost."""
        with self._db as db:
            db.execute("BEGIN IMMEDIATE")
            lost = [*json.loads(self.get(GONE) or "[]"), (row, row)]
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (GONE, json.dumps(lost)))
            db.execute(
                "INSERT OR REPLACE INTO meta SELECT 'spool.last', CAST(id AS TEXT) FROM spool_last"
            )
            db.execute("DELETE FROM spool WHERE id = ?", (row,))
            dropped = int(self.get(HELD) or 0) + 1
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (HELD, f"{dropped}"))
