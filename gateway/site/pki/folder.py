"""The files of a member about its site, readable only by the gateway's account.

In: the site's folder. Out: small files that are complete or absent, and on disk when a call
returns. The files belong to the owner of the folder, so the service can read files that root has
created.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.system.sync import sync

AUTHORITY = "authority.pem"
"""File with the key and the certificate of the site's authority, only on the first gateway."""
MEMBER = "member.pem"
"""File with the key and the certificate of this member, and the certificate of the authority. In
one file, a single step replaces all three.
"""
REMOVED = "removed.json"
INVITATIONS = "invitations"
RETURNED = "returned"
"""Name of an empty file. It exists if the site already knew this gateway's name when the gateway
joined. A store that names no members is then not the store that the gateway had before in the site.
"""
KEPT = (AUTHORITY, MEMBER, REMOVED)
"""Names of the files of this folder that a backup contains."""
_LOCK = "lock"


def make_folder(folder: Path) -> None:
    """Create a folder that belongs to the owner of its parent and is closed to all others."""
    try:
        if not folder.parent.is_dir():
            raise OncewayError(
                "there is no such folder", str(folder.parent), "Start the gateway once"
            )
        if not folder.is_dir():
            folder.mkdir(mode=0o700)
            _give(folder)
            sync(folder.parent)
    except OSError as error:
        raise _unusable(folder, error) from error


def replace(path: Path, data: bytes) -> None:
    hidden = _hidden(path, data)
    try:
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    sync(path.parent)


class WatchedFile:
    """A file that commands and the service replace. remedy: what to do about a damaged file."""

    def __init__(self, path: Path, remedy: str) -> None:
        self._path, self._remedy = path, remedy
        self._seen: tuple[int, int, int] | None = None

    def read(self, take: Callable[[bytes], bool]) -> bool:
        """If the file has changed since the last successful call, call `take` with its contents and
        return the answer of `take`. Return False if the file has not changed, or does not exist.
        Raises OncewayError if the file cannot be read, or `take` raises SiteError.
        """
        try:
            status = self._path.stat()
            seen = status.st_ino, status.st_mtime_ns, status.st_size
            if seen == self._seen:
                return False
            found = take(self._path.read_bytes())
        except FileNotFoundError:
            return False
        except OSError as error:
            raise OncewayError(f"cannot be read ({error.strerror})", str(self._path)) from error
        except SiteError as error:
            raise OncewayError(error.what, str(self._path), self._remedy) from error
        self._seen = seen
        return found


def remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
        sync(path.parent)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder for a `with` block: commands and the service change it one at a time."""
    path = folder / _LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not os.geteuid():
            _give(path)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def os_errors_explained(folder: Path) -> Iterator[None]:
    """Turn errors of the operating system into OncewayErrors."""
    try:
        yield
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: OSError) -> OncewayError:
    text = f"the site's files cannot be used ({error.strerror or error})"
    return OncewayError(text, str(folder), "Run the command with sudo, or as the gateway's account")


def _hidden(path: Path, data: bytes) -> Path:
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _give(hidden)
    except BaseException:
        hidden.unlink()
        raise
    return hidden


def _give(path: Path) -> None:
    if not os.geteuid():
        above = path.parent.stat()
        os.chown(path, above.st_uid, above.st_gid)
