"""Checks what a run leaves behind: no temporary files, and no rows or files beyond the needed ones.
Also checks that no program uses more and more files, threads, memory or CPU. In: a history. Out: a
sentence for each mistake. Interrupted runs, and gateways that are gone for good, are not judged.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from hil.observe.history import Event, taking

EMPTY = ("spool", "retained", "will", "aside")
"""Tables that must be empty. In a run with [bridge], `retained` may have rows."""
ALONE = ("queue", "message", "given", "given_part", "journey", "place")
"""Tables that must be empty at a single gateway. In a site, they may hold other gateways' data."""
ACCOUNTED = {
    "batch_content": ("batch",),
    "flow": ("session",),
    "origin": ("session", "retained"),
    "content_check": ("retained", "will", "aside", "given_part"),
    "twin": ("batch", "given", "journey", "meta", "place", "session", "subscription"),
}
"""Limits of tables: each may have at most as many rows as the tables named with it have in sum."""
FEW = {"meta": 40, "spool_check": 2}
"""Tables that do not grow with a run, each with its largest number of rows."""
GROWING = ("batch", "session", "subscription", "mark")
"""Tables without a limit: their rows increase with the batches, or with the clients and boards."""
TEMPORARY = re.compile(r"(^|/)\.|\.(tmp|temp|new|part|partial|old|bak)$|~$|-journal$")
MOST_FILES = 40
"""Largest number of files in a gateway's folder, of all kinds together."""
MOST_ALIKE = 2
"""Largest number of files of one kind at the centre. GROWING_FILES have other limits."""
CENTRE_CUT = "power cut of the centre"
"""Name of a kind of fault. For each such fault, the ingest may set one checkpoint aside."""
SET_ASIDE = "checkpoint.aside-"
GROWING_FILES = {"/_delta_log/": 1_000_000, "/offsets/": 110, "/commits/": 110}
"""Largest number of files of a kind, by folder. A table's log grows; Spark keeps 100 files."""
LEAST_USED = 0.5
"""Smallest share of `spool.max_bytes` that a gateway must have used before it may refuse."""
QUOTA_EXCEEDED = 0x97
MOST_BATCHES = 50_000
"""Number of landed batches that a gateway remembers (gateway/store/README.md)."""
MOST_BYTES = 8_000_000
"""Largest size, in bytes, of any file of a gateway, such as the store's log. STORE is exempt."""
STORE = ("gateway.db",)
BRIDGE = "onceway-bridge:there"
"""Client identifier of the gateway's bridge."""
COMMANDER = "commander"
"""Client with which the rig sends commands."""
SPARE = 8
"""A program's open files, or its threads, may grow by this number, plus one for each peer."""
OPENED = {"descriptors": "files open", "threads": "threads", "memory": "bytes of memory"}
LEAK = {"gateway": 2_000_000, "uplink": 8_000_000}
"""Largest growth of a program's memory, in bytes. In benches, the growth is below 0.2 MB. But the
uplink of a site needs 6 MB more from the moment when it begins to land rows of another gateway.
"""
LOG_BYTES = 12_000_000
"""Largest size of the store's log, in bytes. It is truncated at 8 MB, or later if a reader delays
this (gateway/store/README.md)."""
MOST_STALE = 3
"""Largest value of `stale`. A commit that a full disk interrupts is written again later."""
BUSY = {"gateway": 0.4, "uplink": 0.15}
"""Largest share of a core that a program may use in the second half of its life, in addition to
PUBLICATION_S per publication."""
PUBLICATION_S = 0.008
"""Processor time per publication, in s. An uplink needed 2.3 ms at 80 publications a second."""
LEAST_LOOKS = 16
"""Fewest samples from which a process's growth is judged. Its CPU use needs half as many."""


