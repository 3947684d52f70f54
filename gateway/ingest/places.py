"""Places on a command line: landing zone, tables, checkpoint.

In: a folder, a URL, or a table's name in a catalog, as typed. Out: the same text. A text is refused
if Spark and the readers without Spark would understand it differently, or if it names an unintended
folder.
"""

import argparse
import re

import typer

_REFUSED = [
    (r"", "it is empty. Perhaps a shell variable is not set"),
    (r"/+|file:/+", "it is the root folder"),
    (r"delta\.`.*", "leave out delta.` ` and write the path alone"),
    (r"file:[^/].*", "a file: URL needs an absolute path, such as file:/srv/lake"),
    (r"file://[^/].*", "a file: URL names no machine: file:///srv/lake"),
]
"""Regular expressions for whole texts that are refused, each with the reason."""


def flaw(text: str) -> str | None:
    """Return the reason why this text is refused as a place, or None if it is accepted."""
    return next(
        (why for pattern, why in _REFUSED if re.fullmatch(pattern, text.strip(), re.IGNORECASE)),
        None,
    )


def typed(text: str) -> str:
    """Check a place in the options of a Spark job, and return it. Raises ArgumentTypeError."""
    if (why := flaw(text)) is not None:
        raise argparse.ArgumentTypeError(f"{text!r}: {why}")
    return text


def option(text: str | None) -> str | None:
    """Check a place in the options of `onceway ingest`, and return it. Raises BadParameter."""
    if text is not None and (why := flaw(text)) is not None:
        raise typer.BadParameter(f"{text!r}: {why}")
    return text


def local_folder(text: str) -> str | None:
    """Return the path of a folder on this machine; None for another URL."""
    path = re.sub(r"^file:(//)?(?=/)", "", text)
    return None if "://" in path else path
