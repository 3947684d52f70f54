"""Finds rows that a gateway has landed for another gateway, from copies of that gateway's spool
(`copies = 2` in `[site]`).

The other gateway may return and land them, too; the ingest adds each row once. After a gateway has
moved copies into its own spool, another gateway keeps copies of these rows in turn, perhaps the
gateway that received them first.

In: the sightings of each publication, by hop. Out: places (origin and position in a store) of such
copies: the copy has the same time of receipt as the other gateway's row, to the microsecond.
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
                content = (row.payload, *(row.columns.get(name) for name in CAME))
                alike[content].append((hop == "spool", row))
        for rows in alike.values():
            found.update(_copies(sorted(rows, key=lambda item: item[1].t)))
    return found


def _copies(rows: list[tuple[bool, Sighting]]) -> Iterator[tuple[str, int]]:
    """Yield the places (origin and position) of the copies among equal rows. The first row is the
    original. A later row at the same gateway is a copy only if it entered the spool after another
    gateway had it. A row that a restored store lands again therefore stays an original if it was
    one. rows: in the order in which they were seen, each with whether it was seen in a spool.
    """
    home = _gateway(rows[0][1])
    copies: dict[tuple[str, int], bool] = {}
    """Whether a row is a copy, by gateway and position, in any generation of its store."""
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
