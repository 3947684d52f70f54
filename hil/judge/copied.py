"""What a gateway of a site has landed for another one, whose spool it kept a copy of (`copies = 2`
in `[site]`). That one may land it, too; the ingest takes one of them.

In: the way of each publication. Out: places of stores, origin and position, that hold such a copy:
it came when and where the row of another gateway did, to the microsecond.
"""

from collections.abc import Iterable, Mapping

from hil.judge.publication import Sighting

CAME = ("received", "boot", "monotonic")


def places(ways: Iterable[Mapping[str, list[Sighting]]]) -> set[tuple[str, int]]:
    """Of all rows that are alike, the one that was seen first is no copy."""
    found = set()
    for way in ways:
        first: dict[tuple[object, ...], str] = {}
        for row in sorted((*way["spool"], *way["batch"]), key=lambda row: row.t):
            came = (row.payload, *(row.columns.get(name) for name in CAME))
            gateway = row.origin.partition("/")[0]
            if first.setdefault(came, gateway) != gateway:
                found.add((row.origin, row.position))
    return found
