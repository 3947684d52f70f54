"""A landing place in a folder: of this machine, or mounted (NFS, SMB, USB).

A file is written under a hidden name, synced, and linked to its final name, which fails when the
name is taken. Where the file system has no links (FAT on a USB stick), it is renamed after a look.
"""

import errno
import os
import secrets
from pathlib import Path

from gateway.sync import sync
from gateway.uplink.landing.base import INCOMING, Landing, only_epochs

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class LocalLanding(Landing):
    """`file:///folder`, or a plain path."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._root = Path(url.removeprefix("file://").removeprefix("local://")).absolute()
        self._token = secrets.token_hex(4)

    def read(self, name: str) -> bytes | None:
        with self.attempt(f"read {name}"):
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

    def create(self, name: str, data: bytes) -> bool:
        with self.attempt(f"write {name}"):
            final = self._root / name
            hidden = self._hide(name, data)
            try:
                os.link(hidden, final)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if final.exists():
                    return False
                hidden.rename(final)
            finally:
                hidden.unlink(missing_ok=True)
            sync(final.parent)
            return True

    def replace(self, name: str, data: bytes) -> None:
        with self.attempt(f"write {name}"):
            final = self._root / name
            self._hide(name, data).replace(final)
            sync(final.parent)

    def epochs(self, gateway: str) -> list[str]:
        with self.attempt(f"list {gateway}"):
            folder = self._root / gateway
            return only_epochs(path.name for path in folder.iterdir()) if folder.exists() else []

    def tidy(self, folder: str) -> None:
        with self.attempt("tidy up"):
            for path in (self._root / folder / INCOMING).glob("*"):
                path.unlink(missing_ok=True)

    def hint(self, error: Exception) -> str | None:
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS):
            return (
                "May this account write there? Under systemd the folder stands in ReadWritePaths="
                " of onceway-uplink.service"
            )
        return None

    def _hide(self, name: str, data: bytes) -> Path:
        """Write and sync under a hidden name beside the final one."""
        folder = (self._root / name).parent / INCOMING
        _make(folder)
        hidden = folder / f"{Path(name).name}-{self._token}"
        with hidden.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return hidden


def _make(folder: Path) -> None:
    """With those above it. Root makes them for the owner of the place."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        owner = folder.parent.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
