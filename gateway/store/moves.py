"""Changes in a commit that concern the other gateways of the site.

In: `Moves`, after all other rows of the commit are written. Out: rows of the tables `journey`,
`place`, `given` and `given_part`; outbound sessions deleted and inbound ones inserted.
"""

import json
import sqlite3

from gateway.store.move_in import take
from gateway.store.move_out import give
from gateway.store.move_rows import Moves


def move(database: sqlite3.Connection, moves: Moves) -> None:
    """Apply the changes. Runs in the transaction of the caller."""
    many = database.executemany
    many("INSERT OR REPLACE INTO journey VALUES (?,?,?,?,?,?,?,?,?,?)", moves.moving_sessions)
    many("DELETE FROM journey WHERE session = ?", [(session,) for session in moves.arrived])
    for order in moves.exports:
        give(database, order)
    for wanted in moves.imports:
        take(database, wanted)
    failed = {wanted.key for wanted in moves.imports if wanted.wrong}
    many("UPDATE given SET member = ? WHERE key = ?", moves.redirected)
    forgotten = [(key,) for key in moves.forgotten if key not in failed]
    many("DELETE FROM given_part WHERE key = ?", forgotten)
    many("DELETE FROM given WHERE key = ?", forgotten)
    for key, row in moves.places.items():
        if row is None:
            database.execute("DELETE FROM place WHERE key = ?", (key,))
        elif key not in failed:
            database.execute("INSERT OR REPLACE INTO place VALUES (?, ?, ?, ?)", row)
    if moves.members is not None:
        names = json.dumps(sorted(moves.members))
        database.execute("INSERT OR REPLACE INTO meta VALUES ('members', ?)", (names,))
    if moves.trusted:
        database.execute("DELETE FROM meta WHERE key = 'mistrusted'")
