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
EARLY_NS = 500_000_000
"""Tolerance in ns: a gateway's links may end before the rig has noted its death."""


def places(ways: Iterable[Mapping[str, list[Sighting]]]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for way in ways:
        alike: dict[tuple[object, ...], list[tuple[bool, Sighting]]] = defaultdict(list)
        for hop in ("spool", "batch"):
            for row in way[hop]:
                alike[_content(row)].append((hop == "spool", row))
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


def early(
    ways: Iterable[Mapping[str, list[Sighting]]], alive_until: Mapping[str, int], silent_ns: int
) -> list[str]:
    """Return a sentence for each gateway that landed copies before their own gateway was silent for
    long enough. alive_until: when each dead gateway was last alive, in ns, by name.
    """
    found: dict[tuple[str, str], float] = {}
    for way in ways:
        rows = sorted(way["spool"], key=lambda row: row.t)
        for row in rows[1:]:
            keeper, home = _gateway(row), _gateway(rows[0])
            if keeper != home and home in alive_until and _content(row) == _content(rows[0]):
                since = (row.t - alive_until[home]) / 1e9
                found[keeper, home] = min(since, found.get((keeper, home), since))
    return [
        f"{keeper} lands copies of {home} {seconds:.1f} s after the last sign of {home}, but may"
        f" only after {silent_ns / 1e9:g} s"
        for (keeper, home), seconds in sorted(found.items())
        if seconds < (silent_ns - EARLY_NS) / 1e9
    ]


def _content(row: Sighting) -> tuple[object, ...]:
    return (row.payload, *(row.columns.get(name) for name in CAME))


def _gateway(row: Sighting) -> str:
    return row.origin.partition("/")[0]
