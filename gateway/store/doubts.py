"""Clients that were answered in doubt, for people who ask where a reading is.

In: a client, when it was, and which members of the site were silent. Out: the newest of them in
`DATA/in-doubt.json`. It is written some seconds later and without a sync, since no answer depends
on it: a power cut costs the last ones of a list that the log has, too.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gateway.system.logs import printable

log = logging.getLogger(__name__)

FILE = "in-doubt.json"
MOST = 1024
"""The oldest one goes then."""
LONGEST = 256
"""Characters of a client identifier; of a longer one nothing is kept."""
_MOST_BYTES = 8_000_000


class Doubt(NamedTuple):
    """at: µs since 1970, None while the clock was not known. silent: members; empty where a store
    had been restored, or where two members claimed to have the newest session.
    """

    client: str
    at: int | None
    silent: list[str]


def reason(silent: Sequence[str]) -> str:
    """Why somebody was answered in doubt, in words."""
    if not silent:
        return "a store had been restored, or two gateways claimed to have the newest session"
    return f"{', '.join(map(printable, silent))} did not answer"


def read(folder: Path) -> list[Doubt]:
    """The oldest first. None where there is no file; of a damaged one the log says so."""
    try:
        with (folder / FILE).open("rb") as file:
            found = [Doubt(*item) for item in json.loads(file.read(_MOST_BYTES))]
        kept = [item for item in found if _is_one(item)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        log.error("%s: clients that were in doubt cannot be read (%s)", folder / FILE, error)
        return []
    if len(kept) < len(found):
        text = "%s: %d entries of clients in doubt make no sense, and are left out"
        log.error(text, folder / FILE, len(found) - len(kept))
    return kept


def _is_one(item: Doubt) -> bool:
    return (
        isinstance(item.client, str)
        and isinstance(item.at, int | None)
        and isinstance(item.silent, list)
        and all(isinstance(name, str) for name in item.silent)
    )


def write(folder: Path, doubts: Iterable[Doubt]) -> None:
    """Raises OSError."""
    made = folder / f"{FILE}.new"
    made.write_text(json.dumps(list(doubts)))
    made.replace(folder / FILE)
