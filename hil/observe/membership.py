"""What a gateway says of the other members of its site, and what it has asked them.

In: its data folder. Out: rows of `onceway site status`, over the socket that the command asks.
"""

from pathlib import Path
from typing import Any

from gateway.errors import OncewayError
from gateway.service.control import NotRunning, ask


def rows(data: Path) -> list[dict[str, Any]]:
    """Of all members, itself first; none from one that does not answer."""
    try:
        return ask(data, do="site")
    except (NotRunning, OncewayError, OSError):
        return []


def sure_of(data: Path) -> set[str]:
    """The other members that it is in contact with, so that it decides nothing without them."""
    return {row["name"] for row in rows(data)[1:] if row["lease"]}


def marked(data: Path) -> int:
    """How often it has answered somebody while a member was silent that may have known better."""
    here = rows(data)[:1]
    return sum(int(row["figures"]["marked"]) for row in here)
