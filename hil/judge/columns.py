"""Checks the columns of a row, except its payload. In: a row as seen at a hop, its publication, and
the clocks of the run. Out: a sentence about the mistake in the row, or None. Columns that only
Onceway has are not judged for another system.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from hil.judge.clocks import RECEIVED_NS, Clocks
from hil.judge.publication import Key, Sighting

FAR = 1 << 63
WRITTEN_US = 1000
"""Largest difference in µs between `landed` and the manifest's file time, which may be rounded."""
APART_US = 100_000
"""Tolerance in µs of `received` against `monotonic`: their clocks are read one after the other."""
HASTY_S = 0.25
"""A batch may be cut this many seconds before its oldest row has waited for the planned time."""
STAYS = "batch"
"""Hop at which the rig sees every row. Rows of the spool may be deleted before the rig looks."""


def wrong(
    key: Key,
    found: Sighting,
    board: Sighting,
    clocks: Clocks,
    gateways: Collection[str],
    *,
    nameless: bool = False,
) -> str | None:
    """Return the mistake in a row, or None. found: the row. board: the publication as its publisher
    made it. gateways: names of the gateways; empty for a system whose gateways have no names.
    nameless: whether the row's client gives no identity.
    """
    columns, published = found.columns, board.columns
    if "topic" in published and columns.get("topic") != published["topic"]:
        return f"its topic is {columns.get('topic')!r}, but must be {published['topic']!r}"
    # from the batch on, only rows of clients without an identity name their client
    client = key.device if nameless or STAYS not in columns else None
    if columns.get("client", client) != client:
        return f"its client is {columns['client']!r}, but must be {client!r}"
    if "undecodable" in columns and (columns["undecodable"] is None) != (found.records is not None):
        return f"`undecodable` is {columns['undecodable']!r}, which does not fit the payload"
    if gateways and found.origin.partition("/")[0] not in gateways:
        named = " or ".join(map(repr, sorted(gateways)))
        return f"its origin is {found.origin!r}, but the gateway is {named}"
    why = None
    if "received" in columns:
        why = clocks.received(columns["received"], _sampled(board), found.t)
    if why is None and "landed" in columns:
        moments = columns["landed"], columns["ingested"]
        why = clocks.batch_mistake(*moments, _sampled(board), found.t)
    return why


def _sampled(board: Sighting) -> int:
    """Return the earliest possible time of the publication, in monotonic nanoseconds."""
    return board.t if board.sampled is None else board.sampled


def torn_axes(ways: Iterable[Mapping[str, list[Sighting]]], *, steady: bool) -> list[str]:
    """Return a sentence for each start of a gateway whose rows cannot share one beginning of
    `monotonic`: each row must arrive after its sample, and before the rig saw it. If the clock was
    `steady`, `received` must also advance like `monotonic`.
    """
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    begun: dict[tuple[str, int], set[int]] = defaultdict(set)
    for way in ways:
        for found in way["spool"]:
            if not way["board"] or "monotonic" not in found.columns:
                continue
            boot, uptime = found.columns["boot"], found.columns["monotonic"] * 1000
            low, high = spans.get((found.origin, boot), (-FAR, FAR))
            began = (max(low, _sampled(way["board"][0]) - uptime), min(high, found.t - uptime))
            spans[found.origin, boot] = began
            if steady and found.columns.get("received") is not None:
                begun[found.origin, boot].add(found.columns["received"] * 1000 - uptime)
    return [
        f"`received` minus `monotonic` varies by {(max(of) - min(of)) / 1e9:.2f} s among the rows"
        f" of {origin} from start {boot} on"
        for (origin, boot), of in begun.items()
        if max(of) - min(of) > APART_US * 1000
    ] + [
        f"the rows of {origin} from start {boot} on have no common beginning of `monotonic`"
        for (origin, boot), (low, high) in spans.items()
        if low > high + RECEIVED_NS
    ]


def disordered_starts(ways: Iterable[Mapping[str, list[Sighting]]], begun: int) -> list[str]:
    """Return a sentence for each start of a gateway that is out of order. In the spool, rows of an
    earlier start come before rows of a later one. A start comes after the run began, and after all
    samples in rows of earlier starts. begun: beginning of the run, in monotonic nanoseconds.
    """
    rows: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for way in ways:
        for found in way["spool"]:
            if way["board"] and "monotonic" in found.columns:
                began = found.t - found.columns["monotonic"] * 1000  # at the latest
                boot, sampled = found.columns["boot"], _sampled(way["board"][0])
                rows[found.origin].append((found.position, boot, began, sampled))
    found_faults: dict[tuple[str, int], str] = {}
    for origin, of_origin in rows.items():
        newest, before, so_far = -FAR, begun, begun
        for _, boot, began, sampled in sorted(of_origin):
            if boot < newest:
                why = f"in the spool of {origin}, start {boot} has rows after start {newest}'s rows"
                found_faults.setdefault((origin, boot), why)
                continue
            if boot > newest:
                newest, before = boot, so_far
            if began < before - RECEIVED_NS:
                why = f"start {boot} of {origin} began before the run, or before an earlier sample"
                found_faults.setdefault((origin, boot), why)
            so_far = max(so_far, sampled)
    return list(found_faults.values())