def whole_run(events: Sequence[Event]) -> dict[str, Any] | None:
    """Return the event `run` of a run of Onceway that was not interrupted, else None."""
    over = any((one.hop, one.event) == ("rig", "end") for one in events)
    broken = any(one.hop == "rig" and one.event in ("stalled", "broken") for one in events)
    run = next((one.data for one in events if (one.hop, one.event) == ("rig", "run")), None)
    return None if run is None or broken or not over or "hops" in run else run


def dead_gateways(events: Sequence[Event]) -> set[str]:
    """Return the gateways that are gone for good."""
    return {f"gateway-{one.data['gateway']}" for one in events if "died" in one.data}


def wrong(events: Sequence[Event]) -> list[str]:
    if (run := whole_run(events)) is None:
        return []
    found: list[str] = []
    refused = any(e.event == "refused" and e.data["reason"] == QUOTA_EXCEEDED for e in events)
    cuts = sum(e.event == "happened" and e.data["kind"] == CENTRE_CUT for e in events)
    dead = dead_gateways(events)
    for event in events:
        if event.event == "remains" and event.hop not in dead:
            with taking(event):
                if event.hop == "landing":
                    found += _at_landing(event.data)
                elif event.hop == "ingest":
                    found += _at_centre(event.data, cuts)
                else:
                    found += [*_at(event, run), *_spooled(event, run, refused)]
    logs = {e.hop: e.data.get("log", 0) for e in events if e.event == "usage"}
    long = [name for name, size in logs.items() if size > LOG_BYTES]
    found += [f"{name} leaves more than {LOG_BYTES} bytes in the store's log" for name in long]
    stale = {e.hop for e in events if e.event == "usage" and e.data.get("stale", 0) > MOST_STALE}
    found += [f"{name} commits to a log that it does not sync" for name in sorted(stale)]
    return found + _opened(events, len(peers(run["bench"], run["plan"])))


def peers(bench: dict[str, Any], plan: dict[str, Any]) -> set[str]:
    """Return the client identifiers that may have a session at the end of a run."""
    names = {*plan["readings"], COMMANDER, *([BRIDGE] if bench.get("bridge") else [])}
    for kind in ("client", "subscriber"):
        count = sum(table.get("count", 1) for table in bench.get(kind, ()))
        names |= {f"{kind}-{number}" for number in range(1, count + 1)}
    return names


def _at(event: Event, run: dict[str, Any]) -> Iterator[str]:
    data, alone = event.data, not run["bench"].get("gateway")
    retains = any(table.get("retain") for table in run["bench"].get("client", ()))
    bridged = {"retained"} if retains or run["bench"].get("bridge") else set()
    yield from _not_empty(event, {*EMPTY, *(ALONE if alone else ())} - bridged)
    yield from _grown(event.hop, data["tables"] if alone else {})
    for name, size in data["files"].items():
        if size > MOST_BYTES and name not in STORE:
            yield f"{event.hop} has {size} bytes in its file {name}, more than {MOST_BYTES}"
    strange = sorted(set(data["sessions"]) - peers(run["bench"], run["plan"]))
    if strange and alone:  # gateways have sessions with each other, too
        yield f"{event.hop} has a session of {', '.join(strange)}, which is not a client of the run"
    for table, rows in data["orphans"].items():
        if rows:
            yield f"{event.hop} has {rows} row(s) of no session in its table {table}"
    if data["under_way"] and alone:
        clients = ", ".join(data["under_way"])
        yield f"{event.hop} keeps packet identifiers of {clients}, but no message is under way"
    if temporary := [file for file in data["files"] if TEMPORARY.search(file)]:
        yield f"{event.hop} has left temporary files: {', '.join(temporary)}"
    if (span := data.get("remembered", 0)) >= MOST_BATCHES:
        yield f"{event.hop} remembers the last {span + 1} batches, more than {MOST_BATCHES}"
    if len(data["files"]) > MOST_FILES:
        yield f"{event.hop} has {len(data['files'])} files in its folder, more than {MOST_FILES}"


