"""Checks the lists of devices that gateways publish for the centre (gateway/ingest/README.md).

In: the lists' rows at each hop, and the boards that the rig has put into the registry. Out: a
sentence for each list that names an unregistered board, is lost or altered on its way, or is in the
table twice.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hil.judge.publication import Sighting
from hil.observe.history import HOPS

TOPIC = "onceway/devices"
Way = dict[str, list[Sighting]]


def way() -> Way:
    return {hop: [] for hop in HOPS}


def wrong(
    listed: Mapping[tuple[str, int], Way],
    copied: Collection[str],
    devices: Collection[str],
    claim: str | None,
    boards: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> list[str]:
    """Return a sentence for each mistake in the lists of devices. listed: sightings of each list by
    hop. A list is named by its origin and its position in the store. copied: origins with copies
    that a fault has changed. devices: names of the boards. claim: hop that each list in a spool
    must have reached; None if lists may be missing. boards: registry entries of each board that the
    rig has provisioned itself; each list must have one of them.
    """
    mistakes = []
    for (origin, position), found in sorted(listed.items()):
        if origin in copied:
            continue
        name = f"the list of devices at {position} of {origin}"
        payloads = {one.payload for hop in found.values() for one in hop}
        if len(payloads) > 1:
            mistakes.append(f"{name} has {len(payloads)} different contents")
        mistakes += [
            f"{name} names {', '.join(strange)}, but the rig has added no such board"
            for payload in payloads
            if (strange := sorted(_names(payload) - set(devices)))
        ]
        mistakes += [
            f"{name} has another entry of {board} than the registry"
            for payload in payloads
            for board, entries in (boards or {}).items()
            if _entry(payload, board) not in entries
        ]
        if claim and found["spool"] and not found[claim]:
            mistakes.append(f"{name} did not reach the hop `{claim}`")
        if len(found["table"]) > 1:
            mistakes.append(f"{name} is in the table {len(found['table'])} times")
    return mistakes


def _names(payload: bytes | None) -> set[str]:
    try:
        return {row["name"] for row in json.loads(payload or b"")}
    except (ValueError, TypeError, KeyError):
        return {"a message that is not a list"}


def _entry(payload: bytes | None, board: str) -> dict[str, Any] | None:
    try:
        return next((dict(row) for row in json.loads(payload or b"") if row["name"] == board), None)
    except (ValueError, TypeError, KeyError):
        return None
