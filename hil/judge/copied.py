"""Finds rows that a gateway has landed from its copies of another gateway's spool (`copies = 2` in
`[site]`).

The other gateway may return and land the same rows; the ingest adds each row to the table once. If
a gateway moves copies into its own spool, another gateway keeps copies of these rows in turn. This
may be the gateway that received the rows first.

In: the sightings of each publication, by hop. Out: origin and position in a store, for each copy. A
copy has the same payload and time of receipt (to the microsecond) as the original.
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
    original. Every row at another gateway is a copy. A later row at the original's gateway is a
    copy only if it entered the spool after another gateway had the row. A landed row counts as the
    last row with its gateway and position did. rows: in order of time; True: seen in a spool.
    """
    home = _gateway(rows[0][1])
    copies: dict[tuple[str, int], bool] = {}
    """Whether the row with this gateway and position is a copy, in any store generation."""
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