def gaps(ways: Iterable[Mapping[str, list[Sighting]]], first: int = 1) -> list[str]:
    """Return a sentence for each origin with missing batch numbers, or numbers below `first`."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for way in ways:
        for found in way["batch"]:
            if "batch" in found.columns:
                numbers[found.origin].add(found.columns["batch"])
    missing = {origin: list(_lacks(seen, first)) for origin, seen in numbers.items()}
    early = {origin: min(seen) for origin, seen in numbers.items() if min(seen) < first}
    return [
        f"{origin} has no batch {', '.join(lacks)}, but later ones"
        for origin, lacks in sorted(missing.items())
        if lacks
    ] + [f"{origin} has batch {number} before batch {first}" for origin, number in early.items()]


def _lacks(seen: set[int], due: int) -> Iterator[str]:
    """Yield the missing numbers from `due` to the largest in `seen`, as `3` or `3 to 5`."""
    for number in sorted(seen):
        if number > due:
            yield str(due) if number == due + 1 else f"{due} to {number - 1}"
        due = max(due, number + 1)


def oversized(
    ways: Iterable[Mapping[str, list[Sighting]]], most: int, most_bytes: int
) -> list[str]:
    """Return a sentence for each batch with more than `most` rows, or with several rows and more
    than `most_bytes` bytes.
    """
    batches: dict[tuple[str, int], list[int]] = defaultdict(list)
    for way in ways:
        for found in way["batch"]:
            if "batch" in found.columns:
                batches[found.origin, found.columns["batch"]].append(_size(found))
    return [
        f"batch {number} of {origin} has {len(sizes)} rows, but may have at most {most}"
        if len(sizes) > most
        else f"batch {number} of {origin} has {sum(sizes)} bytes, but may have at most {most_bytes}"
        for (origin, number), sizes in sorted(batches.items())
        if len(sizes) > most or (len(sizes) > 1 and sum(sizes) > most_bytes)
    ]


def _size(found: Sighting) -> int:
    """Return the size of a row: characters of the topic plus bytes of the payload."""
    return len(found.columns.get("topic") or "") + len(found.payload or b"")


def hasty(
    ways: Iterable[Mapping[str, list[Sighting]]],
    most: int,
    most_bytes: int,
    age_s: float,
    clocks: Clocks,
) -> list[str]:
    """Return a sentence for each batch that was cut too early: with fewer than `most` rows, with
    room for the run's largest row in `most_bytes`, and before a row had waited for `age_s` seconds.
    """
    batches: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for way in ways:
        for found in way["batch"]:
            if "written" in found.columns:
                size = _size(found)
                # the age of a row that no publisher of the run has sent is unknown
                first = _sampled(way["board"][0]) if way["board"] else -FAR
                row = first, found.columns["written"] * 1000, size
                batches[found.origin, found.columns["batch"]].append(row)
    largest = max((size for rows in batches.values() for _, _, size in rows), default=0)
    return [
        f"batch {number} of {origin} landed with {len(rows)} of {most} rows, but its oldest row was"
        f" only {waited:.2f} s old"
        for (origin, number), rows in sorted(batches.items())
        if len(rows) < most and sum(size for _, _, size in rows) + largest <= most_bytes
        for first, written, _ in [min(rows)]
        if (offset := clocks.offset()) is not None
        if (waited := (written - offset - first) / 1e9) < age_s - HASTY_S
    ]


def moved(found: Sighting, way: Mapping[str, list[Sighting]], before: str) -> str | None:
    """Return how a row differs from the same row at the earlier hop `before`, or None."""
    rows = {(one.origin, one.position): one for one in way[before]}
    row = rows.get((found.origin, found.position))
    if row is None:
        where = f"{found.origin} position {found.position}"
        seen = before == STAYS and rows
        return f"hop `{before}` has no row {where}" if seen else None
    for name in found.columns.keys() & row.columns.keys():
        if name != "client" and found.columns[name] != row.columns[name]:
            return f"its {name} is {found.columns[name]!r}, but was {row.columns[name]!r}"
    written = row.columns.get("written")
    if written is not None and abs(found.columns.get("landed", written) - written) > WRITTEN_US:
        return f"`landed` is {found.columns['landed']}, but its manifest was written at {written}"
    return None
