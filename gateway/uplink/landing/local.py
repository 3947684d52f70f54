"""A landing place in a folder of this machine, which may be mounted (NFS, SMB, USB).

A file is written under a hidden name, synced, and linked to its final name, which fails if the name
exists. If the file system has no links (FAT on a USB stick), a claim decides (`files.py`).
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from gateway.system.sync import sync
from gateway.uplink.landing.base import Way, only_epochs
from gateway.uplink.landing.files import FileLanding


class LocalLanding(FileLanding):
    """A landing place `file:///folder`, or a plain path."""

    ways = (Way.LINK, Way.CLAIM_FILE, Way.CLAIM_FOLDER)
    sets_aside = False

    def __init__(self, url: str, shared: bool = True) -> None:
        super().__init__(url, shared)
        self._root = Path(url.removeprefix("file://").removeprefix("local://")).absolute()

    def read_synced(self, name: str) -> bytes | None:
        """Sync the folder first, because a kill may have come between a link and its sync."""
        with self.attempt(f"read {name}"), suppress(FileNotFoundError):
            sync((self._root / name).parent)
        return self.read(name)

    def epochs(self, gateway: str) -> list[str]:
        with self.attempt(f"list {gateway}"):
            return only_epochs(self.names(gateway))

    def hint(self, error: Exception) -> str | None:
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS):
            return (
                "May this account write there? Under systemd, ReadWritePaths= of"
                " onceway-uplink.service must list the folder"
            )
        return None

    def get(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes) -> None:
        _make((self._root / path).parent)
        with (self._root / path).open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def move(self, old: str, new: str) -> None:
        os.replace(self._root / old, self._root / new)
        sync((self._root / new).parent)

    def swap(self, hidden: str, name: str) -> None:
        self.move(hidden, name)

    def link(self, old: str, new: str) -> None:
        os.link(self._root / old, self._root / new)
        sync((self._root / new).parent)

    def make_file(self, path: str) -> None:
        _make((self._root / path).parent)
        (self._root / path).open("xb").close()

    def make_folder(self, path: str) -> None:
        _make((self._root / path).parent)
        (self._root / path).mkdir()

    def remove(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        with suppress(FileNotFoundError):
            (self._root / path).rmdir()

    def stands(self, path: str) -> bool:
        try:
            (self._root / path).lstat()
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._root / folder)
        except FileNotFoundError:
            return []

    def trouble(self, error: Exception) -> bool:
        return not isinstance(error, OSError) or super().trouble(error)


def _make(folder: Path) -> None:
    """Create a folder and its parents. If root creates a folder, it belongs to the owner of the
    folder above.
    """
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        owner = folder.parent.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
