"""What the ingest has put aside: batches in quarantine, and payloads in `_conflicts`.

In: what was seen in a history. Out: what lies there and must not, or must and does not. A batch is
damaged only by a fault, and as a copy under another epoch. A payload conflicts with that in the
table only if its publication landed in two wordings, as a board may put what it publishes again.
"""

from collections.abc import Iterator

from hil.judge.publication import Key
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
    found = set(seen.conflicts)
    due = seen.second | set(_in_other_words(seen))
    for key, _ in sorted(found - due):
        yield f"{key} is in `_conflicts`, and has not landed in two wordings"
    if seen.claim == "table" and "table" in seen.complete and seen.ours:
        for key, _ in sorted(due - found):
            if ("batch", key) not in seen.waiting:
                yield f"{key} has landed in two wordings, and the second is not in `_conflicts`"


def _in_other_words(seen: Seen) -> Iterator[tuple[Key, bytes]]:
    """What has landed beside the wording that the table has."""
    for key, way in seen.ways.items():
        kept = {row.payload for row in way["table"]}
        landed = {row.payload for row in way["batch"]}
        if kept & landed:
            yield from ((key, payload) for payload in landed - kept if payload is not None)
