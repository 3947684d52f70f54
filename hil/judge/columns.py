"""What stands in a row beside its payload, and must be right as well.

In: a row as it was seen at a hop, what was published, when. Out: what is wrong with it, in words,
or None. A column that the system does not have (the glue beside ours) is not judged; that ours has
them is for who looks at the hops.
"""

from collections.abc import Mapping

from hil.judge.clocks import Clocks
from hil.judge.publication import Key, Sighting

STAYS = "batch"
"""What was at this hop, is there when it is looked at for the last time. A row of the spool goes
when it has landed, perhaps between two looks.
"""


def wrong(
    key: Key, found: Sighting, board: Sighting, clocks: Clocks, gateway: str | None
) -> str | None:
    """gateway: the site's name, None if it has none."""
    columns, published = found.columns, board.columns
    if "topic" in published and columns.get("topic") != published["topic"]:
        return f"its topic is {columns.get('topic')!r}, and was {published['topic']!r}"
    if "client" in columns and columns["client"] not in (None, key.device):
        return f"its client is {columns['client']!r}"
    if gateway is not None and found.origin.partition("/")[0] != gateway:
        return f"its origin is {found.origin!r}, and the gateway is {gateway!r}"
    if "received" in columns:
        sampled = board.t if board.sampled is None else board.sampled
        return clocks.received(columns["received"], sampled, found.t)
    return None


def moved(found: Sighting, way: Mapping[str, list[Sighting]], before: str) -> str | None:
    """A row that is another one than at a hop before. way: of this publication."""
    rows = {(one.origin, one.position): one for one in way[before]}
    row = rows.get((found.origin, found.position))
    if row is None:
        where = f"{found.origin} position {found.position}"
        seen = before == STAYS and rows
        return f"it says that it was {where}, and it was not" if seen else None
    for name in found.columns.keys() & row.columns.keys():
        # the gateway's own name for the device is left out on the way
        if name != "client" and found.columns[name] != row.columns[name]:
            return f"its {name} is {found.columns[name]!r}, and was {row.columns[name]!r}"
    return None
