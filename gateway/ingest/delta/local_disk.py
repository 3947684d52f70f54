"""Files of a table on a local disk: where they are, and that they stay there in a power cut.

In: a table's folder, as Spark names it, and what was written there. Out: fsync of files and
folders; nothing is done on other file systems.
"""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from gateway.system.sync import sync


def local_path(location: str) -> Path | None:
    """The folder of a local table; None on other file systems. Spark names a folder as it is
    called: `#`, `?`, `%` stand for themselves.
    """
    if urlsplit(location).scheme not in ("", "file"):
        return None
    return Path(location.removeprefix("file:"))


def write(path: Path, data: bytes) -> None:
    """Put a file there, whole and at once, in place of what is there. Raises OSError."""
    hidden = path.with_name(f".{path.name}.new")
    hidden.write_bytes(data)
    sync(hidden)
    hidden.replace(path)
    sync(path.parent)


def settle_files(location: str, names: Iterable[str]) -> None:
    """Data files that a commit is about to name are on the disk when this returns."""
    table = local_path(location)
    if table is not None:
        sync_all(table, names)


def sync_all(folder: Path, names: Iterable[str]) -> None:
    """Files of a folder, by their names, and the folders they are in."""
    folders = {folder}
    for name in names:
        sync(folder / name)
        folders.add((folder / name).parent)
    for each in folders:
        sync(each)
