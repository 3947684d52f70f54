"""A landing place on an SFTP server.

A file is written under a hidden name, synced if the server supports it (fsync@openssh.com), and
renamed. SFTP cannot sync a folder. But if a file is synced again after its rename, a file system
with a journal also writes the rename, and all earlier ones (`read_synced`; tried with ext4).

SFTP's own rename (draft-ietf-secsh-filexfer-02, section 6.5) fails if the new name exists, on a
server that follows the draft, as OpenSSH does. Other servers replace the existing file; on such a
server a hard link (hardlink@openssh.com) or a claim decides (`files.py`). SSH protects each byte in
transit (RFC 4253, section 6.4), so only the size is checked afterwards, on the same connection.
After an interruption, the whole file is compared.

The server must be known: its key is looked up in ~/.ssh/known_hosts, or in the file of the option
`known_hosts`.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncssh
from fsspec.asyn import sync
from sshfs import SSHFileSystem

from gateway.uplink.landing.base import Way, only_epochs, patience
from gateway.uplink.landing.files import FileLanding

T = TypeVar("T")

_MISSING = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath)
_NO_ANSWER = (
    asyncssh.SFTPNoConnection,
    asyncssh.SFTPConnectionLost,
    asyncssh.SFTPNoSpaceOnFilesystem,
    asyncssh.SFTPQuotaExceeded,
)
_DENIED = (asyncssh.SFTPOpUnsupported, asyncssh.SFTPPermissionDenied)
"""Errors of a server that does not support an operation, or forbids it in general."""
_ONLY_NEW = asyncssh.FXF_WRITE | asyncssh.FXF_CREAT | asyncssh.FXF_EXCL

_BLOCK = 256 * 1024
"""Number of bytes per request when a file is read."""


class SftpLanding(FileLanding):
    """A landing place `sftp://user@host:port/folder`. options: options of asyncssh.connect, such as
    client_keys = ["/etc/onceway/id_ed25519"].
    """

    ways = (Way.RENAME, Way.LINK, Way.CLAIM_FILE, Way.CLAIM_FOLDER)

    def __init__(self, url: str, options: dict[str, Any], shared: bool = True) -> None:
        super().__init__(url, shared)
        defaults = {
            "known_hosts": (),
            "keepalive_interval": 15,
            "connect_timeout": patience(),
            "login_timeout": patience(),
        }
        self._mover: Callable[[str, str], None] | None = None
        with self.attempt("connect"):
            arguments = {
                **defaults,
                **SSHFileSystem._get_kwargs_from_urls(url),
                **options,
                "skip_instance_cache": True,
            }
            self._fs = SSHFileSystem(**arguments)
            self._root = SSHFileSystem._strip_protocol(url).rstrip("/")
            self._sftp = self._wait(self._fs.client.start_sftp_client)

    def holds(self, name: str, data: bytes) -> bool:
        async def has_size() -> bool:
            return bool((await self._sftp.stat(self._path(name))).size == len(data))

        with self.attempt(f"look at {name}"):
            return self._wait(has_size)

    def read_synced(self, name: str) -> bytes | None:
        with self.attempt(f"read {name}"):
            return self._get(name, synced=True)

    def move_marker(self, old: str | None, new: str) -> bool:
        """Rename the marker `old` to `new`, with one request. Create `new` if there is no `old`."""

        async def move() -> None:
            if old is not None:
                with suppress(asyncssh.SFTPNoSuchFile):
                    await self._sftp.rename(self._path(old), self._path(new))
                    return
            try:
                file = await self._sftp.open(self._path(new), "wb")
            except asyncssh.SFTPNoSuchFile:
                await self._make_above(new)
                file = await self._sftp.open(self._path(new), "wb")
            await file.close()

        with self.attempt(f"write {new}"):
            self._wait(move)
        return True

    def epochs(self, gateway: str) -> list[str]:
        with self.attempt(f"list {gateway}"):
            return only_epochs(self.names(gateway))

    def hint(self, error: Exception) -> str | None:
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return (
                "If it is the right server, put its key into the known_hosts file (ssh-keyscan"
                " shows it)"
            )
        if isinstance(error, PermissionError):
            return "Does the server know the key that client_keys in [uplink.options] names?"
        return None

    def close(self) -> None:
        self._fs.loop.call_soon_threadsafe(self._fs.client.abort)

    def get(self, path: str) -> bytes | None:
        """Return the bytes of a file up to its end, whatever size the server reports. None if it
        does not exist.
        """
        return self._get(path)

    def _get(self, path: str, synced: bool = False) -> bytes | None:
        async def read() -> bytes | None:
            found = bytearray()
            try:
                async with self._sftp.open(self._path(path), "rb") as file:
                    if synced:
                        with suppress(asyncssh.SFTPError):  # some sync no file opened for reading
                            await file.fsync()
                    while part := await file.read(_BLOCK, len(found)):
                        found += part
                    return bytes(found)
            except _MISSING:
                return None

        return self._wait(read)

    def put(self, path: str, data: bytes) -> None:
        async def write() -> None:
            async with await self._open(path, "wb") as file:
                await file.write(data)
                with suppress(asyncssh.SFTPOpUnsupported):
                    await file.fsync()

        self._wait(write, len(data))

    def move(self, old: str, new: str) -> None:
        """Rename a file by the first of three operations that the server supports and allows. This
        operation is used from then on, because the result of `proof` applies only to it.
        """
        if self._mover is None and self._way is Way.RENAME:
            self._mover = self._rename  # proven by an earlier connection
        if self._mover is not None:
            return self._mover(old, new)
        for operation in (self._rename, self._posix_rename):
            try:
                operation(old, new)
            except _DENIED:
                if self.stands(new):
                    raise
            else:
                self._mover = operation
                return None
        self._link_and_remove(old, new)
        self._mover = self._link_and_remove
        return None

    def swap(self, hidden: str, name: str) -> None:
        try:
            self._posix_rename(hidden, name)
        except _DENIED:
            super().swap(hidden, name)

    def _rename(self, old: str, new: str) -> None:
        self._wait(lambda: self._sftp.rename(self._path(old), self._path(new)))

    def _posix_rename(self, old: str, new: str) -> None:
        self._wait(lambda: self._sftp.posix_rename(self._path(old), self._path(new)))

    def _link_and_remove(self, old: str, new: str) -> None:
        self.link(old, new)
        self.remove(old)

    def link(self, old: str, new: str) -> None:
        self._wait(lambda: self._sftp.link(self._path(old), self._path(new)))

    def make_file(self, path: str) -> None:
        async def make() -> None:
            await (await self._open(path, _ONLY_NEW)).close()

        self._wait(make)

    def make_folder(self, path: str) -> None:
        async def make() -> None:
            try:
                await self._sftp.mkdir(self._path(path))
            except _MISSING:
                await self._make_above(path)
                await self._sftp.mkdir(self._path(path))

        self._wait(make)

    def remove(self, path: str) -> None:
        with suppress(*_MISSING):
            self._wait(lambda: self._sftp.remove(self._path(path)))

    def remove_folder(self, path: str) -> None:
        with suppress(*_MISSING):
            self._wait(lambda: self._sftp.rmdir(self._path(path)))

    def stands(self, path: str) -> bool:
        async def stands() -> bool:
            try:
                await self._sftp.lstat(self._path(path))
            except _MISSING:
                return False
            return True

        return self._wait(stands)

    def names(self, folder: str) -> list[str]:
        async def names() -> list[str]:
            with suppress(*_MISSING):
                return [str(name) for name in await self._sftp.listdir(self._path(folder))]
            return []

        return [name for name in self._wait(names) if name not in (".", "..")]

    def trouble(self, error: Exception) -> bool:
        return isinstance(error, _NO_ANSWER) or not isinstance(error, asyncssh.SFTPError)

    async def _open(self, path: str, mode: str | int) -> Any:
        """Open a file. If its folder is missing, create the folder and try again."""
        try:
            return await self._sftp.open(self._path(path), mode)
        except _MISSING:
            await self._make_above(path)
            return await self._sftp.open(self._path(path), mode)

    async def _make_above(self, path: str) -> None:
        try:
            await self._sftp.makedirs(self._path(path).rpartition("/")[0], exist_ok=True)
        except asyncssh.SFTPError:  # says "/ is not a directory" even if "/" is only unreadable
            await self._sftp.stat("/")
            raise

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _wait(self, function: Callable[[], Awaitable[T]], size: int = 0) -> T:
        """Run a coroutine function in the event loop of the file system's thread, and return its
        result. size: number of bytes that the operation transfers, for its timeout.
        """
        result: T = sync(self._fs.loop, function, timeout=patience(size))
        return result
