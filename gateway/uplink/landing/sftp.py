"""A landing place on an SFTP server.

A file is written under a hidden name, synced where the server can (fsync@openssh.com), and renamed.
SFTP's own rename (draft-ietf-secsh-filexfer-02, section 6.5) fails when the new name is taken; only
the extension posix-rename@openssh.com overwrites. SSH protects each byte on its way (RFC 4253,
section 6.4), so the size is all that is asked back.

The server must be known: its key is looked up in ~/.ssh/known_hosts, or in the file that the option
`known_hosts` names.
"""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncssh
from fsspec.asyn import sync
from sshfs import SSHFileSystem

from gateway.uplink.landing.base import INCOMING, Landing, only_epochs, patience

T = TypeVar("T")


class SftpLanding(Landing):
    """`sftp://user@host:port/folder`. options: as of asyncssh.connect, such as client_keys =
    ["/etc/onceway/id_ed25519"].
    """

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        super().__init__(url)
        self._token = secrets.token_hex(4)
        defaults = {
            "known_hosts": (),
            "keepalive_interval": 15,
            "connect_timeout": patience(),
            "login_timeout": patience(),
        }
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

    def read(self, name: str) -> bytes | None:
        async def read() -> bytes | None:
            try:
                async with self._sftp.open(self._path(name), "rb") as file:
                    return bytes(await file.read())
            except asyncssh.SFTPNoSuchFile:
                return None

        with self.attempt(f"read {name}"):
            return self._wait(read)

    def create(self, name: str, data: bytes) -> bool:
        async def create() -> bool:
            hidden = await self._hide(name, data)
            try:
                await self._sftp.rename(hidden, self._path(name))
            except asyncssh.SFTPError:
                taken = await self._sftp.exists(self._path(name))
                await self._sftp.remove(hidden)
                if not taken:
                    raise
                return False
            return True

        with self.attempt(f"write {name}"):
            return self._wait(create, len(data))

    def replace(self, name: str, data: bytes) -> None:
        async def replace() -> None:
            hidden = await self._hide(name, data)
            try:
                await self._sftp.posix_rename(hidden, self._path(name))
            except asyncssh.SFTPOpUnsupported:
                if await self._sftp.exists(self._path(name)):
                    await self._sftp.remove(self._path(name))
                await self._sftp.rename(hidden, self._path(name))

        with self.attempt(f"write {name}"):
            self._wait(replace, len(data))

    def holds(self, name: str, data: bytes) -> bool:
        async def has_size() -> bool:
            return bool((await self._sftp.stat(self._path(name))).size == len(data))

        with self.attempt(f"look at {name}"):
            return self._wait(has_size)

    def move_marker(self, old: str | None, new: str) -> bool:
        """One round trip, but for the first one of a connection."""

        async def move() -> None:
            if old is not None:
                with suppress(asyncssh.SFTPNoSuchFile):
                    await self._sftp.rename(self._path(old), self._path(new))
                    return
            try:
                file = await self._sftp.open(self._path(new), "wb")
            except asyncssh.SFTPNoSuchFile:
                folder = self._path(new).rpartition("/")[0]
                await self._sftp.makedirs(folder, exist_ok=True)
                file = await self._sftp.open(self._path(new), "wb")
            await file.close()

        with self.attempt(f"write {new}"):
            self._wait(move)
        return True

    def epochs(self, gateway: str) -> list[str]:
        async def names() -> list[str]:
            with suppress(asyncssh.SFTPNoSuchFile):
                return [str(name) for name in await self._sftp.listdir(self._path(gateway))]
            return []

        with self.attempt(f"list {gateway}"):
            return only_epochs(self._wait(names))

    def tidy(self, folder: str) -> None:
        async def tidy() -> None:
            incoming = f"{self._path(folder)}/{INCOMING}"
            with suppress(asyncssh.SFTPNoSuchFile):
                for name in await self._sftp.listdir(incoming):
                    if name not in (".", ".."):
                        await self._sftp.remove(f"{incoming}/{name}")

        with self.attempt("tidy up"):
            self._wait(tidy)

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

    async def _hide(self, name: str, data: bytes) -> str:
        """Write and sync under a hidden name beside the final one. Folders are made when they turn
        out to be missing, not looked for.
        """
        folder, _, stem = self._path(name).rpartition("/")
        hidden = f"{folder}/{INCOMING}/{stem}-{self._token}"
        try:
            file = await self._sftp.open(hidden, "wb")
        except asyncssh.SFTPNoSuchFile:
            await self._sftp.makedirs(f"{folder}/{INCOMING}", exist_ok=True)
            file = await self._sftp.open(hidden, "wb")
        async with file:
            await file.write(data)
            with suppress(asyncssh.SFTPOpUnsupported):
                await file.fsync()
        return hidden

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _wait(self, function: Callable[[], Awaitable[T]], size: int = 0) -> T:
        """Run a coroutine that carries `size` bytes on the file system's event loop, in its
        thread.
        """
        result: T = sync(self._fs.loop, function, timeout=patience(size))
        return result
