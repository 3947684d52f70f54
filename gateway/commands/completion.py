"""Shell completion of device names. In: the text typed so far. Out: names that begin with this
text. The list is empty if the names cannot be read; errors are ignored.
"""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

from gateway.commands.control_client import ask
from gateway.commands.options import running_folder
from gateway.commands.through_gateway import REGISTRY


def offers(words: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion function for typer. words: returns all words that may be completed."""

    def offered(incomplete: str) -> list[str]:
        with suppress(Exception):
            return sorted(word for word in words() if word.startswith(incomplete))
        return []

    return offered


def _devices() -> Iterable[str]:
    """Return the names of the device registry: from the running gateway, else from the registry's
    file.
    """
    folder = running_folder(None, None)
    with suppress(Exception):
        return [row["name"] for row in ask(folder, do="boards")]
    return _registered(folder)


def _registered(folder: Path) -> Iterable[str]:
    file = (folder / REGISTRY).absolute().as_uri()
    with closing(sqlite3.connect(f"{file}?mode=ro", uri=True)) as database:
        return [name for (name,) in database.execute("SELECT name FROM device")]


devices = offers(_devices)
