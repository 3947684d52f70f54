"""Files of a table on a local disk: their paths, and their durability in a power cut.

In: a table's folder, as Spark names it, and the written files. Out: fsync of files and folders;
nothing is done on other file systems.
"""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from gateway.system.sync import sync


def local_path(location: str) -> Path | None:
    """Return the folder of a local table; None on other file systems. In Spark's name of a folder,
    `#`, `?` and `%` are literal.
    """
    if urlsplit(location).scheme not in ("", "file"):
        return None
    return Path(location.removeprefix("file:"))


def write(path: Path, data: bytes) -> None:
    """Write a file atomically, and sync it. An existing file is replaced. Raises OSError."""
    hidden = path.with_name(f".{path.name}.new")
    hidden.write_bytes(data)
    sync(hidden)
    hidden.replace(path)
    sync(path.parent)


def settle_files(location: str, names: Iterable[str]) -> None:
    """Sync data files of a local table to the disk, before a commit names them."""
    table = local_path(location)
    if table is not None:
        sync_all(table, names)


def sync_all(folder: Path, names: Iterable[str]) -> None:
    """Sync files, given by their names relative to `folder`, and the folders that contain them."""
    folders = {folder}
    for name in names:
        sync(folder / name)
        folders.add((folder / name).parent)
    for each in folders:
        sync(each)