def _not_empty(event: Event, tables: set[str]) -> Iterator[str]:
    for table in sorted(tables):
        if rows := event.data["tables"].get(table):
            yield f"{event.hop} has {rows} row(s) left in its table {table}"


def _grown(gateway: str, tables: dict[str, int]) -> Iterator[str]:
    """Yield a sentence for each table with more rows than FEW or ACCOUNTED allow. A table that no
    list names must be empty.
    """
    most = FEW | {name: sum(tables.get(one, 0) for one in of) for name, of in ACCOUNTED.items()}
    for table in sorted(tables.keys() - {*EMPTY, *ALONE, *GROWING}):
        if tables[table] > (due := most.get(table, 0)):
            yield f"{gateway} has {tables[table]} row(s) in its table {table}, but needs only {due}"


def _spooled(event: Event, run: dict[str, Any], refused: bool) -> Iterator[str]:
    """Yield a sentence if the spool broke its limit, or refused rows with too much of it unused."""
    most = run["bench"].get("config", {}).get("spool", {}).get("max_bytes")
    if most and (largest := event.data["largest"]) > most:
        yield f"{event.hop} had {largest} bytes in its spool, but may have only {most}"
    elif most and refused and largest < LEAST_USED * most:
        yield f"{event.hop} refused messages, but its spool had at most {largest} of {most} bytes"


def _at_centre(data: dict[str, Any], cuts: int) -> Iterator[str]:
    for kind, count in data["files"].items():
        most = [few for folder, few in GROWING_FILES.items() if folder in f"/{kind}"]
        most += [max(cuts, MOST_ALIKE)] if SET_ASIDE in kind else []
        if count > max(most, default=MOST_ALIKE):
            yield f"the ingest has left {count} files of the kind {kind}"


def _at_landing(data: dict[str, Any]) -> Iterator[str]:
    if data["strange"]:
        yield f"files at the landing place belong to no batch: {', '.join(data['strange'])}"


def _busy(
    events: Sequence[Event], used: dict[tuple[str, int], list[tuple[float, float]]]
) -> Iterator[str]:
    """Yield a sentence for each program that used more CPU in the second half of its life than BUSY
    and PUBLICATION_S allow. used: pairs of time and processor time in s, by program and process.
    """
    publications = [(one.hop, one.t / 1e9) for one in events if one.event == "publication"]
    for (program, _), looks in used.items():
        (since, before), (until, cpu) = looks[len(looks) // 2], looks[-1]
        work = Counter(hop for hop, when in publications if since <= when <= until)
        life = max(until - since, 1.0)
        due = BUSY[program.partition("-")[0]] + PUBLICATION_S * max(work.values(), default=0) / life
        if len(looks) >= LEAST_LOOKS // 2 and (share := (cpu - before) / life) > due:
            yield f"{program} used {share:.0%} of a core in the second half of its life"


def _opened(events: Sequence[Event], peers: int) -> list[str]:
    """Return a sentence for each program that uses too much CPU, or whose open files, threads or
    memory grow. For each process, the largest number in the first half of its life is compared with
    the smallest in the last quarter. peers: number of boards and clients of the run.
    """
    counted: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    used: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        for name in OPENED if event.event == "usage" else ():
            if name in event.data:
                counted[event.hop, event.data["pid"], name].append(event.data[name])
        if event.event == "usage" and "cpu" in event.data:
            used[event.hop, event.data["pid"]].append((event.t / 1e9, event.data["cpu"]))
    return [*_busy(events, used)] + [
        f"{program} had at most {first} {OPENED[name]} in the first half of its life,"
        f" but never fewer than {last} in the last quarter"
        for (program, _, name), counts in counted.items()
        if len(counts) >= LEAST_LOOKS
        for first in [max(counts[: len(counts) // 2])]
        for last in [min(counts[-(len(counts) // 4) :])]
        if last > first + (LEAK[program.partition("-")[0]] if name == "memory" else peers + SPARE)
    ]
