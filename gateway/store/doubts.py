"""A record of the clients that were answered while their session was suspect, for people who search
for a reading.

In: a client, the time, and the silent members of the site. Out: the newest entries in
`DATA/in-doubt.json`. The file is written some seconds later and without a sync: no answer depends
on it, and after a power cut the log still has the last entries.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gateway.system.amounts import amount
from gateway.system.logs import printable

log = logging.getLogger(__name__)

FILE = "in-doubt.json"
MOST = 1024
"""Largest number of entries; beyond it the oldest is dropped."""
LONGEST = 256
"""Longest client identifier, in characters, whose suspect session is recorded."""
_MOST_BYTES = 8_000_000


class Doubt(NamedTuple):
    """One answer to a client whose session was suspect. at: time of the answer in µs since 1970,
    None if the clock was not set. silent: names of the silent members; empty after the restore of a
    store, or if two members claimed the newest session.
    """

    client: str
    at: int | None
    silent: list[str]


def reason(silent: Sequence[str]) -> str:
    """Return why a client's session was suspect, in words."""
    if not silent:
        return (
            "a store had been restored, or two gateways claimed to have the newest session, as"
            " after two changes of gateway within 0.3 s"
        )
    return f"{', '.join(map(printable, silent))} did not answer"


def read(folder: Path) -> list[Doubt]:
    """Return the entries, the oldest first. The list is empty if there is no file, or if it cannot
    be read, which is logged. Damaged entries are skipped and logged.
    """
    try:
        with (folder / FILE).open("rb") as file:
            found = [Doubt(*item) for item in json.loads(file.read(_MOST_BYTES))]
        kept = [item for item in found if _is_one(item)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        text = "%s: the record of suspect sessions cannot be read (%s)"
        log.error(text, folder / FILE, error)
        return []
    if len(kept) < len(found):
        text = "%s: %s of the record of suspect sessions skipped: not valid"
        log.error(text, folder / FILE, amount(len(found) - len(kept), "entry", "entries"))
    return kept


def _is_one(item: Doubt) -> bool:
    return (
        isinstance(item.client, str)
        and isinstance(item.at, int | None)
        and isinstance(item.silent, list)
        and all(isinstance(name, str) for name in item.silent)
    )
