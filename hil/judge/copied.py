"""What a gateway of a site has landed for another one, whose spool it kept a copy of (`copies = 2`
in `[site]`). That one may land it, too; the ingest takes one of them. It may also come back: who
has taken copies into its spool has copies of that kept, perhaps by the gateway that they come from.

In: the way of each publication. Out: places of stores, origin and position, that hold such a copy:
it came when and where the row of another gateway did, to the microsecond.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from hil.judge.publication import Sighting

CAME = ("received", "boot", "monotonic")


def places(ways: Iterable[Mapping[str, list[Sighting]]]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for way in ways:
        alike: dict[tuple[object, ...], list[tuple[bool, Sighting]]] = defaultdict(list)
        for hop in ("spool", "batch"):
            for row in way[hop]:
                came = (row.payload, *(row.columns.get(name) for name in CAME))
                alike[came].append((hop == "spool", row))
        for rows in alike.values():
            found.update(_copies(sorted(rows, key=lambda item: item[1].t)))
    return found


def _copies(rows: list[tuple[bool, Sighting]]) -> Iterator[tuple[str, int]]:
    """Of rows that are alike, in the order in which they were seen. The first one is no copy. One
    at the same gateway is a copy only if its spool took it when another gateway had it: so what a
    restored store lands once more is what it was before. rows: each with whether it was seen in a
    spool.
    """
    home = _gateway(rows[0][1])
    copies: dict[tuple[str, int], bool] = {}
    """By gateway and position, in whichever life of its store."""
    away = False
    for spooled, row in rows:
        gateway = _gateway(row)
        away = away or gateway != home
        at = gateway, row.position
        if spooled or at not in copies:
            copies[at] = gateway != home or (spooled and away)
        if copies[at]:
            yield row.origin, row.position


def _gateway(row: Sighting) -> str:
    return row.origin.partition("/")[0]
