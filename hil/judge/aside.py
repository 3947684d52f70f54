"""Checks the list of batches in quarantine, and the payloads in the table `_conflicts`.

In: the content of a history. Out: a sentence for each entry that must not be there, and for each
missing one. Only a fault of the rig damages a batch: it lands a damaged copy under another epoch. A
payload conflicts with the payload in the table only if its values differ. A board may publish the
same values again in another form; that is a duplicate.
"""

from collections.abc import Iterator

from hil.judge.publication import Key, Sighting
from hil.judge.seen import Seen
from hil.judge.senml import Record, of_link
from hil.observe.history import Event

DAMAGED = ("batch damaged at rest", "batch forged")


def wrong(seen: Seen) -> list[str]:
    return [*_quarantined(seen), *_conflicting(seen)]


def _found(seen: Seen, row: Event, landed: int | None) -> str | None:
    """Return the mistake in the column `found`, or None. landed: time of the batch (µs UTC)."""
    since = seen.began if landed is None else landed * 1000 - (seen.clocks.offset() or 0)
    return seen.clocks.centre_mistake(row.data["found"], since, row.t)


def _quarantined(seen: Seen) -> Iterator[str]:
    own = {row.origin for way in seen.ways.values() for row in way["spool"]}
    copies = 0
    for event in sorted(seen.quarantined, key=lambda one: one.t):
        data = event.data
        origin, number = f"{data['gateway']}/{data['epoch']}", data["batch"]
        if origin in own:
            yield f"batch {number} of {origin} is in quarantine, but no fault has damaged it"
        copies += origin not in own
        file = seen.files.get((origin, number), {})
        path = file.get("path", f"/{origin}/{number:012d}.parquet")
        why = _found(seen, event, file.get("written"))
        mistakes = {
            f"has the path {data['url']}": not data["url"].endswith(path),
            "has no reason": not data["reason"],
            "was released, but no repair was made": data["released"] is not None,
            f"was found at a wrong time: {why}": why,
        }
        for mistake, so in mistakes.items():
            if so:
                yield f"batch {number} of {origin}, in quarantine, {mistake}"
    planned = sum(kind in DAMAGED for kind in seen.planned.values())
    least = sum(seen.happened[kind] for kind in DAMAGED) if "table" in seen.complete else 0
    if not least <= copies <= planned:
        yield f"{copies} copies of batches are in quarantine, but {least} to {planned} were damaged"


def _conflicting(seen: Seen) -> Iterator[str]:
    found, beside = {of[:2] for of, _ in seen.conflicts}, list(_beside(seen))
    due = seen.second | {(key, one.payload) for key, one, kept in beside if not _alike(one, kept)}
    # the ingest decides by how much two times of a reading may differ
    may = {(key, one.payload) for key, one, kept in beside if _times_differ(one, kept)}
    for key, _ in sorted(found - due - may):
        yield f"{key} is in `_conflicts`, but only one payload has landed under it"
    for of, event in seen.conflicts:
        if of[:2] not in due:
            continue
        name, row = f"{of[0]} is in `_conflicts`", seen.landed.get(of)
        if row is None:
            yield f"{name} as of batch {of[3]} of {of[2]}, which does not have it"
            continue
        for column in ("topic", "received"):
            value, landed = event.data[column], row.columns.get(column)
            if value != landed:
                yield f"{name} with the {column} {value!r}, but landed with {landed!r}"
        if why := _found(seen, event, row.columns.get("written")):
            yield f"{name}, found at a wrong time: {why}"
    if seen.claim == "table" and "table" in seen.complete and seen.ours:
        for key, _ in sorted(due - found):
            if ("batch", key) not in seen.waiting:
                yield f"{key} has landed in two payloads, but the second is not in `_conflicts`"


def _beside(seen: Seen) -> Iterator[tuple[Key, Sighting, Sighting]]:
    """Yield each payload that has landed and is not in the table, if the table has another landed
    payload of its key: the key, the row that has landed, and a row of the key in the table.
    """
    for key, way in seen.ways.items():
        kept = {row.payload: row for row in way["table"]}
        landed = {row.payload: row for row in way["batch"]}
        if kept.keys() & landed.keys():
            for payload in landed.keys() - kept.keys() - {None}:
                yield key, landed[payload], next(iter(kept.values()))


def _alike(one: Sighting, other: Sighting) -> bool:
    """Whether two payloads have the same values. Times and records about the link may differ."""
    return one.records is not None and _lasting(one) == _lasting(other)


def _lasting(found: Sighting) -> list[Record]:
    return [
        record._replace(time=None, error=None, relative=False)
        for record in found.records or ()
        if not of_link(record)
    ]


def _times_differ(one: Sighting, other: Sighting) -> bool:
    """Whether both payloads have times in UTC, and these differ."""
    first, second = (
        [record.time for record in found.records or () if record.time and not record.relative]
        for found in (one, other)
    )
    return bool(first and second and first != second)
