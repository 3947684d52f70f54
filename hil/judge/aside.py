"""What the ingest has put aside: batches in quarantine, and payloads in `_conflicts`.

In: what was seen in a history. Out: what lies there and must not, or must and does not. A batch is
damaged only by a fault, and as a copy under another epoch. A payload conflicts with that in the
table only if its publication landed in two wordings, as a board may put what it publishes again.
"""

from collections.abc import Iterator

from hil.judge.seen import Seen

DAMAGED = "batch damaged at rest"


def wrong(seen: Seen) -> list[str]:
    """A sentence for each thing."""
    return [*_quarantined(seen), *_conflicting(seen)]


def _quarantined(seen: Seen) -> Iterator[str]:
    own = {row.origin for way in seen.ways.values() for row in way["spool"]}
    copies = 0
    for origin, number in sorted(seen.quarantined):
        if origin in own:
            yield f"batch {number} of {origin} is in quarantine, and nothing has damaged it"
        copies += origin not in own
    planned = sum(kind == DAMAGED for kind in seen.planned.values())
    if not seen.happened[DAMAGED] <= copies <= planned:
        yield f"{copies} copies of batches are in quarantine, and {planned} were to be damaged"


def _conflicting(seen: Seen) -> Iterator[str]:
    for key, payload in sorted(seen.conflicts):
        landed = {row.payload for row in seen.ways[key]["batch"]}
        if payload not in landed or len(landed) < 2:
            yield f"{key} is in `_conflicts`, and has not landed in two wordings"
