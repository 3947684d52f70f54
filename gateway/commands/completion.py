"""Words that a shell offers beside commands and options. In: what is typed so far. Out: names that
begin with it; nothing where they cannot be known. A failure is no word to offer.
"""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

from gateway.commands.control_client import ask
from gateway.commands.options import running_folder
from gateway.commands.through_gateway import REGISTRY


def offers(words: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return what typer asks for the words that begin with what is typed."""

    def offered(incomplete: str) -> list[str]:
        with suppress(Exception):
            return sorted(word for word in words() if word.startswith(incomplete))
        return []

    return offered


def _devices() -> Iterable[str]:
    """Names in the device registry: of the running gateway, else of the file."""
    folder = running_folder(None, None)
    with suppress(Exception):
        return [row["name"] for row in ask(folder, do="boards")]
    return _registered(folder)


def _registered(folder: Path) -> Iterable[str]:
    file = (folder / REGISTRY).absolute().as_uri()
    with closing(sqlite3.connect(f"{file}?mode=ro", uri=True)) as database:
        return [name for (name,) in database.execute("SELECT name FROM device")]


devices = offers(_devices)
