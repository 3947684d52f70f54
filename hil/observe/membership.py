"""Reports of a gateway about the other members of its site. In: its data folder. Out: the rows of
`onceway site status`, from the same socket as that command.
"""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.commands.control_client import NotRunning, ask
from gateway.errors import OncewayError

CONTACT_WITHIN = 60.0  # s, on a busy machine
LOOK_EVERY = 0.1  # s


def rows(data: Path) -> list[dict[str, Any]]:
    """Return a row per member, the gateway's own row first; no rows if it does not answer."""
    try:
        return ask(data, do="site")
    except (NotRunning, OncewayError, OSError):
        return []


def members_in_contact(data: Path) -> set[str]:
    """Return the members that have given the gateway a lease."""
    return {row["name"] for row in rows(data)[1:] if row["lease"]}


def suspect_answers(data: Path) -> int:
    """Return the number of answers to clients with a suspect session since the gateway's start."""
    own = rows(data)[:1]
    return sum(int(row["figures"]["marked"]) for row in own)


async def wait_for_contact(folders: Mapping[str, Path]) -> list[str]:
    """Wait until all gateways have leases from each other. folders: their data folders, by name.
    Return the names of the gateways that lack a lease after CONTACT_WITHIN.
    """

    def alone() -> list[str]:
        return [
            name for name, at in folders.items() if folders.keys() - members_in_contact(at) - {name}
        ]

    deadline = time.monotonic() + CONTACT_WITHIN
    names = await asyncio.to_thread(alone)
    while names and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_EVERY)
        names = await asyncio.to_thread(alone)
    return names
